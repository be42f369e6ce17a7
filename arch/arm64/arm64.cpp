// arm64 and CoreSight trace.
//
// How text changes on this machine (arch/arm64/kernel/patching.c, jump_label.c, ftrace.c, probes/): one
// aligned store, made visible by cache maintenance, and nobody waits for other CPUs. Where old and new are
// branches, NOPs or the like, a CPU executes one or the other until its next context synchronisation event;
// anything else changes under stop_machine, where every CPU passes an ISB. A breakpoint (kprobe) shows as an
// exception at the site, and its handler's ERET carries what it emulated; an emulated BL pushes nothing on
// the return stack.
#include "arch/arm64/arm64.h"

#include <mutex>
#include <utility>

#include "arch/arm64/flow.h"
#include "arch/arm64/packet_list.h"
#include "arch/arm64/packet_list_reference.h"
#include "arch/arm64/reference.h"
#include "arch/arm64/segments.h"
#include "arch/forked_decoder.h"

namespace asof::arm64 {
namespace {

// A capture may have trace units of several kinds.
class BySource final : public SegmentDecoder {
 public:
  BySource(const Config& config, std::span<const Stream> streams, const TextStore& text,
           const DecodeOptions& options, std::shared_ptr<SharedCode> code)
      : config_(config), streams_(streams), text_(text), options_(options), code_(std::move(code)) {}

  void decode(const Segment& segment, ChunkSink& sink) override {
    const bool reference =
        options_.reference_engine || needs_reference(config_.sources.at(segment.stream).protocol);
    auto& decoder = reference ? reference_ : flow_;
    if (!decoder && reference)
      decoder = in_children(make_reference(config_, streams_, text_, options_), "OpenCSD");
    if (!decoder) decoder = std::make_unique<Flow>(config_, streams_, text_, options_, code_);
    decoder->decode(segment, sink);
  }

 private:
  const Config& config_;
  const std::span<const Stream> streams_;
  const TextStore& text_;
  const DecodeOptions options_;
  const std::shared_ptr<SharedCode> code_;
  std::unique_ptr<SegmentDecoder> flow_, reference_;
};

class Arm64 final : public Arch {
 public:
  explicit Arm64(const Config& config) : config_(config) {}

  std::string_view name() const override { return "arm64"; }

  std::unique_ptr<SegmentSource> segments(const Stream& stream, size_t stream_index,
                                          uint64_t from) const override {
    return split_stream(stream, stream_index, config_, from);
  }

  std::unique_ptr<PacketReader> packets(const Stream& stream, size_t stream_index) const override {
    const Source& source = config_.sources.at(stream_index);
    return needs_reference(source.protocol) ? list_reference_packets(stream, source, config_)
                                            : list_packets(stream, source, config_);
  }

  std::unique_ptr<SegmentDecoder> decoder(std::span<const Stream> streams, const TextStore& text,
                                          const DecodeOptions& options) const override {
    return std::make_unique<BySource>(config_, streams, text, options, shared_code(text, options));
  }

 private:
  // One for all decoders that look at the same text, as long as there is one of them.
  std::shared_ptr<SharedCode> shared_code(const TextStore& text, const DecodeOptions& options) const {
    if (!options.block_cache) return nullptr;
    const std::lock_guard lock(code_mutex_);
    std::shared_ptr<SharedCode> code = code_.lock();
    if (!code || code_text_ != &text) {
      code = std::make_shared<SharedCode>();
      code_ = code;
      code_text_ = &text;
    }
    return code;
  }

  const Config config_;
  mutable std::mutex code_mutex_;
  mutable std::weak_ptr<SharedCode> code_;
  mutable const TextStore* code_text_ = nullptr;
};

}  // namespace

std::unique_ptr<Arch> make_arch(const Config& config) { return std::make_unique<Arm64>(config); }

}  // namespace asof::arm64
