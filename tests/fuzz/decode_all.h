// Decodes a capture in this process and says what came out, as one number: for comparisons between ways to decode.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>

#include "decoder/pipeline/pipeline.h"

namespace asof::fuzz {

// Of numbers, in order.
struct Sum {
  template <typename Number>
  void add(Number number) {
    value = (value ^ static_cast<uint64_t>(number)) * 0x9e3779b97f4a7c15ULL + (value >> 29U);
  }
  bool operator==(const Sum&) const = default;
  uint64_t value = 0;
};

// Of each stream by itself, however it is cut into chunks.
class FlowSum final : public ChunkConsumer {
 public:
  void deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) override;
  uint64_t value() const;
  // In any order: those of parts add up to that of all.
  uint64_t unordered() const { return unordered_; }
  uint64_t instructions() const { return instructions_; }

 private:
  void add_step(size_t stream, const Step& s);
  void add_event(size_t stream, const Event& e);
  void add_gap(size_t stream, const Gap& g);
  void add(size_t stream, std::initializer_list<uint64_t> item);

  std::map<size_t, Sum> streams_;
  uint64_t unordered_ = 0, instructions_ = 0;
};

// Over steps, events and gaps, in order.
FlowSum decode_all(const Capture& capture, const PipelineOptions& options);

// All calls in it, as `asof timeline --detail insn` has them.
void follow_calls(const Capture& capture);

// What was opened is decoded, once and in one thread; an error has a reason. nullopt: nothing is to be decoded, or not all
// of it could be read.
std::optional<uint64_t> decode_opened(const Result<Capture>& capture);

// However a capture is decoded, the same comes out: with caches or without, and in four threads if these are wanted, as
// starting them takes more time than all the rest.
void check_same_flow(const Capture& capture, bool with_threads);

// Segments that libipt or OpenCSD decodes without a gap: the same instructions here, up to the first gap if there is one.
// For text that does not change.
void check_as_reference(const Capture& capture);

}  // namespace asof::fuzz
