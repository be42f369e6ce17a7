#include "tools/output/format.h"
#include "textstore/plain_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace asof {

std::string format_time(Time t, bool nanoseconds) {
  if (t == kTimeMin || t == kTimeMax) return "-";
  const bool negative = t < 0;
  const uint64_t ns = negative ? 0 - static_cast<uint64_t>(t) : static_cast<uint64_t>(t);
  const char* sign = negative ? "-" : "";
  if (nanoseconds) return fmt::format("{}{}.{:09}", sign, ns / 1'000'000'000, ns % 1'000'000'000);
  return fmt::format("{}{}.{:06}", sign, ns / 1'000'000'000, ns % 1'000'000'000 / 1000);
}

std::string format_interval(Time from, Time until) {
  return fmt::format("{} .. {}", from == kTimeMin ? "start" : format_time(from),
                     until == kTimeMax ? "end" : format_time(until));
}

std::string format_ratio(uint64_t a, uint64_t b, Rounding rounding) {
  if (b == 0) return "-";
  const auto all = static_cast<unsigned __int128>(a) * 100 + (rounding == Rounding::kUp ? b - 1 : 0);
  const auto hundredths = static_cast<uint64_t>(all / b);
  return fmt::format("{}.{:02}", hundredths / 100, hundredths % 100);
}

std::string format_count(uint64_t n) {
  const std::string digits = std::to_string(n);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i != 0 && (digits.size() - i) % 3 == 0) out += ' ';
    out += digits[i];
  }
  return out;
}

std::string format_duration(uint64_t ns) {
  const auto n = static_cast<double>(ns);
  if (ns < 1'000) return fmt::format("{} ns", ns);
  if (ns < 1'000'000) return fmt::format("{:.1f} us", n / 1e3);
  if (ns < 1'000'000'000) return fmt::format("{:.1f} ms", n / 1e6);
  return fmt::format("{:.2f} s", n / 1e9);
}

std::string format_size(uint64_t bytes) {
  constexpr uint64_t kKibi = 1024;
  const auto n = static_cast<double>(bytes);
  if (bytes < 10 * kKibi) return format_plural(bytes, "byte", "bytes");
  if (bytes < kKibi * kKibi) return fmt::format("{:.1f} KiB", n / 1024);
  if (bytes < kKibi * kKibi * kKibi) return fmt::format("{:.1f} MiB", n / (1024 * 1024));
  return fmt::format("{:.1f} GiB", n / (1024 * 1024 * 1024));
}

std::string format_bytes(std::span<const uint8_t> bytes) {
  std::string out;
  for (const uint8_t b : bytes)
    fmt::format_to(std::back_inserter(out), "{}{:02x}", out.empty() ? "" : " ", b);
  return out;
}

std::string format_plural(uint64_t n, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", format_count(n), n == 1 ? one : many);
}

double floored_percent(double share, int digits) {
  const double scale = std::pow(10, digits);
  return std::min(std::floor(share * scale), 100 * scale - 1) / scale;
}

std::string format_origin(const TextStore& store, OriginRef ref) {
  if (is_poke(ref))
    return fmt::format("{}poke #{}", is_before_poke(ref) ? "before " : "", poke_index(ref) + 1);
  if (ref == kNoOrigin) return "unknown";
  const Origin& o = store.origin(ref);
  const auto with_id = [&](std::string text) {
    return o.build_id.empty() ? text : fmt::format("{} [build-id {}]", text, plain_text(o.build_id));
  };
  switch (o.kind) {
    case OriginKind::kKcore:
      return "kcore";
    case OriginKind::kKcoreEnd:
      return "kcore at the end";
    case OriginKind::kWatcher:
      return o.name.empty() ? "watcher" : fmt::format("watcher \"{}\"", plain_text(o.name));
    case OriginKind::kFile:
      return with_id(plain_text(o.name));
    case OriginKind::kVdso:
      return with_id("vdso");
    case OriginKind::kBpfImage:
      return fmt::format("bpf prog id {} \"{}\"", o.id, plain_text(o.name));
    case OriginKind::kRaw:
      return o.name.empty() ? "raw text" : fmt::format("raw text {}", plain_text(o.name));
    case OriginKind::kJit:
      return o.name.empty() ? "jit" : fmt::format("jit {}", plain_text(o.name));
    case OriginKind::kPoke:
      return "poke";
    case OriginKind::kUnknown:
      break;
  }
  return o.name.empty() ? "unknown" : fmt::format("unknown ({})", plain_text(o.name));
}

std::string_view confidence_name(Confidence c) {
  static constexpr std::array<std::string_view, 5> kNames{"certain", "proved", "equivalent", "ambiguous",
                                                          "contradiction"};
  const auto i = static_cast<size_t>(c);
  return i < kNames.size() ? kNames[i] : "unknown";
}

}  // namespace asof
