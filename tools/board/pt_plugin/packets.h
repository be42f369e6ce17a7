// The bytes of Intel PT packets (SDM vol. 3, "Intel Processor Trace", section "Packet Definitions"). No state: when a
// packet is due is the trace unit's business.
#pragma once
#include <array>
#include <cstdint>
#include <span>

namespace asof::pt {

struct Packet {
  std::array<uint8_t, 16> bytes{};
  uint8_t size = 0;

  std::span<const uint8_t> span() const { return std::span(bytes).first(size); }
};

enum class IpPacket : uint8_t { kTip = 0x0d, kPge = 0x11, kPgd = 0x01, kFup = 0x1d };
enum class Exec : uint8_t { k16 = 0, k64 = 1, k32 = 2 };  // as in MODE.Exec

Packet packet_psb();
Packet packet_psbend();
Packet packet_tnt(unsigned bits, unsigned count);  // 1 to 6, the oldest is the highest
// An address: 2, 4 or 6 bytes of it, as few as the last address allows; 6 if `full`.
Packet packet_ip(IpPacket kind, uint64_t ip, uint64_t last_ip, bool full);
Packet packet_no_ip(IpPacket kind);
Packet packet_mode_exec(Exec exec, bool interrupts);
Packet packet_pip(uint64_t cr3);  // NR is 0: no VMX operation
Packet packet_trace_stop();
Packet packet_ovf();
Packet packet_cbr(uint8_t ratio);
Packet packet_tsc(uint64_t tsc);
Packet packet_tma(uint64_t ctc, uint64_t fast);
Packet packet_mtc(uint64_t ctc);
Packet packet_cyc(uint64_t cycles);
Packet packet_ptw(uint64_t value, bool eight_bytes, bool fup);
Packet packet_mwait(uint32_t hints, uint32_t extensions);
Packet packet_pwre(uint8_t state, uint8_t sub_state);
Packet packet_pwrx(uint8_t last, uint8_t deepest, uint8_t reasons);
Packet packet_exstop(bool fup);
Packet packet_cfe(uint8_t type, uint8_t vector, bool fup);
Packet packet_evd(uint8_t type, uint64_t payload);

}  // namespace asof::pt
