#include "decoder/patch_sites/arm64_pokes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>

#include "decoder/patch_sites/arm64_words.h"
#include "decoder/perf/perf_data_impl.h"
#include "decoder/perf/records.h"
#include "decoder/perf/trace_formats.h"

namespace asof {
namespace {

constexpr uint32_t kTracepoint = 2;  // PERF_TYPE_TRACEPOINT
constexpr uint32_t kSoftware = 1;    // PERF_TYPE_SOFTWARE
constexpr uint64_t kBpfOutput = 10;  // PERF_COUNT_SW_BPF_OUTPUT
// What a BPF program at entry and return of those functions writes (docs/formats.md): mark, entry or return,
// type, address of the jump_entry, and, where it read them, its first two fields.
constexpr std::string_view kBpfMark = "asofjl1";
constexpr size_t kBpfMarkSize = 8;  // with its NUL
constexpr uint32_t kBpfEntry = 0, kBpfReturn = 1;
constexpr size_t kBpfFields = 32;
constexpr uint32_t kToNop = 0, kToBranch = 1;  // enum jump_label_type
constexpr const char* kFunctions[] = {"arch_jump_label_transform_queue", "arch_jump_label_transform"};
constexpr int kFeatureTracingData = 1;
constexpr int kRankSampled = kRankWatched + 1;

// A sample of a probe at the entry or the return of such a function.
struct Hit {
  Time time = kTimeMin;
  bool entry = false;
  int32_t cpu = -1;
  Addr site = 0;  // entry: of the word
  uint32_t nop_or_branch = 0, branch = 0;
  uint64_t file_offset = 0;
};

class SampleReader {
 public:
  SampleReader(const PerfData& data, const Kallsyms* kallsyms, const ReadKernel& read, NoticeBook& notices)
      : data_(data), read_(read), notices_(notices) {
    for (TraceEvent& event : read_trace_formats(data.feature(kFeatureTracingData))) {
      const uint32_t id = event.id;
      if (event.field("__probe_ip") != nullptr || event.field("__probe_func") != nullptr)
        events_.emplace(id, std::move(event));
    }
    for (const char* name : kFunctions) {
      const auto address = kallsyms == nullptr ? std::nullopt : kallsyms->address(name);
      if (address) functions_.push_back({*address, kallsyms->next(*address)});
    }
  }

  SampledChanges read();

 private:
  // What a sample at the entry says.
  struct Fields {
    std::optional<uint64_t> entry, type, code, target;
  };
  void take(const Record& record);
  void take_bpf(const Record& record);
  bool has_bpf_output() const { return std::ranges::any_of(data_.attrs(), is_bpf_output); }
  static bool is_bpf_output(const PerfAttr& attr) {
    return attr.type == kSoftware && attr.config == kBpfOutput;
  }
  bool in_function(std::optional<uint64_t> address) const;
  std::optional<Hit> entry_of(Fields fields, const Record& record);
  void pair(SampledChanges& out);
  void close(SampledChanges& out, const Hit& entry, Time returned);
  void refuse(const Record& record, std::string reason) {
    notices_.error(Code::kBadJumpLabelSample, data_.path(), std::move(reason),
                   "the change it reports is missing: the word there may be wrong from then on",
                   record.file_offset, record.time());
  }

  const PerfData& data_;
  const ReadKernel& read_;
  NoticeBook& notices_;
  std::map<uint32_t, TraceEvent> events_;
  std::vector<AddrRange> functions_;
  std::vector<Hit> hits_;
};

bool SampleReader::in_function(std::optional<uint64_t> address) const {
  return address && std::any_of(functions_.begin(), functions_.end(),
                                [&](const AddrRange& f) { return f.contains(*address); });
}

std::optional<Hit> SampleReader::entry_of(Fields fields, const Record& record) {
  auto& [entry, type, code, target] = fields;
  if (!entry || !type || (*type != kToNop && *type != kToBranch)) {
    refuse(record, "a jump label sample without its entry's address or its type");
    return std::nullopt;
  }
  if (!code || !target) {
    const auto bytes = read_(range_of(*entry, arm64::kJumpEntrySize));
    if (bytes.size() != arm64::kJumpEntrySize) {
      refuse(record,
             fmt::format("the jump table entry at {:#x} is neither in the sample nor in a copy of memory",
                         *entry));
      return std::nullopt;
    }
    code = arm64::word_at(bytes);
    target = arm64::word_at(bytes, 4);
  }
  const arm64::JumpEntry jump =
      arm64::jump_entry_at(*entry, static_cast<int32_t>(*code), static_cast<int32_t>(*target));
  const auto branch = arm64::branch_word(jump.code, jump.target, false);
  if (!branch || jump.code % 4 != 0 || !is_kernel_address(jump.code)) {
    refuse(record, fmt::format("a jump label from {:#x} to {:#x} cannot be", jump.code, jump.target));
    return std::nullopt;
  }
  return Hit{.time = record.time(),
             .entry = true,
             .cpu = record.id.cpu,
             .site = jump.code,
             .nop_or_branch = *type == kToBranch ? *branch : arm64::kNop,
             .branch = *branch,
             .file_offset = record.file_offset};
}

void SampleReader::take_bpf(const Record& record) {
  const auto sample = parse_sample(record);
  if (!sample) return refuse(record, sample.error().reason);
  Reader in(sample->raw, record.swapped);
  if (in.text(kBpfMarkSize) != kBpfMark) return;  // of another program
  const uint32_t event = in.u32();
  Fields fields;
  fields.type = in.u32();
  if (!in.ok() || (event != kBpfEntry && event != kBpfReturn))
    return refuse(record, "a jump label sample of a BPF program that is neither an entry nor a return");
  if (record.time() == kTimeMin) return refuse(record, "a jump label sample without time");
  if (event == kBpfReturn) {
    hits_.push_back({.time = record.time(), .cpu = record.id.cpu, .file_offset = record.file_offset});
    return;
  }
  if (const uint64_t entry = in.u64(); in.ok()) fields.entry = entry;
  if (sample->raw.size() >= kBpfFields) {
    fields.code = in.u32();
    fields.target = in.u32();
  }
  if (const auto hit = entry_of(fields, record)) hits_.push_back(*hit);
}

void SampleReader::take(const Record& record) {
  const PerfAttr* attr = record.id.attr;
  if (attr != nullptr && is_bpf_output(*attr)) return take_bpf(record);
  if (attr == nullptr || attr->type != kTracepoint) return;
  const auto event = events_.find(static_cast<uint32_t>(attr->config));
  if (event == events_.end()) return;
  const auto sample = parse_sample(record);
  if (!sample) return refuse(record, sample.error().reason);
  const bool returns = event->second.field("__probe_func") != nullptr;
  if (!in_function(
          event->second.value({returns ? "__probe_func" : "__probe_ip"}, sample->raw, record.swapped)))
    return;
  if (record.time() == kTimeMin) return refuse(record, "a jump label sample without time");
  if (returns) {
    hits_.push_back({.time = record.time(), .cpu = record.id.cpu, .file_offset = record.file_offset});
    return;
  }
  const auto value = [&](std::initializer_list<std::string_view> names) {
    return event->second.value(names, sample->raw, record.swapped);
  };
  const Fields fields = {value({"e", "entry"}), value({"t", "type"}), value({"code"}),
                         value({"tgt", "target"})};
  if (const auto hit = entry_of(fields, record)) hits_.push_back(*hit);
}

void SampleReader::close(SampledChanges& out, const Hit& entry, Time returned) {
  const uint32_t other = entry.nop_or_branch == arm64::kNop ? entry.branch : arm64::kNop;
  out.changes.push_back({.addr = entry.site,
                         .before = other,
                         .after = entry.nop_or_branch,
                         .entered = entry.time,
                         .returned = returned,
                         .file_offset = entry.file_offset});
}

// The jump label code holds a mutex over its loop, so that one call is over before the next begins, whatever
// CPU makes it. A call without return sample ends where the next one begins.
void SampleReader::pair(SampledChanges& out) {
  std::sort(hits_.begin(), hits_.end(), [](const Hit& a, const Hit& b) {
    return std::tie(a.time, a.file_offset) < std::tie(b.time, b.file_offset);
  });
  const Hit* open = nullptr;
  uint64_t unentered = 0, unreturned = 0;
  for (const Hit& hit : hits_) {
    if (hit.entry) {
      if (open != nullptr) close(out, *open, hit.time);
      unreturned += open != nullptr ? 1 : 0;
      open = &hit;
    } else if (open != nullptr) {
      close(out, *open, hit.time);
      open = nullptr;
    } else {
      ++unentered;
    }
  }
  if (open != nullptr) close(out, *open, kTimeMax);
  unreturned += open != nullptr ? 1 : 0;
  if (unentered != 0) {
    notices_.error(
        Code::kBadJumpLabelSample, data_.path(),
        fmt::format("{} returns of the jump label code without the sample of their entry", unentered),
        "samples were lost: changes of text are missing; record with larger rings (perf record -m)");
  }
  if (unreturned != 0) {
    notices_.info(
        Code::kJumpLabelWithoutEnd, data_.path(),
        fmt::format("{} jump label changes without the sample of their return: they are taken to last "
                    "until the next one",
                    unreturned));
  }
}

SampledChanges SampleReader::read() {
  SampledChanges out;
  if ((events_.empty() || functions_.empty()) && !has_bpf_output()) return out;
  data_.for_each({perf::kSample}, [this](const Record& record) {
    take(record);
    return true;
  });
  out.recorded = !hits_.empty();
  pair(out);
  return out;
}

// When records may be missing: apart from each other, by time.
std::vector<TimeBounds> joined_losses(std::span<const LostRecords> lost) {
  std::vector<TimeBounds> all, out;
  for (const LostRecords& l : lost)
    all.push_back({l.after == kTimeMin ? kTimeMin : std::min(saturating_add(l.after, 1), l.until), l.until});
  std::ranges::sort(all, {}, &TimeBounds::lo);
  for (const TimeBounds& l : all) {
    if (!out.empty() && l.lo <= out.back().hi)
      out.back().hi = std::max(out.back().hi, l.hi);
    else
      out.push_back(l);
  }
  return out;
}

// Versions of one word.
class WordVersions {
 public:
  // `lost`: joined_losses().
  WordVersions(const KernelText& kernel, std::span<const TimeBounds> lost, const std::string& path,
               Builder& builder, NoticeBook& notices)
      : kernel_(kernel), lost_(lost), path_(path), builder_(builder), notices_(notices) {}

  void add(Addr addr, std::span<const SampledChange* const> changes);
  std::shared_ptr<const void> owner() const { return words_; }

 private:
  void add_losses(Addr addr, std::span<const SampledChange* const> changes);
  void place(Addr addr, uint32_t word, Time from, Time until, uint64_t file_offset);
  static std::optional<uint32_t> word_in(const KernelSnapshot* snapshot, Addr addr) {
    if (snapshot == nullptr) return std::nullopt;
    const auto bytes = snapshot->raw(range_of(addr, 4));
    return bytes.size() == 4 ? std::optional(arm64::word_at(bytes)) : std::nullopt;
  }
  void contradiction(Addr addr, uint32_t word, const char* what, const SampledChange& change) {
    notices_.error(
        Code::kCopyContradictsSamples, path_,
        fmt::format("{} has {:08x} at {:#x}, which the sampled changes there do not leave", what, word, addr),
        "a change was not sampled: both words are taken to be possible", change.file_offset, change.entered);
  }

  const KernelText& kernel_;
  const std::span<const TimeBounds> lost_;
  const std::string& path_;
  Builder& builder_;
  NoticeBook& notices_;
  std::shared_ptr<std::deque<arm64::Word>> words_ = std::make_shared<std::deque<arm64::Word>>();
};

void WordVersions::place(Addr addr, uint32_t word, Time from, Time until, uint64_t file_offset) {
  words_->push_back(arm64::word_bytes(word));
  Layer layer{.range = range_of(addr, 4), .bytes = words_->back(), .from = from, .until = until};
  layer.rank = kRankSampled;
  layer.origin =
      builder_.add_origin({.kind = OriginKind::kRaw, .name = path_, .id = file_offset, .build_id = {}});
  builder_.add_layer(layer);
}

// Samples of this site may be among the lost ones: it may have been switched from the last record before the
// loss on, and the next sample shows the state in which it was left.
void WordVersions::add_losses(Addr addr, std::span<const SampledChange* const> changes) {
  for (auto loss = lost_.begin(); loss != lost_.end();) {
    const auto next = std::ranges::upper_bound(changes, loss->hi, {}, &SampledChange::entered);
    const SampledChange& any = next == changes.end() ? *changes.back() : **next;
    const Time until = next == changes.end() ? kTimeMax : any.returned;
    place(addr, any.before, loss->lo, until, any.file_offset);
    place(addr, any.after, loss->lo, until, any.file_offset);
    if (next == changes.end()) return;
    loss = std::upper_bound(loss, lost_.end(), any.entered,
                            [](Time t, const TimeBounds& l) { return t < l.hi; });
  }
}

void WordVersions::add(Addr addr, std::span<const SampledChange* const> changes) {
  const SampledChange& first = *changes.front();
  const SampledChange& last = *changes.back();
  place(addr, first.before, kTimeMin, first.returned, first.file_offset);
  for (size_t i = 0; i < changes.size(); ++i) {
    const Time until = i + 1 < changes.size() ? changes[i + 1]->returned : kTimeMax;
    place(addr, changes[i]->after, changes[i]->entered, until, changes[i]->file_offset);
  }
  add_losses(addr, changes);
  const auto begin = word_in(kernel_.start(), addr), end = word_in(kernel_.end(), addr);
  const bool known = std::any_of(changes.begin(), changes.end(), [&](const SampledChange* c) {
    return begin == c->before || begin == c->after;
  });
  if (begin && !known) {
    contradiction(addr, *begin, "the copy of kcore", first);
    place(addr, *begin, kTimeMin, first.returned, first.file_offset);
  }
  const bool lost_since = !lost_.empty() && lost_.back().hi > last.entered;
  if (end && *end != last.after && !(lost_since && *end == last.before)) {
    contradiction(addr, *end, "the copy of kcore taken at the end", last);
    place(addr, *end, last.entered, kTimeMax, last.file_offset);
  }
}

}  // namespace

SampledChanges read_sampled_changes(const PerfData& data, const Kallsyms* kallsyms, const ReadKernel& read,
                                    NoticeBook& notices) {
  return SampleReader(data, kallsyms, read, notices).read();
}

void add_sampled_changes(const SampledChanges& sampled, const KernelText& kernel,
                         std::span<const LostRecords> lost, const std::string& path, Builder& builder,
                         NoticeBook& notices) {
  const std::vector<TimeBounds> losses = joined_losses(lost);
  std::map<Addr, std::vector<const SampledChange*>> sites;
  for (const SampledChange& change : sampled.changes) {
    auto& site = sites[change.addr];
    // The same state again is no change; the word before it is known then. After a loss it may be one.
    const auto may_hide_one = [&] {
      const auto loss = std::ranges::upper_bound(losses, site.back()->entered, {}, &TimeBounds::hi);
      return loss != losses.end() && loss->lo <= change.entered;
    };
    if (!site.empty() && site.back()->after == change.after && !may_hide_one()) continue;
    site.push_back(&change);
  }
  WordVersions versions(kernel, losses, path, builder, notices);
  for (const auto& [addr, changes] : sites) versions.add(addr, changes);
  builder.keep(versions.owner());
}

}  // namespace asof
