// Guests in a trace, by its PIP packets (NR: VMX non-root operation; Intel SDM vol. 3, "Paging Information
// (PIP) Packet").
#pragma once
#include <cstdint>
#include <optional>
#include <span>

namespace asof::x86 {

// Where the first PIP of a guest is in the bytes of a segment (Segment::begin to end), which begin at a
// sync point. Damage ends the search. Nothing: there is none, as far as PIPs show (user code alone has none).
std::optional<uint64_t> find_guest_pip(std::span<const uint8_t> segment);

}  // namespace asof::x86
