// The facts a Builder takes, in any order: layers (bytes placed in an address space for a time), pokes,
// losses, sites that are known to be patched.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "textstore/address.h"
#include "textstore/origin.h"
#include "textstore/time.h"

namespace asof {

// Bytes (or the knowledge that bytes are unknown) of one address range for one lifetime.
//
// Where several layers cover an address at one instant, the highest rank wins; layers of equal rank with
// different bytes are all candidates there (this expresses "changed somewhere between two snapshots"). A
// layer of unknown bytes gives way to known ones of equal rank that are not older.
struct Layer {
  Space space = kKernelSpace;
  AddrRange range;
  // Empty: something is there, its bytes are unknown. Else range.size() bytes, which must outlive the store
  // (Builder::keep); with fewer, the rest of the range is unknown.
  std::span<const uint8_t> bytes;
  Time from = kTimeMin;   // earliest instant at which this content can run
  Time until = kTimeMax;  // latest instant
  // A soft end (BPF unregister, slot removal): code may still run after `until`, as long as no later layer of
  // at least this rank covers the address. The memory may have been given to something else by then without a
  // record (classic BPF, a module), so the bytes are unsure from `until` on.
  bool soft_until = false;
  // When the bytes were read from memory. Pokes at or before it are in the bytes already; later ones are
  // applied, earlier ones rolled back for queries before them. kTimeMin: the bytes are as before every poke
  // (file content).
  Time observed = kTimeMin;
  int rank = 0;
  OriginRef origin = kNoOrigin;
  // Memory that is given to others without a record (a module's): where a poke finds bytes that are not of
  // this layer, and no loss explains it, all of the layer is doubtful since the last poke that did fit, and
  // gone from that one on.
  bool replaceable = false;
  // Its bytes may change without any sign of that in the recording (modules that are loaded again, files
  // instead of memory, changes that were not requested): they are followed, but never certain.
  bool unsure = false;
};

// Usual ranks. A fall-back file serves only where nothing was copied from memory.
// In a copy of memory, but nothing says that it is code.
inline constexpr int kRankUnclaimed = -3;
// vmlinux, modules as files; a second snapshot where the first one has nothing.
inline constexpr int kRankFallback = -2;
// kcore.
inline constexpr int kRankSnapshot = 0;
// User mapping, bundle text.
inline constexpr int kRankMapping = 1;
// KSYMBOL lifetime: BPF program, out-of-line page.
inline constexpr int kRankEpoch = 2;
// Bytes seen in that lifetime.
inline constexpr int kRankWatched = 3;

// One PERF_RECORD_TEXT_POKE (kernel/events/core.c perf_event_text_poke()). old empty: install; new empty:
// removal.
struct Poke {
  Addr addr = 0;
  Time time = 0;
  std::span<const uint8_t> old_bytes;  // must outlive build(), not the store
  std::span<const uint8_t> new_bytes;
  uint32_t source = 0;  // ring (cpu) the record came from
  // Of the record, for reports. Pokes of equal time keep this order unless the bytes say otherwise.
  uint64_t file_offset = 0;
  // Not a record: this copy of memory had `old_bytes`, which equal `new_bytes`, at `time`. It counts in its site's
  // chain, and not among the store's pokes.
  OriginRef observed_in = kNoOrigin;
};

// Records were lost in one ring: any number of changes may be missing in (after, until].
inline constexpr uint32_t kAnyRing = UINT32_MAX;  // nothing says in which one
struct LostRecords {
  uint32_t source = 0;
  Time after = kTimeMin;
  Time until = kTimeMax;
  uint64_t count = 0;
  bool known = true;  // false: nothing says whether any were
};

// A site of kernel text that the kernel itself patches (a jump label, a function entry), and what it can hold
// besides the bytes of the layers beneath it. It counts only where no poke of the site was recorded: then a
// loss may have taken all of them, so `bytes` are a candidate from the first loss on whose outcome the layer
// does not show (docs/live-text.md 2).
struct PatchSite {
  AddrRange range;
  std::span<const uint8_t> bytes;  // range.size(), must outlive the store
  OriginRef origin = kNoOrigin;
  bool always = false;  // changes were not recorded: a candidate all the time, loss or not
};

// What build() noticed. `kind` is stable, `text` is for people.
struct TextNotice {
  enum class Kind : uint8_t {
    kChainBreak,
    kBaselineMismatch,
    kDuplicatePoke,
    kTransientHealed,
    kPokeOutsideText,
    kReordered,
    kTooComplex
  };
  Kind kind;
  Addr addr = 0;
  Time from = kTimeMin;
  Time until = kTimeMax;
  std::string text;
};

}  // namespace asof
