// Small pieces of text that several verbs print alike: times, counts, durations, hex bytes.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "arch/arch.h"
#include "textstore/origin.h"
#include "textstore/text_store.h"
#include "textstore/time.h"

namespace asof {

// "12.345678901"; "-" for a time that is not known.
std::string format_time(Time t, bool nanoseconds = true);
// Ends of a validity: "start" and "end" where they are open.
std::string format_interval(Time from, Time until);
// "12 431 882"
std::string format_count(uint64_t n);
// "1.1 ms", "17 ns", "3.25 s"
std::string format_duration(uint64_t ns);
// "64 KiB", "312 bytes"
std::string format_size(uint64_t bytes);
// a / b with two decimals, cut, or, as an upper bound, raised; "-" for b 0.
enum class Rounding : uint8_t { kDown, kUp };
std::string format_ratio(uint64_t a, uint64_t b, Rounding rounding = Rounding::kDown);
// "0f 1f 44 00 00"
std::string format_bytes(std::span<const uint8_t> bytes);
// "2 errors", "1 error"
std::string format_plural(uint64_t n, std::string_view one, std::string_view many);

// A share, in percent, of which something is known to be missing: cut to this many digits, and less than 100.
double floored_percent(double share, int digits);

// Where bytes came from: "kcore", "poke #17", "bpf prog id 7 "name"", "/bin/true [build-id 12ab...]". Pokes
// count from 1.
std::string format_origin(const TextStore& store, OriginRef origin);

std::string_view confidence_name(Confidence c);

}  // namespace asof
