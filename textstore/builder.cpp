#include "textstore/builder.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "textstore/build_state.h"
#include "textstore/check.h"
#include "textstore/lost_index.h"
#include "textstore/patch_rules.h"
#include "textstore/patch_sites.h"
#include "textstore/poke_sites.h"
#include "textstore/site_versions.h"
#include "textstore/space_facts.h"
#include "textstore/space_table.h"
#include "textstore/text_store_impl.h"

namespace asof {

struct Builder::Impl {
  std::unique_ptr<TextStore::Impl> store = std::make_unique<TextStore::Impl>();
  std::vector<Layer> layers;
  SpaceFacts spaces{1};
  std::vector<LostRecords> lost;
  bool all_rings = false;
  PatchRules rules;
  std::vector<PatchSite> sites;
  std::set<Space> distrusted;
  NoticeLog log;
  BuildLimits limits;
  std::vector<PokeRecord> observed;  // Poke::observed_in

  void keep_layer(Layer layer);
  std::vector<Contradiction> contradictions;

  std::shared_ptr<const SpaceTable> kernel_table(const LayerList& layers);
  bool end_replaced_layers();
  std::shared_ptr<const SpaceTable> unknown_table();
  void remove_dropped(SpaceTable& table, const std::vector<bool>& dropped);
};

Builder::Builder() : impl_(std::make_unique<Impl>()) { impl_->store->origins.emplace_back(); }
Builder::~Builder() = default;
Builder::Builder(Builder&&) noexcept = default;

void Builder::keep(std::shared_ptr<const void> owner) { impl_->store->owners.push_back(std::move(owner)); }

OriginRef Builder::add_origin(Origin origin) {
  ASOF_CHECK(impl_->store->origins.size() < kPokeBit);
  impl_->store->origins.push_back(std::move(origin));
  return static_cast<OriginRef>(impl_->store->origins.size() - 1);
}

Space Builder::add_space() { return impl_->spaces.add(); }

Space Builder::fork_space(Space parent, Time t) {
  ASOF_CHECK(parent < impl_->spaces.size());
  return impl_->spaces.fork(parent, t);
}

void Builder::Impl::keep_layer(Layer layer) {
  if (layer.range.empty() || (layer.until < layer.from && !layer.soft_until)) return;
  ASOF_CHECK(layers.size() < UINT32_MAX);
  spaces.add_layer(layer.space, static_cast<uint32_t>(layers.size()));
  layers.push_back(layer);
}

void Builder::add_layer(const Layer& layer) {
  ASOF_CHECK(layer.space < impl_->spaces.size());
  Layer known = layer;
  if (!layer.bytes.empty() && layer.bytes.size() < layer.range.size()) {
    known.range.end = known.range.begin + layer.bytes.size();
    Layer rest = layer;
    rest.range.begin = known.range.end;
    rest.bytes = {};
    impl_->keep_layer(rest);
  }
  impl_->keep_layer(known);
}

void Builder::add_poke(const Poke& poke) {
  const size_t old_len = poke.old_bytes.size(), new_len = poke.new_bytes.size();
  if (old_len == 0 && new_len == 0) return;
  ASOF_CHECK(old_len <= UINT16_MAX && new_len <= UINT16_MAX);
  if (std::max(old_len, new_len) > UINT64_MAX - poke.addr) {
    impl_->log.add(TextNotice::Kind::kPokeOutsideText, poke.addr, poke.time, poke.time,
                   [] { return std::string("a change that runs past the top of the address space"); });
    return;
  }
  ASOF_CHECK(impl_->store->pokes.size() + impl_->observed.size() < kBeforeBit);
  auto& pokes = poke.observed_in == kNoOrigin ? impl_->store->pokes : impl_->observed;
  pokes.push_back({poke.addr, poke.time, poke.file_offset, poke.source, static_cast<uint16_t>(old_len),
                   static_cast<uint16_t>(new_len), impl_->store->pool.intern(poke.old_bytes, poke.new_bytes),
                   poke.observed_in});
}

void Builder::add_lost(const LostRecords& lost) { impl_->lost.push_back(lost); }

void Builder::set_patch_rules(const PatchRules& rules) { impl_->rules = rules; }

void Builder::all_rings_recorded() { impl_->all_rings = true; }

void Builder::add_site(const PatchSite& site) {
  ASOF_CHECK(site.bytes.size() == site.range.size());
  if (!site.range.empty()) impl_->sites.push_back(site);
}

void Builder::distrust(Space space) { impl_->distrusted.insert(space); }

// Drops pokes found to be repeats while sites were made, and what copies of memory showed; origins move with those that
// stay.
void Builder::Impl::remove_dropped(SpaceTable& table, const std::vector<bool>& dropped) {
  if (dropped.empty() && observed.empty()) return;
  std::vector<PokeRecord>& pokes = store->pokes;
  std::vector<OriginRef> origins(pokes.size());
  uint32_t kept = 0;
  for (uint32_t i = 0; i < pokes.size(); ++i) {
    const bool repeats = !dropped.empty() && dropped[i];
    const bool is_record = pokes[i].observed_in == kNoOrigin;
    origins[i] = is_record ? kPokeBit | (repeats && kept != 0 ? kept - 1 : kept) : pokes[i].observed_in;
    if (!repeats && is_record) pokes[kept++] = pokes[i];
  }
  pokes.resize(kept);
  for (Version& v : table.versions) {
    if (!is_poke(v.origin)) continue;
    const OriginRef origin = origins[poke_index(v.origin)];
    v.origin = is_poke(origin) ? origin | (v.origin & kBeforeBit) : origin;
  }
}

std::shared_ptr<const SpaceTable> Builder::Impl::kernel_table(const LayerList& list) {
  TableContext context{limits, log};
  store->pokes.insert(store->pokes.end(), observed.begin(), observed.end());
  sort_pokes(store->pokes, log);
  std::vector<Addr> edges;
  for (const LayerView& v : *list) edges.insert(edges.end(), {v.layer->range.begin, v.layer->range.end});
  const PokeSites sites = find_sites(store->pokes, edges, limits.poke_overlaps);
  const LostIndex lost_index(lost);
  std::vector<bool> dropped;
  SiteVersions versions(
      {store->pokes, lost_index, all_rings, rules, store->pool, log, limits, dropped, contradictions});
  std::shared_ptr<SpaceTable> table = make_poked_table(*list, sites, versions, context);
  remove_dropped(*table, dropped);
  return table;
}

std::shared_ptr<const SpaceTable> Builder::Impl::unknown_table() {
  log.count(TextNotice::Kind::kTooComplex, 0, kTimeMin);
  auto table = std::make_shared<SpaceTable>();
  table->cells.push_back({0, 0});
  table->versions.emplace_back();
  return table;
}

// Replaceable layers that a poke contradicts are replaced by unknown text: beside them since the last poke in
// them that did fit, alone from the contradiction on. False: there are none.
bool Builder::Impl::end_replaced_layers() {
  if (contradictions.empty()) return false;
  std::ranges::sort(contradictions, {}, &Contradiction::time);
  std::vector<Layer> unknown;
  for (Layer& layer : layers) {
    if (!layer.replaceable || layer.space != kKernelSpace) continue;
    const auto here = [&](Addr a, Time t) {
      return layer.range.contains(a) && t > layer.from && t <= layer.until;
    };
    const auto first =
        std::ranges::find_if(contradictions, [&](const Contradiction& c) { return here(c.addr, c.time); });
    if (first == contradictions.end()) continue;
    Time fitted = layer.from;
    for (const PokeRecord& p : store->pokes) {
      if (p.time >= first->time) break;
      if (here(p.addr, p.time)) fitted = p.time;
    }
    Layer other = layer;
    other.bytes = {};
    other.from = fitted + 1;
    other.origin = kNoOrigin;
    other.observed = kTimeMin;
    other.replaceable = false;
    unknown.push_back(other);
    layer.until = first->time - 1;
    layer.soft_until = false;
  }
  for (const Layer& l : unknown) keep_layer(l);
  return !unknown.empty();
}

TextStore Builder::build() && {
  Impl& b = *impl_;
  for (const Layer& l : doubtful_sites(b.sites, b.layers, b.store->pokes, LostIndex(b.lost), b.rules,
                                       b.limits.place_steps, b.log))
    b.keep_layer(l);
  for (const LostRecords& lost : b.lost)
    b.store->unsure_from = std::min(b.store->unsure_from, LostIndex::behind(lost.after));
  for (Layer& l : b.layers) {
    // What was read after a loss may have been changed during it: it does not show what was there before.
    const bool after_loss = b.store->unsure_from != kTimeMax && l.observed >= b.store->unsure_from;
    l.unsure = l.unsure || b.distrusted.contains(l.space) || after_loss;
  }
  std::vector<LayerList> lists = b.spaces.resolve(b.layers, b.limits);
  std::set<const void*> distinct;
  uint64_t layers = 0;
  for (const LayerList& list : lists) {
    if (list != nullptr && distinct.insert(list.get()).second) layers += list->size();
  }
  b.limits.allow_for(layers, b.store->pokes.size());
  std::map<const void*, std::shared_ptr<const SpaceTable>> tables;  // by list
  TableContext context{b.limits, b.log};
  const BuildLimits limits = b.limits;
  if (lists[kKernelSpace] != nullptr) {
    tables[lists[kKernelSpace].get()] = b.kernel_table(lists[kKernelSpace]);
    if (b.end_replaced_layers()) {  // once more; what there is to report was reported
      b.limits = limits;
      NoticeLog log = std::exchange(b.log, {});
      tables.clear();
      lists = b.spaces.resolve(b.layers, b.limits);
      if (lists[kKernelSpace] != nullptr)
        tables[lists[kKernelSpace].get()] = b.kernel_table(lists[kKernelSpace]);
      b.log = std::move(log);
    }
  }
  for (size_t s = 0; s < lists.size(); ++s) {
    std::shared_ptr<const SpaceTable>& table = tables[lists[s].get()];
    if (table == nullptr) {
      if (lists[s] == nullptr) {
        table = b.unknown_table();
      } else {
        table = make_table(*lists[s], false, context);
      }
    }
    b.store->spaces.push_back(table);
  }
  b.store->pokes.shrink_to_fit();
  b.store->pool.freeze();
  b.store->notices = b.log.take();
  b.store->losses = std::move(b.lost);
  return TextStore(std::move(b.store));
}

}  // namespace asof
