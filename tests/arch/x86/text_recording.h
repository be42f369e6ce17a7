// What a recording contains about the changes of a simulated kernel's text: a copy of memory, the records of
// the pokes by ring, and what was lost of them. Builds the text store from it, as a reader of captures does.
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include "tests/arch/x86/random_program.h"
#include "tests/support/holes.h"

namespace asof::x86::test {

// What may be missing in a recording.
struct RecordingSettings {
  bool loses_records = false;  // sequences of TEXT_POKE records of a ring, and LOST shows it
  bool breaks_chain = false;   // one record is missing without notice, and a later one shows it
  bool overwrites = false;     // the first records are gone: a loss from the start
  bool dated_copy = false;     // kcore was copied while the program ran, at a known time; else before
  unsigned holes = 0;          // pieces of it that were not copied
};

class TextRecording {
 public:
  struct PokeFact {
    Addr addr;
    Bytes old_bytes, new_bytes;
    Time time;
    uint32_t ring;
  };
  TextRecording(Machine& machine, const RecordingSettings& settings, SimRandom& random, uint64_t ticks)
      : machine_(machine), settings_(settings), random_(random), ticks_(ticks) {}

  // `batches`: when each batch of pokes began, and on which CPU.
  void read_pokes(const std::vector<std::pair<uint64_t, unsigned>>& batches) {
    // A record's old bytes are those before the INT3, its time that of the write of the tail; the write log
    // has both.
    std::map<Addr, Bytes> current;
    for (const auto& w : machine_.memory().writes()) {
      if (w.new_bytes.size() > 15) {  // a module was reloaded
        std::erase_if(current,
                      [&](const auto& c) { return range_of(w.addr, w.new_bytes.size()).contains(c.first); });
      }
      if (w.new_bytes.size() != 4) continue;  // tails of five-byte sites
      const Addr at = w.addr - 1;
      Bytes old_bytes = current.contains(at) ? current[at] : asof::test::nop5_bytes();
      const bool to_nop = old_bytes[0] == 0xe9;
      Bytes now = {static_cast<uint8_t>(to_nop ? 0x0f : 0xe9)};
      now.insert(now.end(), w.new_bytes.begin(), w.new_bytes.end());
      const auto batch = std::ranges::upper_bound(batches, w.tsc, {}, [](const auto& b) { return b.first; });
      facts_.push_back({at, old_bytes, now, machine_.perf_time(w.tsc), std::prev(batch)->second});
      current[at] = now;
    }
  }
  // A change without a record in any ring, because it was lost: LOST shows it.
  void lose_change(Addr at, uint64_t tsc, uint32_t ring) {
    facts_.push_back({at, {}, {}, machine_.perf_time(tsc), ring});
  }
  void add_kernel(Builder& b, const Program& kernel) {
    bytes_ = kernel.bytes();
    Layer l;
    l.range = range_of(kernel.base(), bytes_.size());
    if (settings_.dated_copy) {
      const uint64_t read = machine_.config().tsc_start + random_.below(ticks_);
      bytes_ = machine_.memory().read_at(read, kKernelSpace, l.range.begin, bytes_.size());
      l.observed = machine_.perf_time(read);
    }
    l.bytes = bytes_;
    asof::test::add_with_holes(b, l, settings_.holes, random_);
  }
  // With a loss the reader uses the kernel's jump table: a site without records may have lost all of them.
  void add_changes(Builder& b, const Program& kernel) {
    std::ranges::stable_sort(facts_, {}, &PokeFact::time);
    if (settings_.overwrites) b.add_lost({0, kTimeMin, kTimeMax, 1});
    if (settings_.loses_records) lose_records(b);
    if (!settings_.breaks_chain) b.all_rings_recorded();
    std::erase_if(facts_, [](const PokeFact& f) { return f.new_bytes.empty(); });
    if (settings_.breaks_chain) break_chain();
    for (const PokeFact& f : facts_) {
      Poke p;
      p.addr = f.addr;
      p.time = f.time;
      p.old_bytes = f.old_bytes;
      p.new_bytes = f.new_bytes;
      p.source = f.ring;
      b.add_poke(p);
    }
    if (!settings_.loses_records) return;
    for (size_t s = 0; s < kernel.sites().size(); ++s) {
      const Addr at = kernel.sites()[s];
      // A state that the copy already shows does no harm as a candidate.
      for (const Bytes& state : {asof::test::jmp32_bytes(at, kernel.on(s)), asof::test::nop5_bytes()})
        b.add_site({.range = range_of(at, 5), .bytes = states_.emplace_back(state)});
    }
  }

 private:
  // LOST is written before the next record that fits into the ring, else at the end.
  void lose_records(Builder& b) {
    const Time begin = machine_.perf_time(machine_.config().tsc_start),
               end = random_.chance(50) ? kTimeMax  // records lost after a ring's last record
                                        : machine_.perf_time(machine_.config().tsc_start + ticks_ + 100'000);
    for (uint32_t ring = 0; ring < machine_.config().cpus; ++ring) {
      std::vector<PokeFact> mine;
      std::ranges::copy_if(facts_, std::back_inserter(mine),
                           [&](const PokeFact& f) { return f.ring == ring; });
      std::erase_if(facts_, [&](const PokeFact& f) { return f.ring == ring; });
      uint64_t lost = 0;
      Time after = begin;
      bool losing = false;
      for (const PokeFact& f : mine) {
        losing = random_.chance(losing ? 60 : settings_.breaks_chain ? 4 : 15) || f.new_bytes.empty();
        if (losing) {
          ++lost;
          continue;
        }
        if (lost != 0) add_lost(b, {ring, after, f.time, lost});
        lost = 0;
        after = f.time;
        facts_.push_back(f);
      }
      if (lost != 0) add_lost(b, {ring, after, end, lost});
    }
    std::ranges::stable_sort(facts_, {}, &PokeFact::time);
  }
  void add_lost(Builder& b, const LostRecords& lost) {
    b.add_lost(lost);
    first_loss_ = std::min(first_loss_, lost.after);
  }
  // The record after the missing one shows the break. With a loss, that record is after the loss, and the
  // missing one before it.
  void break_chain() {
    std::vector<size_t> between;
    for (size_t k = 0; k < facts_.size(); ++k) {
      const auto here = [&](const PokeFact& f) { return f.addr == facts_[k].addr; };
      const auto at = facts_.begin() + static_cast<std::ptrdiff_t>(k);
      const auto before = std::find_if(std::make_reverse_iterator(at), facts_.rend(), here);
      const auto next = std::find_if(at + 1, facts_.end(), here);
      if (before == facts_.rend() || next == facts_.end()) continue;
      // Nothing is switched there and back in so short a time: equal records are one change, written twice.
      constexpr Time kSamePoke = 5000;
      if (next->time - before->time <= kSamePoke) continue;
      if (first_loss_ == kTimeMax || (at->time <= first_loss_ && next->time > first_loss_))
        between.push_back(k);
    }
    if (between.empty()) return;
    facts_.erase(facts_.begin() + static_cast<std::ptrdiff_t>(between[random_.below(between.size())]));
  }

  Machine& machine_;
  RecordingSettings settings_;
  SimRandom& random_;
  uint64_t ticks_;
  Time first_loss_ = kTimeMax;
  Bytes bytes_;  // of the copy
  std::vector<PokeFact> facts_;
  std::deque<Bytes> states_;  // never move
};

}  // namespace asof::x86::test
