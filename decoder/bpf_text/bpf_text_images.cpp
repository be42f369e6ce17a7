// Which BPF program lives where: BPF_EVENT ids, BPF_PROG_INFO images and KSYMBOL lives brought together. The
// id is the key; tags repeat (equal programs), names are chosen by users, addresses are reused within
// milliseconds.
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

size_t GeneratedText::add_life(CodeLife life) {
  const size_t index = lives_.size();
  std::vector<size_t>& same = by_begin_[life.range.begin];
  auto at = std::upper_bound(same.begin(), same.end(), life.from,
                             [&](Time t, size_t i) { return t < lives_[i].from; });
  same.insert(at, index);
  if (life.name.size() >= kTagged) by_tag_[life.name.substr(0, kTagged)].lives.push_back(index);
  lives_.push_back(std::move(life));
  return index;
}

void GeneratedText::index_lives() {
  std::vector<CodeLife> all = std::move(lives_);
  lives_.clear();
  for (CodeLife& life : all) add_life(std::move(life));
}

// The life at an address as of t, or the one that begins at most `skew` after.
std::optional<size_t> GeneratedText::life_at(Addr begin, Time t, Time skew) const {
  auto same = by_begin_.find(begin);
  if (same == by_begin_.end()) return std::nullopt;
  const std::vector<size_t>& lives = same->second;  // disjoint: one ends where the next begins
  auto next =
      std::upper_bound(lives.begin(), lives.end(), t, [&](Time at, size_t i) { return at < lives_[i].from; });
  if (next != lives.begin() && t <= lives_[*std::prev(next)].until) return *std::prev(next);
  if (next != lives.end() && t != kTimeMin && lives_[*next].from <= saturating_add(t, skew)) return *next;
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
    CodeLife& life = lives_[index];
    if (life.bpf_id != 0 && life.bpf_id != load.id) return;
    life.bpf_id = load.id;
    life.loaded = load.time;
    life.image = function;
    if (program.functions.empty()) program.name = life.name;
    if (fresh) program.functions.push_back(life.range);
  };
  if (image == nullptr) {
    // Of equal programs, the one that has no id yet.
    Tagged& tagged = by_tag_["bpf_prog_" + program.tag];
    auto done = [&](const CodeLife& life) { return life.bpf_id != 0 || life.until < load.time; };
    while (tagged.first < tagged.lives.size() && done(lives_[tagged.lives[tagged.first]])) ++tagged.first;
    if (tagged.first < tagged.lives.size() && lives_[tagged.lives[tagged.first]].from <= load.time) {
      take(tagged.lives[tagged.first], nullptr);
    }
    notices_.error(Code::kBpfWithoutBytes, where_,
                   fmt::format("BPF program {} ({}) has no image: it was gone before perf asked for it, or "
                               "perf was not allowed to",
                               load.id, program.name.empty() ? program.tag : program.name),
                   {}, load.file_offset, load.time);
    return;
  }
  for (const BpfImage::Function& function : image->functions) {
    const auto index = life_at(function.address, load.time, kRingSkew);
    if (index) take(*index, &function);
  }
}

// No BPF_EVENT: the symbol's tag, its address and its length must tell. Programs of one tag differ in the
// addresses of what they use, so an image that fits several lives is the image of none.
void GeneratedText::assign_without_load(const BpfImage& image) {
  BpfProgram program{
      .id = image.id, .tag = hex(image.tag), .name = image.name, .functions = {}, .has_image = true};
  for (size_t i = 0; i < image.functions.size(); ++i) {
    const BpfImage::Function& function = image.functions[i];
    auto same = by_begin_.find(function.address);
    if (same == by_begin_.end()) continue;
    const auto fits = [&](size_t index) {
      const CodeLife& life = lives_[index];
      const bool named = i != 0 || life.name.starts_with("bpf_prog_" + program.tag);
      return named && life.bpf_id == 0 && life.range.size() == function.bytes.size();
    };
    if (std::ranges::count_if(same->second, fits) != 1) continue;
    CodeLife& life = lives_[*std::ranges::find_if(same->second, fits)];
    life.bpf_id = image.id;
    life.image = &function;
    life.guessed = true;
    life.loaded = life.from;
    if (program.functions.empty()) {
      program.name = life.name;
      program.loaded = life.from;
      program.unloaded = life.until;
    }
    program.functions.push_back(life.range);
  }
  if (program.functions.empty()) {
    notices_.info(Code::kBpfImageWithoutLifetime, where_,
                  fmt::format("BPF program {} ({}) has an image but no record says when it was there",
                              image.id, image.name));
  }
  programs_.emplace(image.id, std::move(program));
}

// Kernels before 6.2 may say id 0; then the KSYMBOL records have ended the life already.
void GeneratedText::end_by_unload(const BpfFact& unload) {
  auto program = programs_.find(unload.id);
  if (unload.id == 0 || program == programs_.end()) return;
  program->second.unloaded = unload.time;
  for (const AddrRange& function : program->second.functions) {
    const auto index = life_at(function.begin, unload.time, 0);
    if (!index || lives_[*index].bpf_id != unload.id || lives_[*index].until != kTimeMax) continue;
    lives_[*index].until = unload.time;
    lives_[*index].soft = true;
  }
}

// When the next life takes over what an ended one has left, its symbol ends too.
void GeneratedText::find_displaced() {
  std::vector<size_t> order(lives_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lives_[a].from < lives_[b].from; });
  std::map<Addr, size_t> current;  // by end, disjoint
  for (size_t index : order) {
    CodeLife& life = lives_[index];
    for (auto it = current.upper_bound(life.range.begin);
         it != current.end() && lives_[it->second].range.begin < life.range.end;) {
      CodeLife& old = lives_[it->second];
      if (old.until == kTimeMax) {  // trampolines that share a page
        ++it;
        continue;
      }
      old.displaced = std::max(old.until, life.from == kTimeMin ? kTimeMin : life.from - 1);
      it = current.erase(it);
    }
    current.insert_or_assign(life.range.end, index);
  }
}

std::vector<BpfProgram> GeneratedText::programs() const {
  std::map<uint32_t, BpfProgram> out = programs_;
  for (const CodeLife& life : lives_) {
    auto program = out.find(life.bpf_id);
    if (life.bpf_id == 0 || program == out.end() || program->second.unloaded != kTimeMax) continue;
    program->second.unloaded = life.until;
  }
  std::vector<BpfProgram> list;
  list.reserve(out.size());
  for (auto& [id, program] : out) list.push_back(std::move(program));
  return list;
}

}  // namespace asof
