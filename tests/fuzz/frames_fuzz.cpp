// CoreSight frames: each byte of a source is at one place of the file, and a source read in parts is what it is as a
// whole. The first byte chooses the alignment, whether there are two sections, and a step of reading.
#include <algorithm>
#include <vector>

#include "decoder/coresight/cs_frames.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(frames) {
  asof::fuzz::Input in(bytes);
  const uint8_t choice = in.byte();
  const asof::fuzz::Bytes data = in.rest();
  const auto alignment = (choice & 1) != 0 ? asof::FrameAlignment::kTpiu : asof::FrameAlignment::kMemory;
  std::vector<asof::FrameSection> sections;
  const size_t half = (choice & 2) != 0 ? data.size() / 2 / 16 * 16 : data.size();
  sections.push_back({.bytes = data.first(half)});
  if (half != data.size())
    sections.push_back(
        {.bytes = data.subspan(half), .file_offset = half, .discontinuity = (choice & 4) != 0});
  // Few checkpoints, so that reads begin between them.
  const auto frames = asof::CsFrames::index(sections, alignment, 4);
  const size_t step = 1U + (choice >> 3U);
  for (const auto& source : frames->sources()) {
    FUZZ_CHECK(source.size <= data.size());
    const auto trace = frames->bytes_of(source.id);
    std::vector<uint8_t> whole(source.size), part;
    trace->read(0, whole);
    uint64_t last = 0;
    for (size_t at = 0; at < whole.size(); at += step) {
      part.resize(std::min(step, whole.size() - at));
      trace->read(at, part);
      FUZZ_CHECK(std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(at)));
      const uint64_t place = trace->file_offset(at);
      FUZZ_CHECK(place < data.size() && (at == 0 || place > last));
      // The lowest bit of a byte at an even place of a frame lies in the frame's last byte.
      FUZZ_CHECK((data[place] & ~1U) == (whole[at] & ~1U));
      last = place;
    }
  }
}
