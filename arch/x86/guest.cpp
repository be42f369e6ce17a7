// While a guest runs (VMX non-root operation; the last PIP's NR bit says so): with KVM's pt_mode=system its
// trace goes into the host's buffer. Its addresses are those of another kernel, so no text of the host is
// used: a gap lasts from the VM entry to the TIP or TIP.PGE of the VM exit. Intel SDM vol. 3, "Paging
// Information (PIP) Packet" and "VMX support" of Intel PT. What TSC packets say meanwhile: clock.h.
//
// Where nothing but user code is traced there are no PIPs, and a guest's code cannot be distinguished from the
// host's.
#include "arch/x86/guest.h"

#include <algorithm>
#include <cstring>

#include "arch/x86/flow.h"

namespace asof::x86 {

// The flow is in a guest's code, by the packet at `at`.
void Flow::enter_guest(State& s, uint64_t at) {
  constexpr Code kCode = Code::kGuestRan;
  if (gap_ && gap_->code != kCode) close_gap(s, 0, at);
  verify();
  open_gap(s, kCode, "a guest ran (VMX non-root operation): its text is not known", at);
  lose_sync(s);
  s.enabled = true;
  s.transaction = false;
}

// Over the packets of a guest, up to the one where the host goes on, or what ends or breaks the segment.
void Flow::guest_walk(State& s) {
  for (;;) {
    const Packet k = packets_.next(s.p, s.block_bytes);
    const uint64_t at = static_cast<uint64_t>(s.p - begin_);
    if (is_timing(k.type)) {
      if (!packets_.timing<true>(s, k)) return;
      continue;
    }
    switch (k.type) {
      case Pk::kTip:
      case Pk::kPge:
        if (!s.clock.guest()) return;  // the exit's
        [[fallthrough]];
      case Pk::kFup:  // the exit's, too, has an address of the guest
      case Pk::kTnt:
        enter_guest(s, at);
        if (k.type != Pk::kTnt) update_ip(k.ipc, k.value, s.last_ip);
        s.p += k.size;
        break;
      case Pk::kPgd:
        if (!s.clock.guest()) return;
        update_ip(k.ipc, k.value, s.last_ip);
        s.enabled = s.lost = false;
        s.p += k.size;
        break;
      case Pk::kModeExec:
        s.mode = exec_mode(k.value);
        s.interrupts.reset();
        s.p += k.size;
        break;
      case Pk::kModeTsx:
        s.p += k.size;
        break;
      case Pk::kPsb:
      case Pk::kOvf:
      case Pk::kEnd:
      case Pk::kBad:
        return;
      default:
        packets_.side_packet<true>(s, k, at);
        packets_.report_bound_events(s);
        s.pending.clear();
    }
  }
}

// Packets were lost, and those that announced a VM entry or exit may be among them.
void Flow::doubt_guest(State& s) {
  if (s.clock.guest()) {
    if (s.enabled) enter_guest(s, static_cast<uint64_t>(s.p - begin_));
    return;
  }
  if (!guest_in_segment()) return;
  s.maybe_guest = true;
  doubt();
}

namespace {

// Are there bytes that look like a PIP whose NR bit is `non_root`?
bool looks_like_pip(const uint8_t* p, const uint8_t* end, bool non_root) {
  constexpr uint8_t kExtended = 0x02, kPip = 0x43;
  while (end - p > 2) {
    const auto* const at =
        static_cast<const uint8_t*>(std::memchr(p + 1, kPip, static_cast<size_t>(end - p) - 2));
    if (at == nullptr) return false;
    if (at[-1] == kExtended && ((at[1] & 1) != 0) == non_root) return true;
    p = at;
  }
  return false;
}

}  // namespace

// Does a PIP of this segment show a guest? Bytes that only look like one cost certainty, no more.
bool Flow::guest_in_segment() {
  if (!guest_in_segment_) guest_in_segment_ = looks_like_pip(begin_, end_, !config_.guest_text);
  return *guest_in_segment_;
}

std::optional<uint64_t> find_guest_pip(std::span<const uint8_t> segment) {
  const uint8_t* const begin = segment.data();
  const uint8_t* const end = begin + segment.size();
  if (!looks_like_pip(begin, end, true)) return std::nullopt;
  uint8_t block_bytes = 0;
  for (const uint8_t* p = begin;;) {
    const Packet k = read_packet(p, end, block_bytes);
    if (k.type == Pk::kEnd || k.type == Pk::kBad) return std::nullopt;
    if (k.type == Pk::kPip && k.value2 != 0) return static_cast<uint64_t>(p - begin);
    block_bytes = next_block_bytes(k, block_bytes);
    p += k.size;
  }
}

namespace {

// Of the PIPs from a sync point on, up to the next or to damage: `host`, `guest` as they say.
const uint8_t* look_at_pips(const uint8_t* p, const uint8_t* end, bool& host, bool& guest) {
  p += kPsbSize;
  for (uint8_t block_bytes = 0;;) {
    const Packet k = read_packet(p, end, block_bytes);
    if (k.type == Pk::kEnd || k.type == Pk::kBad || k.type == Pk::kPsb) return p;
    if (k.type == Pk::kPip) (k.value2 == 0 ? host : guest) = true;
    block_bytes = next_block_bytes(k, block_bytes);
    p += k.size;
  }
}

}  // namespace

bool is_guest_trace(const Stream& stream) {
  bool guest = false, host = false;
  for (const StreamPiece& piece : stream.pieces) {
    const auto trace = piece.bytes;
    for (size_t at = find_psb(trace, 0), done = 0; at != SIZE_MAX;) {
      const uint8_t* const begin = trace.data() + at;
      const uint8_t* const till = trace.data() + std::min(find_psb(trace, at + kPsbSize), trace.size());
      if (!looks_like_pip(begin, till, false) && !looks_like_pip(begin, till, true)) return false;
      const uint8_t* const next = look_at_pips(begin, trace.data() + trace.size(), host, guest);
      if (host || !guest) return false;
      const auto end = static_cast<size_t>(next - trace.data());
      stream.forget(piece.offset + done, piece.offset + end);
      done = end;
      at = find_psb(trace, end);
    }
  }
  return guest;
}

}  // namespace asof::x86
