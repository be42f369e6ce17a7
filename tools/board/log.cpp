#include "tools/board/log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "tools/board/protocol.h"

namespace asof::board {
namespace {

constexpr uint64_t kMarkDelay = 4;  // from the counter's instruction to the store, both included
// Nanoseconds. More is a jump of an idle machine or a mark that was interrupted.
constexpr int64_t kLargeResidual = 64;
constexpr unsigned kMaxCpus = 8;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error("board log: " + what); }

class Bytes {
 public:
  explicit Bytes(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  template <class T>
  T take() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::span<const uint8_t> take(size_t n) {
    if (n > bytes_.size()) fail("ends in the middle of an entry");
    const auto out = bytes_.first(n);
    bytes_ = bytes_.subspan(n);
    return out;
  }

 private:
  std::span<const uint8_t> bytes_;
};

std::vector<Block> read_blocks(std::span<const uint8_t> bytes) {
  std::vector<Block> out;
  for (Bytes in(bytes); !in.empty();) {
    const auto head = in.take<board_block>();
    if (head.number != out.size()) fail(fmt::format("block {} where {} is due", head.number, out.size()));
    Block b;
    b.address = head.address;
    const auto sizes = in.take(head.insns);
    b.sizes.assign(sizes.begin(), sizes.end());
    size_t total = 0;
    for (const uint8_t s : sizes) total += s;
    const auto code = in.take(total);
    b.bytes.assign(code.begin(), code.end());
    out.push_back(std::move(b));
  }
  return out;
}

// Puts the units in order: what one unit leaves open (how much of a block ran) the next ones determine.
class LogReader {
 public:
  LogReader(Log& out, size_t blocks) : out_(out), blocks_(blocks) {}
  void run(std::span<const uint8_t> bytes);

 private:
  std::vector<Event>& cpu(unsigned n) {
    if (n >= kMaxCpus) fail(fmt::format("CPU {}", n));
    if (n >= out_.cpus.size()) out_.cpus.resize(n + 1);
    return out_.cpus[n];
  }
  void close(uint64_t count) {
    if (!open_) return;
    Event& e = out_.cpus[open_cpu_].back();
    e.executed = static_cast<uint32_t>(count - e.count);
    open_ = false;
  }
  void event(const board_unit& u, Event::Kind kind) {
    close(u.count);
    cpu(u.cpu).push_back({kind, u.count, u.block, 0, {}});
    open_ = kind == Event::Kind::kBlock;
    open_cpu_ = u.cpu;
    if (kind != Event::Kind::kBlock && kind != Event::Kind::kAway) gap_ = true;
  }
  void words(const board_unit& u, Bytes& in);

  Log& out_;
  size_t blocks_;
  bool open_ = false;  // a block whose end is not known yet
  bool gap_ = false;   // a pause since the last mark
  unsigned open_cpu_ = 0;
};

void LogReader::words(const board_unit& u, Bytes& in) {
  const auto a = in.take<uint64_t>(), b = in.take<uint64_t>();
  if (u.kind == BOARD_LOG_MARK) {
    out_.clock.mark(u.count, a, gap_);
    gap_ = false;
  } else if (u.kind == BOARD_LOG_STORE) {
    out_.stores.push_back({u.count, u.cpu, a, static_cast<uint32_t>(b)});
  } else {
    const auto c = in.take<uint64_t>(), d = in.take<uint64_t>();
    std::vector<Event>& events = cpu(u.cpu);
    if (events.empty() || events.back().kind != Event::Kind::kBlock) fail("a frame without its entry");
    events.back().stores.push_back({a, b, c, d});
  }
}

void LogReader::run(std::span<const uint8_t> bytes) {
  uint64_t last = 0;
  for (Bytes in(bytes); !in.empty();) {
    const auto u = in.take<board_unit>();
    if (u.count < last) fail("the count goes backwards");
    last = u.count;
    switch (u.kind) {
      case BOARD_LOG_BLOCK:
        if (u.block >= blocks_) fail(fmt::format("block {} is not known", u.block));
        event(u, Event::Kind::kBlock);
        break;
      case BOARD_LOG_AWAY:
        event(u, Event::Kind::kAway);
        break;
      case BOARD_LOG_PAUSE:
        event(u, Event::Kind::kPause);
        break;
      case BOARD_LOG_RESUME:
        event(u, Event::Kind::kResume);
        break;
      case BOARD_LOG_MARK:
      case BOARD_LOG_STORE:
      case BOARD_LOG_FRAME:
        words(u, in);
        break;
      case BOARD_LOG_STOP:
        close(u.count);
        out_.instructions = u.count;
        return;
      default:
        fail(fmt::format("unit of kind {}", u.kind));
    }
  }
  fail("has no end: the board did not come to its own");
}

}  // namespace

void Clock::mark(uint64_t count, uint64_t value, bool untraced_before) {
  const auto bias = static_cast<int64_t>(value * ns_per_tick_) - static_cast<int64_t>(count - kMarkDelay);
  if (points_.empty()) {
    points_.push_back({count, bias});
    return;
  }
  const int64_t residual = bias - points_.back().bias;
  const auto tick = static_cast<int64_t>(ns_per_tick_);
  if (residual < -kLargeResidual - tick) {
    // Interrupted between the counter and the store: its time is that before the interrupt.
    ++skipped_;
    return;
  }
  // A counter that is coarser than the count gives less than what is known already.
  const bool same = ns_per_tick_ != 1 && residual <= 0 && residual > -tick;
  if (!same) points_.push_back({count, bias});
  if (residual > kLargeResidual) {
    ++jumps_;
  } else if (!untraced_before && !same) {
    worst_ = std::max(worst_, static_cast<uint64_t>(residual < 0 ? -residual : residual));
  }
}

uint64_t Clock::ns(uint64_t count) const {
  if (points_.empty()) fail("has no mark of the clock");
  auto after = std::ranges::upper_bound(points_, count, {}, &Point::count);
  if (after != points_.begin()) --after;
  // Time does not go backwards when a mark corrects it.
  const int64_t bias = after->bias;
  uint64_t now = static_cast<uint64_t>(static_cast<int64_t>(count) + bias);
  if (after != points_.begin()) {
    const Point& before = *(after - 1);
    now = std::max(now, static_cast<uint64_t>(static_cast<int64_t>(after->count) + before.bias));
  }
  return now;
}

Log read_log(std::span<const uint8_t> log, std::span<const uint8_t> blocks, uint64_t ns_per_tick) {
  Log out;
  out.clock = Clock(ns_per_tick);
  out.blocks = read_blocks(blocks);
  LogReader(out, out.blocks.size()).run(log);
  return out;
}

}  // namespace asof::board
