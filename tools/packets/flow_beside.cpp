#include "tools/packets/flow_beside.h"

#include <algorithm>
#include <utility>

#include "tools/output/diagnostics.h"

namespace asof {
namespace {

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

uint64_t number_of(const PacketReader& reader, std::string_view field) {
  PacketFields fields;
  reader.describe(fields);
  for (const PacketField& f : fields.all())
    if (f.name == field) return f.value;
  return 0;
}

// A FUP behind its packet may say where it happened.
bool may_have_fup(EventKind k) {
  return k == EventKind::kPtwrite || k == EventKind::kExstop || k == EventKind::kMwait ||
         k == EventKind::kBep || k == EventKind::kCfe || k == EventKind::kTsxBegin ||
         k == EventKind::kTsxCommit;
}

// The flow may be elsewhere after it than the branches say.
bool moves_flow(EventKind k) {
  return k == EventKind::kTraceStart || k == EventKind::kTraceStop || k == EventKind::kAsync ||
         k == EventKind::kOverflow || k == EventKind::kTsxAbort;
}

}  // namespace

FlowBeside::Use FlowBeside::use_of(const TracePacket& k) const { return uses_[k.type]; }

// Streams without any flow come in their place.
void FlowBeside::list_before(size_t index) {
  for (; next_stream_ < index && !stopped_; ++next_stream_) {
    const Stream& stream = capture_.streams[next_stream_];
    if (!lister_.wants(stream)) continue;
    if (const auto reader = arch_.packets(stream, next_stream_)) lister_.list(stream, *reader);
    stopped_ = lister_.stopped();
  }
}

void FlowBeside::open(size_t index, const Stream& stream) {
  end_stream();
  list_before(index);
  next_stream_ = index + 1;
  stream_ = &stream;
  reader_ = arch_.packets(stream, index);
  uses_.clear();
  for (const std::string_view name : reader_->names()) {
    uses_.push_back(is_one_of(name, {"TNT.8", "TNT.64"})                    ? Use::kTnt
                    : name == "TIP"                                         ? Use::kTip
                    : name == "PSB"                                         ? Use::kSync
                    : is_one_of(name, {"FUP", "TIP.PGE", "TIP.PGD", "OVF"}) ? Use::kOwn
                                                                            : Use::kOther);
  }
  holds_ = ended_ = following_ = shown_ = after_sync_ = false;
  bits_ = target_ = passed_ = 0;
  waits_ = false;
  segment_ = 0;
  lister_.start(stream, *reader_);
}

void FlowBeside::end_stream() {
  if (reader_ == nullptr) return;
  pass(UINT64_MAX);
  reader_.reset();
}

void FlowBeside::finish() {
  end_stream();
  list_before(capture_.streams.size());
}

void FlowBeside::release() {
  if (!holds_) return;
  holds_ = false;
  passed_ = held_.offset + (held_.type == kPacketLost ? 0 : held_.size);
  const Use use = use_of(held_);
  if (use == Use::kTnt) bits_ = number_of(*reader_, "count");
  const bool shown = lister_.add(*stream_, *reader_, held_);
  if (use != Use::kOther) shown_ = shown;
}

bool FlowBeside::read() {
  if (!holds_ && !ended_) {
    holds_ = reader_->next(held_);
    stopped_ = lister_.stopped();
    ended_ = !holds_ || stopped_;
  }
  return holds_ && !ended_;
}

bool FlowBeside::hold() {
  while (read()) {
    if (use_of(held_) != Use::kOther) return true;
    release();
  }
  return false;
}

bool FlowBeside::pass(uint64_t end) {
  bool unused = bits_ != 0;
  while (read() && held_.offset < end) {
    const Use use = use_of(held_);
    unused = unused || use == Use::kTnt || use == Use::kTip;
    release();
  }
  bits_ = 0;
  return unused;
}

void FlowBeside::lose() {
  if (following_) ++unmatched_;
  following_ = false;
  bits_ = target_ = 0;
  waits_ = false;
}

// The rest of a PSB+: its FUP says only where the flow is.
void FlowBeside::pass_group() {
  while (read()) {
    const std::string_view name = reader_->names()[held_.type];
    if (is_one_of(name, {"TNT.8", "TNT.64", "TIP", "TIP.PGE", "TIP.PGD", "OVF", "PSB", "BAD"})) return;
    release();
    if (name == "PSBEND") return;
  }
}

bool FlowBeside::release_if(std::initializer_list<std::string_view> names) {
  if (!hold() || !is_one_of(reader_->names()[held_.type], names)) return false;
  release();
  bits_ = 0;
  return true;
}

void FlowBeside::at_event(const Event& e) {
  const bool sync = e.kind == EventKind::kPsb;
  if (!sync && !moves_flow(e.kind) && !may_have_fup(e.kind)) return;
  if (e.offset >= passed_ && pass(e.offset)) lose();
  waits_ = false;
  target_ = 0;
  const bool here = holds_ && held_.offset == e.offset;
  if (here) {
    release();
    bits_ = 0;
  }
  if (sync) {
    if (!here) return lose();
    pass_group();
    following_ = after_sync_ = true;
    return;
  }
  if (here && (may_have_fup(e.kind) || e.kind == EventKind::kOverflow || e.kind == EventKind::kTsxAbort))
    release_if({"FUP"});
  // The other half of an interrupt.
  if (e.kind == EventKind::kAsync || e.kind == EventKind::kTsxAbort) release_if({"TIP", "TIP.PGD"});
}

// The flow goes on where a packet says it does.
void FlowBeside::at_gap(const Gap& g) {
  pass(std::max(g.begin, g.end));
  following_ = false;
  bits_ = target_ = 0;
  waits_ = false;
  lister_.line(
      [&](PacketStyle& style, std::string& out) { style.gap(out, g, gap_text(capture_, *stream_, g)); });
  if (g.resume_ip != 0) following_ = release_at(g.resume_ip, {"TIP", "TIP.PGE", "FUP"});
}

bool FlowBeside::release_at(Addr ip, std::initializer_list<std::string_view> names) {
  return hold() && number_of(*reader_, "ip") == ip && release_if(names);
}

// Which packet the branch at the end of a block that ran to its end used.
void FlowBeside::use(BranchKind kind) {
  const bool ret = kind == BranchKind::kRet;
  const bool bit = kind == BranchKind::kCond || ret;
  const bool tip = ret || kind == BranchKind::kJumpInd || kind == BranchKind::kCallInd ||
                   kind == BranchKind::kFarCall || kind == BranchKind::kFarRet ||
                   kind == BranchKind::kFarJump;
  if (!bit && !tip) return;
  if (bits_ == 0 && hold()) {
    const Use next = use_of(held_);
    if ((next == Use::kTnt && bit) || (next == Use::kTip && tip)) {
      if (next == Use::kTip) target_ = number_of(*reader_, "ip");
      release();
      if (next == Use::kTip) return;
    } else if (next == Use::kTnt || next == Use::kTip) {
      return lose();
    }
  }
  if (bits_ == 0) {
    waits_ = true;  // an event says what happened
    return;
  }
  if (!bit) return lose();
  --bits_;
}

void FlowBeside::at_step(const Step& s) {
  // Tracing may be switched on with a sync point, at the address that it has.
  if (std::exchange(after_sync_, false)) release_at(s.block->ip, {"TIP.PGE"});
  if (waits_ || (target_ != 0 && target_ != s.block->ip)) lose();
  target_ = 0;
  if (shown_) {
    lister_.line([&](PacketStyle& style, std::string& out) {
      style.block(out, s, symbol_text(capture_, *stream_, s.block->ip, s.time), following_);
    });
  }
  if (following_ && s.count == s.block->count) use(s.block->kind);
}

void FlowBeside::deliver(Chunk& chunk, const Stream& stream, Prepared*) {
  if (stream_ != &stream || reader_ == nullptr) open(chunk.stream, stream);
  if (chunk.segment > segment_ + 1) following_ = false;  // --time left out what is between
  segment_ = chunk.segment;
  size_t event = 0, gap = 0;
  const auto before = [&](size_t position) {
    for (;;) {
      const bool e = event < chunk.events.size() && chunk.events[event].step <= position;
      const bool g = gap < chunk.gaps.size() && chunk.gaps[gap].step <= position;
      if (!e && !g) return;
      if (g && (!e || chunk.gaps[gap].begin <= chunk.events[event].offset))
        at_gap(chunk.gaps[gap++]);
      else
        at_event(chunk.events[event++]);
    }
  };
  size_t last = SIZE_MAX;
  for (auto step = chunk.steps.begin(); step != chunk.steps.end() && !stopped_; ++step) {
    if (step.position() != last) before(last = step.position());
    at_step(*step);
  }
  before(SIZE_MAX);
}

}  // namespace asof
