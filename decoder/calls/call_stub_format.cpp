// The body of a record of calls (docs/formats.md).
#include <algorithm>

#include "decoder/blocks/block_format.h"
#include "decoder/blocks/block_items.h"
#include "decoder/calls/call_stub.h"

namespace asof {
namespace {

using blocks::Source;
using blocks::Writer;

constexpr size_t kMostOps = size_t{2} * blocks::kMaxSteps;
// More instructions than a flow record can have are damage.
constexpr uint64_t kMostInstructions = uint64_t{blocks::kMaxSteps} * UINT16_MAX;

// Others are not the same whether the step is in a run or not.
constexpr uint8_t kFlags = Step::kAfterGap | Step::kAsyncEntry;

uint32_t number_of(const Symbol* symbol) { return symbol == nullptr ? 0 : symbol->number; }

class CallsWriter {
 public:
  explicit CallsWriter(const FlowOps& ops) : ops_(ops) {}
  std::vector<uint8_t> write(bool has_time) {
    out_.u8(has_time ? 1 : 0);
    keys();
    Time last = 0;
    out_.varint(ops_.events.size());
    for (const Event& e : ops_.events) blocks::put_event(out_, e, last);
    out_.varint(ops_.gaps.size());
    for (const Gap& g : ops_.gaps) blocks::put_gap(out_, g);
    out_.varint(ops_.ops.size());
    size_t next = 0;
    for (const FlowOp& o : ops_.ops) {
      op(o);
      if (o.kind == FlowOp::Kind::kSpan) span(ops_.spans[next++], o.time);
    }
    return out_.data();
  }

 private:
  void time(Time t) {
    out_.difference(static_cast<uint64_t>(time_), static_cast<uint64_t>(t));
    time_ = t;
  }
  void keys() {
    out_.varint(ops_.keys.size());
    for (const SumKey& k : ops_.keys) {
      const uint32_t number = number_of(k.symbol);
      out_.varint(number);
      if (number == 0) {
        out_.varint(k.space);
        out_.varint(k.address);
      }
      out_.varint(k.version);
    }
  }
  void op(const FlowOp& o) {
    out_.u8(static_cast<uint8_t>(o.kind));
    time(o.time);
    if (o.kind == FlowOp::Kind::kSpan) return;
    out_.varint(o.instructions);
    out_.u8(static_cast<uint8_t>(o.confidence));
    if (o.kind == FlowOp::Kind::kPoint) return;
    out_.u8(static_cast<uint8_t>(o.branch));
    out_.u8(o.flags & kFlags);
    out_.difference(address_, o.from);
    out_.difference(o.from, o.to);
    out_.difference(o.from, o.back);
    address_ = o.to;
    out_.varint(number_of(o.symbol));
    out_.varint(number_of(o.left));
    out_.varint(o.space);
    out_.varint(o.origin);
  }
  void span(const CallSpan& s, Time first) {
    const auto since = [first](Time t) { return static_cast<uint64_t>(t) - static_cast<uint64_t>(first); };
    out_.varint(s.left_out);
    out_.varint(s.relies);
    out_.varint(s.instructions);
    out_.varint(since(s.last));
    out_.signed_varint(s.last_open);
    out_.signed_varint(s.last_close);
    out_.varint(s.steps);
    out_.signed_varint(s.step);
    out_.u8(static_cast<uint8_t>(s.confidence));
    out_.u8(s.follows_records ? 1 : 0);
    out_.varint(s.depth);
    out_.varint(s.not_back.size());
    Addr back = 0;
    for (const Addr a : s.not_back) {
      out_.difference(back, a);
      back = a;
    }
    out_.varint(s.calls);
    out_.varint(s.call_instructions);
    out_.varint(s.call_time);
    out_.varint(s.sums.size());
    for (const SumNode& n : s.sums) {
      out_.varint(n.key);
      out_.varint(n.size);
      out_.varint(n.calls);
      out_.varint(n.instructions);
      out_.varint(n.time);
    }
  }

  const FlowOps& ops_;
  Writer out_;
  Time time_ = 0;
  Addr address_ = 0;
};

class CallsReader {
 public:
  CallsReader(std::span<const uint8_t> body, std::span<const Symbol* const> symbols, FlowOps& out)
      : in_(body), symbols_(symbols), out_(out) {}
  bool read(bool has_time) {
    has_time_ = has_time;
    if (in_.u8() != (has_time ? 1 : 0) || !keys()) return false;
    Time last = 0;
    for (uint64_t n = in_.count(blocks::kEventBytes); n != 0 && in_.ok(); --n)
      out_.events.push_back(blocks::take_event(in_, last));
    for (uint64_t n = in_.count(blocks::kGapBytes); n != 0 && in_.ok(); --n)
      out_.gaps.push_back(blocks::take_gap(in_));
    const uint64_t count = in_.count(2);
    if (!in_.ok() || count > kMostOps) return false;
    out_.ops.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      if (!op() || (out_.ops.back().kind == FlowOp::Kind::kSpan && !span())) return false;
    }
    return in_.ok() && in_.left() == 0 && events_ == out_.events.size() && gaps_ == out_.gaps.size();
  }

 private:
  // False: no symbol has this number.
  bool symbol(const Symbol*& out) {
    const uint64_t number = in_.varint();
    if (number > symbols_.size()) return false;
    out = number == 0 ? nullptr : symbols_[number - 1];
    return true;
  }
  template <class Enum>
  bool byte(Enum& out, Enum most) {
    const uint8_t b = in_.u8();
    out = static_cast<Enum>(b);
    return b <= static_cast<uint8_t>(most);
  }
  template <class Int>
  bool number(Int& out, uint64_t most = std::numeric_limits<Int>::max()) {
    const uint64_t n = in_.varint();
    out = static_cast<Int>(n);
    return n <= most;
  }
  bool instructions(uint64_t n) {
    instructions_ += n;
    return n <= kMostInstructions && instructions_ <= kMostInstructions;
  }
  bool keys() {
    for (uint64_t n = in_.count(2); n != 0 && in_.ok(); --n) {
      SumKey& k = out_.keys.emplace_back();
      if (!symbol(k.symbol)) return false;
      if (k.symbol == nullptr) {
        if (!number(k.space)) return false;
        k.address = in_.varint();
      }
      if (!number(k.version)) return false;
    }
    return in_.ok();
  }
  bool op() {
    FlowOp& o = out_.ops.emplace_back();
    if (!byte(o.kind, FlowOp::Kind::kSpan)) return false;
    o.time = time_ = static_cast<Time>(in_.difference(static_cast<uint64_t>(time_)));
    if (o.kind == FlowOp::Kind::kSpan) return in_.ok();
    if (o.kind == FlowOp::Kind::kVisit || o.kind == FlowOp::Kind::kBlock) return false;
    if (!number(o.instructions) || !instructions(o.instructions) ||
        !byte(o.confidence, Confidence::kContradiction))
      return false;
    if (o.kind == FlowOp::Kind::kPoint) return in_.ok();
    if (!byte(o.branch, BranchKind::kPaging)) return false;
    o.flags = in_.u8();
    o.from = in_.difference(address_);
    o.to = address_ = in_.difference(o.from);
    o.back = in_.difference(o.from);
    if (!symbol(o.symbol) || !symbol(o.left)) return false;
    if (!number(o.space) || !number(o.origin)) return false;
    if (o.kind == FlowOp::Kind::kEvent) o.item = events_++;
    if (o.kind == FlowOp::Kind::kGap) o.item = gaps_++;
    return in_.ok() && events_ <= out_.events.size() && gaps_ <= out_.gaps.size();
  }
  bool span() {
    CallSpan& s = out_.spans.emplace_back();
    s.begin = out_.ops.size() - 1;
    s.end = s.begin + 1;
    s.first = out_.ops.back().time;
    uint64_t lasts = 0;
    if (!number(s.left_out, kMostOps) || !number(s.relies, s.begin) || !number(s.instructions) ||
        !instructions(s.instructions) || !number(lasts))
      return false;
    s.last = static_cast<Time>(static_cast<uint64_t>(s.first) + lasts);
    s.last_open = in_.signed_varint();
    s.last_close = in_.signed_varint();
    s.steps = in_.varint();
    s.step = in_.signed_varint();
    if (!byte(s.confidence, Confidence::kContradiction)) return false;
    s.follows_records = in_.u8() != 0;
    if (!number(s.depth, UINT32_MAX) || !times(s)) return false;
    Addr back = 0;
    for (uint64_t n = in_.count(); n != 0 && in_.ok(); --n) s.not_back.push_back(back = in_.difference(back));
    // Each call was begun by an op. Ids of others are counted from this.
    if (!number(s.calls, s.left_out + 1)) return false;
    s.call_instructions = in_.varint();
    s.call_time = in_.varint();
    return std::ranges::is_sorted(s.not_back) && sums(s);
  }
  // Without times, they are added to what ran before.
  bool times(const CallSpan& s) const {
    const auto within = [&](Time t) {
      return has_time_ || (t >= 0 && t <= static_cast<Time>(s.instructions));
    };
    return s.first <= s.last && s.step >= 0 && within(s.last_open) && within(s.last_close);
  }
  // Each node's tree lies within that of its caller.
  bool sums(CallSpan& s) {
    std::vector<uint64_t> ends{in_.count(5)};
    const uint64_t count = ends.front();
    for (uint64_t i = 0; i < count; ++i) {
      SumNode& n = s.sums.emplace_back();
      if (!number(n.key) || n.key >= out_.keys.size() || !number(n.size)) return false;
      while (ends.back() == i) ends.pop_back();
      if (n.size == 0 || n.size > ends.back() - i) return false;
      ends.push_back(i + n.size);
      n.calls = in_.varint();
      n.instructions = in_.varint();
      n.time = in_.varint();
    }
    return in_.ok();
  }

  Source in_;
  const std::span<const Symbol* const> symbols_;
  FlowOps& out_;
  bool has_time_ = false;
  uint32_t events_ = 0, gaps_ = 0;
  uint64_t instructions_ = 0;
  Time time_ = 0;
  Addr address_ = 0;
};

}  // namespace

std::vector<uint8_t> put_calls(const FlowOps& cut, bool has_time) { return CallsWriter(cut).write(has_time); }

bool take_calls(std::span<const uint8_t> body, std::span<const Symbol* const> symbols, bool has_time,
                FlowOps& out) {
  return CallsReader(body, symbols, out).read(has_time);
}

}  // namespace asof
