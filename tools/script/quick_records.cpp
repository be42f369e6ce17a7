#include "tools/script/quick_records.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "arch/power_events.h"
#include "decoder/model/task_of.h"

namespace asof {
namespace {

using RecordKind = ScriptRecord::Kind;

}  // namespace

QuickRecords::Role QuickRecords::role_of(std::string_view name) {
  static constexpr std::pair<std::string_view, Role> kRoles[] = {
      {"PSB", {Use::kPsb}},
      {"PSBEND", {Use::kPsbend}},
      {"TIP", {Use::kTip}},
      {"TIP.PGE", {Use::kBegin}},
      {"TIP.PGD", {Use::kEnd}},
      {"FUP", {Use::kFup}},
      {"OVF", {Use::kOverflow}},
      {"CBR", {Use::kCbr}},
      {"MODE.TSX", {Use::kEvent, RecordKind::kTransaction}},
      {"PTWRITE", {Use::kEvent, RecordKind::kPtwrite}},
      {"MWAIT", {Use::kEvent, RecordKind::kMwait}},
      {"PWRE", {Use::kEvent, RecordKind::kPwre}},
      {"EXSTOP", {Use::kEvent, RecordKind::kExstop}},
      {"PWRX", {Use::kEvent, RecordKind::kPwrx}},
      {"TNT.8", {Use::kTnt}},
      {"TNT.64", {Use::kTnt}},
      {"MODE.Exec", {Use::kMode}},
      {"CFE", {Use::kOther}},
      {"BEP", {Use::kOther}},
      {"TRIG", {Use::kOther}},
  };
  const auto* const at = std::ranges::find(kRoles, name, &std::pair<std::string_view, Role>::first);
  return at == std::end(kRoles) ? Role{} : at->second;
}

QuickRecords::QuickRecords(const Stream& stream, std::unique_ptr<PacketReader> packets,
                           const ScriptItrace& itrace)
    : stream_(&stream), reader_(std::move(packets)), itrace_(itrace) {
  for (const std::string_view name : reader_->names()) roles_.push_back(role_of(name));
}

bool QuickRecords::read(uint64_t count, TimedText& out) {
  out_ = &out;
  for (uint64_t n = 0; n < count; ++n) {
    if (!reader_->next(packet_)) return false;
    if (packet_.type < kFirstPacketType) {
      line();
      continue;
    }
    ++packets_;
    const Role role = roles_[packet_.type];
    const Use use = role.use;
    if (use == Use::kNone || (itrace_.quick > 1 && !in_group_ && use != Use::kPsb)) continue;
    fields_.clear();
    if (use != Use::kTnt) reader_->describe(fields_);  // their bits are not needed
    packet(role);
  }
  return true;
}

void QuickRecords::line() {
  if (packet_.type == kPacketPadding || packet_.type == kPacketNoSync) return;
  forget();
  if (packet_.type != kPacketLost) {
    ++bad_;
    return error(kPerfDataError);
  }
  ++losses_;
  if (!itrace_.no_losses) error(kPerfLossError);
}

void QuickRecords::forget() {
  flush_from();
  waiting_.clear();
  group_ip_.reset();
  in_group_ = on_ = overflow_ = in_transaction_ = abort_ = bound_ = false;
}

void QuickRecords::packet(Role role) {
  if (in_group_) return in_group(role);
  switch (role.use) {
    case Use::kPsb:
      flush_from();
      in_group_ = true;
      group_ip_.reset();
      group_cbr_.reset();
      group_offset_ = packet_.offset;
      return;
    case Use::kTnt:
      bound_ = false;
      return flush_from();
    case Use::kMode:  // in front of a FUP: interrupts were switched on or off there (Event Trace)
      bound_ = !from_;
      return;
    case Use::kOther:
      bound_ = bound_ || number("ip") != 0;
      return;
    case Use::kBegin:
      flush_from();
      on_ = true;
      bound_ = overflow_ = false;
      branch(0, ip(), kFlagBranch | kFlagTraceBegin);
      return instruction(ip());
    case Use::kEnd: {
      const Addr from = from_.value_or(0);
      instruction(from, ip());
      branch(from, ip(), kFlagBranch | kFlagTraceEnd | (from != 0 ? uint32_t{kFlagAsync} : 0U));
      from_.reset();
      on_ = bound_ = false;
      return;
    }
    case Use::kTip:
      if (from_) {
        const uint32_t how = abort_ ? uint32_t{kFlagTxAbort} : kFlagCall | kFlagAsync | kFlagInterrupt;
        instruction(*from_, ip());
        branch(*from_, ip(), kFlagBranch | how);
        from_.reset();
      }
      bound_ = abort_ = false;
      return instruction(ip());
    case Use::kFup:
      return fup();
    case Use::kOverflow:
      forget();
      overflow_ = true;
      if (!itrace_.no_overflows) error(kPerfOverflowError);
      return;
    case Use::kCbr:
      return cbr(number("ratio"));
    default:
      return event(role.kind);
  }
}

void QuickRecords::in_group(Role role) {
  const Use use = role.use;
  if (use == Use::kFup && ip() != 0) {
    group_ip_ = ip();
    on_ = true;
  } else if (role.kind == RecordKind::kTransaction) {
    in_transaction_ = number("intx") != 0;
  } else if (use == Use::kCbr) {
    group_cbr_ = number("ratio");
  } else if (use == Use::kPsbend) {
    end_group();
  } else if (use == Use::kOverflow || use == Use::kPsb) {  // the group is cut short
    in_group_ = false;
    packet(role);
  }
}

void QuickRecords::end_group() {
  if (itrace_.power) {
    ScriptRecord r = record(RecordKind::kPsb, group_ip_.value_or(0));
    r.a = group_offset_;
    put(r);
    if (group_cbr_) cbr(*group_cbr_);
  }
  in_group_ = overflow_ = false;
  if (group_ip_) instruction(*group_ip_);
}

void QuickRecords::fup() {
  if (ip() == 0) return;
  const bool bound = std::exchange(bound_, false);
  bind(ip());
  if (std::exchange(overflow_, false)) {
    on_ = true;
    branch(0, ip(), kFlagBranch | kFlagTraceBegin);
    return instruction(ip());
  }
  if (bound && !abort_) return;
  if (!on_) return instruction(ip());
  flush_from();
  from_ = ip();
}

void QuickRecords::bind(Addr ip) {
  for (ScriptRecord& r : waiting_) {
    r.ip = ip;
    r.space = space_of(ip);
    put(r);
  }
  waiting_.clear();
}

void QuickRecords::event(RecordKind kind) {
  ScriptRecord r = record(kind, 0);
  bool wanted = itrace_.power, waits = number("ip") != 0;
  switch (kind) {
    case RecordKind::kTransaction:
      wanted = itrace_.transactions;
      in_transaction_ = number("intx") != 0;
      abort_ = number("txabort") != 0;
      waits = on_;
      break;
    case RecordKind::kPtwrite:
      wanted = itrace_.ptwrite;
      r.a = number("payload");
      r.b = number("bytes");
      break;
    case RecordKind::kMwait:
      r.a = number("hints");
      r.b = number("extensions");
      waits = on_;
      break;
    case RecordKind::kPwre:
      r.a = number("c_state");
      r.b = packed_pwre(number("sub_state"), number("hw") != 0);
      break;
    case RecordKind::kPwrx:
      r.a = number("last_c_state");
      r.b = packed_pwrx(number("deepest_c_state"),
                        number("interrupt") | number("store") << 2U | number("autonomous") << 3U);
      break;
    default:
      break;
  }
  bound_ = bound_ || waits;
  if (!wanted) return;
  if (!waits) return put(r);
  constexpr size_t kMostWaiting = 64;  // where a FUP follows, it follows soon
  if (waiting_.size() == kMostWaiting) bind(0);
  waiting_.push_back(r);
}

// perf shows those that are another than the last.
void QuickRecords::cbr(uint64_t ratio) {
  if (std::exchange(cbr_, ratio) == ratio || !itrace_.power) return;
  ScriptRecord r = record(RecordKind::kCbr, in_group_ ? group_ip_.value_or(0) : 0);
  r.a = ratio;
  put(r);
}

uint64_t QuickRecords::number(std::string_view field) const {
  const auto all = fields_.all();
  const auto at = std::ranges::find(all, field, &PacketField::name);
  return at == all.end() ? 0 : at->value;
}

Space QuickRecords::space_of(Addr ip) const {
  if (ip == 0 || is_kernel_address(ip)) return kKernelSpace;
  const ContextChange* const now = stream_->context_at(packet_.time);
  return now == nullptr ? kNoSpace : now->space;
}

ScriptRecord QuickRecords::record(RecordKind kind, Addr ip) const {
  ScriptRecord r;
  r.kind = kind;
  r.time = packet_.time;
  r.space = r.to_space = space_of(ip);
  r.cpu = stream_->cpu;
  const ContextChange* const task =
      task_of(*stream_, packet_.time, r.space, stream_->context_at(packet_.time));
  r.pid = task == nullptr ? -1 : task->pid;
  r.tid = task == nullptr ? stream_->tid : task->tid;
  r.ip = ip;
  if (in_transaction_) r.flags = kFlagInTx;
  return r;
}

void QuickRecords::put(const ScriptRecord& r) {
  if (r.time != kTimeMin && !itrace_.timeless) out_->at(r.time);
  r.append_to(out_->text);
}

void QuickRecords::instruction(Addr ip, Addr to) {
  if (!itrace_.instructions || ip == 0) return;
  ScriptRecord r = record(RecordKind::kInstructions, ip);
  r.addr = to;
  r.to_space = space_of(to);
  put(r);
}

void QuickRecords::branch(Addr from, Addr to, uint32_t flags) {
  if (!itrace_.shows_branch(flags) || (from == 0 && to == 0)) return;
  ScriptRecord r = record(RecordKind::kBranch, from != 0 ? from : to);
  r.flags |= flags;
  r.ip = from;
  r.addr = to;
  r.to_space = space_of(to);
  put(r);
}

void QuickRecords::flush_from() {
  if (from_) instruction(*std::exchange(from_, std::nullopt));
}

void QuickRecords::error(uint64_t number) {
  if (!itrace_.errors) return;
  ScriptRecord r = record(RecordKind::kError, 0);
  r.a = number;
  put(r);
}

}  // namespace asof
