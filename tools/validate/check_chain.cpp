// Validation: changes whose loss the records themselves do not show, but other changes do.
//
//  * perf copies kcore before it starts the trace. So a site whose first recorded change comes later must be
//    in the copy as that record found it; if not, a change before it is missing.
//  * The kernel changes all sites of a static key, or of a tracer, together, and changes them back together.
//    A site that was changed with others once, and not with them the other time, probably lacks a record.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "decoder/model/image.h"
#include "tools/output/format.h"
#include "tools/validate/validation.h"

namespace asof {
namespace {

constexpr uint8_t kInt3 = 0xcc;

std::string place_name(const Capture& capture, Addr a, Time t) {
  const auto symbol = capture.symbols.find(kKernelSpace, a, t);
  return symbol ? fmt::format("{:x} ({}+{:#x})", a, symbol->symbol->shown(), symbol->offset)
                : fmt::format("{:x}", a);
}

// The file of the copy made at the start; empty: none.
std::string start_copy(const Capture& capture) {
  for (const Cell& cell : capture.text->cells(kKernelSpace, {Addr{1} << 63U, UINT64_MAX})) {
    for (const Version& v : cell.versions) {
      if (is_poke(v.origin) || v.bytes == nullptr) continue;
      const Origin& origin = capture.text->origin(v.origin);
      if (origin.kind == OriginKind::kKcore) return origin.name;
    }
  }
  return {};
}

std::span<const uint8_t> bytes_at(const ElfImage& image, AddrRange range) {
  for (const ElfSegment& s : image.segments()) {
    if (range_of(s.address, s.bytes.size()).contains(range))
      return s.bytes.subspan(range.begin - s.address, range.size());
  }
  return {};
}

// Changes that CPUs made in one operation: neighbours in time of one ring, each site once.
struct Batch {
  std::map<Addr, uint32_t> sites;  // to the record's number
  Time time = kTimeMin;
};

std::vector<Batch> batches_of(std::span<const PokeRecord> pokes) {
  constexpr Time kApart = 5'000'000;  // ns between two operations
  std::vector<Batch> out;
  std::map<uint32_t, std::pair<size_t, Time>> open;  // by ring: batch, last time
  for (uint32_t i = 0; i < pokes.size(); ++i) {
    const PokeRecord& p = pokes[i];
    if (p.old_len == 0 || p.new_len == 0) continue;  // comes and goes alone
    const auto known = open.find(p.source);
    const bool next = known == open.end() || elapsed(known->second.second, p.time) > kApart ||
                      out[known->second.first].sites.contains(p.addr);
    if (next) out.push_back({{}, p.time});
    const size_t batch = next ? out.size() - 1 : known->second.first;
    out[batch].sites.emplace(p.addr, i);
    open[p.source] = {batch, p.time};
  }
  return out;
}

size_t common(const Batch& a, const Batch& b) {
  return static_cast<size_t>(
      std::ranges::count_if(a.sites, [&](const auto& site) { return b.sites.contains(site.first); }));
}

using Counts = std::map<Addr, uint64_t>;  // records of each site

// How many records most sites of a batch have.
uint64_t usual_count(const Batch& batch, const Counts& counts) {
  std::vector<uint64_t> all;
  all.reserve(batch.sites.size());
  for (const auto& [addr, number] : batch.sites) all.push_back(counts.at(addr));
  std::ranges::nth_element(all, all.begin() + static_cast<long>(all.size() / 2));
  return all[all.size() / 2];
}

// Sites of `here` that are not in `there`, when the two are otherwise the same, and that have a record less
// than the others.
void compare(const Capture& capture, const Batch& here, const Batch& there, const Counts& counts,
             std::map<Addr, std::string>& odd) {
  const size_t same = common(here, there);
  const size_t apart = here.sites.size() + there.sites.size() - 2 * same;
  if (same < 3 || apart == 0 || apart * 5 > here.sites.size() + there.sites.size()) return;
  const uint64_t usual = usual_count(here, counts);
  for (const auto& [addr, number] : here.sites) {
    if (there.sites.contains(addr) || counts.at(addr) + 1 != usual) continue;
    odd.try_emplace(
        addr, fmt::format("{} was changed with {} others at {} (poke #{}), and not with them at {}: a "
                          "record is probably missing there",
                          place_name(capture, addr, here.time), here.sites.size() - 1, format_time(here.time),
                          number + 1, format_time(there.time)));
  }
}

}  // namespace

void check_start_copy(const ValidationInput& in, std::vector<Check>& out) {
  const std::string path = start_copy(in.capture);
  const auto copy = path.empty() ? Result<std::shared_ptr<const ElfImage>>(nullptr) : ElfImage::open(path);
  Check c{.topic = "start"};
  if (!copy) {
    c.result = Check::Result::kNote;
    c.answer = fmt::format("the copy of kcore cannot be read again, and was not compared: {} {}",
                           code_text(copy.error().code), copy.error().reason);
    out.push_back(std::move(c));
    return;
  }
  if (*copy == nullptr || in.health.side.trace_start == kTimeMax) return;
  std::set<Addr> seen;
  uint64_t checked = 0;
  uint64_t differ = 0;
  const LaterCode later(**copy, in.health.side, in.capture.text->pokes());
  for (const PokeRecord& p : in.capture.text->pokes()) {
    if (p.old_len == 0 || !seen.insert(p.addr).second || p.time <= in.health.side.trace_start) continue;
    if (later.holds(p)) continue;
    const auto bytes = bytes_at(**copy, range_of(p.addr, p.old_len));
    if (bytes.empty()) continue;
    ++checked;
    if (std::ranges::equal(bytes, p.old_bytes()) || bytes[0] == kInt3) continue;
    ++differ;
    if (c.places.size() < Check::kMaxPlaces)
      c.places.push_back(fmt::format("{}: the copy has {}, the first record there, at {}, finds {}",
                                     place_name(in.capture, p.addr, p.time), format_bytes(bytes),
                                     format_time(p.time), format_bytes(p.old_bytes())));
  }
  if (checked == 0) return;
  c.answer =
      fmt::format("of {} first changed after the trace began, {} were not as recorded in the copy of kcore",
                  format_plural(checked, "site", "sites"), differ == 0 ? "none" : format_count(differ));
  // All of them: then it is a copy of another time, which the topic kcore judges.
  c.result = differ == 0                            ? Check::Result::kPass
             : differ * 2 >= checked && checked > 2 ? Check::Result::kNote
                                                    : Check::Result::kFail;
  if (c.result == Check::Result::kFail) c.answer += ": a change before it is missing";
  out.push_back(std::move(c));
}

void check_batches(const ValidationInput& in, std::vector<Check>& out) {
  constexpr size_t kMostBatches = 2000;
  const std::vector<Batch> batches = batches_of(in.capture.text->pokes());
  if (batches.size() < 2 || batches.size() > kMostBatches) return;
  std::map<Addr, std::string> odd;
  Counts counts;
  for (const PokeRecord& p : in.capture.text->pokes()) ++counts[p.addr];
  for (size_t i = 0; i < batches.size(); ++i) {
    // The next one that has most of its sites: the other half of switching on and off.
    for (size_t k = i + 1; k < batches.size(); ++k) {
      if (common(batches[i], batches[k]) * 2 < batches[i].sites.size()) continue;
      compare(in.capture, batches[i], batches[k], counts, odd);
      compare(in.capture, batches[k], batches[i], counts, odd);
      break;
    }
  }
  Check c{.topic = "batches"};
  const bool failed =
      std::ranges::any_of(out, [](const Check& o) { return o.result == Check::Result::kFail; });
  // Two keys may share sites; with other evidence it is more than a hint.
  c.result = odd.empty() ? Check::Result::kPass : failed ? Check::Result::kFail : Check::Result::kNote;
  c.answer =
      odd.empty()
          ? "sites that were changed together were changed back together"
          : fmt::format("{} not changed with the others of the same switch: a record is probably missing",
                        format_plural(odd.size(), "site was", "sites were"));
  for (auto& [addr, text] : odd) {
    if (c.places.size() < Check::kMaxPlaces) c.places.push_back(std::move(text));
  }
  out.push_back(std::move(c));
}

}  // namespace asof
