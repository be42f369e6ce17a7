#include "tools/board/ete_plugin/trace_unit.h"

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

// TRCRSCTLR<n>; "Selecting a resource": pair 0 is FALSE and TRUE; of the others only counters at zero are modelled.
bool TraceUnit::resource(uint64_t selector) const { return (selector & 0x9f) == 1; }

// D4.6.6.2 "Address Range Comparators", and the Exception levels that TRCACATR excludes (NS: 14:12).
bool TraceUnit::in_range(unsigned pair, uint64_t ip) const {
  if (registers_.at(Register::kAddressType0, 2 * pair) >> (12 + exception_level(ip)) & 1) return false;
  return ip >= registers_.at(Register::kAddress0, 2 * pair) &&
         ip <= registers_.at(Register::kAddress0, 2 * pair + 1);
}

// D4.5.9 "Filtering trace generation", ViewInst include/exclude function: without included ranges everything is.
bool TraceUnit::included(uint64_t ip) const {
  const uint64_t ranges = registers_[Register::kIncludeExclude];
  bool in = (ranges & 0xff) == 0;
  for (unsigned i = 0; i < 4; ++i) {
    if ((ranges >> i & 1) && in_range(i, ip)) in = true;
    if ((ranges >> (16 + i) & 1) && in_range(i, ip)) return false;
  }
  return in;
}

// D3.2.1 "Controls to prohibit trace at Exception levels" (TRFCR_EL1.E0TRE, E1TRE); D4.5.9.1.2 "Exception level
// filtering".
bool TraceUnit::permitted(uint64_t ip) const {
  const unsigned el = exception_level(ip);
  return (trfcr_ >> el & 1) && !(registers_[Register::kViewInst] >> (20 + el) & 1);  // EXLEVEL_NS
}

bool TraceUnit::active(uint64_t ip) const { return permitted(ip) && (!filters_ || included(ip)); }

// D4.5.2.1 "Behavior on enabling"; D4.3.6.1 "Trace On element": what is traced first is behind one. The first cycle
// count is unknown (R_YFMWB).
void TraceUnit::enable() {
  config_ = registers_[Register::kConfig];
  filters_ = registers_[Register::kIncludeExclude] != 0;
  enabled_ = resource(registers_[Register::kViewInst] & 0xff);
  on_ = lost_ = counted_ = false;
  want_sync_ = true;
  target_.reset();
  synchronize();
}

void TraceUnit::disable() {
  stop();
  drain();
  enabled_ = false;
}

// D4.5.7 "Visibility of the PE operation": System registers are read as Context synchronization events allow.
void TraceUnit::synchronize() {
  trfcr_ = registers_[Register::kTrfcr];
  if (next_context_id_ != context_id_ && (config_ & kContextIds)) new_context_ = true;
  context_id_ = next_context_id_;
}

// ---- packets -------------------------------------------------------------------------------------------------------

// The formats are tests/support/etm_writer.h's. Packet by packet: the last one that the buffer takes may be any of them.
// D6.2 "The trace buffer" (R_YMVZL): what comes while collection is stopped is discarded. The unit does not learn of it,
// so there is no Overflow element.
void TraceUnit::drain() {
  writer_.flush();
  const std::vector<uint8_t> bytes = writer_.take();
  written_bytes_ += bytes.size();
  bool awaits_address = false;  // an exception is told by its address
  for (const test::EtmPacket& p : writer_.take_packets()) {
    lost_ = !output_(std::span(bytes).subspan(p.offset, p.size));
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

// D4.3.2 "Trace protocol synchronization": A-Sync, Trace Info; address and context follow before any P0 element. D4.5.12.4
// "Return stack address matching" (R_SBZJB): the return stack is empty then.
void TraceUnit::sync(std::optional<uint64_t> time) {
  write_target();
  drain();
  on_sync_();
  writer_.async();
  test::EtmTraceInfo info{.info = config_ & kCycles ? 1 : 0};
  if (config_ & kCycles) info.cycle_threshold = static_cast<uint32_t>(registers_[Register::kCycleCtl]);
  writer_.trace_info(info);
  returns_.clear();
  // D4.5.10.16 "Timestamp element" (R_CWHHW): where trace begins, only behind the first P0 element.
  if (on_ && (config_ & kTimestamps) && time)
    timestamp(counted_at_, *time);
  else
    wants_time_ = true;
  synced_at_ = written_bytes_;
  want_sync_ = false;
}

// D4.3.6.1 "Trace On element": the trace was not contiguous.
void TraceUnit::start(uint64_t ip, std::optional<uint64_t> time) {
  target_.reset();
  returns_.clear();
  if (want_sync_) sync(time);
  writer_.trace_on();
  writer_.address_with_context(ip, context(ip));
  new_context_ = false;
  on_ = true;
  drain();
}

// D4.5.10.17 "Trace On element": what is not traced has no packet; the next start has a Trace On.
void TraceUnit::stop() {
  target_.reset();
  on_ = leaving_ = false;
}

// D4.5.9.5 "Rules for tracing Exceptional occurrences" (TRCRSR.TA, R_DPMBQ): an exception in front of the first instruction out of the
// ranges is traced, because the instruction before it was.
void TraceUnit::leave(uint64_t next) {
  if (!permitted(next)) return stop();
  leaving_ = true;
}

void TraceUnit::stand(uint64_t ip, std::optional<uint64_t> time) {
  if (on_) return;
  if (enabled_ && active(ip)) start(ip, time);
}

// D4.5.2.3 "Behavior on flushing": TSB CSYNC waits until what was traced before has reached memory. K10.5.9: it asks for a
// timestamp.
void TraceUnit::flush() {
  if (tracing()) write_target();
  drain();
  wants_time_ = true;
}

// D4.3.2.2 "Periodic trace protocol synchronization" (I_NTFYC): the trace capture infrastructure may ask for it. Whether a
// trace buffer does when it accepts trace again is not said; without it nothing could be decoded up to the next period.
void TraceUnit::request_sync() { want_sync_ = true; }

void TraceUnit::begin_after_loss() {
  drain();  // what was collected meanwhile is lost as well
  if (on_) stop();
  request_sync();
}

// D4.5.10.13 "Target Address element", D4.5.10.12 "Context element": where a decoder cannot derive the target.
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

// D4.5.10.2 "Atom element": E a branch that was taken, or another P0 instruction; N one that was not.
void TraceUnit::atom(bool taken) {
  write_target();
  writer_.atom(taken);
  ++made_;
}

// D4.5.12.4 "Return stack address matching": the return addresses of BL, BLR and those like them, but not where branches are
// broadcast (R_WRXCW).
void TraceUnit::push(uint64_t ip) {
  if (!(config_ & kReturnStack) || broadcast(ip)) return;
  returns_.push_back(ip + 4);
  if (returns_.size() > kReturnDepth) returns_.erase(returns_.begin());
}

// The same section: the target of any indirect P0 instruction may be the newest entry, which a decoder takes then
// (R_QHSBN, R_VQTVR).
bool TraceUnit::pop(uint64_t ip, uint64_t next) {
  if (returns_.empty() || returns_.back() != next || broadcast(ip)) return false;
  returns_.pop_back();
  return true;
}

// D4.5.11.2 "Branch broadcasting": TRCBBCTLR.MODE 0 excludes the ranges, 1 includes them.
bool TraceUnit::broadcast(uint64_t ip) const {
  if (!(config_ & kBroadcast)) return false;
  const uint64_t control = registers_[Register::kBroadcastCtl];
  bool in = false;
  for (unsigned i = 0; i < 4; ++i) in = in || ((control >> i & 1) && in_range(i, ip));
  return (control >> 8 & 1) ? in : !in;
}

// D4.4 "Instruction and exception classification", A64: direct P0 instructions (branches, ISB), indirect ones (branches,
// exception returns). A call is pushed before a return is matched (R_SLDXR).
void TraceUnit::retire(Kind kind, uint64_t ip, uint64_t next, uint64_t cycles, std::optional<uint64_t> time) {
  if (leaving_) stop();
  const bool synchronizes = kind == Kind::kIsb || kind == Kind::kExceptionReturn;
  const bool taken = kind != Kind::kConditional || next != ip + 4;
  if (on_ && is_p0(kind)) atom(taken);
  if (synchronizes) synchronize();
  if (!on_ || !is_p0(kind)) {
    if (on_ && !active(next)) leave(next);
    return;
  }
  const bool direct = kind <= Kind::kCall || kind == Kind::kIsb;
  if (kind == Kind::kCall || kind == Kind::kIndirectCall) push(ip);
  if (direct) {
    // A conditional branch to the next instruction looks not taken, which is the same to a decoder.
    if (taken && broadcast(ip)) target_ = Target{next, false};
  } else if (pop(ip, next)) {
    if (kind == Kind::kExceptionReturn) new_context_ = true;
  } else {
    target_ = Target{next, kind == Kind::kExceptionReturn};
  }
  if (active(next))
    after_element(next, cycles, time, synchronizes);
  else
    leave(next);
}

// D4.5.9.5 "Rules for tracing Exceptional occurrences": traced when the instruction before it was (TRCRSR.TA). If a branch led
// to the return address and that address has not been told, one packet tells both (E 0b10).
void TraceUnit::exception(uint16_t type, uint64_t from, uint64_t vector, uint64_t cycles,
                          std::optional<uint64_t> time) {
  if (!on_) return synchronize();
  leaving_ = false;
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
  target_ = Target{vector, true};
  after_element(vector, cycles, time, true);
}

// ---- time ----------------------------------------------------------------------------------------------------------

// D4.5.11.8 "Timestamping": TRCTSCTLR selects a counter that reloads itself; it is at zero every reload + 1 cycles. The
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

// D4.5.10.16 "Timestamp element": its count is that since the last Cycle Count element, and leaves the counter alone
// (R_ZMQLT, R_MWJHD). Above the counter's size it is UNKNOWN, and the packet has none (K10.5.2.16, TimestampPacket(): N 0).
void TraceUnit::timestamp(uint64_t cycles, uint64_t time) {
  const uint64_t count = cycles - counted_at_;
  if (!(config_ & kCycles) || count > kMostCycles) return writer_.timestamp(time);
  writer_.timestamp(time, static_cast<uint32_t>(count));
}

// "Cycle Count element": unknown for the first, and when the counter has overflowed (R_YFMWB, R_YVWJW). The packet has
// what exceeds the threshold that the Trace Info tells (D5.3.15).
void TraceUnit::count(uint64_t cycles) {
  const uint64_t count = cycles - counted_at_, threshold = registers_[Register::kCycleCtl];
  const bool known = counted_ && count <= kMostCycles;
  counted_at_ = cycles;
  counted_ = true;
  writer_.cycle_count_f1(known ? std::optional(static_cast<uint32_t>(count - threshold)) : std::nullopt);
}

// Behind a P0 element: D4.5.10.16 "Timestamp element" (R_YYWTR: exceptions, returns from them and ISB ask for one, too),
// D4.5.11.4 "Cycle counting", D4.3.2.2 "Periodic trace protocol synchronization".
void TraceUnit::after_element(uint64_t next, uint64_t cycles, std::optional<uint64_t> time,
                              bool synchronized) {
  const bool asked = ((synchronized || wants_time_) && (config_ & kTimestamps)) || timestamp_due(cycles);
  if (asked && time) {
    write_target();
    timestamp(cycles, *time);
    stamped_at_ = cycles;
    wants_time_ = false;
  } else if ((config_ & kCycles) && cycles - counted_at_ >= registers_[Register::kCycleCtl]) {
    write_target();
    count(cycles);
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
