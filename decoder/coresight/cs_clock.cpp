#include "decoder/coresight/cs_clock.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "arch/arm64/packet.h"

namespace asof {
namespace {

using arm64::Packet;
using arm64::Pk;
using Real = long double;  // 64 bits of mantissa: counters and times do not lose their last digits

// Bytes searched for a last timestamp at the end of a piece.
constexpr uint64_t kWindow = uint64_t{64} * 1024;
constexpr int kSteps = 80;              // of the bisection: beyond the precision of Real
constexpr Real kWorstPart = 1.0L / 20;  // of the recording that the error may be
constexpr Time kRounding = 2;           // ns, of the conversion's integers

// Timestamps in packets from the first A-Sync on. A Trace Info sets what later packets leave out to 0.
class Timestamps {
 public:
  Timestamps(std::span<const uint8_t> bytes, const arm64::PacketFormat& format)
      : bytes_(bytes), format_(format), at_(arm64::find_async(bytes, 0)) {}

  std::optional<uint64_t> next() {
    while (at_ < bytes_.size()) {
      const uint8_t* end = bytes_.data() + bytes_.size();
      const Packet p = arm64::read_packet(bytes_.data() + at_, end, format_, threshold_);
      if (p.type == Pk::kEnd || p.type == Pk::kBad || p.size == 0) break;
      at_ += p.size;
      if (p.type == Pk::kTraceInfo) {
        value_ = 0;
        threshold_ = p.count;
      }
      if (p.type != Pk::kTimestamp) continue;
      const uint64_t mask = p.value_bits >= 64 ? ~0ULL : (1ULL << p.value_bits) - 1;
      value_ = (value_ & ~mask) | (p.value & mask);
      if (value_ != 0) return value_;
    }
    return std::nullopt;
  }

 private:
  std::span<const uint8_t> bytes_;
  const arm64::PacketFormat& format_;
  size_t at_;
  uint64_t value_ = 0;
  uint32_t threshold_ = 0;
};

void add_bounds(const Stream& stream, const StreamPiece& piece, const arm64::PacketFormat& format,
                std::vector<ClockBound>& out) {
  std::vector<uint8_t> scratch;
  const uint64_t end = piece.offset + piece.size();
  if (piece.time.lo != kTimeMin) {
    const uint64_t stop = piece.offset + std::min(kWindow, piece.size());
    if (const auto first = Timestamps(stream.bytes(piece.offset, stop, scratch), format).next())
      out.push_back({*first, piece.time.lo, false});
  }
  if (piece.time.hi != kTimeMax) {
    Timestamps all(stream.bytes(end - std::min(kWindow, piece.size()), end, scratch), format);
    std::optional<uint64_t> last;
    while (const auto next = all.next()) last = next;
    if (last) out.push_back({*last, piece.time.hi, true});
  }
}

// Points relative to one in the middle of their counters, so that the numbers are small.
struct Point {
  Real x = 0, y = 0;
  bool upper = false;
};

struct Interval {
  Real low = 0, high = 0;
  Real width() const { return high - low; }
  Real middle() const { return low + width() / 2; }
};

// Which slopes a line through (x, y) may have; empty (low > high) when none keeps all bounds. Its width is
// concave in y: each bound is linear.
Interval slopes_at(std::span<const Point> points, Real x, Real y) {
  Interval out{0, HUGE_VALL};  // a counter does not run backwards
  for (const Point& p : points) {
    const Real dx = p.x - x, dy = p.y - y;
    if (dx == 0) continue;
    if (p.upper == (dx > 0)) {
      out.high = std::min(out.high, dy / dx);
    } else {
      out.low = std::max(out.low, dy / dx);
    }
  }
  return out;
}

// Where the lines that keep all bounds pass at x, within `limits`.
std::optional<Interval> values_at(std::span<const Point> points, Real x, Interval limits) {
  for (const Point& p : points) {
    if (p.x != x) continue;
    if (p.upper) {
      limits.high = std::min(limits.high, p.y);
    } else {
      limits.low = std::max(limits.low, p.y);
    }
  }
  if (limits.width() < 0) return std::nullopt;
  const auto room = [&](Real y) { return slopes_at(points, x, y).width(); };
  Interval best = limits;  // that holds the value with the most room
  for (int i = 0; i < kSteps && room(best.middle()) < 0; ++i) {
    const Real third = best.width() / 3;
    (room(best.low + third) < room(best.high - third) ? best.low : best.high) +=
        room(best.low + third) < room(best.high - third) ? third : -third;
  }
  const Real inside = best.middle();
  if (room(inside) < 0) return std::nullopt;
  const auto edge = [&](Real out) {
    Real in = inside;
    if (room(out) >= 0) return out;
    for (int i = 0; i < kSteps; ++i) {
      const Real middle = (in + out) / 2;
      (room(middle) >= 0 ? in : out) = middle;
    }
    return in;
  };
  return Interval{edge(limits.low), edge(limits.high)};
}

// The line through (x, y) with this slope, in perf's representation.
TimeConversion conversion_of(uint64_t x, Time y, Real slope) {
  TimeConversion out;
  while (out.shift < 32 && std::ldexp(slope, out.shift + 1) < static_cast<Real>(UINT32_MAX)) ++out.shift;
  out.mult = std::max(static_cast<uint32_t>(std::llround(std::ldexp(slope, out.shift))), 1U);
  out.zero = static_cast<uint64_t>(y) - static_cast<uint64_t>(out.to_perf(x));
  return out;
}

}  // namespace

std::optional<Time> contradiction(const TimeConversion& time, std::span<const ClockBound> bounds) {
  constexpr Time kSlack = 10'000;  // ns
  size_t wrong = 0;
  Time worst = 0;
  for (const ClockBound& b : bounds) {
    const Time by = std::max(elapsed(b.time, time.to_perf(b.counter)), -kTimeMax);
    if (b.upper ? by <= kSlack : by >= -kSlack) continue;
    ++wrong;
    if (std::abs(by) > std::abs(worst)) worst = by;
  }
  return wrong > bounds.size() / 8 ? std::optional(worst) : std::nullopt;
}

std::vector<ClockBound> clock_bounds(const CsStreams& streams, size_t most) {
  std::vector<ClockBound> out;
  for (size_t i = 0; i < streams.streams.size(); ++i) {
    const arm64::Source& source = streams.units[i].source;
    if (source.protocol != arm64::Protocol::kEtm4 && source.protocol != arm64::Protocol::kEte) continue;
    const auto format = arm64::PacketFormat::of(source);
    const auto& pieces = streams.streams[i].pieces;
    const size_t step = std::max<size_t>(1, pieces.size() / most);
    for (size_t k = 0; k < pieces.size(); k += step) add_bounds(streams.streams[i], pieces[k], format, out);
  }
  return out;
}

std::optional<FittedClock> fit_clock(std::span<const ClockBound> bounds) {
  if (bounds.empty()) return std::nullopt;
  const auto [first, last] = std::minmax_element(
      bounds.begin(), bounds.end(), [](const auto& a, const auto& b) { return a.counter < b.counter; });
  const auto [early, late] = std::minmax_element(
      bounds.begin(), bounds.end(), [](const auto& a, const auto& b) { return a.time < b.time; });
  const uint64_t x0 = first->counter;
  const Time y0 = early->time;
  const Real width = static_cast<Real>(last->counter - x0);
  const Real duration = static_cast<Real>(static_cast<uint64_t>(late->time) - static_cast<uint64_t>(y0));
  if (width == 0 || duration == 0) return std::nullopt;
  std::vector<Point> points;
  // A counter shows whole ticks, times are whole nanoseconds.
  for (const ClockBound& b : bounds) {
    const Real x = static_cast<Real>(b.counter - x0),
               y = static_cast<Real>(static_cast<uint64_t>(b.time) - static_cast<uint64_t>(y0));
    points.push_back({b.upper ? x : x + 1, b.upper ? y + 1 : y - 1, b.upper});
  }
  const Interval limits{-duration, 2 * duration};
  const auto begin = values_at(points, 0, limits);
  const auto end = values_at(points, width, limits);
  if (!begin || !end) return std::nullopt;
  const Real error = std::max(begin->width(), end->width()) / 2;
  if (error > duration * kWorstPart) return std::nullopt;
  const Real slope = (end->middle() - begin->middle()) / width;
  if (slope <= 0 || slope >= static_cast<Real>(UINT32_MAX)) return std::nullopt;
  const Real middle = (begin->middle() + end->middle()) / 2;
  FittedClock out;
  out.conversion = conversion_of(x0 + (last->counter - x0) / 2, y0 + std::llround(middle), slope);
  // What the integers of the conversion add at both ends.
  const auto off = [&](uint64_t counter, Real y) {
    return std::abs(static_cast<Real>(out.conversion.to_perf(counter) - y0) - y);
  };
  const Real rounding = std::max(off(x0, begin->middle()), off(last->counter, end->middle()));
  out.error = static_cast<Time>(std::ceil(error + rounding)) + kRounding;
  return out;
}

}  // namespace asof
