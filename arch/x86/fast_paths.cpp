// The fast walk over bits and memoised paths (fast_walk.h).
#include <algorithm>
#include <cstring>
#include <utility>

#include "arch/x86/fast_walk.h"

namespace asof::x86 {

// What a walk over paths keeps in registers.
struct Flow::PathWalk {
  const uint8_t* p;
  uint64_t last_ip;  // low 48 bits
  Edge cur;
  StepCode* out;
  uint64_t instructions;
  Edge* newest;
  Edge* most;
  uint64_t hash;  // these two with kSums only
  uint64_t branches;

  explicit PathWalk(const FastWalk& w)
      : p(w.p),
        last_ip(w.last_ip & kLow48),
        cur(w.cur),
        out(w.out),
        instructions(w.instructions),
        newest(w.stack + w.newest),
        most(w.stack + w.most),
        hash(w.sum.hash),
        branches(w.sum.branches) {}
  template <bool kSums>
  void store(FastWalk& w) const {
    if constexpr (kSums) {
      w.sum.hash = hash;
      w.sum.branches = branches;
      w.summed = out;
    }
    w.p = p;
    w.last_ip = canonical(last_ip);
    w.cur = cur;
    w.out = out;
    w.instructions = instructions;
    w.newest = static_cast<uint32_t>(newest - w.stack);
    w.most = static_cast<uint32_t>(most - w.stack);
  }
  template <bool kReturns>
  void repeat(const CachedPath& path) {
    if constexpr (kReturns) {
      std::memcpy(out, path.out.data(), sizeof path.out);
      std::memcpy(newest - path.pops + 1, path.pushed.data(), sizeof path.pushed);
      most = std::max(most, newest + path.peak);
      newest += path.grows;
    } else {
      constexpr size_t kMost = CachedPath::kMostCodes;  // a TIP for each return: paths are short
      std::memcpy(out, path.out.data(), kMost * sizeof(StepCode));
      if (path.codes > kMost)
        std::memcpy(out + kMost, path.out.data() + kMost, sizeof path.out - kMost * sizeof(StepCode));
    }
    out += path.codes;
    instructions += path.instructions;
    cur = path.to;
  }
};

// The packets of a path, and where it is kept.
struct Flow::Ahead {
  PathPackets packets;
  const uint8_t* behind = nullptr;  // where the next may begin, in the window
  CachedPath* path = nullptr;

  static Ahead read(const uint8_t* place, uint64_t last_ip, CachedPath* paths, unsigned shift) {
    const PathSize size = PathWindow::size_at(place);
    const PathPackets packets = PathPackets::read(place, size, last_ip);
    return {packets, PathWindow::behind_path(place), &paths[PathCache::place(packets, last_ip, shift)]};
  }
};

// Over paths, as long as there are any and links know the edges, and over PAD packets and MTCs. Where the
// next one is kept is worked out and asked for before it is known whether this one ran before: so a wrong guess
// of the processor is no wait for memory. False: the next bit needs more than links know.
//
// Entries that fall out of the return stack end before new paths only. Others read none of them: the newest
// entry stays within kSpan of where it was then, so all that they see lies within kSize.
//
// kReturns: of a map in which returns are compressed.
template <bool kSums, bool kReturns>
bool Flow::over_paths(State& s, FastWalk& w) {
  constexpr int64_t kSpan = (RetStack::kSize - CachedPath::kMaxPeak) / 2 - CachedPath::kMaxCalls;
  static_assert(PathPackets::kMaxBits + kSpan + CachedPath::kMaxCalls <
                RetStack::kSize);  // a new path's returns, too
  w.tidy_stack();
  if constexpr (kSums) w.sum_up();
  PathWalk t(w);
  const Edge* lowest = t.newest - kSpan;
  const StepCode* const full = w.begun + kFastCodes;
  const uint8_t* const end = fast_end_ - PathPackets::kTwo;
  CachedPath* paths = paths_.paths();
  unsigned shift = paths_.shift();
  const uint8_t* at = nullptr;    // the place of t.p, which is not kept
  const uint8_t* stop = nullptr;  // the place behind what is covered, or that of `end`
  // Without time in the trace there is none to look for.
  window_.go_over_mtc(w.silent_mtc && met_mtc_);
  const auto cover = [&](const uint8_t* p) {
    if (!window_.covers(p)) window_.cover(p, end_);
    at = window_.place(p);
    stop = window_.place(std::min(end, window_.end()));
  };
  const auto read = [paths, shift](const uint8_t* place, uint64_t last_ip) {
    return Ahead::read(place, last_ip, paths, shift);
  };
  cover(t.p);
  Ahead here = read(at, t.last_ip);
  for (;;) {
    Ahead next = read(here.behind, here.packets.ip);
    asm volatile(""
                 : "+r"(next.packets.key), "+r"(next.packets.ip), "+r"(next.behind),
                   "+r"(next.path));  // not later than here
    prefetch<kReturns>(*next.path);
    if constexpr (kSums) __builtin_prefetch(&w.hashes[next.path - paths]);
    if (here.path->is<kReturns>(here.packets, t.cur, t.newest)) [[likely]] {
      t.repeat<kReturns>(*here.path);
      if constexpr (kSums) {
        const PathHash& known = w.hashes[here.path - paths];
        t.hash = t.hash * known.power + known.hash;
        t.branches += here.path->branches;
      }
      t.last_ip = here.packets.ip;
      at = here.behind;
    } else if (here.packets.key == 0) {
      t.p = window_.at(at);
      const bool is_mtc = *t.p == kMtcByte;
      const uint8_t* const behind = is_mtc ? t.p + kMtcSize : skip_pads(t.p, end);
      if (behind == t.p || behind >= end) break;
      t.p = behind;
      cover(t.p);
      here = read(at, t.last_ip);
      if (!is_mtc) continue;
      if (w.silent_mtc) {
        if (std::exchange(met_mtc_, true)) continue;
        break;  // from now on the window looks for them
      }
      prefetch<kReturns>(*here.path);  // while the clock is worked out
      t.store<kSums>(w);
      fast_time(s, w, mtc(t.p[-1]));
      if (!is_short_tnt(*t.p) || w.silent_mtc) break;
      w.take_time(s, t.p + 1);
      continue;
    } else {
      t.p = window_.at(at);
      t.store<kSums>(w);
      const bool done = new_path<kSums>(w, here.packets, *here.path);
      if constexpr (kSums) w.sum_up();  // what ran before it was not done
      t = PathWalk(w);
      lowest = t.newest - kSpan;
      at = done ? here.behind : window_.place(t.p);
      if (!done) break;
      if (paths_.count_new()) [[unlikely]] {
        if constexpr (kSums) w.hashes = paths_.hashes();
        break;
      }
    }
    if (t.out >= full) [[unlikely]]
      break;
    if (kReturns && static_cast<uint64_t>(t.newest - lowest) > 2 * kSpan)
      break;  // else it moves in new paths only
    here = next;
    if (at >= stop) [[unlikely]] {
      t.p = window_.at(at);
      if (t.p >= end) break;
      cover(t.p);
      here = read(at, t.last_ip);
    }
  }
  t.p = window_.at(at);
  t.store<kSums>(w);
  return w.tnt.count == 0;
}

template bool Flow::over_paths<false, false>(State&, FastWalk&);
template bool Flow::over_paths<false, true>(State&, FastWalk&);
template bool Flow::over_paths<true, false>(State&, FastWalk&);
template bool Flow::over_paths<true, true>(State&, FastWalk&);

// Asks for the path that is next ahead of its use.
void Flow::prefetch_path(const FastWalk& w) {
  if (!window_.covers(w.p)) return;
  prefetch<false>(*Ahead::read(window_.place(w.p), w.last_ip & kLow48, paths_.paths(), paths_.shift()).path);
}

// The current run ends in an indirect branch, to `ip`; `known` is the run there if it was met lately. False: this is
// for fast_tip().
bool Flow::leave_by_tip(FastWalk& w, RunId known, Addr ip) {
  if (known == RunId::kNone) {
    if (is_kernel_address(ip) != (w.space == kKernelSpace)) return false;
    known = runs_->target(w.space, ip, w.mode);
    if (known == RunId::kNone) return false;
  }
  return w.leave_by_tip(edge_to(known)) ||
         (runs_->follow_indirect(w.run()) && w.leave_by_tip(edge_to(known)));
}

// Over a path that did not run lately; it is put down in `path`. Where its TIP leads is looked up ahead of
// the bits before it: then it is there when they are used up. False: there are bits left, or the TIP is for
// fast_tip().
template <bool kSums>
[[gnu::noinline]] bool Flow::new_path(FastWalk& w, PathPackets packets, CachedPath& path) {
  w.tidy_stack();
  const unsigned tnts = w.tnt.take(packets);
  w.joined = std::max(w.p, w.lo_until);
  w.p += tnts;
  const unsigned tip = packets.size().all() - tnts;
  const RunId target = tip == 0 ? RunId::kNone : runs_->known_target(w.space, canonical(packets.ip), w.mode);
  const auto returns = CachedPath::newest_at(w.stack + w.newest);
  const uint32_t newest = w.newest;
  const uint64_t instructions = w.instructions;
  const StepCode* const out = w.out;
  if (!w.walk_bits<kSums>() || (tip != 0 && !leave_by_tip(w, target, canonical(packets.ip)))) return false;
  w.p += tip;
  w.last_ip = canonical(packets.ip);
  if constexpr (kSums) {
    if (tip != 0) w.walked.add(w.sums, edge_to_run_of(w.out[-1]));
    w.sum_up();
  }
  const uint32_t pops = newest - w.lowest, pushes = w.newest - w.lowest, peak = w.highest - newest;
  const uint64_t ran = w.instructions - instructions;
  if (pops <= CachedPath::kMaxCalls && pushes <= CachedPath::kMaxCalls && peak <= CachedPath::kMaxPeak &&
      ran <= UINT16_MAX) {
    path.packets = packets;
    path.to = w.cur;
    path.instructions = static_cast<uint16_t>(ran);
    if constexpr (kSums) {
      path.branches = static_cast<uint16_t>(w.walked.branches);
      w.hashes[&path - paths_.paths()] = w.walked.hash;
    }
    path.codes = static_cast<uint8_t>(w.out - out);
    path.pops = static_cast<uint8_t>(pops);
    path.grows = static_cast<int8_t>(static_cast<int>(pushes) - static_cast<int>(pops));
    path.peak = static_cast<uint8_t>(peak);
    path.returns = returns;
    std::memcpy(path.pushed.data(), w.stack + w.lowest + 1, sizeof path.pushed);
    std::memcpy(path.out.data(), out, sizeof path.out);
  }
  return true;
}

}  // namespace asof::x86
