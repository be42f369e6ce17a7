#include "decoder/sideband/damage_losses.h"

#include <algorithm>
#include <map>
#include <vector>

#include "decoder/perf/record_types.h"

namespace asof {
namespace {

// A file that claims more is damaged as a whole, and bounds cost memory: each piece has some for each ring.
constexpr size_t kMostPieces = 64, kMostRings = 8192;

// The pieces of one file.
class FileDamage {
 public:
  FileDamage(std::span<const PassedOver> pieces, const RingIds& rings) : pieces_(pieces), rings_(rings) {}

  void visit(const Record& r) {
    if (r.type == perf::kFinishedRound) return finish_round();
    if (r.type >= perf::kHeaderAttr || r.type == perf::kLostSamples || r.time() == kTimeMin) return;
    reach(r.file_offset);
    newest_ = std::max(newest_, r.time());
    const RingKey key = rings_.ring_of(r.id);
    auto found = rings_seen_.find(key);
    if (found == rings_seen_.end()) {
      if (rings_seen_.size() == kMostRings) {
        too_many_ = true;
        return;
      }
      found = rings_seen_.try_emplace(key).first;
    }
    Ring& ring = found->second;
    // Behind all pieces up to here: also the one of a COMPRESSED record that holds this one.
    while (ring.after.size() < pieces_.size() && pieces_[ring.after.size()].end <= r.file_offset)
      close(ring, r.time());
    ring.last = r.time();
  }

  std::vector<LostRecords> finish() {
    reach(UINT64_MAX);
    std::vector<LostRecords> out;
    for (auto& [key, ring] : rings_seen_) {
      while (ring.after.size() < pieces_.size()) close(ring, kTimeMax);
      for (size_t i = 0; i < pieces_.size(); ++i) {
        const auto& [after, until] = ring.after[i];
        if (after < until)
          out.push_back(
              {.source = static_cast<uint32_t>(rings_.cpu_of(key)), .after = after, .until = until});
      }
    }
    // All records of a ring may be among those.
    if (too_many_ || rings_seen_.size() < std::max<size_t>(1, rings_.count())) {
      for (const Time settled : settled_before_) out.push_back({.source = kAnyRing, .after = settled});
    }
    return out;
  }

 private:
  struct Ring {
    Time last = kTimeMin;
    std::vector<std::pair<Time, Time>> after;  // by piece, bounds of what was in it
    std::vector<Time> before;                  // by piece, the last record before it
  };

  // All that was in the rings when a round began is in the file when it ends
  // (tools/perf/util/ordered-events.h), so what comes later is newer than all of the round before.
  void finish_round() {
    settled_ = round_;
    round_ = newest_;
  }
  // Pieces that begin up to `offset`: the records before them were visited.
  void reach(uint64_t offset) {
    for (; begun_ < pieces_.size() && pieces_[begun_].begin <= offset; ++begun_) {
      settled_before_.push_back(settled_);
      for (auto& [key, ring] : rings_seen_) {
        ring.before.resize(begun_, kTimeMin);
        ring.before.push_back(ring.last);
      }
    }
  }
  void close(Ring& ring, Time until) const {
    const size_t piece = ring.after.size();
    const Time before = piece < ring.before.size() ? ring.before[piece] : kTimeMin;
    ring.after.emplace_back(std::max(before, settled_before_[piece]), until);
  }

  const std::span<const PassedOver> pieces_;
  const RingIds& rings_;
  std::map<RingKey, Ring> rings_seen_;
  std::vector<Time> settled_before_;  // by piece: all records up to then come before it
  size_t begun_ = 0;                  // pieces
  bool too_many_ = false;             // rings
  Time newest_ = kTimeMin, round_ = kTimeMin, settled_ = kTimeMin;
};

}  // namespace

std::vector<LostRecords> lost_in_damage(const PerfData& data, std::span<const PassedOver> passed_over,
                                        const RingIds& rings) {
  std::vector<LostRecords> out;
  if (passed_over.empty()) return out;
  std::map<uint32_t, std::vector<PassedOver>> pieces;
  for (const PassedOver& p : passed_over) {
    std::vector<PassedOver>& of_file = pieces[p.file];
    if (of_file.size() < kMostPieces)
      of_file.push_back(p);
    else
      of_file.back().end = UINT64_MAX;
  }
  std::map<uint32_t, FileDamage> files;
  for (const auto& [file, of_file] : pieces) files.try_emplace(file, of_file, rings);
  data.for_each([&](const Record& r) {
    if (const auto file = files.find(r.file); file != files.end()) file->second.visit(r);
    return true;
  });
  for (auto& [file, damage] : files) {
    for (const LostRecords& l : damage.finish()) out.push_back(l);
  }
  return out;
}

}  // namespace asof
