// PtFixture: the trace unit of tools/board/pt_plugin writes into a small memory while a made-up execution goes on; asof
// and libipt decode what it wrote.
#pragma once
#include <string>
#include <vector>

#include "arch/x86/packet.h"
#include "tests/arch/x86/flow_fixture.h"
#include "tools/board/pt_plugin/unit.h"

namespace asof::pt::test {

using x86::test::FlowFixture;
constexpr uint64_t kCode = FlowFixture::kCode, kUserCode = FlowFixture::kUserCode;

// Names of packets with what matters of them, as "psb tsc tnt:10 tip:1000".
inline std::string packets_of(std::span<const uint8_t> trace) {
  static const char* const kNames[] = {"pad",  "tnt",    "tip",  "pge",  "pgd", "fup",    "mode",  "tsx",
                                       "psb",  "psbend", "ovf",  "stop", "tsc", "tma",    "mtc",   "cyc",
                                       "cbr",  "pip",    "vmcs", "mnt",  "ptw", "exstop", "mwait", "pwre",
                                       "pwrx", "bbp",    "bip",  "bep",  "cfe", "evd"};
  std::string out;
  const uint8_t* p = trace.data();
  const uint8_t* const end = p + trace.size();
  while (p < end) {
    const x86::Packet k = x86::read_packet(p, end);
    if (k.type >= x86::Pk::kTrig) return out + " BAD";
    if (!out.empty()) out += ' ';
    out += kNames[static_cast<size_t>(k.type)];
    switch (k.type) {
      case x86::Pk::kTnt:
        out += ':';
        for (unsigned i = k.ipc; i != 0; --i) out += (k.value >> (i - 1) & 1) != 0 ? '1' : '0';
        break;
      case x86::Pk::kTip:
      case x86::Pk::kPge:
      case x86::Pk::kPgd:
      case x86::Pk::kFup:
        if (k.ipc != 0) out += fmt::format(":{:x}", k.value & 0xffff);
        break;
      case x86::Pk::kCyc:
      case x86::Pk::kMtc:
      case x86::Pk::kModeExec:
        out += fmt::format(":{}", k.value);
        break;
      default:
        break;
    }
    p += k.size;
  }
  return out;
}

class PtFixture : public ::testing::Test {
 protected:
  static constexpr uint64_t kBuffer = 0x10000, kBufferBytes = 0x10000;

  explicit PtFixture(UnitConfig config = {}) : unit(config, output) {
    output.base = kBuffer;
    output.mask = kBufferBytes - 1;  // a single range
  }

  static Place kernel(uint64_t ip) { return {ip, false, Exec::k64, true}; }
  static Place user(uint64_t ip, Exec exec = Exec::k64) { return {ip, true, exec, true}; }
  static Place place(uint64_t ip) { return ip >> 63 != 0 ? kernel(ip) : user(ip); }

  void enable(uint64_t ctl, uint64_t next) {
    unit.write_ctl(ctl | kTraceEn, next - 2, place(next), cr3, tsc);
  }
  void disable(uint64_t ip) { unit.write_ctl(unit.ctl() & ~kTraceEn, ip, place(ip + 2), cr3, tsc); }
  // Instructions at these addresses retire.
  void plain(std::initializer_list<uint64_t> ips) {
    for (const uint64_t ip : ips) {
      if (unit.flow() && !unit.losing()) ran.push_back(ip);
      ++tsc;
    }
  }
  void branch(Flow flow, uint64_t ip, unsigned size, uint64_t to) { branch(flow, ip, size, place(to)); }
  void branch(Flow flow, uint64_t ip, unsigned size, const Place& to) {
    plain({ip});
    unit.branch({flow, ip, ip + size}, to, tsc);
    unit.boundary(to, tsc);
  }

  std::vector<uint8_t> trace() const {
    return {ram.begin() + kBuffer, ram.begin() + kBuffer + static_cast<std::ptrdiff_t>(unit.written())};
  }
  std::string packets() const { return packets_of(trace()); }
  // Without the packets that every start has.
  std::string packets_after(uint64_t offset) const {
    return packets_of(std::span(ram).subspan(kBuffer + offset, unit.written() - offset));
  }
  // asof, in all its ways, and libipt decode exactly what ran.
  x86::test::Decoded expect_both() {
    decoder.pt.raw(trace());
    return decoder.expect(ran);
  }
  // asof alone; the test says why libipt differs.
  x86::test::Decoded expect_asof() {
    decoder.pt.raw(trace());
    return decoder.expect_flow(ran);
  }

  std::vector<uint8_t> ram = std::vector<uint8_t>(0x40000);
  Output output{ram};
  TraceUnit unit;
  FlowFixture decoder;
  std::vector<Addr> ran;
  uint64_t tsc = 1'000'000, cr3 = 0x12345000;
};

constexpr uint64_t kBoth = kOs | kUser | kBranchEn;

}  // namespace asof::pt::test
