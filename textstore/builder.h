// Builder: takes facts in any order and makes the TextStore. One thread; build() consumes it.
//
// Rules (kernel facts in docs/live-text.md):
//  * For bytes that a poke covers the chain of events alone decides: before the first one its `old`, then
//  each `new`
//    in turn. Snapshots serve only bytes no poke covers; a transient INT3 that a snapshot caught is healed
//    so.
//  * `new` of event k must be `old` of event k+1 at the same bytes. A break is reported and both are
//  candidates
//    between the two times (narrowed by LostRecords when all rings were recorded; of any ring, for any CPU
//    may have made the missing change).
//  * A snapshot that disagrees with the chain: no word when it shows a later state (it was copied later) or a
//  poke
//    under way; else a notice, and where its `observed` is known an extra candidate up to then (with
//    LostRecords: up to their end, or from their begin).
//  * Equal times are ordered by the byte chain, not by file position; duplicates are dropped and counted.
//  * A layer's `observed` says which pokes its bytes already contain: later ones roll forward, earlier ones
//  back.
//  * A chain holds within one life of the layers beneath. It says nothing of the next content of the place.
//  * A poke after the announced end of a soft life is one of that life while it fits its bytes. The first
//  that does
//    not was made on what comes next: there the life is over.
//  * Install (0 -> n) opens a life, removal (n -> 0) closes it softly. Pokes may come before the layer of the
//  program
//    they lie in, and after its end.
#pragma once
#include <memory>
#include <span>

#include "textstore/facts.h"
#include "textstore/text_store.h"

namespace asof {

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
  void add_place(const PatchPlace& place);

  // Nothing in this space is sure at any time (Layer::unsure): nobody recorded its changes.
  void distrust(Space space);
  // Every CPU had a ring that asked for pokes: what is missing from the records was lost, and when, the
  // LostRecords tell. Without it a change that is missing can have been made at any time, beside a loss, too.
  void all_rings_recorded();

  TextStore build() &&;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace asof
