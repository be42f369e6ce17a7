// The extent of code whose beginning alone is known: records of BPF trampolines always say a page
// (kernel/bpf/core.c bpf_image_ksym_add()), kallsyms has no lengths, and other code follows (since Linux 6.9
// trampolines are in one pack with programs).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "textstore/address.h"

namespace asof {

// Bytes from `at` on that are one piece of code: up to the first return or jump that no branch before it goes
// beyond, or to the first bytes that are no instruction. Indirect jumps end it, too. `arm64`: A64, else
// x86-64.
size_t code_extent(std::span<const uint8_t> bytes, Addr at, bool arm64);

}  // namespace asof
