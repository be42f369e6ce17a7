// Validation: the same trace through libipt or OpenCSD. The reference reads text as of one instant and knows
// no windows, so where it differs in a segment in which text changed, nothing follows; in all others both
// must find the same instructions, as count and hash.
#include <fmt/format.h>

#include <cstring>

#include "arch/arm64/insn.h"
#include "arch/arm64/reference.h"
#include "tools/output/format.h"
#include "tools/validate/reference_run.h"
#include "tools/validate/validation.h"

namespace asof {
namespace {

struct Agreement {
  uint64_t same = 0, constant = 0, instructions = 0, differ = 0, apart = 0;
};

// Searches segments for branches that OpenCSD does not know.
class RecentBranches final : public ChunkSink {
 public:
  explicit RecentBranches(const ValidationInput& in) : in_(in), arch_(in.capture.arch()) {}

  bool in(const Segment& segment) {
    if (!arch_) return false;
    if (!decoder_) decoder_ = (*arch_)->decoder(in_.capture.streams, *in_.capture.text, in_.options.decode);
    found_ = false;
    decoder_->decode(segment, *this);
    return found_;
  }

 private:
  void take(Chunk&& chunk) override {
    for (const Step& s : chunk.steps) {
      if (found_ || s.block->mode != arm64::kA64 || !is_complete(s)) continue;
      uint32_t last;
      std::memcpy(&last, s.block->bytes + s.block->size - sizeof last, sizeof last);
      found_ = arm64::is_recent_branch(last);
    }
  }

  const ValidationInput& in_;
  const Result<std::unique_ptr<Arch>> arch_;
  std::unique_ptr<SegmentDecoder> decoder_;
  bool found_ = false;
};

Agreement compare(const ValidationInput& in, const ReferenceRun& run, bool arm64, std::string_view name,
                  std::vector<std::string>& places) {
  Agreement a;
  RecentBranches recent(in);
  for (const auto& [key, found] : run.segments) {
    const auto ours = in.flow.segments.find(key);
    if (ours == in.flow.segments.end()) continue;
    const SegmentFacts& s = ours->second;
    if (s.ips.count == found.instructions && s.ips.hash == found.hash) {
      ++a.same;
      a.constant += s.constant ? 1 : 0;
      a.instructions += found.instructions;
    } else if (!s.constant || found.gap || (arm64 && recent.in(found.segment))) {
      ++a.apart;
    } else {
      ++a.differ;
      if (places.size() < Check::kMaxPlaces)
        places.push_back(fmt::format("{}, sync point {}: {} instructions here, {} with {}",
                                     in.capture.streams[key.first].name, key.second,
                                     format_count(s.ips.count), format_count(found.instructions), name));
    }
  }
  return a;
}

}  // namespace

void check_reference(const ValidationInput& in, std::vector<Check>& out) {
  const Capture& c = in.capture;
  const bool arm64 = !c.arm64.sources.empty();
  const std::string_view name = arm64 ? "OpenCSD" : "libipt";
  Check check{.topic = "reference"};
  const bool same_engine = arm64 && arm64::needs_reference(c.arm64.sources[0].protocol);
  // A block stream holds the flow, not the trace: whatever "decodes" it only reads it once more.
  const bool no_trace = c.blocks != nullptr;
  if (in.cross_check == 0 || in.options.decode.reference_engine || same_engine || no_trace) {
    check.result = Check::Result::kSkip;
    check.answer = no_trace      ? "a block stream has no trace that a reference could decode"
                   : same_engine ? "OpenCSD is the decoder of this trace"
                                 : "not compared with a reference";
    out.push_back(std::move(check));
    return;
  }
  const auto run = run_reference(c, in.options, in.cross_check);
  if (!run) {
    check.result = Check::Result::kFail;
    check.answer = fmt::format("{} cannot decode it: {}", name, run.error().reason);
    out.push_back(std::move(check));
    return;
  }
  const Agreement a = compare(in, *run, arm64, name, check.places);
  check.result = a.differ != 0 ? Check::Result::kFail
                 : a.same == 0 ? Check::Result::kNote
                               : Check::Result::kPass;
  check.answer = fmt::format("{} finds the same {} in {}, of which {} without changing text", name,
                             format_plural(a.instructions, "instruction", "instructions"),
                             format_plural(a.same, "segment", "segments"), format_count(a.constant));
  if (a.differ != 0)
    check.answer += fmt::format("; others in {} although nothing changed", format_count(a.differ));
  if (a.apart != 0)
    check.answer +=
        fmt::format("; {} cannot be compared: text changed, or {} stopped or does not know an instruction",
                    format_count(a.apart), name);
  if (run->failed != 0)
    check.answer += fmt::format("; {} crashed in {} more", name, format_count(run->failed));
  if (run->left_out != 0)
    check.answer += fmt::format("; {} left out (--cross-check)", format_count(run->left_out));
  out.push_back(std::move(check));
}

}  // namespace asof
