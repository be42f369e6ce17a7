// Generated code of a recording that lost records. Two lost records, the end of one program and the beginning
// of the next, replace the code at an address without a sign; one is enough where the first program has
// ended, because what it leaves may run a little longer. From the loss on the code that was announced is one
// possibility and something unknown the other, up to its end; then all is unknown, up to the next
// announcement.
#include <fmt/format.h>

#include <algorithm>

#include "decoder/bpf_text/bpf_text.h"
#include "decoder/perf/records.h"

namespace asof {
namespace {

// KSYMBOL and BPF_EVENT of one load come from one CPU, 2 to 110 us apart; rings of two CPUs may swap them.
constexpr Time kRingSkew = 1'000'000;
constexpr size_t kTagged = 9 + 16;  // "bpf_prog_" and eight bytes in hex

constexpr uint64_t kEndAndBeginning = 2;  // records

constexpr Time just_after(Time t) { return t == kTimeMax ? t : t + 1; }

struct Register {
  Time time;
  const KsymbolFact* fact;
  bool used = false;  // a load belongs to it
};

class Announcements {
 public:
  explicit Announcements(std::span<const KsymbolFact> symbols) {
    for (const KsymbolFact& s : symbols) {
      if (s.unregister)
        ends_[s.range.begin].push_back(s.time);
      else
        registers_[s.range.begin].push_back({s.time, &s});
    }
  }

  // The register of a function loaded at `t`: the latest before, or just after, that no other load took and
  // no unregister ended.
  bool take(const BpfImage::Function& function, const std::string& tag, Time t) {
    const auto at = registers_.find(function.address);
    if (at == registers_.end()) return false;
    std::vector<Register>& all = at->second;
    const auto fits = [&](const Register& r) {
      return !r.used && r.fact->range.size() == function.bytes.size() &&
             (tag.empty() || r.fact->name.starts_with("bpf_prog_" + tag));
    };
    const auto later = std::ranges::upper_bound(all, t, {}, &Register::time);
    for (auto r = later; r != all.begin();) {
      if (--r; !fits(*r)) continue;
      if (r->time < t && ended_between(function.address, r->time, t)) break;
      return r->used = true;
    }
    if (later == all.end() || t == kTimeMin || later->time > saturating_add(t, kRingSkew) || !fits(*later))
      return false;
    return later->used = true;
  }
  // A register with this name, for a load whose address is unknown.
  bool take_named(const std::string& tag, Time t) {
    if (by_tag_.empty()) {
      for (auto& [addr, registers] : registers_) {
        for (Register& r : registers) by_tag_[r.fact->name.substr(0, kTagged)].push_back(&r);
      }
      for (auto& [name, registers] : by_tag_) std::ranges::sort(registers, {}, &Register::time);
    }
    const auto named = by_tag_.find("bpf_prog_" + tag);
    if (named == by_tag_.end()) return false;
    const Time earliest = t == kTimeMin ? t : saturating_add(t, -kRingSkew);
    const Time latest = t == kTimeMin ? t : saturating_add(t, kRingSkew);
    auto r = std::ranges::lower_bound(named->second, earliest, {}, &Register::time);
    for (; r != named->second.end() && (*r)->time <= latest; ++r) {
      if ((*r)->used) continue;
      (*r)->used = true;
      return true;
    }
    return false;
  }

 private:
  bool ended_between(Addr begin, Time from, Time until) const {
    const auto at = ends_.find(begin);
    if (at == ends_.end()) return false;
    const auto end = std::ranges::upper_bound(at->second, from);
    return end != at->second.end() && *end < until;
  }

  std::map<Addr, std::vector<Register>> registers_;  // in order of time
  std::map<Addr, std::vector<Time>> ends_;
  std::map<std::string, std::vector<Register*>> by_tag_;
};

}  // namespace

bool same_code_name(std::string_view a, std::string_view b) {
  const bool programs = a.starts_with("bpf_prog_") && a.size() >= kTagged && b.size() >= kTagged;
  return programs ? a.substr(0, kTagged) == b.substr(0, kTagged) : a == b;
}

std::vector<KsymbolFact> announcements(const SideBand& side, std::span<const BpfImage> images,
                                       const std::string& where, NoticeBook& notices,
                                       std::vector<LostRecords>& losses) {
  std::map<uint32_t, const BpfImage*> by_id;
  for (const BpfImage& image : images) by_id.emplace(image.id, &image);
  Announcements known(side.ksymbols);
  std::vector<KsymbolFact> out = side.ksymbols;
  std::vector<const BpfFact*> without_image;
  for (const BpfFact& load : side.bpf_events) {
    if (!load.load) continue;
    const auto found = by_id.find(load.id);
    if (found == by_id.end()) {
      without_image.push_back(&load);
      continue;
    }
    const BpfImage& image = *found->second;
    const std::string tag = hex(load.tag);
    for (size_t i = 0; i < image.functions.size(); ++i) {
      const BpfImage::Function& f = image.functions[i];
      const AddrRange range = range_of(f.address, f.bytes.size());
      // Only the main function has the program's own tag.
      if (range.empty() || !is_kernel_address(f.address) || known.take(f, i == 0 ? tag : "", load.time))
        continue;
      notices.error(Code::kBpfWithoutSymbol, where,
                    fmt::format("no KSYMBOL record for BPF program {} at {:#x}", load.id, f.address), {},
                    load.file_offset, load.time);
      out.push_back({.time = load.time,
                     .range = range,
                     .type = KsymbolFact::kBpf,
                     .name = "bpf_prog_" + tag + (image.name.empty() ? "" : "_" + image.name),
                     .file_offset = load.file_offset});
    }
  }
  for (const BpfFact* load : without_image) {
    if (known.take_named(hex(load->tag), load->time)) continue;
    const Time after = load->time == kTimeMin ? kTimeMin : saturating_add(load->time, -kRingSkew);
    if (load->time != kTimeMin) losses.push_back({0, after, load->time, 1});
  }
  std::ranges::stable_sort(out, {}, &KsymbolFact::time);
  return out;
}

// The instant from which something else may be at the address of each lifetime.
void GeneratedText::find_doubts() {
  if (lost_->empty()) return;
  for (CodeLifetime& lifetime : lifetimes_) {
    const auto meanwhile = lost_->within(lifetime.from, lifetime.until);
    const auto later = lifetime.soft ? lost_->within(lifetime.until, kTimeMax) : std::nullopt;
    if (lifetime.guessed) lifetime.doubt = std::min(lifetime.doubt, just_after(lifetime.from));
    if (meanwhile && meanwhile->count >= kEndAndBeginning)
      lifetime.doubt = std::min(lifetime.doubt, just_after(std::max(lifetime.from, meanwhile->after)));
    if (later) lifetime.doubt = std::min(lifetime.doubt, just_after(std::max(lifetime.until, later->after)));
  }
}

void GeneratedText::add_doubt(Builder& builder, const CodeLifetime& lifetime) const {
  if (lifetime.doubt == kTimeMax || (lifetime.doubt > lifetime.until && !lifetime.soft)) return;
  builder.add_layer({.range = lifetime.range,
                     .bytes = {},
                     .from = lifetime.doubt,
                     .until = lifetime.soft ? kTimeMax : lifetime.until,
                     .rank = kRankEpoch,
                     .origin = kNoOrigin});
}

// Code that a copy of memory has and no record mentions: present since before the recording (`at_end`: still
// present at its end), unless something replaced it or was at its address before, unrecorded.
void GeneratedText::add_doubt(Builder& builder, AddrRange range, int rank, bool at_end) const {
  const auto lost = lost_->within(kTimeMin, kTimeMax);
  if (!lost || lost->count < kEndAndBeginning) return;
  builder.add_layer({.range = range,
                     .bytes = {},
                     .from = just_after(at_end ? kTimeMin : lost->after),
                     .until = at_end ? lost->until : kTimeMax,
                     .rank = rank,
                     .origin = kNoOrigin});
}

}  // namespace asof
