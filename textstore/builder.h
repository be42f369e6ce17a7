// Builder: takes facts in any order and makes the TextStore. One thread; build() consumes it.
//
// Rules (kernel facts in docs/live-text.md):
//  * For bytes covered by pokes, the chain of pokes alone decides: before the first poke its `old` bytes,
//    then each `new` in turn. Snapshots only serve bytes that no poke covers, which also heals a transient
//    INT3 that a snapshot caught.
//  * `new` of poke k must be `old` of poke k+1 at the same bytes. A break is reported, and both are
//    candidates between the two times. LostRecords narrow the interval when all rings were recorded; those of
//    any ring count, as any CPU may have made the missing change.
//  * A snapshot may disagree with the chain. Nothing is reported when it shows a later state (it was copied
//    later) or a poke in progress. Otherwise a notice is given, and where its `observed` is known its bytes
//    are an extra candidate up to then (with LostRecords: up to their end, or from their begin).
//  * Equal times are ordered by the byte chain, not by file position; duplicates are dropped and counted.
//  * A layer's `observed` says which pokes its bytes already contain: later ones are rolled forward, earlier
//    ones back.
//  * A chain holds within one lifetime of the layers beneath. It says nothing about later content there.
//  * A poke after the announced end of a lifetime with a soft end still belongs to it as long as it fits its
//    bytes. The first one that does not was made on the next content: the lifetime is over there.
//  * Install (0 -> n) begins a lifetime, removal (n -> 0) ends it softly. Pokes may come before the layer of
//    the program they lie in, and after its end.
#pragma once
#include <memory>
#include <span>

#include "textstore/facts.h"
#include "textstore/text_store.h"

namespace asof {

struct PatchRules;

class Builder {
 public:
  Builder();
  ~Builder();
  Builder(Builder&&) noexcept;

  // Keeps `owner` (a mapped file, a buffer) alive as long as the store.
  void keep(std::shared_ptr<const void> owner);

  OriginRef add_origin(Origin origin);
  // Process spaces are numbered from 1; kKernelSpace exists always.
  Space add_space();
  // A child of fork: everything `parent` holds at instant t, as of now, with later facts of its own.
  Space fork_space(Space parent, Time t);

  void add_layer(const Layer& layer);
  void add_poke(const Poke& poke);
  void add_lost(const LostRecords& lost);
  void add_site(const PatchSite& site);

  // Of the machine whose text this is.
  void set_patch_rules(const PatchRules& rules);
  // Nothing in this space is sure at any time (Layer::unsure): its changes were not recorded.
  void distrust(Space space);
  // Every CPU had a ring that requested pokes: what is missing from the records was lost, and the LostRecords
  // show when. Otherwise a missing change can have been made at any time, also outside of losses.
  void all_rings_recorded();

  TextStore build() &&;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace asof
