#include "tools/inject/sample_writer.h"

#include <algorithm>

#include "decoder/perf/record_types.h"
#include "decoder/perf/records.h"
#include "tools/script/script_event_names.h"

namespace asof {
namespace {

using Kind = ScriptRecord::Kind;

// PERF_CONTEXT_KERNEL, PERF_CONTEXT_USER: what follows in a chain.
constexpr auto kKernelContext = static_cast<uint64_t>(-128), kUserContext = static_cast<uint64_t>(-512);
constexpr uint64_t kFirstId = 1'000'000'001;
constexpr uint32_t kHardware = 0, kSynthesised = 0x80000000;  // PERF_TYPE_SYNTH
constexpr uint64_t kInstructionsConfig = 1, kBranchesConfig = 4;

// enum perf_synth_id: what is in raw data, as struct perf_synth_intel_* behind its first word.
constexpr Kind kRawKinds[] = {Kind::kPtwrite, Kind::kMwait, Kind::kPwre, Kind::kExstop,
                              Kind::kPwrx,    Kind::kCbr,   Kind::kPsb};

uint64_t context_of(Addr a) { return is_kernel_address(a) ? kKernelContext : kUserContext; }

}  // namespace

std::vector<SynthesisedEvent> synthesised_events(const ScriptItrace& itrace, uint64_t exclude,
                                                 const std::string& modifiers) {
  uint64_t common = kSampleIdentifier | kSampleIp | kSampleTid | kSampleTime | kSampleCpu | kSamplePeriod;
  uint64_t sampled = common | kSampleAddr;
  if (itrace.chain != 0) sampled |= kSampleCallchain;
  if (itrace.last_branches != 0) sampled |= kSampleBranchStack;
  std::vector<SynthesisedEvent> out;
  const auto add = [&](bool wanted, std::string name, uint64_t config, uint64_t period, uint64_t type,
                       uint32_t event_type = kHardware) {
    if (wanted)
      out.push_back({std::move(name), event_type, config, period, type, exclude, kFirstId + out.size()});
  };
  add(itrace.branches, "branches" + modifiers, kBranchesConfig, 1, common | kSampleAddr);
  add(itrace.instructions, "instructions" + modifiers, kInstructionsConfig, itrace.period, sampled);
  add(itrace.transactions, "transactions", kInstructionsConfig, 1, sampled);
  for (size_t id = 0; id < std::size(kRawKinds); ++id) {
    const bool wanted = kRawKinds[id] == Kind::kPtwrite ? itrace.ptwrite : itrace.power;
    add(wanted, std::string(script_event_name(kRawKinds[id])), id, 1, common | kSampleRaw, kSynthesised);
  }
  return out;
}

const SynthesisedEvent* SampleWriter::event_of(Kind kind) const {
  const std::string_view name = script_event_name(kind);
  if (name.empty()) return nullptr;
  const auto at = std::ranges::find_if(
      events_, [&](const SynthesisedEvent& e) { return std::string_view(e.name).starts_with(name); });
  return at == events_.end() ? nullptr : &*at;
}

// As many entries as perf has; each change between user and kernel takes one.
void SampleWriter::call_chain(const ScriptRecord& r, const ThreadStack& stack) {
  std::vector<uint64_t> chain{context_of(r.ip), r.ip};
  const size_t most = size_t{itrace_.chain} + 1;
  for (auto c = stack.callers.rbegin(); c != stack.callers.rend() && chain.size() < most; ++c) {
    if (context_of(c->back) != context_of(chain.back())) chain.push_back(context_of(c->back));
    if (chain.size() < most) chain.push_back(c->back);
  }
  put_u64(out_, chain.size());
  for (const uint64_t a : chain) put_u64(out_, a);
}

// The kernel's PERF_BR_*. What it has no number for, as INT n and the abort of a transaction, has none.
uint64_t branch_type(uint32_t flags) {
  constexpr uint64_t kNotSaid = 0, kConditional = 1, kJump = 2, kIndirectJump = 3, kCall = 4,
                     kIndirectCall = 5, kReturn = 6, kSyscall = 7, kSysret = 8, kExceptionReturn = 11,
                     kInterrupt = 12;
  const auto has = [flags](uint32_t f) { return (flags & f) != 0; };
  const bool far = has(kFlagSyscallret | kFlagInterrupt);
  if (has(kFlagTxAbort | kFlagTraceBegin)) return kNotSaid;
  if (has(kFlagConditional)) return kConditional;
  if (has(kFlagReturn)) return !far ? kReturn : has(kFlagSyscallret) ? kSysret : kExceptionReturn;
  if (has(kFlagCall)) {
    if (far) return has(kFlagSyscallret) ? kSyscall : has(kFlagAsync) ? kInterrupt : kNotSaid;
    return has(kFlagIndirect) ? kIndirectCall : kCall;
  }
  if (has(kFlagAsync)) return kNotSaid;
  return has(kFlagIndirect) ? kIndirectJump : kJump;
}

// struct perf_branch_entry: from, to, flags. Whether a branch was predicted is not in the trace.
void SampleWriter::branch_stack(const ThreadStack& stack) {
  constexpr uint64_t kInTransaction = 4, kAbort = 8;
  constexpr unsigned kTypeAt = 20;
  const auto is_elsewhere = [this](const ThreadStack::TakenBranch& b) {
    return !mapped_->has(b.from_space, b.from, b.time) || !mapped_->has(b.to_space, b.to, b.time);
  };
  const auto end =
      mapped_ == nullptr ? stack.branches.end() : std::ranges::find_if(stack.branches, is_elsewhere);
  put_u64(out_, static_cast<uint64_t>(end - stack.branches.begin()));
  for (const ThreadStack::TakenBranch& b : std::ranges::subrange(stack.branches.begin(), end)) {
    put_u64(out_, b.from);
    put_u64(out_, b.to);
    put_u64(out_, ((b.flags & kFlagInTx) != 0 ? kInTransaction : 0) |
                      ((b.flags & kFlagTxAbort) != 0 ? kAbort : 0) | branch_type(b.flags) << kTypeAt);
  }
}

// The fields in the order of the kernel's perf_output_sample().
void SampleWriter::write(const ScriptRecord& r, const ThreadStack& stack) {
  const SynthesisedEvent* const event = event_of(r.kind);
  if (event == nullptr || r.time == kTimeMin) return;
  if (mapped_ != nullptr && !mapped_->has(r.space, r.ip, r.time)) {
    ++left_out_;
    return;
  }
  constexpr uint16_t kKernelMode = 1, kUserMode = 2;
  out_.clear();
  put_u32(out_, perf::kSample);
  put_u16(out_,
          is_kernel_address(r.ip) || (r.ip == 0 && is_kernel_address(r.addr)) ? kKernelMode : kUserMode);
  put_u16(out_, 0);  // the size, below
  put_u64(out_, event->id);
  put_u64(out_, r.ip);
  put_u32(out_, static_cast<uint32_t>(r.pid));
  put_u32(out_, static_cast<uint32_t>(r.tid));
  put_u64(out_, static_cast<uint64_t>(r.time));
  if ((event->sample_type & kSampleAddr) != 0) put_u64(out_, r.addr);
  put_u32(out_, static_cast<uint32_t>(std::max(r.cpu, 0)));
  put_u32(out_, 0);
  put_u64(out_, r.kind == Kind::kInstructions ? r.period : 1);
  if ((event->sample_type & kSampleCallchain) != 0) call_chain(r, stack);
  if ((event->sample_type & kSampleRaw) != 0) raw(r);
  if ((event->sample_type & kSampleBranchStack) != 0) branch_stack(stack);
  finish_record(r.time);
  ++samples_;
}

void SampleWriter::finish_record(Time time) {
  std::string size;
  put_u16(size, static_cast<uint16_t>(out_.size()));
  out_.replace(6, 2, size);
  file_.sample(out_, time);
}

// tools/perf/util/event.h, struct perf_synth_intel_*.
void SampleWriter::raw(const ScriptRecord& r) {
  std::string data;
  const uint32_t has_ip = r.ip != 0 ? 1 : 0;
  switch (r.kind) {
    case Kind::kPtwrite:
      put_u32(data, has_ip);
      put_u64(data, r.a);
      break;
    case Kind::kExstop:
      put_u32(data, has_ip);
      break;
    case Kind::kCbr:
      put_u32(data, static_cast<uint32_t>((r.a & 0xff) | uint64_t{capture_.x86.max_nonturbo} << 16U));
      put_u32(data, static_cast<uint32_t>(cbr_khz(capture_, r.a)));
      put_u32(data, 0);
      break;
    default: {
      const uint64_t payload =
          r.kind == Kind::kMwait  ? r.a | r.b << 32U
          : r.kind == Kind::kPwre ? (r.b >> 8U) << 7U | (r.b & 0xf) << 8U | (r.a & 0xf) << 12U
          : r.kind == Kind::kPwrx ? (r.b & 0xf) | (r.a & 0xf) << 4U | (r.b >> 8U & 0xf) << 8U
                                  : r.a;
      put_u32(data, 0);
      put_u64(data, payload);
    }
  }
  put_u32(out_, static_cast<uint32_t>(data.size()));
  out_ += data;
}

// struct perf_record_auxtrace_error, format 1.
void SampleWriter::error(const ScriptRecord& r) {
  constexpr size_t kMessage = 64;
  constexpr uint32_t kItrace = 1, kWithTime = 1;
  out_.clear();
  put_u32(out_, perf::kAuxtraceError);
  put_u32(out_, 0);  // misc, and the size, below
  put_u32(out_, kItrace);
  put_u32(out_, static_cast<uint32_t>(r.a));
  for (const int32_t id : {r.cpu, r.pid, r.tid}) put_u32(out_, static_cast<uint32_t>(id));
  put_u32(out_, kWithTime);
  put_u64(out_, r.ip);
  put_u64(out_, r.time == kTimeMin ? 0 : static_cast<uint64_t>(r.time));
  std::string message(perf_error_text(r.a));
  message.resize(kMessage, '\0');
  out_ += message;
  finish_record(r.time);
  ++errors_;
}

void SampleWriter::take(std::string_view records) {
  for (size_t at = 0; at + sizeof(ScriptRecord) <= records.size(); at += sizeof(ScriptRecord)) {
    const ScriptRecord r = ScriptRecord::from(records, at);
    ThreadStack& stack = stacks_.of(r);
    if (r.kind == Kind::kLoss) stack.lose();
    if (r.kind == Kind::kBranch) stack.take(r, itrace_.last_branches);
    if (!r.shown || (r.time != kTimeMin && (r.time < time_.lo || r.time > time_.hi))) continue;
    if (skipped_ < itrace_.skip) {
      ++skipped_;
      continue;
    }
    r.kind == Kind::kError ? error(r) : write(r, stack);
  }
}

}  // namespace asof
