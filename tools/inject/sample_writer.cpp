#include "tools/inject/sample_writer.h"

#include <algorithm>

#include "decoder/perf/record_types.h"
#include "decoder/perf/records.h"

namespace asof {
namespace {

using Kind = ScriptRecord::Kind;

// PERF_CONTEXT_KERNEL, PERF_CONTEXT_USER: what follows in a chain.
constexpr auto kKernelContext = static_cast<uint64_t>(-128), kUserContext = static_cast<uint64_t>(-512);
constexpr uint64_t kFirstId = 1'000'000'001;
constexpr uint32_t kHardware = 0;
constexpr uint64_t kInstructionsConfig = 1, kBranchesConfig = 4;

uint64_t context_of(Addr a) { return is_kernel_address(a) ? kKernelContext : kUserContext; }

}  // namespace

std::vector<SynthesisedEvent> synthesised_events(const ScriptItrace& itrace, uint64_t exclude,
                                                 const std::string& modifiers) {
  uint64_t common = kSampleIdentifier | kSampleIp | kSampleTid | kSampleTime | kSampleCpu | kSamplePeriod;
  uint64_t sampled = common | kSampleAddr;
  if (itrace.chain != 0) sampled |= kSampleCallchain;
  if (itrace.last_branches != 0) sampled |= kSampleBranchStack;
  std::vector<SynthesisedEvent> out;
  const auto add = [&](bool wanted, std::string name, uint64_t config, uint64_t period, uint64_t type) {
    if (wanted)
      out.push_back({std::move(name), kHardware, config, period, type, exclude, kFirstId + out.size()});
  };
  add(itrace.branches, "branches" + modifiers, kBranchesConfig, 1, common | kSampleAddr);
  add(itrace.instructions, "instructions" + modifiers, kInstructionsConfig, itrace.period, sampled);
  add(itrace.transactions, "transactions", kInstructionsConfig, 1, sampled);
  return out;
}

const SynthesisedEvent* SampleWriter::event_of(Kind kind) const {
  const std::string_view name = kind == Kind::kBranch         ? "branches"
                                : kind == Kind::kInstructions ? "instructions"
                                : kind == Kind::kTransaction  ? "transactions"
                                                              : "";
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

// struct perf_branch_entry: from, to, flags. Whether a branch was predicted is not in the trace.
void SampleWriter::branch_stack(const ThreadStack& stack) {
  constexpr uint64_t kInTransaction = 4, kAbort = 8;
  put_u64(out_, stack.branches.size());
  for (const ThreadStack::TakenBranch& b : stack.branches) {
    put_u64(out_, b.from);
    put_u64(out_, b.to);
    put_u64(out_,
            ((b.flags & kFlagInTx) != 0 ? kInTransaction : 0) | ((b.flags & kFlagTxAbort) != 0 ? kAbort : 0));
  }
}

// The fields in the order of the kernel's perf_output_sample().
void SampleWriter::write(const ScriptRecord& r, const ThreadStack& stack) {
  const SynthesisedEvent* const event = event_of(r.kind);
  if (event == nullptr || r.time == kTimeMin) return;
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
  put_u64(out_, r.addr);
  put_u32(out_, static_cast<uint32_t>(std::max(r.cpu, 0)));
  put_u32(out_, 0);
  put_u64(out_, r.kind == Kind::kInstructions ? r.period : 1);
  if ((event->sample_type & kSampleCallchain) != 0) call_chain(r, stack);
  if ((event->sample_type & kSampleBranchStack) != 0) branch_stack(stack);
  std::string size;
  put_u16(size, static_cast<uint16_t>(out_.size()));
  out_.replace(6, 2, size);
  file_.sample(out_);
  ++samples_;
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
    write(r, stack);
  }
}

}  // namespace asof
