// ExecutedCode: how often each instruction ran, and how conditional branches went, by version of text. Only code that
// is certain or proved counts, unless all of it is wanted.
#pragma once
#include <tbb/enumerable_thread_specific.h>
#include <tsl/robin_map.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "arch/arch.h"
#include "decoder/blocks/block_text.h"
#include "decoder/pipeline/pipeline.h"
#include "tools/output/task_choice.h"

namespace asof {

struct ExecutedAt {
  Space space = kKernelSpace;
  Addr address = 0;
  Time from = kTimeMin;  // of its bytes
  uint32_t version = 1;  // of its text, where versions are told apart
  auto operator<=>(const ExecutedAt&) const = default;
};
struct Executed {
  uint64_t count = 0;
  uint64_t taken = 0, not_taken = 0;  // of a conditional branch
  uint8_t size = 0;
  bool conditional = false;
  bool begins_block = false;
  Time time = kTimeMin;  // some instant at which its bytes were there

  void add(const Executed& e);
};

class ExecutedCode final : public ChunkConsumer {
 public:
  struct Options {
    bool uncertain = false;  // count everything
    bool versions = false;   // tell versions of text apart
    TimeBounds time{};
    TaskChoice tasks{};
  };
  ExecutedCode(const Capture& capture, const Options& options);
  ~ExecutedCode() override;

  std::unique_ptr<Prepared> prepare(const Chunk& chunk, const Stream& stream) override;
  void deliver(Chunk& chunk, const Stream& stream, Prepared* prepared) override;
  bool delivers_steps() const override { return false; }
  void finished(const std::exception_ptr& error) override;
  bool stopped() const override;

  using Map = std::map<ExecutedAt, Executed>;
  const Map& all() const { return all_; }
  uint64_t instructions() const { return instructions_; }  // that were counted
  uint64_t left_out() const { return left_out_; }          // that were not, as they are not certain
  uint64_t gaps() const { return gaps_; }

 private:
  struct Visits {
    uint64_t whole = 0, taken = 0;
    std::map<uint32_t, uint64_t> parts;  // visits that ended early, by instructions
  };
  using Blocks = tsl::robin_map<const Block*, Visits>;
  struct Counted;
  void count(const Chunk& chunk, Counted& counted);
  void add_block(const Block& b, const Visits& v, BlockTexts& texts);

  const Capture& capture_;
  Options options_;
  tbb::enumerable_thread_specific<Blocks> blocks_;
  Map all_;
  uint64_t instructions_ = 0, left_out_ = 0, gaps_ = 0;
};

}  // namespace asof
