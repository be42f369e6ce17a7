// The fast walk over bits and turns (fast_walk.h).
#include <algorithm>
#include <cstring>

#include "arch/x86/fast_walk.h"

namespace asof::x86 {

// What a walk over turns keeps in registers.
struct Flow::TurnWalk {
  const uint8_t* p;
  uint64_t last_ip;  // low 48 bits
  uint32_t cur;
  uint32_t* out;
  uint64_t instructions;
  uint32_t* newest;
  uint32_t* most;

  explicit TurnWalk(const FastWalk& w)
      : p(w.p),
        last_ip(w.last_ip & kLow48),
        cur(w.cur),
        out(w.out),
        instructions(w.instructions),
        newest(w.stack + w.newest),
        most(w.stack + w.most) {}
  void store(FastWalk& w) const {
    w.p = p;
    w.last_ip = canonical(last_ip);
    w.cur = cur;
    w.out = out;
    w.instructions = instructions;
    w.newest = static_cast<uint32_t>(newest - w.stack);
    w.most = static_cast<uint32_t>(most - w.stack);
  }
  void repeat(const Turn& turn, unsigned size) {
    std::memcpy(out, turn.out.data(), sizeof turn.out);
    std::memcpy(newest - turn.pops + 1, turn.pushed.data(), sizeof turn.pushed);
    out += turn.codes;
    most = std::max(most, newest + turn.peak);
    newest += turn.grows;
    instructions += turn.instructions;
    cur = turn.to;
    last_ip = turn.packets.ip;
    p += size;
  }
};

// Over turns, as long as there are any and links know the way, and over MTCs that say nothing. Where the next
// one is kept is worked out and asked for before it is known whether this one ran before: so a wrong guess of
// the processor is no wait for memory. False: the next bit needs more than links know.
//
// Entries that fall out of the return stack end before new turns only. Others read none of them: the newest
// entry stays within kSpan of where it was then, so all that they see lies within kSize.
bool Flow::over_turns(State& s, FastWalk& w) {
  constexpr int64_t kSpan = (RetStack::kSize - Turn::kMaxPeak) / 2 - Turn::kMaxCalls;
  static_assert(TurnPackets::kMaxBits + kSpan + Turn::kMaxCalls <
                RetStack::kSize);  // a new turn's returns, too
  w.tidy_stack();
  TurnWalk t(w);
  const uint32_t* lowest = t.newest - kSpan;
  const uint32_t* const full = w.begun + kFastCodes;
  const uint8_t* const end = end_ - TurnPackets::kTwo;
  Turn* const turns = turns_.turns();
  auto [packets, size] = TurnPackets::read(t.p, t.last_ip);
  Turn* turn = &turns[TurnTable::place(packets, t.last_ip)];
  for (;;) {
    auto [next, next_size] = TurnPackets::read(t.p + size, packets.ip);
    Turn* next_turn = &turns[TurnTable::place(next, packets.ip)];
    asm volatile(""
                 : "+r"(next.key), "+r"(next.ip), "+r"(next_size), "+r"(next_turn));  // not later than here
    prefetch(*next_turn);
    if (turn->is(packets, t.cur, t.newest)) {
      t.repeat(*turn, size);
    } else {
      if (packets.key == 0) {
        if (*t.p != kMtcByte || t.p + kMtcSize >= end) break;
        t.p += kMtcSize;
        const auto behind = TurnPackets::read(t.p, t.last_ip);
        packets = behind.packets;
        size = behind.size;
        turn = &turns[TurnTable::place(packets, t.last_ip)];
        if (w.silent_mtc) continue;
        prefetch(*turn);  // while the clock is worked out
        t.store(w);
        fast_time(s, w, mtc(t.p[-1]));
        if (!is_short_tnt(*t.p)) break;
        w.take_time(s, t.p + 1);
        continue;
      }
      t.store(w);
      const bool done = new_turn(w, packets, *turn);
      t = TurnWalk(w);
      lowest = t.newest - kSpan;
      if (!done) break;
    }
    if (t.p >= end || t.out >= full || static_cast<uint64_t>(t.newest - lowest) > 2 * kSpan) break;
    packets = next;
    size = next_size;
    turn = next_turn;
  }
  t.store(w);
  return w.tnt.count == 0;
}

// The turn that is next.
void Flow::ask_for_turn(const FastWalk& w) {
  const uint64_t last_ip = w.last_ip & kLow48;
  prefetch(turns_.turns()[TurnTable::place(TurnPackets::read(w.p, last_ip).packets, last_ip)]);
}

// Over a turn that did not run lately; it is put down in `turn`. Where its TIP leads is looked up in front of
// the bits before it: then it is there when they are used up. False: there are bits left, or the TIP is for
// fast_tip().
[[gnu::noinline]] bool Flow::new_turn(FastWalk& w, TurnPackets packets, Turn& turn) {
  w.tidy_stack();
  const unsigned tnts = w.tnt.take(packets);
  w.joined = std::max(w.p, w.lo_until);
  w.p += tnts;
  const unsigned tip = packets.size() - tnts;
  const uint32_t target = tip == 0 ? 0 : runs_->known_target(w.space, canonical(packets.ip), w.mode);
  const auto returns = Turn::newest_at(w.stack + w.newest);
  const uint32_t newest = w.newest;
  const uint64_t instructions = w.instructions;
  const uint32_t* const out = w.out;
  if (!w.walk_bits() || (tip != 0 && (target == 0 || !w.leave_by_tip(way_to(target))))) return false;
  w.p += tip;
  w.last_ip = canonical(packets.ip);
  const uint32_t pops = newest - w.lowest, pushes = w.newest - w.lowest, peak = w.highest - newest;
  const uint64_t ran = w.instructions - instructions;
  if (pops <= Turn::kMaxCalls && pushes <= Turn::kMaxCalls && peak <= Turn::kMaxPeak && ran <= UINT16_MAX) {
    turn.packets = packets;
    turn.to = w.cur;
    turn.instructions = static_cast<uint16_t>(ran);
    turn.codes = static_cast<uint8_t>(w.out - out);
    turn.pops = static_cast<uint8_t>(pops);
    turn.grows = static_cast<int8_t>(static_cast<int>(pushes) - static_cast<int>(pops));
    turn.peak = static_cast<uint8_t>(peak);
    turn.returns = returns;
    std::memcpy(turn.pushed.data(), w.stack + w.lowest + 1, sizeof turn.pushed);
    std::memcpy(turn.out.data(), out, sizeof turn.out);
  }
  return true;
}

}  // namespace asof::x86
