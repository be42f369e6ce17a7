// Any bytes as the trace of a stream of two pieces: whatever they are, every byte is in exactly one line, and what
// packets say can be asked for. Seeds: raw trace of Intel PT, ETMv4 or ETE, after one byte that chooses.
#include "arch/arm64/packet_list.h"
#include "arch/x86/packet_list.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/listed_packets.h"

FUZZ_TARGET(packets) {
  if (bytes.size() < 2) return;
  const uint8_t choice = bytes[0];
  bytes = bytes.subspan(1);
  asof::Stream stream;
  const size_t first = (choice & 0x10) != 0 ? bytes.size() / 2 : bytes.size();
  stream.pieces.push_back({.bytes = bytes.first(first)});
  if (first != bytes.size()) {
    const uint64_t gap = (choice & 0x20) != 0 ? 7 : 0;
    stream.pieces.push_back({.offset = first + gap,
                             .bytes = bytes.subspan(first),
                             .discontinuity = gap != 0 || (choice & 0x40) != 0});
    if (gap != 0)
      stream.losses.push_back({.offset = first, .bytes = gap, .code = asof::Code::kAuxFull, .reason = "x"});
  }
  asof::x86::Config pt;
  pt.cpu = {true, 6, 0x5e, 3};
  pt.mtc_freq = 3;
  pt.tsc_ctc_n = 2;
  pt.tsc_ctc_d = 1;
  pt.max_nonturbo = 30;
  pt.time = asof::TimeConversion{};
  asof::arm64::Config etm;
  asof::arm64::Source source;
  source.protocol = (choice & 1) != 0 ? asof::arm64::Protocol::kEte : asof::arm64::Protocol::kEtm4;
  source.idr0 = (choice & 4) != 0 ? 0xffffffff : 0x28000ea1;
  source.idr1 = 0x4100f403;
  source.idr2 = 0x488;
  source.idr8 = (choice & 8) != 0 ? 20 : 0;
  source.devarch = 0x47735a13;
  const auto reader = (choice & 2) != 0 ? asof::x86::list_packets(stream, pt)
                                        : asof::arm64::list_packets(stream, source, etm);
  const auto lines = asof::test::listed_packets(*reader);
  FUZZ_CHECK(asof::test::not_covered(stream, lines).empty());
}
