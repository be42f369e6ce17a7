// Checks of text: whether there are bytes for what ran, changes were recorded, and copies and records agree.
#include <fmt/format.h>

#include <algorithm>
#include <bitset>
#include <map>
#include <unordered_map>

#include "decoder/model/image.h"
#include "decoder/perf/record_types.h"
#include "decoder/sideband/poke_rings.h"
#include "tools/doctor/health.h"
#include "tools/output/format.h"

namespace asof {
namespace {

constexpr uint8_t kInt3 = 0xcc;
constexpr Addr kKernelBegin = Addr{1} << 63U;

uint64_t records(const HealthInput& in, uint32_t type) {
  const auto it = in.capture.record_counts.find(type);
  return it == in.capture.record_counts.end() ? 0 : it->second;
}

std::string_view source_name(OriginKind kind) {
  switch (kind) {
    case OriginKind::kKcore:
      return "kcore";
    case OriginKind::kKcoreEnd:
      return "kcore at the end";
    case OriginKind::kWatcher:
      return "watcher";
    case OriginKind::kFile:
      return "files";
    case OriginKind::kBpfImage:
      return "BPF images";
    case OriginKind::kPoke:
      return "pokes";
    default:
      return "other";
  }
}

struct KernelTally {
  std::map<OriginKind, uint64_t> bytes;
  uint64_t unknown = 0;  // covered by some layer, but never with bytes
  std::string kcore;     // path
};

KernelTally tally_kernel(const TextStore& store) {
  KernelTally t;
  for (const Cell& cell : store.cells(kKernelSpace, {kKernelBegin, UINT64_MAX})) {
    if (cell.versions.empty()) continue;
    const auto known =
        std::ranges::find_if(cell.versions, [](const Version& v) { return v.bytes != nullptr; });
    if (known == cell.versions.end()) {
      t.unknown += cell.range.size();
      continue;
    }
    const Origin& origin = store.origin(known->origin);
    t.bytes[is_poke(known->origin) ? OriginKind::kPoke : origin.kind] += cell.range.size();
    if (origin.kind == OriginKind::kKcore && t.kcore.empty()) t.kcore = origin.name;
  }
  return t;
}

bool has_bytes(const TextStore& store, AddrRange range) {
  for (const Cell& cell : store.cells(kKernelSpace, range)) {
    if (std::ranges::any_of(cell.versions, [](const Version& v) { return v.bytes != nullptr; })) return true;
  }
  return false;
}

}  // namespace

void check_text(const HealthInput& in, std::vector<Finding>& out) {
  const Capture& c = in.capture;
  if (!in.kernel_traced || !c.perf) return;
  const KernelTally tally = tally_kernel(*c.text);
  std::string evidence;
  for (const auto& [kind, bytes] : tally.bytes)
    evidence +=
        fmt::format("{}{} from {}", evidence.empty() ? "" : ", ", format_size(bytes), source_name(kind));
  if (tally.unknown != 0)
    evidence +=
        fmt::format("{}{} announced without bytes", evidence.empty() ? "" : ", ", format_size(tally.unknown));
  std::vector<std::string> without;
  for (const KernelMapFact& map : in.side.kernel_maps) {
    if (!has_bytes(*c.text, map.range)) without.push_back(map.name);
  }
  if (!without.empty())
    evidence += (evidence.empty() ? "without bytes: " : "; without bytes: ") + first_of(without);
  const bool copied = tally.bytes.contains(OriginKind::kKcore) || tally.bytes.contains(OriginKind::kKcoreEnd);
  const std::string remedy = "record with perf record --kcore";
  if (tally.bytes.empty() || (!copied && !tally.bytes.contains(OriginKind::kFile))) {
    out.push_back({Verdict::kBad, "kernel-text", "there is no kernel text", evidence, remedy});
  } else if (!copied) {
    out.push_back({Verdict::kWarn, "kernel-text",
                   "kernel text comes from files, which have not what the kernel patched at boot", evidence,
                   remedy});
  } else if (!without.empty()) {
    out.push_back({Verdict::kWarn, "kernel-text", "some kernel text is missing", evidence, remedy});
  } else {
    out.push_back({Verdict::kOk, "kernel-text", "kernel text was copied from memory", evidence, ""});
  }
}

namespace {

// How an arm64 recording can have changes at all: its kernels write no TEXT_POKE records. Opening it has
// looked for other sources, and named them (I-SIDE-515) or reported that there are none (E-SIDE-514).
void check_arm64_pokes(const HealthInput& in, std::vector<Finding>& out) {
  const Capture& c = in.capture;
  const auto sources =
      std::ranges::find_if(c.notices, [](const Notice& n) { return n.code == Code::kTextChangeSources; });
  const size_t pokes = c.text->pokes().size();
  const uint64_t timed = pokes + c.sampled_changes.value_or(0);
  std::string evidence = fmt::format("{} with a time", format_plural(timed, "change", "changes"));
  if (sources != c.notices.end()) evidence += "; " + sources->reason;
  if (pokes != 0) {
    out.push_back({Verdict::kOk, "pokes", "changes of kernel text were recorded", evidence, ""});
  } else if (c.sampled_changes) {
    out.push_back({Verdict::kOk, "pokes", "changes of jump labels were sampled", evidence, ""});
  } else if (sources != c.notices.end()) {
    out.push_back({Verdict::kWarn, "pokes", "it is known what may have changed, but not when", evidence,
                   "record samples of arch_jump_label_transform_queue beside the trace"});
  } else {
    out.push_back(
        {Verdict::kBad, "pokes", "nothing records changes of kernel text", evidence,
         "record samples of arch_jump_label_transform_queue, copy kcore at the end, or use --catalogue"});
  }
}

// CPUs whose ring has no event that requests pokes: their changes are not recorded.
std::string cpus_asked(const PokeRings& rings) {
  return rings.cpus == 0 ? format_plural(rings.rings, "ring", "rings")
                         : fmt::format("rings of {} of {} CPUs", rings.rings, rings.cpus);
}

}  // namespace

void check_pokes(const HealthInput& in, std::vector<Finding>& out) {
  const Capture& c = in.capture;
  if (!in.kernel_traced || !c.perf) return;
  if (in.arm64) return check_arm64_pokes(in, out);
  const PokeRings rings = poke_rings(*c.perf);
  const uint64_t pokes = records(in, perf::kTextPoke);
  const uint64_t silent =
      notice_count(c, Code::kUnrecordedChange) + notice_count(c, Code::kLastChangeMissing);
  std::string evidence =
      fmt::format("{} TEXT_POKE, {} KSYMBOL, {} BPF_EVENT", format_count(pokes),
                  format_count(records(in, perf::kKsymbol)), format_count(records(in, perf::kBpfEvent)));
  if (silent != 0)
    evidence += fmt::format(", {} without a record", format_plural(silent, "change", "changes"));
  if (!rings.asked) {
    out.push_back({pokes == 0 ? Verdict::kBad : Verdict::kWarn, "pokes",
                   "changes of kernel text were not asked for (attr.text_poke)", evidence,
                   "record with perf record --kcore -a, as root"});
    return;
  }
  const bool all = !rings.some_missing();
  evidence += ", asked for in " + cpus_asked(rings);
  if (pokes == 0 && silent != 0) {
    out.push_back({Verdict::kBad, "pokes",
                   "text changed, and no change was recorded: this kernel does not record them", evidence,
                   "kernels may accept text_poke and send nothing; use another kernel or configuration"});
  } else if (pokes == 0) {
    out.push_back({Verdict::kWarn, "pokes",
                   "no change was recorded: either nothing changed, or this kernel does not record changes",
                   evidence,
                   "flip a static key while recording (sysctl kernel.sched_schedstats) and look for "
                   "TEXT_POKE records"});
  } else if (!all || silent != 0) {
    out.push_back({Verdict::kWarn, "pokes",
                   !all ? "changes made by some CPUs were not recorded" : "some changes were not recorded",
                   evidence,
                   !all ? "record all CPUs (-a), and do not bring CPUs online while recording"
                        : "see E-TEXT-306 and E-TEXT-307 in 'asof report'"});
  } else {
    out.push_back({Verdict::kOk, "pokes", "changes of kernel text were recorded", evidence, ""});
  }
}

namespace {

struct PokedByte {
  uint8_t first = 0;  // before the first poke
  uint8_t last = 0;   // after the last
  std::bitset<256> seen;
};

struct CopyAge {
  uint64_t sites = 0, before = 0, between = 0, after = 0, transient = 0, foreign = 0;
  std::vector<std::string> foreign_at;
};

// What a copy of kcore has at the sites that pokes changed, compared with the chain of each byte.
CopyAge age_of_copy(const Capture& c, const SideBand& side, const ElfImage& kcore) {
  std::unordered_map<Addr, PokedByte> bytes;
  std::map<Addr, size_t> sites;
  const LaterCode later(kcore, side, c.text->pokes());
  for (const PokeRecord& p : c.text->pokes()) {
    if (p.old_len == 0 || p.old_len != p.new_len || later.holds(p)) continue;
    size_t& size = sites[p.addr];
    size = std::max<size_t>(size, p.old_len);
    for (size_t i = 0; i < p.old_len; ++i) {
      auto [it, fresh] = bytes.try_emplace(p.addr + i);
      if (fresh) it->second.first = p.old_bytes()[i];
      it->second.last = p.new_bytes()[i];
      it->second.seen.set(p.old_bytes()[i]);
      it->second.seen.set(p.new_bytes()[i]);
    }
  }
  CopyAge age;
  for (const auto& [addr, size] : sites) {
    const auto segment = std::ranges::find_if(kcore.segments(), [&, a = addr, n = size](const ElfSegment& s) {
      return range_of(s.address, s.bytes.size()).contains(range_of(a, n));
    });
    if (segment == kcore.segments().end()) continue;
    bool first = true, last = true, known = true, tail = true;
    const auto copy = segment->bytes.subspan(addr - segment->address, size);
    for (size_t i = 0; i < size; ++i) {
      const PokedByte& b = bytes[addr + i];
      first = first && copy[i] == b.first;
      last = last && copy[i] == b.last;
      known = known && b.seen[copy[i]];
      tail = tail && (i == 0 || b.seen[copy[i]]);
    }
    ++age.sites;
    ++(first                      ? age.before
       : last                     ? age.after
       : known                    ? age.between
       : copy[0] == kInt3 && tail ? age.transient
                                  : age.foreign);
    if (!first && !last && !known && (copy[0] != kInt3 || !tail))
      age.foreign_at.push_back(fmt::format("{:x}", addr));
  }
  return age;
}

}  // namespace

void check_kcore(const HealthInput& in, std::vector<Finding>& out) {
  const Capture& c = in.capture;
  if (!in.kernel_traced || !c.perf) return;
  const std::string path = tally_kernel(*c.text).kcore;
  if (path.empty()) return;
  const auto kcore = ElfImage::open(path);
  if (!kcore) {
    out.push_back({Verdict::kWarn, "kcore", "the copy of kcore cannot be read again, and was not compared",
                   fmt::format("{} {}", code_text(kcore.error().code), kcore.error().reason), ""});
    return;
  }
  const uint64_t other_boot =
      notice_count(c, Code::kKallsymsOfOtherBoot) + notice_count(c, Code::kModuleMoved);
  const CopyAge age = age_of_copy(c, in.side, **kcore);
  const auto pokes = c.text->pokes();
  const auto early =
      std::ranges::count_if(pokes, [&](const PokeRecord& p) { return p.time < in.side.trace_start; });
  std::string evidence = fmt::format(
      "of {}: {} as before the first record, {} as after the last, {} in between, {} with a breakpoint in "
      "flight, {} as in no record",
      format_plural(age.sites, "site that changed", "sites that changed"), format_count(age.before),
      format_count(age.after), format_count(age.between), format_count(age.transient),
      format_count(age.foreign));
  if (in.side.trace_start != kTimeMax)
    evidence += fmt::format("; {} recorded before the trace began",
                            format_plural(static_cast<uint64_t>(early), "change was", "changes were"));
  if (other_boot != 0) {
    out.push_back({Verdict::kBad, "kcore", "symbols or modules of the copy are of another boot or moment",
                   evidence, "give the copy that belongs to the recording (--kcore)"});
  } else if (age.foreign != 0) {
    out.push_back({Verdict::kBad, "kcore",
                   "the copy disagrees with the records: it was made before the events were opened, or "
                   "records are missing",
                   evidence + "; first: " + first_of(age.foreign_at),
                   "let perf make the copy (perf record --kcore): it opens the events first"});
  } else if (age.sites == 0) {
    out.push_back({Verdict::kOk, "kcore",
                   "no change is recorded with which the copy of kcore could be compared", "", ""});
  } else {
    out.push_back({Verdict::kOk, "kcore", "the copy of kcore agrees with the records", evidence, ""});
  }
}

void check_bpf(const HealthInput& in, std::vector<Finding>& out) {
  const Capture& c = in.capture;
  if (!in.kernel_traced || !c.perf) return;
  std::vector<std::string> missing;
  for (const BpfProgram& p : c.bpf_programs) {
    if (!p.has_image) missing.push_back(fmt::format("id {} {}", p.id, p.name));
  }
  uint64_t others = 0;
  std::vector<std::string> empty;
  for (const KsymbolFact& k : in.side.ksymbols) {
    if (k.unregister || k.name.starts_with("bpf_prog_")) continue;
    ++others;
    const Cell cell = c.text->cell(kKernelSpace, k.range.begin);
    const bool known = std::ranges::any_of(
        cell.versions, [&](const Version& v) { return v.bytes != nullptr && v.until >= k.time; });
    if (!known) empty.push_back(k.name);
  }
  if (c.bpf_programs.empty() && others == 0) return;
  std::string evidence = fmt::format(
      "{}, {} without bytes; {}, {} without bytes",
      format_plural(c.bpf_programs.size(), "program", "programs"), format_count(missing.size()),
      format_plural(others, "trampoline or page", "trampolines and pages"), format_count(empty.size()));
  missing.insert(missing.end(), empty.begin(), empty.end());
  if (!missing.empty()) evidence += ": " + first_of(missing);
  if (missing.empty()) {
    out.push_back({Verdict::kOk, "generated", "all generated code has bytes", evidence, ""});
  } else {
    out.push_back({Verdict::kWarn, "generated",
                   "some generated code has no bytes: where it ran, the flow has gaps", evidence,
                   "keep programs loaded until perf has read them; a second copy of kcore at the end "
                   "(--kcore-end) or a "
                   "watcher (--ksym-text) has trampolines"});
  }
}

void check_files(const HealthInput& in, std::vector<Finding>& out) {
  const Capture& c = in.capture;
  const uint64_t absent = notice_count(c, Code::kFileNotFound);
  const uint64_t other = notice_count(c, Code::kOtherBuildId) + notice_count(c, Code::kOtherBuildIdUsed);
  const uint64_t unverified =
      notice_count(c, Code::kFileNotVerified) + notice_count(c, Code::kFileNewerThanRecording);
  std::vector<std::string> names;
  for (const Notice& n : c.notices) {
    if (n.code == Code::kFileNotFound || n.code == Code::kOtherBuildId) names.push_back(n.where);
  }
  std::string evidence =
      fmt::format("{} not found, {} with another build-id, {} without a build-id in the recording",
                  format_plural(absent, "file", "files"), format_count(other), format_count(unverified));
  if (!names.empty()) evidence += ": " + first_of(names);
  if (!in.user_traced && absent + other == 0) return;
  if (absent + other != 0) {
    out.push_back({in.user_traced ? Verdict::kBad : Verdict::kWarn, "files", "code of some files is unknown",
                   evidence, "copy the files that ran and give --symfs, or perf archive and --buildid-dir"});
  } else if (unverified != 0) {
    out.push_back({Verdict::kWarn, "files", "some files cannot be checked to be those that ran", evidence,
                   "record with perf record --buildid-mmap"});
  } else {
    out.push_back({Verdict::kOk, "files", "all files that were mapped are there", evidence, ""});
  }
}

}  // namespace asof
