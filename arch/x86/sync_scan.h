// SyncScan: the sync points of a stream and what their groups say, found part by part. One thread takes them in order;
// others may find parts ahead of it, so that whoever takes points only has to fetch them.
//
// A part begins behind a byte that is in no PSB. So the same PSBs are found whatever part a search begins with, and none
// lies in two parts.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "arch/splitter.h"
#include "arch/x86/sync_group.h"

namespace asof::x86 {

struct SyncPoint {
  uint64_t at = 0;  // of its PSB, stream offset
  SyncGroup group;
};

// Up to where the PSB+ at `at` may go on, in a stretch that ends at `end`.
inline uint64_t sync_group_end(uint64_t at, uint64_t end) {
  constexpr uint64_t kMaxGroup = 512;  // it is below 100 bytes; PADs may stretch it
  return std::min(end, at + kMaxGroup);
}

class SyncScan {
 public:
  static constexpr uint64_t kPartBytes = 256 << 10;
  static constexpr size_t kMostPoints =
      256;  // kept of a part; what is behind them is searched when it is their turn

  // All that is given must outlive it. `part_bytes`: for tests.
  SyncScan(const Stream& stream, std::span<const Stretch> stretches, const Config& config,
           const Errata& errata, uint64_t part_bytes = kPartBytes);

  // Finds the next part that nobody has looked for. Any number of threads may call it, also beside the others. False:
  // there is none, or `most` of them are waiting to be taken.
  bool scan_ahead(size_t most);

  // These two by one thread at a time. To the first point of a stretch:
  void enter(const Stretch& stretch);
  // The next one of it; nullopt: that was all.
  std::optional<SyncPoint> next();

 private:
  struct Part {
    std::vector<SyncPoint> points;
    uint64_t rest = 0, end = 0;  // not searched yet
  };
  static constexpr uint64_t kNone = UINT64_MAX;

  const Stretch& stretch_of(uint64_t at) const;
  uint64_t after(uint64_t part) const;  // where the next part's share begins, also of the next stretch
  Part find(uint64_t part) const;
  void search(Part& part) const;
  Part take(uint64_t part);

  const Stream& stream_;
  const Config& config_;
  const Errata& errata_;
  const uint64_t part_bytes_;
  std::vector<Stretch> stretches_;  // that are not empty

  // Of the one who takes.
  Part part_;
  size_t taken_ = 0;       // points of it
  uint64_t next_ = kNone;  // part
  uint64_t end_ = 0;       // of the stretch

  // Parts are known by where their share begins.
  std::mutex mutex_;            // of all below
  uint64_t unclaimed_ = kNone;  // nobody has looked for this one, nor for any behind it
  uint64_t wanted_ = 0;         // those before it were taken
  size_t waiting_ = 0;          // claimed, not taken
  std::map<uint64_t, Part> found_;
};

}  // namespace asof::x86
