// Changes of arm64 kernel text from samples of kprobes, or of a BPF program at the same address. No arm64
// kernel writes TEXT_POKE records, and the functions that patch refuse probes; but
// arch_jump_label_transform_queue(), which the jump label code calls for each site of a key, accepts them,
// and the store lies between its entry and its return. docs/formats.md describes how to record that.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "decoder/io/sideband_notices.h"
#include "decoder/kernel_text/kernel_text.h"
#include "decoder/perf/perf_data.h"
#include "textstore/builder.h"

namespace asof {

// One word was replaced at some instant of [entered, returned].
struct SampledChange {
  Addr addr = 0;
  uint32_t before = 0, after = 0;
  Time entered = kTimeMin;
  Time returned = kTimeMax;
  uint64_t file_offset = 0;  // of the sample at the entry
};

struct SampledChanges {
  bool recorded = false;               // the probes exist; the absence of a change is then certain, too
  std::vector<SampledChange> changes;  // by time
};

// `read` gives bytes of the kernel's memory (its jump table, for probes that do not record an entry's
// fields).
using ReadKernel = std::function<std::span<const uint8_t>(AddrRange)>;
SampledChanges read_sampled_changes(const PerfData& data, const Kallsyms* kallsyms, const ReadKernel& read,
                                    NoticeBook& notices);

// Versions of the changed words. Both words are candidates while a change is under way, and from the last
// record before a loss of records up to the next sample of the site. `kernel` is queried for what the copies
// of kcore have there: what contradicts the samples is reported, and stays a candidate.
void add_sampled_changes(const SampledChanges& sampled, const KernelText& kernel,
                         std::span<const LostRecords> lost, const std::string& path, Builder& builder,
                         NoticeBook& notices);

}  // namespace asof
