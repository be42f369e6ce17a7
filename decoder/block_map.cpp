// Code records and flow records, read.
#include <algorithm>
#include <mutex>
#include <set>

#include "decoder/block_file.h"

namespace asof::blocks {
namespace {

constexpr uint8_t kHasTarget = 8, kHasTimes = 16, kModeBits = 7;

void set_hash(Block& b) {
  Addr ip = b.ip;
  for (uint32_t i = 0; i < b.count; ++i) {
    b.hash = b.hash * kHashFactor + ip;
    b.power *= kHashFactor;
    ip += b.lengths[i];
  }
}

}  // namespace

bool BlockMap::add_block(Source& in, uint32_t id, Addr& last_end) {
  Piece& piece = *pieces_.back();
  Block b;
  const uint8_t kind = in.u8(), flags = in.u8();
  if (kind > static_cast<uint8_t>(BranchKind::kPaging) || flags >= 2 * kHasTimes) return false;
  b.kind = static_cast<BranchKind>(kind);
  b.mode = static_cast<uint8_t>((flags & kModeBits) << 4);
  b.ip = in.difference(last_end);
  b.space = static_cast<Space>(in.varint());
  b.origin = static_cast<OriginRef>(in.varint());
  if ((flags & kHasTarget) != 0) b.target = in.difference(b.ip);
  if ((flags & kHasTimes) != 0) {
    b.from = in.signed_varint();
    b.until = in.signed_varint();
  }
  const uint64_t count = in.count(2);  // a length and a byte at least
  if (!in.ok() || count == 0 || count > UINT16_MAX) return false;
  b.count = static_cast<uint16_t>(count);
  const auto lengths = in.take(count);
  for (const uint8_t n : lengths) b.size += n;
  const auto bytes = in.take(b.size);
  if (!in.ok() || std::ranges::find(lengths, uint8_t{0}) != lengths.end() || b.ip > UINT64_MAX - b.size)
    return false;
  b.lengths = lengths.data();
  b.bytes = bytes.data();
  set_hash(b);
  last_end = b.end();
  piece.blocks.push_back(b);
  piece.pointers.push_back(&piece.blocks.back());
  const Run run{
      .hash = b.hash,
      .instructions = b.count,
      .branches = static_cast<uint16_t>(b.kind != BranchKind::kNone && b.kind != BranchKind::kPtwrite &&
                                        b.kind != BranchKind::kPaging),
      .size = 1};
  Node& node = nodes_[id];
  node.run = writer_.add(run, &piece.pointers.back());
  node.count = b.count;
  node.kind = b.kind;
  node.block = &piece.blocks.back();
  node.known = true;
  return true;
}

bool BlockMap::add(std::span<const uint8_t> body) {
  pieces_.push_back(std::make_unique<Piece>());
  Piece& piece = *pieces_.back();
  piece.bytes.assign(body.begin(), body.end());
  Source in(piece.bytes);
  const uint64_t first = in.varint(), count = in.count(8);
  // Numbers go up from record to record; a lost record leaves a hole no larger than the file could fill.
  if (!in.ok() || first < nodes_.size() || first > max_blocks_ || count > max_blocks_ - first) return false;
  nodes_.resize(first + count);
  piece.blocks.reserve(count);
  piece.pointers.reserve(count);
  Addr last_end = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (!add_block(in, static_cast<uint32_t>(first + i), last_end)) return false;
  }
  uint64_t from = 0;
  for (uint64_t i = 0, ways = in.count(3); i < ways; ++i) {
    from = in.difference(from);
    const uint8_t way = in.u8();
    const uint64_t to = in.difference(from);
    if (!in.ok() || from >= nodes_.size() || to >= nodes_.size() || way >= kWays) return false;
    nodes_[from].ways[way] = static_cast<uint32_t>(to);
  }
  return in.ok() && in.left() == 0;
}

namespace {

// Gap::code points to text that lives for ever. What a file says is believed when it looks like a code, and
// there are not too many of them.
const char* stable_code(const std::string& code) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> codes;
  constexpr size_t kMost = 4096, kLongest = 16;
  const auto plausible = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-'; };
  const std::lock_guard lock(mutex);
  if (code.empty() || code.size() > kLongest || !std::ranges::all_of(code, plausible) ||
      codes.size() == kMost)
    return "E-DATA-121";
  return codes.insert(code).first->c_str();
}

// Entries of a section that stand at steps: read one ahead.
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

struct Told {
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

class WalkReader {
 public:
  WalkReader(const BlockMap& map, std::span<const uint8_t> body, Chunk& out)
      : map_(map), in_(body), out_(out) {}

  std::string read(std::span<const uint8_t> prefix) {
    const auto repeated = in_.take(prefix.size());
    if (!std::ranges::equal(repeated, prefix)) return "its head was changed";
    steps_ = in_.varint();
    if (!in_.ok() || steps_ > kMaxSteps) return "its head is damaged";
    if (!sections()) return "its lists are damaged";
    return walk();
  }

 private:
  bool sections();
  bool items();
  std::string walk();
  std::string_view plain(uint64_t until);
  std::string_view one();
  void put(const BlockMap::Node& node, bool taken, const Odd* odd);
  // The block of the step at hand, by what was told or by the map.
  std::string_view enter();
  std::string_view leave(const BlockMap::Node& node);

  const BlockMap& map_;
  Source in_;
  Chunk& out_;
  uint64_t steps_ = 0, step_ = 0;
  std::vector<Told> told_;
  std::vector<Odd> odd_;
  std::vector<Timed> times_;
  std::span<const uint8_t> bits_;
  uint64_t bit_ = 0, bit_count_ = 0;
  size_t next_told_ = 0, next_odd_ = 0, next_time_ = 0;
  uint32_t block_ = 0;
  bool complete_ = false, taken_ = false;
  uint32_t quiet_ = 0;
  Calls calls_;
  Time time_ = kTimeMin;
};

bool WalkReader::sections() {
  const auto in_order = [&](auto& list) {
    return std::ranges::is_sorted(list, {}, [](const auto& x) { return x.at; }) &&
           (list.empty() || list.back().at < steps_);
  };
  uint64_t block = 0;
  Marks told(in_, 2);
  for (uint64_t at; (at = told.advance()) < steps_;)
    told_.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(block = in_.difference(block))});
  Marks odd(in_, 4);
  for (uint64_t at; (at = odd.advance()) < steps_;) {
    Odd o{static_cast<uint32_t>(at), static_cast<uint32_t>(in_.varint()), in_.u8(), Confidence::kCertain};
    o.confidence = static_cast<Confidence>(
        std::min<uint8_t>(in_.u8(), static_cast<uint8_t>(Confidence::kContradiction)));
    odd_.push_back(o);
  }
  auto time = static_cast<uint64_t>(kTimeMin);
  Marks times(in_, 2);
  for (uint64_t at; (at = times.advance()) < steps_;)
    times_.push_back({static_cast<uint32_t>(at), static_cast<Time>(time = in_.difference(time))});
  if (!in_.ok() || !in_order(told_) || !in_order(odd_) || !in_order(times_) || !items()) return false;
  bit_count_ = in_.varint();
  bits_ = in_.take(bit_count_ / 8 + (bit_count_ % 8 != 0 ? 1 : 0));
  return in_.ok() && in_.left() == 0;
}

bool WalkReader::items() {
  uint64_t time = 0;
  Marks events(in_, 7);
  for (uint64_t at; (at = events.advance()) <= steps_;) {
    Event e{static_cast<EventKind>(std::min<uint8_t>(in_.u8(), static_cast<uint8_t>(EventKind::kContext)))};
    e.step = static_cast<uint32_t>(at);
    e.time = static_cast<Time>(time = in_.difference(time));
    e.ip = in_.varint();
    e.a = in_.varint();
    e.b = in_.varint();
    e.offset = in_.varint();
    out_.events.push_back(e);
  }
  Marks gaps(in_, 9);
  for (uint64_t at; (at = gaps.advance()) <= steps_;) {
    Gap g;
    g.step = static_cast<uint32_t>(at);
    g.begin = in_.varint();
    g.end = in_.difference(g.begin);
    g.time.lo = in_.signed_varint();
    g.time.hi = in_.signed_varint();
    g.ip = in_.varint();
    g.resume_ip = in_.varint();
    g.code = stable_code(in_.text());
    g.reason = in_.text();
    out_.gaps.push_back(std::move(g));
  }
  return in_.ok();
}

std::string_view WalkReader::enter() {
  Exit exit;
  if (block_ != 0 && complete_) {
    const BranchKind kind = map_.at(block_)->kind;
    exit = exit_of(block_, kind, taken_, calls_);
    calls_.leave(block_, kind);
  }
  if (next_told_ < told_.size() && told_[next_told_].at == step_) {
    block_ = told_[next_told_++].block;
    quiet_ = 0;
  } else {
    if (exit.block == 0) return "it does not say where it goes on";
    block_ = map_.at(exit.block)->ways[exit.way];
    if (++quiet_ > kMaxQuiet) return "it goes on without end";
  }
  return map_.at(block_) == nullptr ? "it comes to a block that is not in the map" : "";
}

// How the block at hand was left.
std::string_view WalkReader::leave(const BlockMap::Node& node) {
  taken_ = node.kind != BranchKind::kNone;
  if (node.kind != BranchKind::kCond || !complete_) return {};
  if (bit_ == bit_count_) return "it has too few bits";
  taken_ = (bits_[bit_ / 8] >> bit_ % 8 & 1) != 0;
  ++bit_;
  quiet_ = 0;
  return {};
}

void WalkReader::put(const BlockMap::Node& node, bool taken, const Odd* odd) {
  if (odd == nullptr && node.run != 0) {
    *out_.steps.open_runs(map_.runs(), 1) =
        node.run << StepList::kRunShift | (taken ? StepList::kTakenBit : 0);
    out_.steps.time_runs(1, 0, time_);
    out_.steps.close_runs(1, 1, node.count);
    return;
  }
  Step step;
  step.block = node.block;
  step.time = time_;
  step.count = odd == nullptr ? node.count : odd->count;
  step.flags = odd == nullptr ? (taken ? Step::kTaken : uint8_t{0}) : odd->flags;
  if (odd != nullptr) step.confidence = odd->confidence;
  out_.steps.push_back(step);
}

// One step that is told of, or at which something changes.
std::string_view WalkReader::one() {
  if (const auto wrong = enter(); !wrong.empty()) return wrong;
  while (next_time_ < times_.size() && times_[next_time_].at == step_) time_ = times_[next_time_++].time;
  const BlockMap::Node& node = *map_.at(block_);
  const Odd* odd = nullptr;
  if (next_odd_ < odd_.size() && odd_[next_odd_].at == step_) odd = &odd_[next_odd_++];
  if (odd != nullptr && (odd->count == 0 || odd->count > node.count)) return "more of a block than there is";
  complete_ = odd == nullptr || odd->count == node.count;
  if (const auto wrong = leave(node); !wrong.empty()) return wrong;
  put(node, taken_, odd);
  ++step_;
  return {};
}

// Steps up to `until`, at which nothing is told and nothing changes.
std::string_view WalkReader::plain(uint64_t until) {
  const size_t room = until - step_;
  uint32_t* const codes = out_.steps.open_runs(map_.runs(), room);
  size_t written = 0;
  uint64_t instructions = 0;
  std::string_view wrong;
  const BlockMap::Node* beyond = nullptr;  // a block that is not in the table of runs
  for (; step_ < until && beyond == nullptr; ++step_) {
    if (wrong = enter(); !wrong.empty()) break;
    const BlockMap::Node& node = *map_.at(block_);
    complete_ = true;
    if (wrong = leave(node); !wrong.empty()) break;
    if (node.run == 0) {
      beyond = &node;
      continue;
    }
    codes[written++] = node.run << StepList::kRunShift | (taken_ ? StepList::kTakenBit : 0);
    instructions += node.count;
  }
  if (written != 0) out_.steps.time_runs(room, 0, time_);
  out_.steps.close_runs(room, written, instructions);
  if (beyond != nullptr) put(*beyond, taken_, nullptr);
  return wrong;
}

std::string WalkReader::walk() {
  out_.steps.reserve(steps_);
  std::string_view wrong;
  while (step_ < steps_ && wrong.empty()) {
    uint64_t until = steps_;
    if (next_told_ < told_.size()) until = std::min<uint64_t>(until, told_[next_told_].at);
    if (next_odd_ < odd_.size()) until = std::min<uint64_t>(until, odd_[next_odd_].at);
    if (next_time_ < times_.size()) until = std::min<uint64_t>(until, times_[next_time_].at);
    wrong = until > step_ ? plain(until) : one();
  }
  if (wrong.empty() && bit_ != bit_count_) wrong = "it has too many bits";
  return std::string(wrong);
}

}  // namespace

std::string read_walk(const BlockMap& map, std::span<const uint8_t> body, std::span<const uint8_t> prefix,
                      Chunk& out) {
  std::string wrong = WalkReader(map, body, out).read(prefix);
  const auto steps = static_cast<uint32_t>(out.steps.size());
  if (!wrong.empty()) {
    std::erase_if(out.events, [&](const Event& e) { return e.step > steps; });
    std::erase_if(out.gaps, [&](const Gap& g) { return g.step > steps; });
  }
  return wrong;
}

}  // namespace asof::blocks
