// TextStore: which bytes were at address A at time T. Built once by Builder, const from then on; any number
// of threads may query it.
//
//   address ^
//           |  cell 3 |------------- kcore -----------------------------------|   one version: stable
//           |  cell 2 |---- old ----|---- poke #1 ----|------- poke #2 -------|   a site
//           |  cell 1 |------------- kcore -----------------------------------|
//           |  cell 0 |  unknown  |-- bpf id 7 --|~soft~|------ bpf id 9 -----|   epochs of a range
//           +---------------------------------------------------------------------> time
//
// Per space the address axis is cut into cells such that inside a cell the list of versions is the same for
// every byte. Cells are sorted by address; a look-up is one binary search, then a scan of the cell's versions
// (binary search when there are many). Versions of a cell are sorted by `from` and by `until` alike, so that
// those possible in an interval are neighbours; intervals overlap where more than one version can be live (a
// broken chain, lost records, two snapshots that differ). All bytes that one replacing poke covers lie in one
// cell, so a fetch never mixes bytes of two versions of a site. An install or removal, which no CPU runs
// across, may span several cells.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "textstore/address.h"
#include "textstore/facts.h"
#include "textstore/origin.h"
#include "textstore/time.h"

namespace asof {

// Content of one cell for one time interval, both ends included.
struct Version {
  Time from = kTimeMin;
  Time until = kTimeMax;
  const uint8_t* bytes = nullptr;  // cell size bytes; nullptr: unknown
  OriginRef origin = kNoOrigin;
  bool unsure = false;  // something that no record shows may have changed the bytes (Layer::unsure)

  // Can this version be what a CPU runs at some instant of b? (live-text.md 7.1: C)
  bool possible_in(TimeBounds b) const { return from <= b.hi && until >= b.lo; }
};

struct Cell {
  AddrRange range;                    // maximal range around the address with these versions
  std::span<const Version> versions;  // empty: nothing is known of this range in this space
  // Exactly one version, for all time: its bytes may be cached without asking for the time again.
  bool stable() const {
    return versions.size() == 1 && versions[0].from == kTimeMin && versions[0].until == kTimeMax;
  }
  // Those that are possible in `b`. There may be very many versions, of which this looks at few.
  std::span<const Version> possible_in(TimeBounds b) const {
    const auto first = std::ranges::lower_bound(versions, b.lo, {}, &Version::until);
    const auto last = std::ranges::upper_bound(first, versions.end(), b.hi, {}, &Version::from);
    return {first, last};
  }
};

// A poke as kept by the store, in chain order.
struct PokeRecord {
  Addr addr = 0;
  Time time = 0;
  uint64_t file_offset = 0;
  uint32_t source = 0;
  uint16_t old_len = 0;
  uint16_t new_len = 0;
  const uint8_t* bytes = nullptr;     // old_len old bytes, then new_len new bytes
  OriginRef observed_in = kNoOrigin;  // Poke::observed_in; in a finished store always kNoOrigin

  std::span<const uint8_t> old_bytes() const { return {bytes, old_len}; }
  std::span<const uint8_t> new_bytes() const { return {bytes + old_len, new_len}; }
};

class TextStore {
 public:
  TextStore(TextStore&&) noexcept;
  TextStore& operator=(TextStore&&) noexcept;
  ~TextStore();

  // The cell around `a`. Never fails: a hole comes back as its range with no versions. O(log cells).
  Cell cell(Space space, Addr a) const;

  // Bytes from `a` on as of instant t, as many as are known and fit; stops at the first unknown byte or where
  // more than one version with different bytes is possible at t. Returns the count. For printing, not for
  // decoding.
  size_t read(Space space, Addr a, Time t, std::span<uint8_t> out) const;

  // Versions of [range) in time order for people: changes of all cells in it. See tools `asof text`.
  std::vector<Cell> cells(Space space, AddrRange range) const;

  std::span<const PokeRecord> pokes() const;  // in time (chain) order
  const Origin& origin(OriginRef ref) const;  // for pokes: a generic kPoke origin
  size_t origin_count() const;                // refs 1 to this one are origins
  std::span<const LostRecords> losses() const;
  // From this instant on anything may have changed in any space, because records are missing: what is known
  // is followed, but nothing is certain. kTimeMax: never. Later than the last record before the first loss.
  Time unsure_from() const;
  std::span<const TextNotice> notices() const;
  size_t space_count() const;

 private:
  friend class Builder;
  friend struct StoreAccess;  // text_store_impl.h
  struct Impl;
  explicit TextStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace asof
