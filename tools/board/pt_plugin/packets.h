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

Packet packet_psb();     // "Packet Stream Boundary (PSB) Packet"
Packet packet_psbend();  // "PSBEND Packet"
// "Taken/Not-taken (TNT) Packet": 1 to 6, the oldest is the highest
Packet packet_tnt(unsigned bits, unsigned count);
// "Target IP (TIP) Packet" and those like it; "IP Compression": 2, 4 or 6 bytes of the address, as few as the last
// one allows; 6 if `full`.
Packet packet_ip(IpPacket kind, uint64_t ip, uint64_t last_ip, bool full);
Packet packet_no_ip(IpPacket kind);                   // the same with IPBytes 0
Packet packet_mode_exec(Exec exec, bool interrupts);  // "MODE Packets", MODE.Exec
Packet packet_pip(uint64_t cr3);   // "Paging Information Packet (PIP)"; NR is 0: no VMX operation
Packet packet_trace_stop();        // "TraceStop Packet"
Packet packet_ovf();               // "Overflow (OVF) Packet"
Packet packet_cbr(uint8_t ratio);  // "Core:Bus Ratio (CBR) Packet"
Packet packet_tsc(uint64_t tsc);   // "Timestamp Counter (TSC) Packet"
Packet packet_tma(uint64_t ctc, uint64_t fast);                      // "TSC/MTC Alignment (TMA) Packet"
Packet packet_mtc(uint64_t ctc);                                     // "Mini Time Counter (MTC) Packet"
Packet packet_cyc(uint64_t cycles);                                  // "Cycle Count (CYC) Packet"
Packet packet_ptw(uint64_t value, bool eight_bytes, bool fup);       // "PTWRITE (PTW) Packet"
Packet packet_mwait(uint32_t hints, uint32_t extensions);            // "MWAIT Packet"
Packet packet_pwre(uint8_t state, uint8_t sub_state);                // "Power Entry (PWRE) Packet"
Packet packet_pwrx(uint8_t last, uint8_t deepest, uint8_t reasons);  // "Power Exit (PWRX) Packet"
Packet packet_exstop(bool fup);                                      // "Execution Stop (EXSTOP) Packet"
Packet packet_cfe(uint8_t type, uint8_t vector, bool fup);           // "Control Flow Event (CFE) Packet"
Packet packet_evd(uint8_t type, uint64_t payload);                   // "Event Data (EVD) Packet"

}  // namespace asof::pt
