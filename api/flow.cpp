// Records of the flow: what FlowWalk passes, as public structures.
#include "asof/flow.h"

#include <unordered_map>

#include "api/convert.h"
#include "api/flow_walk.h"
#include "api/record_source.h"
#include "asof/capture.h"
#include "decoder/blocks/block_text.h"

namespace asof::v0 {
namespace {

constexpr size_t kBatch = 1024;  // records, about

// A step's flags. kTaken also for a branch that has no choice.
uint8_t flags_of(const asof::Step& step) {
  const uint8_t flags = step.flags & (kAfterGap | kAsyncEntry | kTransaction);
  return asof::took_branch(step) ? flags | kTaken : flags;
}

template <class Record>
void set_who(Record& record, const Who& who) {
  record.cpu = who.cpu;
  record.pid = who.pid;
  record.tid = who.tid;
}

// Pieces of the blocks' text by version, found once for each block.
class BlockSources {
 public:
  explicit BlockSources(const asof::Capture& capture) : texts_(capture) {}
  std::span<const asof::TextPiece> of(const asof::Block& block) {
    auto& pieces = known_[&block];
    if (pieces.empty()) {
      const auto found = texts_.of(block);
      pieces.assign(found.begin(), found.end());
      if (pieces.empty()) pieces.push_back({block.count, 0, block.origin});
    }
    return pieces;
  }

 private:
  asof::BlockTexts texts_;
  std::unordered_map<const asof::Block*, std::vector<asof::TextPiece>> known_;
};

class Converter {
 public:
  explicit Converter(const asof::Capture& capture) : sources_(capture) {}

  Block block(const FlowPoint& p) {
    const asof::Step& step = *p.step;
    const asof::Block& b = *step.block;
    Block out;
    out.ip = b.ip;
    out.target = b.target;
    out.time = step.time;
    out.from = b.from;
    out.until = b.until;
    out.bytes = b.bytes;
    out.lengths = b.lengths;
    out.count = step.count;
    out.size = b.size;
    for (uint32_t i = step.count; i < b.count; ++i) out.size -= b.lengths[i];
    set_who(out, p.who);
    out.space = b.space;
    out.source = sources_.of(b).front().origin;
    out.mode = b.mode;
    out.branch = step.count == b.count ? to_public(b.kind) : Branch::kNone;
    out.confidence = to_public(step.confidence);
    out.flags = flags_of(step);
    return out;
  }

  void instructions(const FlowPoint& p, std::vector<Instruction>& out) {
    const asof::Step& step = *p.step;
    const asof::Block& b = *step.block;
    const uint8_t flags = flags_of(step);
    auto pieces = sources_.of(b);
    Instruction i;
    i.ip = b.ip;
    i.time = step.time;
    i.bytes = b.bytes;
    set_who(i, p.who);
    i.space = b.space;
    i.mode = b.mode;
    i.confidence = to_public(step.confidence);
    for (uint32_t n = 0, of_piece = 0; n < step.count; ++n, ++of_piece) {
      if (of_piece == pieces.front().instructions && pieces.size() > 1) {
        pieces = pieces.subspan(1);
        of_piece = 0;
      }
      i.source = pieces.front().origin;
      i.version = pieces.front().version;
      i.size = b.lengths[n];
      const bool last = n + 1 == b.count;
      i.branch = last ? to_public(b.kind) : Branch::kNone;
      // Flags of how a step was entered belong to its first instruction, of how it was left to its last.
      i.flags = flags & kTransaction;
      if (n == 0) i.flags |= flags & (kAfterGap | kAsyncEntry);
      if (last) i.flags |= flags & kTaken;
      out.push_back(i);
      i.ip += i.size;
      i.bytes += i.size;
    }
  }

  static Event event(const FlowPoint& p) {
    const asof::Event& e = *p.event;
    Event out{to_public(e.kind), e.time, e.ip, e.a, e.b, e.offset};
    set_who(out, p.who);
    return out;
  }

  static Gap gap(const FlowPoint& p) {
    const asof::Gap& g = *p.gap;
    Gap out{text_of(g.code), g.reason, to_public(g.time), g.ip, g.resume_ip, g.begin, g.end};
    out.file_offset = p.stream->file_offset(g.begin).value_or(0);
    set_who(out, p.who);
    return out;
  }

 private:
  BlockSources sources_;
};

template <class T>
constexpr FlowWants kWants = {};
template <>
constexpr FlowWants kWants<Instruction> = {.steps = true};
template <>
constexpr FlowWants kWants<Block> = {.steps = true};
template <>
constexpr FlowWants kWants<Event> = {.events = true};
template <>
constexpr FlowWants kWants<Gap> = {.gaps = true};
template <>
constexpr FlowWants kWants<FlowItem> = {.steps = true, .events = true, .gaps = true};

void convert(Converter& c, const FlowPoint& p, std::vector<Instruction>& out) { c.instructions(p, out); }
void convert(Converter& c, const FlowPoint& p, std::vector<Block>& out) { out.push_back(c.block(p)); }
void convert(Converter&, const FlowPoint& p, std::vector<Event>& out) { out.push_back(Converter::event(p)); }
void convert(Converter&, const FlowPoint& p, std::vector<Gap>& out) { out.push_back(Converter::gap(p)); }
void convert(Converter& c, const FlowPoint& p, std::vector<FlowItem>& out) {
  if (p.step != nullptr) {
    out.emplace_back(c.block(p));
  } else if (p.event != nullptr) {
    out.emplace_back(Converter::event(p));
  } else {
    out.emplace_back(Converter::gap(p));
  }
}

template <class T>
class FlowSource final : public RecordSource<T> {
 public:
  FlowSource(const std::shared_ptr<const CaptureData>& data, const Filter& filter)
      : converter_(data->capture), walk_(data, filter, kWants<T>) {}

  std::span<const T> next() override {
    batch_.clear();
    FlowPoint point;
    while (batch_.size() < kBatch && walk_.next(point)) convert(converter_, point, batch_);
    return batch_;
  }
  uint64_t reordered() const override { return walk_.reordered(); }

 private:
  Converter converter_;
  FlowWalk walk_;
  std::vector<T> batch_;
};

template <class T>
Records<T> records(const std::shared_ptr<const CaptureData>& data, const Filter& filter) {
  return Records<T>(std::make_unique<FlowSource<T>>(data, filter));
}

}  // namespace

Instructions Capture::instructions(const Filter& filter) const { return records<Instruction>(data_, filter); }
Blocks Capture::blocks(const Filter& filter) const { return records<Block>(data_, filter); }
Events Capture::events(const Filter& filter) const { return records<Event>(data_, filter); }
Gaps Capture::gaps(const Filter& filter) const { return records<Gap>(data_, filter); }
Flow Capture::flow(const Filter& filter) const { return records<FlowItem>(data_, filter); }

}  // namespace asof::v0
