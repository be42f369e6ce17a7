// Flow records, read: the map is followed, chain by chain where steps have no annotations, step by step
// elsewhere.
//
// Invariants:
//  * `at_` is the chain that the walk is at, `step_` the number of its first step.
//  * Annotations are applied before their step, and no chain goes beyond the next step that has one.
//  * At most kMaxQuiet steps in a row have no annotation, so a walk ends.
#include <algorithm>

#include "decoder/blocks/block_file.h"
#include "decoder/blocks/block_items.h"

namespace asof::blocks {
namespace {

constexpr const char* kNotInMap = "it comes to a block that is not in the map";
constexpr const char* kEndless = "its chain of blocks does not end";
constexpr const char* kFewBits = "it has too few bits";

// Entries of a section that belong to steps: read one ahead.
class Marks {
 public:
  Marks(Source& in, size_t least) : in_(in), left_(in.count(least)) {}
  // The step of the next entry, whose fields are read next; UINT64_MAX: none is left.
  uint64_t advance() {
    if (left_ == 0 || !in_.ok()) return UINT64_MAX;
    --left_;
    const uint64_t by = in_.varint();
    at_ = by > kMaxSteps ? UINT64_MAX - 1 : at_ + by;
    return at_;
  }

 private:
  Source& in_;
  uint64_t left_;
  uint64_t at_ = 0;
};

// The bits of a walk, lowest first.
class Bits {
 public:
  Bits() = default;
  Bits(std::span<const uint8_t> bytes, uint64_t count) : bytes_(bytes), left_(count) {}
  uint64_t left() const { return left_ + have_; }
  // Makes some ready. False: there are no more.
  bool fill() {
    if (have_ != 0) return true;
    if (left_ == 0) return false;
    const size_t n = std::min<size_t>(8, bytes_.size());
    for (size_t i = 0; i < n; ++i) ready_ |= static_cast<uint64_t>(bytes_[i]) << (8 * i);
    bytes_ = bytes_.subspan(n);
    have_ = static_cast<uint32_t>(std::min<uint64_t>(left_, 8 * n));
    left_ -= have_;
    return true;
  }
  // Of those that are ready: the next one, and `n` are used up.
  uint64_t peek() const { return ready_ & 1; }
  uint32_t ready() const { return have_; }
  void take(uint32_t n) {
    ready_ >>= n;
    have_ -= n;
  }

 private:
  std::span<const uint8_t> bytes_;
  uint64_t left_ = 0, ready_ = 0;
  uint32_t have_ = 0;
};

struct NamedBlock {
  uint32_t at, block;
};
struct Odd {
  uint32_t at, count;
  uint8_t flags;
  Confidence confidence;
};
struct Timed {
  uint32_t at;
  Time time;
};

// The entries of a list that is read from start to end.
template <class T>
class Cursor {
 public:
  void add(const T& entry) { list_.push_back(entry); }
  uint64_t next_at() const { return next_ < list_.size() ? list_[next_].at : UINT64_MAX; }
  const T& take() { return list_[next_++]; }
  // They are in order, and all at existing steps.
  bool sound(uint64_t steps) const {
    return std::ranges::is_sorted(list_, {}, &T::at) && (list_.empty() || list_.back().at < steps);
  }

 private:
  std::vector<T> list_;
  size_t next_ = 0;
};

class WalkReader {
 public:
  WalkReader(const BlockMap& map, std::span<const uint8_t> body, Chunk& out)
      : map_(map), in_(body), out_(out) {}

  std::string_view read(std::span<const uint8_t> prefix);

 private:
  bool sections();
  bool items();
  std::string_view walk();
  void place_items();
  void take_named_block();
  void chains(uint64_t until);
  std::string_view one(const Odd* odd);

  const BlockMap& map_;
  Source in_;
  Chunk& out_;
  uint64_t steps_ = 0, step_ = 0;
  Cursor<NamedBlock> named_blocks_;
  Cursor<Odd> odd_;
  Cursor<Timed> times_;
  size_t next_event_ = 0, next_gap_ = 0;  // whose position among the entries is not known yet
  Bits bits_;
  uint32_t at_ = 0;
  uint32_t quiet_ = 0;
  Calls calls_;
  Time time_ = kTimeMin;
};

std::string_view WalkReader::read(std::span<const uint8_t> prefix) {
  const auto repeated = in_.take(prefix.size());
  if (!std::ranges::equal(repeated, prefix)) return "its head was changed";
  steps_ = in_.varint();
  if (!in_.ok() || steps_ > kMaxSteps) return "its head is damaged";
  std::string_view wrong = "its lists are damaged";
  if (sections()) wrong = walk();
  // What comes after the steps that could be read is dropped with those that could not.
  out_.events.resize(next_event_);
  out_.gaps.resize(next_gap_);
  return wrong;
}

bool WalkReader::sections() {
  uint64_t block = 0;
  Marks named(in_, 2);
  for (uint64_t at; (at = named.advance()) < steps_;)
    named_blocks_.add({static_cast<uint32_t>(at), static_cast<uint32_t>(block = in_.difference(block))});
  Marks odd(in_, 4);
  for (uint64_t at; (at = odd.advance()) < steps_;) {
    Odd o{static_cast<uint32_t>(at), static_cast<uint32_t>(in_.varint()), in_.u8(), Confidence::kCertain};
    o.confidence = static_cast<Confidence>(
        std::min<uint8_t>(in_.u8(), static_cast<uint8_t>(Confidence::kContradiction)));
    odd_.add(o);
  }
  auto time = static_cast<uint64_t>(kTimeMin);
  Marks times(in_, 2);
  for (uint64_t at; (at = times.advance()) < steps_;)
    times_.add({static_cast<uint32_t>(at), static_cast<Time>(time = in_.difference(time))});
  if (!in_.ok() || !named_blocks_.sound(steps_) || !odd_.sound(steps_) || !times_.sound(steps_) || !items())
    return false;
  const uint64_t bits = in_.varint();
  bits_ = Bits(in_.take(bits / 8 + (bits % 8 != 0 ? 1 : 0)), bits);
  if (in_.left() != 0) {
    for (Gap& g : out_.gaps) g.after = static_cast<uint32_t>(in_.varint());
  }
  return in_.ok() && in_.left() == 0;
}

bool WalkReader::items() {
  Time time = 0;
  Marks events(in_, 1 + kEventBytes);
  for (uint64_t at; (at = events.advance()) <= steps_;) {
    out_.events.push_back(take_event(in_, time));
    out_.events.back().step = static_cast<uint32_t>(at);
  }
  Marks gaps(in_, 1 + kGapBytes);
  for (uint64_t at; (at = gaps.advance()) <= steps_;) {
    out_.gaps.push_back(take_gap(in_));
    out_.gaps.back().step = static_cast<uint32_t>(at);
  }
  return in_.ok();
}

// Events and gaps at this step: from steps to entries.
void WalkReader::place_items() {
  const auto entries = static_cast<uint32_t>(out_.steps.size());
  for (; next_event_ < out_.events.size() && out_.events[next_event_].step <= step_; ++next_event_)
    out_.events[next_event_].step = entries;
  for (; next_gap_ < out_.gaps.size() && out_.gaps[next_gap_].step <= step_; ++next_gap_)
    out_.gaps[next_gap_].step = entries;
}

// The block of the current step, where the trace names one.
void WalkReader::take_named_block() {
  while (named_blocks_.next_at() == step_) {
    at_ = map_.link_to(named_blocks_.take().block);
    quiet_ = 0;
    if (at_ == 0) at_ = BlockMap::kNowhere;
  }
  while (times_.next_at() == step_) time_ = times_.take().time;
}

// A single step: the first of its chain, or what ran of it.
std::string_view WalkReader::one(const Odd* odd) {
  if (at_ == 0) return "it names no block for its next step";
  if (at_ == BlockMap::kNowhere) return kNotInMap;
  if (++quiet_ > kMaxQuiet) return kEndless;
  const BlockMap::Node& node = map_.node(at_);
  const Block& block = *node.block;
  Step step{.block = &block, .time = time_, .count = block.count};
  bool taken = block.kind != BranchKind::kNone;
  if (odd != nullptr) {
    if (odd->count == 0 || odd->count > block.count) return "more of a block than there is";
    step.count = odd->count;
    step.confidence = odd->confidence;
  }
  at_ = 0;
  if (step.count == block.count) {
    if (block.kind == BranchKind::kCond) {
      if (!bits_.fill()) return kFewBits;
      taken = bits_.peek() != 0;
      bits_.take(1);
      quiet_ = 0;
    }
    at_ = map_.link_to(node.exits[exit_slot(block.kind, taken)]);
    if (is_call(block.kind)) calls_.push(map_.push_of(node));
    if (block.kind == BranchKind::kRet) {
      if (const uint32_t back = calls_.pop(); back != 0) at_ = back;
    }
  }
  step.flags = odd != nullptr ? odd->flags : taken ? Step::kTaken : uint8_t{0};
  out_.steps.push_back(step);
  ++step_;
  return {};
}

// Steps up to `until`, which have no annotation and change nothing, as far as whole chains go. one() handles
// the step where it stops.
void WalkReader::chains(uint64_t until) {
  const size_t room = until - step_;
  StepCode* const codes = out_.steps.open_runs(map_.runs(), room);
  StepCode* out = codes;
  uint64_t instructions = 0, step = step_;
  uint32_t at = at_, quiet = quiet_;
  Bits bits = bits_;
  while (at >= BlockMap::kFirst) {
    const BlockMap::Chain& chain = map_.chain(at);
    if (step + chain.steps > until || quiet + chain.steps > kMaxQuiet) break;
    if (bits.ready() == 0 && !bits.fill() && chain.decides) break;
    const uint32_t decides = chain.decides ? 1 : 0;
    const uint32_t bit = static_cast<uint32_t>(bits.peek()) & decides;
    bits.take(decides);
    step += chain.steps;
    instructions += chain.instructions;
    quiet = decides != 0 ? 0 : quiet + chain.steps;
    *out++ = StepCode{at | bit};
    calls_.push_if(chain.push);
    at = chain.next[bit];
    if (at == BlockMap::kByCall) {
      const uint32_t back = calls_.pop();
      at = back != 0 ? back : chain.next[1];
    }
  }
  const auto written = static_cast<size_t>(out - codes);
  if (written != 0) out_.steps.time_runs(room, 0, time_);
  out_.steps.close_runs(room, written, instructions);
  bits_ = bits;
  at_ = at;
  quiet_ = quiet;
  step_ = step;
}

std::string_view WalkReader::walk() {
  out_.steps.reserve(steps_);
  std::string_view wrong;
  while (wrong.empty()) {
    place_items();
    if (step_ == steps_) return bits_.left() != 0 ? "it has too many bits" : "";
    take_named_block();
    const Odd* odd = nullptr;
    while (odd_.next_at() == step_) odd = &odd_.take();
    uint64_t until = std::min({steps_, named_blocks_.next_at(), times_.next_at(), odd_.next_at()});
    if (next_event_ < out_.events.size()) until = std::min<uint64_t>(until, out_.events[next_event_].step);
    if (next_gap_ < out_.gaps.size()) until = std::min<uint64_t>(until, out_.gaps[next_gap_].step);
    const uint64_t before = step_;
    if (odd == nullptr) chains(until);
    if (step_ == before) wrong = one(odd);
  }
  return wrong;
}

}  // namespace

std::string read_walk(const BlockMap& map, std::span<const uint8_t> body, std::span<const uint8_t> prefix,
                      Chunk& out) {
  return std::string(WalkReader(map, body, out).read(prefix));
}

}  // namespace asof::blocks
