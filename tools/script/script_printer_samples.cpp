// ScriptPrinter: the recording's own samples. perf's process_event() in tools/perf/builtin-script.c, as seen in its
// output.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <ctime>

#include "decoder/io/reader.h"
#include "decoder/perf/record_types.h"
#include "tools/output/format.h"
#include "tools/script/sample_words.h"
#include "tools/script/script_printer.h"

namespace asof {
namespace {

// Entries of a call chain from here on say which kind of addresses follows (include/uapi/linux/perf_event.h).
constexpr uint64_t kContexts = static_cast<uint64_t>(-4095), kKernelContext = static_cast<uint64_t>(-128),
                   kUserContext = static_cast<uint64_t>(-512),
                   kHypervisorContext = static_cast<uint64_t>(-32);

bool has(uint64_t fields, uint64_t field) { return (fields & field) != 0; }

// Of faults perf names the address; of others it is a number.
bool address_is_place(const PerfAttr& event) {
  constexpr uint64_t kPageFaults = 2, kMinorFaults = 5, kMajorFaults = 6;
  return event.type == ScriptFields::kSoftwareType &&
         (event.config == kPageFaults || event.config == kMinorFaults || event.config == kMajorFaults);
}

}  // namespace

void ScriptPrinter::tod(Time t) {
  const auto& clock = capture_.perf->clock_data();
  if (!clock) return;
  const auto wall = static_cast<int64_t>(clock->time_of_day_ns) + (t - static_cast<int64_t>(clock->clock_ns));
  const std::time_t seconds = wall / 1'000'000'000;
  std::tm parts{};
  std::array<char, 64> text{};
  if (::localtime_r(&seconds, &parts) == nullptr) return;
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  const int64_t rest = wall % 1'000'000'000;
  if (format_.nanoseconds) {
    fmt::format_to(std::back_inserter(out_), "{}.{:09} ", text.data(), rest);
  } else {
    fmt::format_to(std::back_inserter(out_), "{}.{:06} ", text.data(), rest / 1000);
  }
}

void ScriptPrinter::sample_chain(const ScriptRecord& r, const FullSample& sample, const ThreadStack* stack) {
  const uint64_t f = fields_of(r);
  out_ += '\n';
  if (sample.callchain.empty()) return late_chain(r, stack, f);
  Reader in(sample.callchain, side_band_lines_->record(r).swapped);
  const size_t start = out_.size();
  uint32_t entries = 0;
  for (uint32_t i = 0; i < sample.callchain_size && entries < format_.most_callers; ++i) {
    const uint64_t a = in.u64();
    if (a < kContexts) {
      if (!caller(r, r.space, a, entries != 0, f)) return;
      ++entries;
    } else if (a != kKernelContext && a != kUserContext && a != kHypervisorContext) {
      out_.resize(start);  // perf discards the chain
      return;
    }
  }
}

// As perf has it: the callers alone, without what the kernel called since the sample, or else where it was.
void ScriptPrinter::late_chain(const ScriptRecord& r, const ThreadStack* stack, uint64_t f) {
  const auto no_callers = [&] { caller(r, r.space, r.ip, false, f); };
  if (stack == nullptr) return no_callers();
  auto c = stack->callers.rbegin();
  const auto end = stack->callers.rend();
  while (c != end && is_kernel_address(c->back) && c->back != r.ip) ++c;
  if (c == end) return no_callers();
  const uint32_t most = std::min(format_.itrace.sample_chain, format_.most_callers);
  for (uint32_t entries = 0; c != end && entries < most; ++c, ++entries) {
    if (!caller(r, c->space, c->back, true, f)) return;
  }
}

void ScriptPrinter::sample_branches(const ScriptRecord& r, const FullSample& sample,
                                    const ThreadStack* stack) {
  const uint64_t f = fields_of(r);
  const BranchForm form = has(f, kScriptBrstack)      ? BranchForm::kAddresses
                          : has(f, kScriptBrstacksym) ? BranchForm::kSymbols
                                                      : BranchForm::kOffsets;
  if (sample.branch_stack.empty()) {
    const size_t later = stack == nullptr ? 0 : branches_since(*stack, r.ip);
    return branch_stack(r, stack, format_.itrace.sample_branches, form, f, later);
  }
  Reader in(sample.branch_stack, side_band_lines_->record(r).swapped);
  while (in.left() != 0) {
    const uint64_t from = in.u64(), to = in.u64(), flags = in.u64();
    if (form != BranchForm::kSymbols) out_ += ' ';
    branch_end(r, r.space, from, form, f);
    out_ += '/';
    branch_end(r, r.space, to, form, f);
    out_ += branch_entry_words(flags);
  }
}

// A sample that the trace holds: of an event of the recording, but not of its records.
void ScriptPrinter::pebs(const ScriptRecord& r, const Ends& ends, const ThreadStack* stack) {
  const PerfAttr& event = capture_.perf->attrs()[r.a];
  const uint64_t f = fields_of(r);
  const bool chain =
      !format_.hide_chains && (event.sample_type & kSampleCallchain) != 0 && format_.itrace.chain != 0;
  const auto it = std::back_inserter(out_);
  head(r, f, chain && has(f, kScriptIp));
  if (has(f, kScriptPeriod)) fmt::format_to(it, "{:>10} ", r.period);
  if (has(f, kScriptEvent)) event_name(r);
  if (has(format_.fields.flow, kScriptFlags)) fmt::format_to(it, "  {:<21} ", "");
  if (has(f, kScriptAddr)) fmt::format_to(it, "{:>16x}", r.addr);
  if (has(f, kScriptWeight)) fmt::format_to(it, "{:>16}", r.b);
  if (has(f, kScriptIp) && chain) {
    call_chain(r, stack, format_.itrace.chain, f);
  } else if (has(f, kScriptIp)) {
    out_ += ' ';
    place(r.ip, ends.from, f);
    source_line(r, f);
  }
  sample_code(r);
  out_ += '\n';
}

// The code that was there, as nothing says what ran.
void ScriptPrinter::sample_code(const ScriptRecord& r) {
  const uint64_t f = fields_of(r);
  if (!has(f, kScriptInsn | kScriptInsnlen | kScriptDisasm)) return;
  ScriptRecord with_code = r;
  const Space space = is_kernel_address(r.ip) ? kKernelSpace : r.space;
  const size_t known = capture_.text->read(space, r.ip, r.time, with_code.insn);
  const unsigned size = disassembler_.length(std::span(with_code.insn).first(known), r.mode);
  const std::span<const uint8_t> bytes(with_code.insn.data(), size);
  if (has(f, kScriptInsnlen)) fmt::format_to(std::back_inserter(out_), " ilen: {}", size);
  if (size == 0) return;
  if (has(f, kScriptInsn)) fmt::format_to(std::back_inserter(out_), " insn: {}", format_bytes(bytes));
  if (has(f, kScriptDisasm))
    fmt::format_to(std::back_inserter(out_), "\t\t{}", disassembler_.text(bytes, r.ip, r.mode));
}

void ScriptPrinter::sample(const ScriptRecord& r, const Ends& ends, const ThreadStack* stack) {
  const Record& record = side_band_lines_->record(r);
  const auto parsed = parse_full_sample(record);
  if (!parsed) {
    ++bad_samples_;
    return;
  }
  const PerfAttr& event = *record.id.attr;
  const uint64_t f = fields_of(r);
  const bool own_chain = (event.sample_type & kSampleCallchain) != 0;
  const bool chain = !format_.hide_chains && (own_chain || format_.itrace.sample_chain != 0);
  const auto it = std::back_inserter(out_);
  head(r, f, chain && has(f, kScriptIp));
  if (has(f, kScriptPeriod)) fmt::format_to(it, "{:>10} ", r.period);
  if (has(f, kScriptEvent)) event_name(r);
  if (has(format_.fields.flow, kScriptFlags)) fmt::format_to(it, "  {:<21} ", "");
  if (has(f, kScriptTrace)) out_ += trace_text_.text(r.cpu, parsed->raw);
  if (has(f, kScriptAddr)) {
    fmt::format_to(it, "{:>16x}", r.addr);
    if (address_is_place(event)) address_name(r, f);
  }
  const bool parts = (event.sample_type & kSampleWeightStruct) != 0;
  const uint64_t weight = parsed->weight.value_or(0);
  if (has(f, kScriptWeight)) fmt::format_to(it, "{:>16}", parts ? weight & UINT32_MAX : weight);
  if (has(f, kScriptInsLat)) fmt::format_to(it, "{:>16}", parts ? weight >> 32U & UINT16_MAX : 0);
  if (has(f, kScriptIp) && chain && (!parsed->callchain.empty() || format_.itrace.sample_chain != 0)) {
    sample_chain(r, *parsed, stack);
  } else if (has(f, kScriptIp)) {
    out_ += ' ';
    place(r.ip, ends.from, f);
    source_line(r, f);
  }
  const CodeMachine machine = code_machine(capture_.machine);
  if (has(f, kScriptIregs))
    out_ += register_words(parsed->interrupted_registers, event.sample_regs_intr, machine, record.swapped);
  if (has(f, kScriptUregs))
    out_ += register_words(parsed->user_registers, event.sample_regs_user, machine, record.swapped);
  if (has(f, kScriptBrstack | kScriptBrstacksym | kScriptBrstackoff)) sample_branches(r, *parsed, stack);
  constexpr uint64_t kBpfOutput = 10;
  if (has(f, kScriptBpfOutput) && event.type == ScriptFields::kSoftwareType && event.config == kBpfOutput)
    out_ += bpf_output_lines(parsed->raw);
  sample_code(r);
  if (has(f, kScriptPhysAddr)) fmt::format_to(it, "{:>16x}", parsed->phys_addr.value_or(0));
  if (has(f, kScriptDataPageSize)) out_ += " " + page_size_word(parsed->data_page_size.value_or(0));
  if (has(f, kScriptCodePageSize)) out_ += " " + page_size_word(parsed->code_page_size.value_or(0));
  out_ += '\n';
}

void ScriptPrinter::address_name(const ScriptRecord& r, uint64_t f) {
  const ScriptName n = names_.at(r.to_space, r.addr, r.time);
  if (has(f, kScriptSym)) {
    out_ += ' ';
    name(n, has(f, kScriptSymoff));
  }
  if (has(f, kScriptDso)) fmt::format_to(std::back_inserter(out_), " ({})", n.dso);
}

}  // namespace asof
