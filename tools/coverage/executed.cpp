#include "tools/coverage/executed.h"

#include <algorithm>

#include "tools/output/chunk_window.h"
#include "tools/output/output.h"

namespace asof {

void Executed::add(const Executed& e) {
  count += e.count;
  taken += e.taken;
  not_taken += e.not_taken;
  size = std::max(size, e.size);
  conditional = conditional || e.conditional;
  begins_block = begins_block || e.begins_block;
  time = count == e.count ? e.time : std::min(time, e.time);
}

struct ExecutedCode::Counted : Prepared {
  uint64_t instructions = 0, left_out = 0;
};

ExecutedCode::ExecutedCode(const Capture& capture, const Options& options)
    : capture_(capture), options_(options) {}
ExecutedCode::~ExecutedCode() = default;

bool ExecutedCode::stopped() const { return interrupted(); }

void ExecutedCode::count(const Chunk& chunk, Counted& counted) {
  Blocks& blocks = blocks_.local();
  for (const Step& s : chunk.steps) {
    if (s.confidence > Confidence::kProved && !options_.uncertain) {
      counted.left_out += s.count;
      continue;
    }
    counted.instructions += s.count;
    Visits& v = blocks[s.block];
    if (s.count < s.block->count) {
      ++v.parts[s.count];
    } else {
      ++v.whole;
      v.taken += (s.flags & Step::kTaken) != 0;
    }
  }
}

std::unique_ptr<ChunkConsumer::Prepared> ExecutedCode::prepare(const Chunk& chunk, const Stream& stream) {
  auto counted = std::make_unique<Counted>();
  const auto part = chunk_chosen(chunk, stream, capture_, options_.tasks, options_.time);
  count(part ? *part : chunk, *counted);
  return counted;
}

void ExecutedCode::deliver(Chunk& chunk, const Stream&, Prepared* prepared) {
  const auto& counted = static_cast<const Counted&>(*prepared);
  instructions_ += counted.instructions;
  left_out_ += counted.left_out;
  gaps_ += static_cast<uint64_t>(
      std::ranges::count_if(chunk.gaps, [&](const Gap& g) { return is_within(g, options_.time); }));
}

void ExecutedCode::add_block(const Block& b, const Visits& v, BlockTexts& texts) {
  std::span<const TextPiece> pieces;
  if (options_.versions) pieces = texts.of(b);
  uint64_t visits = v.whole;
  for (const auto& [count, n] : v.parts) visits += n;
  Addr at = b.ip;
  for (uint32_t i = 0, of_piece = 0; i < b.count; ++i, ++of_piece) {
    if (!pieces.empty() && of_piece == pieces.front().instructions) {
      pieces = pieces.subspan(1);
      of_piece = 0;
    }
    if (const auto ended = v.parts.find(i); ended != v.parts.end()) visits -= ended->second;
    if (visits == 0) return;
    Executed e;
    e.count = visits;
    e.size = b.lengths[i];
    e.begins_block = i == 0;
    e.conditional = i + 1 == b.count && b.kind == BranchKind::kCond;
    if (e.conditional) {
      e.taken = v.taken;
      e.not_taken = v.whole - v.taken;
    }
    e.time = b.from != kTimeMin ? b.from : b.until;
    const uint32_t version = pieces.empty() ? 1 : std::max(pieces.front().version, 1U);
    all_[{b.space, at, b.from, version}].add(e);
    at += b.lengths[i];
  }
}

// Blocks are the decoders' own: now they are still there.
void ExecutedCode::finished(const std::exception_ptr&) {
  BlockTexts texts(capture_);
  for (const Blocks& blocks : blocks_) {
    for (const auto& [block, visits] : blocks) add_block(*block, visits, texts);
  }
  blocks_.clear();
}

}  // namespace asof
