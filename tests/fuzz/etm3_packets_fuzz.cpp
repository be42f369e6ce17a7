// Any bytes as the trace of an ETMv3 or a PTM, of two pieces: OpenCSD reads it, and every byte is in exactly one line. Few choices
// list it in a child, too, which must say the same.
#include "arch/arm64/packet_list_reference.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/listed_packets.h"

FUZZ_TARGET(etm3_packets) {
  asof::fuzz::Input in(bytes);
  const uint8_t choice = in.byte(), split = in.byte();
  asof::arm64::Source source;
  source.protocol = (choice & 1) != 0 ? asof::arm64::Protocol::kPtm : asof::arm64::Protocol::kEtm3;
  source.armv7 = true;
  source.etmcr = static_cast<uint32_t>(in.number(4));
  source.etmidr = static_cast<uint32_t>(in.number(2)) | 0x41000000U;
  source.etmccer = static_cast<uint32_t>(in.number(4));
  source.trace_id = 0x10;
  const asof::fuzz::Bytes trace = in.rest();
  asof::Stream stream;
  const size_t first = std::min<size_t>(split, trace.size());
  if (first != 0) stream.pieces.push_back({.bytes = trace.first(first)});
  if (first != trace.size())
    stream.pieces.push_back(
        {.offset = first, .bytes = trace.subspan(first), .discontinuity = (choice & 2) != 0});
  asof::arm64::Config config;
  if ((choice & 4) != 0) config.time = asof::TimeConversion{};
  const auto here = asof::arm64::read_reference_packets(stream, source, config, {}, {});
  if (here == nullptr) return;
  const auto lines = asof::test::listed_packets(*here);
  FUZZ_CHECK(asof::test::not_covered(stream, lines).empty());
  if ((choice & 0xfeU) != 0xf4U) return;  // a process takes a hundred times as long
  const auto child = asof::arm64::list_reference_packets(stream, source, config);
  FUZZ_CHECK(child != nullptr);
  const auto same = asof::test::listed_packets(*child);
  FUZZ_CHECK(same.size() == lines.size());
  for (size_t i = 0; i < lines.size(); ++i)
    FUZZ_CHECK(same[i].offset == lines[i].offset && same[i].size == lines[i].size &&
               same[i].time == lines[i].time && same[i].name == lines[i].name &&
               same[i].texts == lines[i].texts);
}
