// arm64 and CoreSight trace.
//
// How text changes on this machine (arch/arm64/kernel/patching.c, jump_label.c, ftrace.c, probes/): one
// aligned store, made visible by cache maintenance, and nobody waits for other CPUs. Where old and new are
// branches, NOPs or the like, a CPU executes one or the other until its next context synchronisation event;
// anything else changes under stop_machine, where every CPU passes an ISB. A breakpoint (kprobe) shows as an
// exception at the site, and its handler's ERET carries what it emulated; an emulated BL pushes nothing on
// the return stack.
#include "arch/arm64/arm64.h"

#include "arch/arm64/flow.h"
#include "arch/arm64/segments.h"

namespace asof::arm64 {
namespace {

class Arm64 final : public Arch {
 public:
  explicit Arm64(const Config& config) : config_(config) {}

  std::string_view name() const override { return "arm64"; }

  std::vector<Segment> split(const Stream& stream, size_t stream_index) const override {
    return split_stream(stream, stream_index, config_);
  }

  std::unique_ptr<SegmentDecoder> decoder(std::span<const Stream> streams, const TextStore& text,
                                          const DecodeOptions& options) const override {
    return std::make_unique<Flow>(config_, streams, text, options);
  }

 private:
  const Config config_;
};

}  // namespace

std::unique_ptr<Arch> make_arch(const Config& config) { return std::make_unique<Arm64>(config); }

}  // namespace asof::arm64
