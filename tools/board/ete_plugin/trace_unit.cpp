#include "tools/board/ete_plugin/trace_unit.h"

#include <algorithm>

namespace asof::ete {
namespace {

// TRCCONFIGR
constexpr uint64_t kBroadcast = 1 << 3, kCycles = 1 << 4, kContextIds = 1 << 6, kTimestamps = 1 << 11,
                   kReturnStack = 1 << 12;
constexpr size_t kReturnDepth = 8;      // IMPLEMENTATION DEFINED
constexpr uint64_t kMostCycles = 4095;  // TRCIDR2.CCSIZE: 12 bits

constexpr unsigned exception_level(uint64_t ip) { return ip >> 63 != 0 ? 1 : 0; }

}  // namespace

TraceUnit::TraceUnit(const Registers& registers, Output output, OnElements on_elements, OnSync on_sync)
    : registers_(registers),
      output_(std::move(output)),
      on_elements_(std::move(on_elements)),
      on_sync_(std::move(on_sync)) {}

// ---- which instructions are traced ---------------------------------------------------------------------------------

// IHI 0064, "Selecting a resource": pair 0 is FALSE and TRUE; of the others only counters at zero are modelled.
bool TraceUnit::resource(uint64_t selector) const { return (selector & 0x9f) == 1; }

// "Address range comparators", and the Exception levels that TRCACATR excludes (NS: 14:12).
bool TraceUnit::in_range(unsigned pair, uint64_t ip) const {
  if (registers_.at(Register::kAddressType0, 2 * pair) >> (12 + exception_level(ip)) & 1) return false;
  return ip >= registers_.at(Register::kAddress0, 2 * pair) &&
         ip <= registers_.at(Register::kAddress0, 2 * pair + 1);
}

// "ViewInst include/exclude function": without included ranges everything is.
bool TraceUnit::included(uint64_t ip) const {
  const uint64_t ranges = registers_[Register::kIncludeExclude];
  bool in = (ranges & 0xff) == 0;
  for (unsigned i = 0; i < 4; ++i) {
    if ((ranges >> i & 1) && in_range(i, ip)) in = true;
    if ((ranges >> (16 + i) & 1) && in_range(i, ip)) return false;
  }
  return in;
}

// DDI 0487, D3.2 "Prohibited regions" (TRFCR_EL1.E0TRE, E1TRE); IHI 0064, "Filtering instructions: ViewInst".
bool TraceUnit::active(uint64_t ip) const {
  const unsigned el = exception_level(ip);
  if (!(trfcr_ >> el & 1)) return false;
  const uint64_t view = registers_[Register::kViewInst];
  if (view >> (20 + el) & 1) return false;  // EXLEVEL_NS
  return !filters_ || included(ip);
}

// IHI 0064, "TRCPRGCTLR"; "Trace unit reset and enabling": the first thing that is traced is behind a Trace On.
void TraceUnit::enable() {
  config_ = registers_[Register::kConfig];
  filters_ = registers_[Register::kIncludeExclude] != 0;
  enabled_ = resource(registers_[Register::kViewInst] & 0xff);
  on_ = overflow_ = lost_ = false;
  want_sync_ = true;
  target_.reset();
  synchronize();
}

void TraceUnit::disable() {
  stop();
  drain();
  enabled_ = false;
}

// DDI 0487, "Context synchronization event".
void TraceUnit::synchronize() {
  trfcr_ = registers_[Register::kTrfcr];
  if (next_context_id_ != context_id_ && (config_ & kContextIds)) new_context_ = true;
  context_id_ = next_context_id_;
}

// ---- packets -------------------------------------------------------------------------------------------------------

// IHI 0064, "Instruction trace packets": the formats are tests/support/etm_writer.h's. Packet by
// packet: the last one that the buffer takes may be any of them.
void TraceUnit::drain() {
  writer_.flush();
  const std::vector<uint8_t> bytes = writer_.take();
  written_bytes_ += bytes.size();
  bool awaits_address = false;  // an exception is told by its address
  for (const test::EtmPacket& p : writer_.take_packets()) {
    lost_ = !output_(std::span(bytes).subspan(p.offset, p.size));
    if (lost_) overflow_ = true;
    const uint64_t elements = p.atoms + (awaits_address ? 1 : 0);
    awaits_address = p.kind == test::EtmKind::kException;
    if (elements == 0) continue;
    given_ += elements;
    on_elements_(given_, lost_);
  }
}

test::EtmContext TraceUnit::context(uint64_t ip) const {
  test::EtmContext c;
  c.el = static_cast<uint8_t>(exception_level(ip));
  if (config_ & kContextIds) c.context_id = context_id_;
  return c;
}

// IHI 0064, "Trace synchronization": A-Sync, Trace Info; address and context follow before any P0 element.
void TraceUnit::sync(std::optional<uint64_t> time) {
  write_target();
  drain();
  on_sync_();
  writer_.async();
  test::EtmTraceInfo info{.info = config_ & kCycles ? 1 : 0};
  if (config_ & kCycles) info.cycle_threshold = static_cast<uint32_t>(registers_[Register::kCycleCtl]);
  writer_.trace_info(info);
  returns_.clear();
  if ((config_ & kTimestamps) && time) counts(counted_at_, time);
  synced_at_ = written_bytes_;
  want_sync_ = false;
}

// "Trace On": the trace was not contiguous. An overflow is told before it.
void TraceUnit::start(uint64_t ip, std::optional<uint64_t> time) {
  target_.reset();
  returns_.clear();
  if (overflow_) writer_.overflow();
  overflow_ = false;
  if (want_sync_) sync(time);
  writer_.trace_on();
  writer_.address_with_context(ip, context(ip));
  new_context_ = false;
  on_ = true;
  drain();
}

// "Filtering instructions: ViewInst": what is not traced has no packet; the next start has a Trace On.
void TraceUnit::stop() {
  target_.reset();
  on_ = false;
}

void TraceUnit::stand(uint64_t ip, std::optional<uint64_t> time) {
  if (on_) return;
  if (enabled_ && active(ip)) start(ip, time);
}

// DDI 0487, "Trace synchronization": TSB CSYNC waits until what was traced before has reached memory.
void TraceUnit::flush() {
  if (on_) write_target();
  drain();
}

void TraceUnit::request_sync() { want_sync_ = true; }

void TraceUnit::begin_after_loss() {
  drain();  // what was collected meanwhile is lost as well
  if (on_) stop();
  want_sync_ = overflow_ = true;
}

// "Address element", "Context element": where a decoder cannot derive the target.
void TraceUnit::write_target() {
  if (!target_) return;
  const Target t = *target_;
  target_.reset();
  if (t.with_context || new_context_)
    writer_.address_with_context(t.address, context(t.address));
  else
    writer_.address(t.address);
  new_context_ = false;
}

// "Atom element": E a branch that was taken, or another P0 instruction; N one that was not.
void TraceUnit::atom(bool taken) {
  write_target();
  writer_.atom(taken);
  ++made_;
}

// "Return stack": the return addresses of BL, BLR and those like them
void TraceUnit::push(uint64_t address) {
  if (!(config_ & kReturnStack)) return;
  returns_.push_back(address);
  if (returns_.size() > kReturnDepth) returns_.erase(returns_.begin());
}

// "Branch broadcasting": TRCBBCTLR.MODE 0 excludes the ranges, 1 includes them.
bool TraceUnit::broadcast(uint64_t ip) const {
  if (!(config_ & kBroadcast)) return false;
  const uint64_t control = registers_[Register::kBroadcastCtl];
  bool in = false;
  for (unsigned i = 0; i < 4; ++i) in = in || ((control >> i & 1) && in_range(i, ip));
  return (control >> 8 & 1) ? in : !in;
}

// "P0 instructions": direct and indirect branches, ISB, exception returns
void TraceUnit::retire(Kind kind, uint64_t ip, uint64_t next, uint64_t cycles, std::optional<uint64_t> time) {
  const bool synchronizes = kind == Kind::kIsb || kind == Kind::kExceptionReturn;
  const bool taken = kind != Kind::kConditional || next != ip + 4;
  if (on_ && is_p0(kind)) atom(taken);
  if (synchronizes) synchronize();
  if (!on_ || !is_p0(kind)) {
    if (on_ && !active(next)) stop();
    return;
  }
  const bool on_after = active(next);
  const bool direct = kind <= Kind::kCall || kind == Kind::kIsb;
  if (direct) {
    // A conditional branch to the next instruction looks not taken, which is the same to a decoder.
    if (on_after && kind != Kind::kIsb && taken && broadcast(ip)) target_ = Target{next, false, false};
  } else if (kind == Kind::kReturn && !broadcast(ip) && !returns_.empty() && returns_.back() == next &&
             on_after) {
    returns_.pop_back();  // "Return stack": the target is the decoder's top
  } else if (on_after) {
    target_ = Target{next, kind == Kind::kExceptionReturn, kind == Kind::kExceptionReturn};
  }
  if (kind == Kind::kCall || kind == Kind::kIndirectCall) push(ip + 4);
  if (on_after)
    after_element(next, cycles, time);
  else
    stop();
}

// "Exception element": traced when the instruction before it was. If a branch led to the return address and that
// address has not been told, one packet tells both (E 0b10).
void TraceUnit::exception(uint16_t type, uint64_t from, uint64_t vector, uint64_t cycles,
                          std::optional<uint64_t> time) {
  if (!on_) return synchronize();
  const bool both = target_ && !target_->with_context && !new_context_ && target_->address == from;
  if (both)
    target_.reset();
  else
    write_target();
  writer_.exception(type, from,
                    both ? test::EtmExceptionAddress::kTarget : test::EtmExceptionAddress::kReturn);
  ++made_;
  drain();
  synchronize();
  if (!active(vector)) return stop();
  target_ = Target{vector, true, false};
  after_element(vector, cycles, time);
}

// ---- time ----------------------------------------------------------------------------------------------------------

// "Timestamp requests": TRCTSCTLR selects a counter that reloads itself; it is at zero every reload + 1 cycles. The
// timestamp follows the next P0 element. A cycle is an instruction.
bool TraceUnit::timestamp_due(uint64_t cycles) {
  if (!(config_ & kTimestamps)) return false;
  const uint64_t event = registers_[Register::kTimestampCtl] & 0x9f;
  if (event == 1) return true;
  if (event < 2 || event > 15) return false;
  const uint64_t selected = registers_.at(Register::kSelector2, static_cast<unsigned>(event - 2));
  if ((selected >> 16 & 15) != 2) return false;  // group 2: counters and sequencer
  for (unsigned i = 0; i < 2; ++i) {
    if (!(selected >> i & 1)) continue;
    const uint64_t reload = registers_[i == 0 ? Register::kReload0 : Register::kReload1];
    if (cycles - stamped_at_ <= reload) continue;
    return true;
  }
  return false;
}

void TraceUnit::counts(uint64_t cycles, std::optional<uint64_t> time) {
  const uint64_t count = cycles - counted_at_;
  if (time && !(config_ & kCycles)) return writer_.timestamp(*time);
  counted_at_ = cycles;
  if (time) return writer_.timestamp(*time, static_cast<uint32_t>(std::min(count, kMostCycles)));
  // "Cycle count element": an unknown count when the counter has overflowed.
  if (count > kMostCycles)
    writer_.cycle_count_f1({});
  else
    writer_.cycle_count_f1(static_cast<uint32_t>(count));
}

// "Cycle counting", "Timestamps", "Trace synchronization": all behind a P0 element.
void TraceUnit::after_element(uint64_t next, uint64_t cycles, std::optional<uint64_t> time) {
  if (timestamp_due(cycles) && time) {
    write_target();
    counts(cycles, time);
    stamped_at_ = cycles;
  } else if ((config_ & kCycles) && cycles - counted_at_ >= registers_[Register::kCycleCtl]) {
    write_target();
    counts(cycles, {});
  }
  if (new_context_ && !target_) {
    writer_.context(context(next));
    new_context_ = false;
  }
  if (writer_.offset() != 0) drain();
  const uint64_t period = registers_[Register::kSyncPeriod];
  const bool due = period != 0 && written_bytes_ - synced_at_ >= 1ull << period;
  if (!due && !want_sync_) return;
  sync(time);
  writer_.address_with_context(next, context(next));
  drain();
}

}  // namespace asof::ete
