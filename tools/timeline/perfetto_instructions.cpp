#include "tools/timeline/perfetto_instructions.h"

#include <fmt/format.h>

#include <algorithm>

#include "textstore/time.h"
#include "tools/disasm/source_text.h"
#include "tools/output/format.h"

namespace asof {
namespace {

// Instructions as slices: beyond this a window is not small.
constexpr uint64_t kMostInstructions = 200'000;
constexpr size_t kMostDisassembled = 64;  // instructions of a run, in its arg

std::string disassembly(const CodeRun& code) {
  std::string out;
  for (size_t i = 0; i < code.instructions.size(); ++i) {
    if (i == kMostDisassembled)
      return out + fmt::format("\n... and {} more", code.instructions.size() - kMostDisassembled);
    if (i != 0) out += '\n';
    out += code.instructions[i].text;
  }
  return out;
}

bool belongs(const BlockSlice& b, const TimelineTrack& track) {
  if (track.kind == TimelineTrack::Kind::kCpu) return b.cpu == track.cpu && b.cpu >= 0;
  return b.cpu < 0 && b.tid == track.tid;
}

}  // namespace

PerfettoInstructions::PerfettoInstructions(const Capture& capture, const Timeline& timeline, bool inlined,
                                           PerfettoPackets& out)
    : t_(timeline), out_(out), code_(capture, inlined) {
  if (timeline.blocks.empty()) return;
  spread_.emplace(timeline);
  for (const BlockSlice& b : timeline.blocks) instructions_ += b.piece.lengths.size();
  single_ = instructions_ <= kMostInstructions;
}

Time PerfettoInstructions::time_of(uint64_t position) const {
  return saturating_add(t_.summary.begin, static_cast<Time>(position / kHtmlUnit));
}

void PerfettoInstructions::write(const TimelineTrack& track, uint64_t group, int32_t rank) {
  uint64_t uuid = 0;
  for (size_t i = 0; i < t_.blocks.size(); ++i) {
    const BlockSlice& b = t_.blocks[i];
    if (!belongs(b, track)) continue;
    if (uuid == 0) uuid = out_.track(group, track.name + " instructions", rank);
    run(uuid, b, spread_->blocks[i]);
  }
}

void PerfettoInstructions::run(uint64_t track, const BlockSlice& b, Span drawn) {
  const CodeRun& code = code_.of(b);
  const Time begin = time_of(drawn.begin), end = std::max(begin, time_of(drawn.end));
  out_.note("run", b.id);
  out_.note_address("address", b.piece.ip);
  out_.note("instructions", uint64_t{code.instructions.size()});
  out_.note("disassembly", disassembly(code));
  if (!code.instructions.empty() && code.instructions.front().source)
    out_.note("source line", full_source_text(code.instructions.front().source));
  out_.note("source", code.origin_text);
  out_.note("confidence", std::string(confidence_name(b.piece.confidence)));
  if (b.piece.to != 0) out_.note_address("branch to", b.piece.to);
  out_.note("time_lo", int64_t{b.begin});
  if (b.end != kTimeMax) out_.note("time_hi", int64_t{b.end});
  if (b.in != 0) out_.note("slice", b.in);
  out_.event(track, begin, PerfettoPackets::kBegin, code.symbol, "run");
  if (single_) instructions(track, b, code, begin, end);
  out_.event(track, end, PerfettoPackets::kEnd, {}, {});
}

void PerfettoInstructions::instructions(uint64_t track, const BlockSlice& b, const CodeRun& code, Time begin,
                                        Time end) {
  const auto n = static_cast<Time>(code.instructions.size());
  for (Time k = 0; k < n; ++k) {
    const CodeInstruction& i = code.instructions[static_cast<size_t>(k)];
    // Shares of a run's time; never so long that the product overflows.
    const Time length = elapsed(begin, end);
    const auto share = [&](Time part) { return begin + length / n * part + length % n * part / n; };
    out_.note("instruction", b.instructions + static_cast<uint64_t>(k) + 1);
    out_.note_address("address", i.address);
    out_.note("bytes", i.bytes);
    if (i.source) out_.note("source line", full_source_text(i.source));
    if (!i.inlined.empty()) out_.note("inlined", i.inlined);
    out_.event(track, share(k), PerfettoPackets::kBegin, i.text, "instruction");
    out_.event(track, share(k + 1), PerfettoPackets::kEnd, {}, {});
  }
}

}  // namespace asof
