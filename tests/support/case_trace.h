// The trace of one CPU of a case: its script as Intel PT bytes.
#pragma once
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

CaseTrace encode_trace(const CaseFile& c, std::span<const CasePacket> packets);

}  // namespace asof::test
