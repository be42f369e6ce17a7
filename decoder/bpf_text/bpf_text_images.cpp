// Which BPF program is where: joins BPF_EVENT ids, BPF_PROG_INFO images and KSYMBOL lifetimes. The id is the
// key; tags repeat (equal programs), names are chosen by users, addresses are reused within milliseconds.
#include <fmt/format.h>

#include <algorithm>

#include "decoder/bpf_text/bpf_text.h"
#include "decoder/perf/records.h"

namespace asof {
namespace {

// KSYMBOL and BPF_EVENT of one load come from one CPU, 2 to 110 us apart; rings of two CPUs may swap them.
constexpr Time kRingSkew = 1'000'000;
constexpr size_t kTagged = 9 + 16;  // "bpf_prog_" and eight bytes in hex

}  // namespace

size_t GeneratedText::add_lifetime(CodeLifetime lifetime) {
  const size_t index = lifetimes_.size();
  std::vector<size_t>& same = by_begin_[lifetime.range.begin];
  auto at = std::upper_bound(same.begin(), same.end(), lifetime.from,
                             [&](Time t, size_t i) { return t < lifetimes_[i].from; });
  same.insert(at, index);
  if (lifetime.name.size() >= kTagged) by_tag_[lifetime.name.substr(0, kTagged)].lifetimes.push_back(index);
  lifetimes_.push_back(std::move(lifetime));
  return index;
}

void GeneratedText::index_lifetimes() {
  std::vector<CodeLifetime> all = std::move(lifetimes_);
  lifetimes_.clear();
  for (CodeLifetime& lifetime : all) add_lifetime(std::move(lifetime));
}

// The lifetime at an address as of t, or the one that begins at most `skew` after.
std::optional<size_t> GeneratedText::lifetime_at(Addr begin, Time t, Time skew) const {
  auto same = by_begin_.find(begin);
  if (same == by_begin_.end()) return std::nullopt;
  const std::vector<size_t>& lifetimes = same->second;  // disjoint: one ends where the next begins
  auto next = std::upper_bound(lifetimes.begin(), lifetimes.end(), t,
                               [&](Time at, size_t i) { return at < lifetimes_[i].from; });
  if (next != lifetimes.begin() && t <= lifetimes_[*std::prev(next)].until) return *std::prev(next);
  if (next != lifetimes.end() && t != kTimeMin && lifetimes_[*next].from <= saturating_add(t, skew))
    return *next;
  return std::nullopt;
}

void GeneratedText::assign_images() {
  std::map<uint32_t, const BpfImage*> by_id;
  for (const BpfImage& image : images_) by_id.emplace(image.id, &image);
  for (const BpfFact& event : side_.bpf_events) {
    auto image = by_id.find(event.id);
    if (event.load) assign(event, image == by_id.end() ? nullptr : image->second);
  }
  for (const BpfFact& event : side_.bpf_events) {
    if (!event.load) end_by_unload(event);
  }
  for (const BpfImage& image : images_) {
    if (!programs_.contains(image.id)) assign_without_load(image);
  }
}

void GeneratedText::assign(const BpfFact& load, const BpfImage* image) {
  auto [entry, fresh] = programs_.try_emplace(load.id);
  BpfProgram& program = entry->second;
  if (fresh) {
    program.id = load.id;
    program.tag = hex(load.tag);
    program.loaded = load.time;
    program.has_image = image != nullptr;
    if (image != nullptr) program.name = image->name;
  }
  auto take = [&](size_t index, const BpfImage::Function* function) {
    CodeLifetime& lifetime = lifetimes_[index];
    if (lifetime.bpf_id != 0 && lifetime.bpf_id != load.id) return;
    lifetime.bpf_id = load.id;
    lifetime.loaded = load.time;
    lifetime.image = function;
    if (program.functions.empty()) program.name = lifetime.name;
    if (fresh) program.functions.push_back(lifetime.range);
  };
  if (image == nullptr) {
    // Of equal programs, the one that has no id yet.
    Tagged& tagged = by_tag_["bpf_prog_" + program.tag];
    auto done = [&](const CodeLifetime& lifetime) {
      return lifetime.bpf_id != 0 || lifetime.until < load.time;
    };
    while (tagged.first < tagged.lifetimes.size() && done(lifetimes_[tagged.lifetimes[tagged.first]]))
      ++tagged.first;
    if (tagged.first < tagged.lifetimes.size() &&
        lifetimes_[tagged.lifetimes[tagged.first]].from <= load.time) {
      take(tagged.lifetimes[tagged.first], nullptr);
    }
    notices_.error(Code::kBpfWithoutBytes, where_,
                   fmt::format("BPF program {} ({}) has no image: it was gone before perf asked for it, or "
                               "perf was not allowed to",
                               load.id, program.name.empty() ? program.tag : program.name),
                   {}, load.file_offset, load.time);
    return;
  }
  for (const BpfImage::Function& function : image->functions) {
    const auto index = lifetime_at(function.address, load.time, kRingSkew);
    if (index) take(*index, &function);
  }
}

// No BPF_EVENT: the symbol's tag, its address and its length must decide. Programs of one tag differ in the
// addresses of what they use, so an image that fits several lifetimes belongs to none.
void GeneratedText::assign_without_load(const BpfImage& image) {
  BpfProgram program{
      .id = image.id, .tag = hex(image.tag), .name = image.name, .functions = {}, .has_image = true};
  for (size_t i = 0; i < image.functions.size(); ++i) {
    const BpfImage::Function& function = image.functions[i];
    auto same = by_begin_.find(function.address);
    if (same == by_begin_.end()) continue;
    const auto fits = [&](size_t index) {
      const CodeLifetime& lifetime = lifetimes_[index];
      const bool named = i != 0 || lifetime.name.starts_with("bpf_prog_" + program.tag);
      return named && lifetime.bpf_id == 0 && lifetime.range.size() == function.bytes.size();
    };
    if (std::ranges::count_if(same->second, fits) != 1) continue;
    CodeLifetime& lifetime = lifetimes_[*std::ranges::find_if(same->second, fits)];
    lifetime.bpf_id = image.id;
    lifetime.image = &function;
    lifetime.guessed = true;
    lifetime.loaded = lifetime.from;
    if (program.functions.empty()) {
      program.name = lifetime.name;
      program.loaded = lifetime.from;
      program.unloaded = lifetime.until;
    }
    program.functions.push_back(lifetime.range);
  }
  if (program.functions.empty()) {
    notices_.info(Code::kBpfImageWithoutLifetime, where_,
                  fmt::format("BPF program {} ({}) has an image but no record says when it was there",
                              image.id, image.name));
  }
  programs_.emplace(image.id, std::move(program));
}

// Kernels before 6.2 may say id 0; then the KSYMBOL records have ended the lifetime already.
void GeneratedText::end_by_unload(const BpfFact& unload) {
  auto program = programs_.find(unload.id);
  if (unload.id == 0 || program == programs_.end()) return;
  program->second.unloaded = unload.time;
  for (const AddrRange& function : program->second.functions) {
    const auto index = lifetime_at(function.begin, unload.time, 0);
    if (!index || lifetimes_[*index].bpf_id != unload.id || lifetimes_[*index].until != kTimeMax) continue;
    lifetimes_[*index].until = unload.time;
    lifetimes_[*index].soft = true;
  }
}

// When the next lifetime takes over the remains of an ended one, its symbol ends too.
void GeneratedText::find_displaced() {
  std::vector<size_t> order(lifetimes_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lifetimes_[a].from < lifetimes_[b].from; });
  std::map<Addr, size_t> current;  // by end, disjoint
  for (size_t index : order) {
    CodeLifetime& lifetime = lifetimes_[index];
    for (auto it = current.upper_bound(lifetime.range.begin);
         it != current.end() && lifetimes_[it->second].range.begin < lifetime.range.end;) {
      CodeLifetime& old = lifetimes_[it->second];
      if (old.until == kTimeMax) {  // trampolines that share a page
        ++it;
        continue;
      }
      old.displaced = std::max(old.until, lifetime.from == kTimeMin ? kTimeMin : lifetime.from - 1);
      it = current.erase(it);
    }
    current.insert_or_assign(lifetime.range.end, index);
  }
}

std::vector<BpfProgram> GeneratedText::programs() const {
  std::map<uint32_t, BpfProgram> out = programs_;
  for (const CodeLifetime& lifetime : lifetimes_) {
    auto program = out.find(lifetime.bpf_id);
    if (lifetime.bpf_id == 0 || program == out.end() || program->second.unloaded != kTimeMax) continue;
    program->second.unloaded = lifetime.until;
  }
  std::vector<BpfProgram> list;
  list.reserve(out.size());
  for (auto& [id, program] : out) list.push_back(std::move(program));
  return list;
}

}  // namespace asof
