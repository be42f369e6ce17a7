// OpenCSD as reference for the output of the writers: its packet processor reads packets, its full decoder
// walks code. Text does not change here.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <opencsd/c_api/opencsd_c_api.h>

#include "arch/arm64/arm64.h"
#include "textstore/address.h"

namespace asof::test {

struct CsdPacket {
  uint64_t offset = 0;
  std::string text;           // as OpenCSD prints it
  ocsd_etmv4_i_pkt packet{};  // not of ETE
};

struct CsdRange {
  Addr begin = 0, end = 0;
  uint32_t count = 0;
  bool taken = false;
};

struct CsdDecode {
  std::vector<CsdRange> ranges;
  std::vector<std::string> elements;  // all, as OpenCSD prints them
  std::vector<Addr> instructions;     // of four bytes each
  bool failed = false;                // the decoder gave up
};

// Values of a core with 64-bit addresses, 32-bit context ids, 8-bit VMIDs and 64-bit timestamps.
arm64::Source etm4_source(uint8_t trace_id = 0x10, bool return_stack = false);
arm64::Source ete_source(uint8_t trace_id = 0x10, bool return_stack = false);

// Packets of an unformatted stream.
std::vector<CsdPacket> csd_packets(const arm64::Source& source, std::span<const uint8_t> trace);
// The result of the full decoder; `read` fills `out` with the bytes from the address on and returns how many
// there were.
using CsdRead = std::function<uint32_t(Addr, std::span<uint8_t> out)>;
CsdDecode csd_decode(const arm64::Source& source, std::span<const uint8_t> trace, const CsdRead& read);
// The bytes of one source, extracted from formatted frames.
std::vector<uint8_t> csd_unformat(const arm64::Source& source, std::span<const uint8_t> frames, bool sync);

}  // namespace asof::test
