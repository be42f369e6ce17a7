#include "tools/board/pt_plugin/packets.h"

#include <bit>
#include <cstring>
#include <initializer_list>

namespace asof::pt {

namespace {

static_assert(std::endian::native == std::endian::little);

Packet of(std::initializer_list<unsigned> bytes) {
  Packet p;
  for (const unsigned b : bytes) p.bytes[p.size++] = static_cast<uint8_t>(b);
  return p;
}

// Adds the low `bytes` bytes of `value`.
Packet with(Packet p, uint64_t value, unsigned bytes) {
  std::memcpy(p.bytes.data() + p.size, &value, bytes);
  p.size = static_cast<uint8_t>(p.size + bytes);
  return p;
}

unsigned flag(bool set, unsigned bit) { return set ? 1U << bit : 0; }

}  // namespace

Packet packet_psb() { return of({2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82}); }
Packet packet_psbend() { return of({2, 0x23}); }
Packet packet_tnt(unsigned bits, unsigned count) { return of({(1U << count | bits) << 1}); }

Packet packet_ip(IpPacket kind, uint64_t ip, uint64_t last_ip, bool full) {
  const uint64_t differs = full ? ~uint64_t{0} : ip ^ last_ip;
  unsigned form = 3, size = 6;  // six bytes, sign-extended
  if (differs >> 16 == 0) {
    form = 1, size = 2;
  } else if (differs >> 32 == 0) {
    form = 2, size = 4;
  }
  return with(of({form << 5 | static_cast<unsigned>(kind)}), ip, size);
}

Packet packet_no_ip(IpPacket kind) { return of({static_cast<unsigned>(kind)}); }

Packet packet_mode_exec(Exec exec, bool interrupts) {
  return of({0x99, static_cast<unsigned>(exec) | flag(interrupts, 2)});
}

Packet packet_pip(uint64_t cr3) { return with(of({2, 0x43}), (cr3 & 0xfffffffffffe0) >> 4, 6); }
Packet packet_trace_stop() { return of({2, 0x83}); }
Packet packet_ovf() { return of({2, 0xf3}); }
Packet packet_cbr(uint8_t ratio) { return of({2, 3, ratio, 0}); }
Packet packet_tsc(uint64_t tsc) { return with(of({0x19}), tsc, 7); }

Packet packet_tma(uint64_t ctc, uint64_t fast) {
  return with(with(with(of({2, 0x73}), ctc, 2), 0, 1), fast & 0x1ff, 2);
}

Packet packet_mtc(uint64_t ctc) { return with(of({0x59}), ctc, 1); }

Packet packet_cyc(uint64_t cycles) {
  Packet p = of({static_cast<unsigned>(3 | (cycles & 31) << 3 | flag(cycles >> 5 != 0, 2))});
  for (cycles >>= 5; cycles != 0; cycles >>= 7) p = with(p, (cycles & 127) << 1 | (cycles >> 7 != 0), 1);
  return p;
}

Packet packet_ptw(uint64_t value, bool eight_bytes, bool fup) {
  return with(of({2, 0x12 | flag(eight_bytes, 5) | flag(fup, 7)}), value, eight_bytes ? 8 : 4);
}

Packet packet_mwait(uint32_t hints, uint32_t extensions) {
  return with(with(of({2, 0xc2}), hints & 0xff, 4), extensions & 3, 4);
}

Packet packet_pwre(uint8_t state, uint8_t sub_state) {
  return of({2, 0x22, 0, static_cast<unsigned>(state << 4 | sub_state)});
}

Packet packet_pwrx(uint8_t last, uint8_t deepest, uint8_t reasons) {
  return with(of({2, 0xa2, static_cast<unsigned>(last << 4 | deepest), reasons}), 0, 3);
}

Packet packet_exstop(bool fup) { return of({2, 0x62 | flag(fup, 7)}); }
Packet packet_cfe(uint8_t type, uint8_t vector, bool fup) {
  return of({2, 0x13, type | flag(fup, 7), vector});
}
Packet packet_evd(uint8_t type, uint64_t payload) { return with(of({2, 0x53, type}), payload, 8); }

}  // namespace asof::pt
