// SpaceTable: one address space of a finished store, cells side by side from address 0 to the top.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "textstore/layer_stack.h"
#include "textstore/poke_sites.h"
#include "textstore/site_versions.h"
#include "textstore/text_store.h"

namespace asof {

struct SpaceTable {
  struct Start {
    Addr begin;
    uint64_t first;  // of its versions; they end where the next cell's begin
  };
  std::vector<Start> cells;  // the first begins at 0
  std::vector<Version> versions;

  // Index of the cell that holds `a`.
  size_t find(Addr a) const;
  Cell at(size_t index) const;
};

// What makes the tables of all spaces of one store.
struct TableContext {
  BuildLimits& limits;
  NoticeLog& log;
};

// A space without pokes. `own_times`: kernel epochs keep their `from`; a process's only text at an address is
// taken to have been there always, because nothing runs before it is mapped.
std::shared_ptr<const SpaceTable> make_table(std::span<const LayerView> layers, bool own_times,
                                             TableContext& context);
// The same with pokes.
std::shared_ptr<SpaceTable> make_poked_table(std::span<const LayerView> layers, const PokeSites& sites,
                                             SiteVersions& versions, TableContext& context);

}  // namespace asof
