#include "tools/doctor/health.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "tools/doctor/open_matters.h"
#include "tools/output/diagnostics.h"
#include "tools/output/format.h"

namespace asof {
namespace {

constexpr size_t kNamed = 5;

bool is_arm64(const Capture& c) { return c.machine == "aarch64" || c.machine == "arm64"; }

}  // namespace

std::string_view verdict_name(Verdict v) {
  static constexpr std::array<std::string_view, 3> kNames{"ok", "warn", "bad"};
  return kNames[static_cast<size_t>(v)];
}

uint64_t notice_count(const Capture& capture, Code code) {
  uint64_t n = 0;
  for (const Notice& notice : capture.notices) n += notice.code == code ? notice.count : 0;
  return n;
}

std::string first_of(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < std::min(names.size(), kNamed); ++i) out += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kNamed) out += fmt::format(" and {} more", format_count(names.size() - kNamed));
  return out;
}

HealthInput health_input(const Capture& capture) {
  HealthInput in{.capture = capture, .side = {}};
  in.arm64 = is_arm64(capture);
  in.kernel_traced = !capture.exclude_kernel;
  in.user_traced = !capture.exclude_user;
  if (!capture.perf) return in;
  NoticeBook known_notices;  // opening the capture has reported these
  in.side = read_side_band(*capture.perf, known_notices);
  return in;
}

LaterCode::LaterCode(const ElfImage& copy, const SideBand& side, std::span<const PokeRecord> pokes)
    : copy_(copy) {
  struct Announced {
    AddrRange range;
    Time time;
  };
  std::vector<Announced> announced;
  for (const KsymbolFact& k : side.ksymbols) {
    if (!k.unregister && k.time != kTimeMin) announced.push_back({k.range, k.time});
  }
  std::vector<Addr> sites;
  for (const PokeRecord& p : pokes) {
    if (p.old_len == 0) announced.push_back({range_of(p.addr, p.new_len), p.time});
    sites.push_back(p.addr);
  }
  std::ranges::sort(announced, {}, [](const Announced& a) { return a.range.begin; });
  std::ranges::sort(sites);
  std::set<std::pair<Time, Addr>> open;  // time and end of those that began before an address
  size_t next = 0;
  for (const Addr site : sites) {
    for (; next < announced.size() && announced[next].range.begin <= site; ++next)
      open.emplace(announced[next].time, announced[next].range.end);
    while (!open.empty() && open.begin()->second <= site) open.erase(open.begin());
    if (!open.empty()) first_.try_emplace(site, open.begin()->first);
  }
}

bool LaterCode::holds(const PokeRecord& poke) const {
  constexpr Time kBefore = 10'000'000;  // ns: code may be changed before the record that announces it
  const auto known = first_.find(poke.addr);
  if (known != first_.end() && known->second <= saturating_add(poke.time, kBefore)) return true;
  return was_empty(poke.addr);
}

// Pages of the modules' range that are not mapped are read as zeros (fs/proc/kcore.c).
bool LaterCode::was_empty(Addr addr) const {
  constexpr uint64_t kPage = 4096;
  const AddrRange page = range_of(addr & ~(kPage - 1), kPage);
  for (const ElfSegment& s : copy_.segments()) {
    const AddrRange range = range_of(s.address, s.bytes.size());
    if (!range.contains(page)) continue;
    const auto bytes = s.bytes.subspan(page.begin - range.begin, kPage);
    return std::ranges::all_of(bytes, [](uint8_t b) { return b == 0; });
  }
  return false;
}

void check_damage(const HealthInput& in, std::vector<Finding>& out) {
  if (const auto cut = std::ranges::find(in.capture.notices, Code::kFileCut, &Notice::code);
      cut != in.capture.notices.end()) {
    out.push_back(
        {Verdict::kBad, "file", "a file beside the recording ends early: its code or symbols are missing",
         fmt::format("{} {}: {}", code_text(cut->code), place_text(cut->where, cut->offset), cut->reason),
         cut->hint});
  }
  uint64_t count = 0;
  const Notice* first = nullptr;
  for (const Notice& n : in.capture.notices) {
    // Everything else has a check of its own.
    if (!is_damage(n.code) || n.code == Code::kFileCut || n.severity == Notice::Severity::kInfo) continue;
    count += n.count;
    if (first == nullptr) first = &n;
  }
  if (const Notice* cut = early_end(in.capture)) {
    out.push_back({Verdict::kBad, "file",
                   "the file ends before the recording did; nothing says what is missing",
                   fmt::format("{}: {}", code_text(cut->code), cut->reason),
                   "copy the file again; end perf record with SIGINT"});
    return;
  }
  const auto missing = std::ranges::find(in.capture.notices, Code::kPartMissing, &Notice::code);
  if (missing != in.capture.notices.end()) {
    out.push_back({Verdict::kBad, "file", "parts of what was divided are missing", missing->reason,
                   "merge again when all parts are there"});
    return;
  }
  if (first == nullptr) {
    out.push_back({Verdict::kOk, "file", "every record can be read", "", ""});
    return;
  }
  out.push_back({Verdict::kWarn, "file",
                 fmt::format("{} damaged or impossible",
                             format_plural(count, "record or file is", "records or files are")),
                 fmt::format("first: {} {}: {}", code_text(first->code),
                             place_text(first->where, first->offset), first->reason),
                 "compare the file with its source; record again if the source has the same"});
}

void check_open(const HealthInput& in, std::vector<Finding>& out) {
  const std::vector<OpenFinding> open = open_matters(in.capture);
  for (const OpenFinding& f : open) {
    out.push_back({f.matter->usual ? Verdict::kOk : Verdict::kWarn, "open", open_matter_text(*f.matter),
                   f.evidence, std::string(f.matter->usual ? "" : f.matter->remedy)});
  }
  if (open.empty()) {
    out.push_back({Verdict::kOk, "open",
                   "nothing keeps what has bytes from being certain, as far as the recording shows", "", ""});
  }
}

std::vector<Finding> examine(const Capture& capture) {
  const HealthInput in = health_input(capture);
  std::vector<Finding> out;
  for (const auto check : {check_trace, check_losses, check_damage, check_clock, check_switches, check_text,
                           check_pokes, check_kcore, check_bpf, check_files, check_open}) {
    check(in, out);
  }
  return out;
}

}  // namespace asof
