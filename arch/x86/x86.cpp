// x86-64 and Intel PT.
//
// How text changes on this machine (arch/x86/kernel/alternative.c, kprobes/, ftrace.c): a batched poke writes
// INT3 over the first byte of each site, synchronises all CPUs, writes the tails, emits
// PERF_RECORD_TEXT_POKE, synchronises, writes the first bytes, synchronises. So at the record's time no CPU
// runs old or new bytes, only INT3: before it the old instruction (or INT3), after it the new one (or INT3).
// A visit during INT3 shows as a FUP at the site and a TIP to the handler; the flow stops at the FUP before
// asking for bytes, and the IRET's TIP carries what the handler emulated. An emulated CALL pushes nothing on
// the hardware's return stack, and neither do we.
#include "arch/x86/x86.h"

#include <array>
#include <mutex>

#include "arch/forked_decoder.h"
#include "arch/x86/errata.h"
#include "arch/x86/flow.h"
#include "arch/x86/packet_list.h"
#include "arch/x86/reference.h"
#include "arch/x86/segments.h"

namespace asof::x86 {
namespace {

class X86 final : public Arch {
 public:
  explicit X86(const Config& config) : config_(config), errata_(errata_of(config.cpu)) {}

  std::string_view name() const override { return "x86-64"; }
  uint64_t preferred_batch_bytes() const override { return 256 << 10; }  // path_cache.h

  std::unique_ptr<SegmentSource> segments(const Stream& stream, size_t stream_index,
                                          uint64_t from) const override {
    return split_stream(stream, stream_index, config_, errata_, from);
  }

  std::unique_ptr<PacketReader> packets(const Stream& stream, size_t) const override {
    return list_packets(stream, config_);
  }

  std::unique_ptr<SegmentDecoder> decoder(std::span<const Stream> streams, const TextStore& text,
                                          const DecodeOptions& options) const override {
    if (options.reference_engine)
      return in_children(make_reference(config_, streams, text, options), "libipt");
    return std::make_unique<Flow>(
        config_, streams, text, options, shared_code(text, options, false),
        text.unsure_from() == kTimeMax ? nullptr : shared_code(text, options, true));
  }

 private:
  // One for all decoders that look at the same text in the same way, as long as there is one of them.
  std::shared_ptr<CodeMap> shared_code(const TextStore& text, const DecodeOptions& options,
                                       bool unsure) const {
    if (!options.block_cache) return nullptr;
    const std::lock_guard lock(code_mutex_);
    Shared& shared = shared_[unsure ? 1 : 0];
    std::shared_ptr<CodeMap> code = shared.code.lock();
    if (!code || shared.text != &text || shared.text_at != options.text_at) {
      const CodeMap::Rules rules = {.unsure = unsure, .returns_are_compressed = !config_.no_ret_compression};
      code = std::make_shared<CodeMap>(text, options.text_at, Anchors::hooks(config_, text, options), rules);
      shared = {code, &text, options.text_at};
    }
    return code;
  }

  const Config config_;
  const Errata errata_;
  mutable std::mutex code_mutex_;
  struct Shared {
    std::weak_ptr<CodeMap> code;
    const TextStore* text = nullptr;
    TextAt text_at = TextAt::kAsof;
  };
  mutable std::array<Shared, 2> shared_;  // by CodeMap::unsure()
};

}  // namespace

std::unique_ptr<Arch> make_arch(const Config& config) { return std::make_unique<X86>(config); }

}  // namespace asof::x86
