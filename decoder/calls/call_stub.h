// The calls of a chunk in short: its ops, where all those of a span (call_span.h) are one, of kind kSpan. Whoever joins
// chunks reads this instead of the flow, as long as spans can be taken whole. A shard writes it for each of its flow
// records (docs/formats.md).
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "decoder/calls/flow_ops.h"

namespace asof {

class SpanFinder;

// Of ops with spans.
FlowOps cut_spans(const FlowOps& ops);
// How many ops there are with those that were left out; what the op `at` is among them.
size_t whole_size(const FlowOps& cut);
size_t whole_index(const FlowOps& cut, size_t at);

// Symbols are told by Symbol::number.
std::vector<uint8_t> put_calls(const FlowOps& cut, bool has_time);
// `symbols`: SymbolTable::all(). False: damaged, or of a trace that is measured otherwise.
bool take_calls(std::span<const uint8_t> body, std::span<const Symbol* const> symbols, bool has_time,
                FlowOps& out);

// Makes them of chunks. One for each worker.
class CallStubs {
 public:
  CallStubs(const Capture& capture, const FlowJob& job);
  ~CallStubs();
  std::vector<uint8_t> of(const Chunk& chunk);

 private:
  const bool has_time_;
  FlowReader reader_;
  std::unique_ptr<SpanFinder> finder_;
};

}  // namespace asof
