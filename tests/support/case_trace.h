// The trace of one CPU of a case: its script as Intel PT bytes.
#pragma once
#include <fmt/format.h>

#include <exception>
#include <span>
#include <vector>

#include "tests/support/case_file.h"

namespace asof::test {

// log2 of CTC ticks per MTC packet, and TSC ticks per CTC tick: an MTC every microsecond of a 1 GHz TSC.
inline constexpr uint8_t kCaseMtcFreq = 3;
inline constexpr uint64_t kCaseTscPerCtc = 125;

struct CaseTrace {
  std::vector<uint8_t> bytes;
  Time first = kTimeMax, last = kTimeMin;  // of its TSC and MTC packets
};

// The packets of a script through an encoder of one machine; errors name the line of the case.
template <typename Encoder>
CaseTrace encode_packets(const CaseFile& c, std::span<const CasePacket> packets) {
  Encoder encoder(c);
  for (const CasePacket& p : packets) {
    try {
      encoder.packet(p);
    } catch (const std::exception& e) {
      throw CaseError(fmt::format("{}.case:{}: {}", c.name, p.line, e.what()));
    }
  }
  return encoder.finish();
}

CaseTrace encode_trace(const CaseFile& c, std::span<const CasePacket> packets);

}  // namespace asof::test
