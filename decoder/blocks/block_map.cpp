// The map of code, read from code records.
#include <algorithm>

#include "decoder/blocks/block_file.h"

namespace asof::blocks {
namespace {

void set_hash(Block& b) {
  Addr ip = b.ip;
  for (uint32_t i = 0; i < b.count; ++i) {
    b.hash = b.hash * kHashFactor + ip;
    b.power *= kHashFactor;
    ip += b.lengths[i];
  }
}

// A block that ends in one of these continues where the map says; after any other branch a walk mostly has to
// record the block.
bool goes_on(BranchKind kind) {
  return kind == BranchKind::kNone || kind == BranchKind::kJump || kind == BranchKind::kCall;
}

}  // namespace

bool BlockMap::add_versions(Source& in, const Block& block) {
  std::vector<TextPiece> text;
  for (uint64_t read = 0; read < block.count;) {
    const uint64_t n = in.varint();
    const auto version = static_cast<uint32_t>(in.varint());
    const auto origin = static_cast<OriginRef>(in.varint());
    if (!in.ok() || n == 0 || n > block.count - read) return false;
    text.push_back({static_cast<uint32_t>(n), version, origin});
    read += n;
  }
  versions_[&block] = std::move(text);
  return true;
}

bool BlockMap::add_block(Source& in, uint32_t id, Addr& last_end) {
  Piece& piece = *pieces_.back();
  Block b;
  const uint8_t kind = in.u8(), flags = in.u8();
  if (kind > static_cast<uint8_t>(BranchKind::kPaging) || flags > kBlockFlags) return false;
  b.kind = static_cast<BranchKind>(kind);
  b.mode = static_cast<uint8_t>((flags & kModeBits) << 4);
  b.ip = in.difference(last_end);
  b.space = static_cast<Space>(in.varint());
  b.origin = static_cast<OriginRef>(in.varint());
  if ((flags & kHasTarget) != 0) b.target = in.difference(b.ip);
  if ((flags & kHasTimes) != 0) {
    b.from = in.signed_varint();
    b.until = in.signed_varint();
  }
  const uint64_t count = in.count(2);  // a length and a byte at least
  if (!in.ok() || count == 0 || count > UINT16_MAX) return false;
  b.count = static_cast<uint16_t>(count);
  const auto lengths = in.take(count);
  for (const uint8_t n : lengths) b.size += n;
  const auto bytes = in.take(b.size);
  if (!in.ok() || std::ranges::find(lengths, uint8_t{0}) != lengths.end() || b.ip > UINT64_MAX - b.size)
    return false;
  b.lengths = lengths.data();
  b.bytes = bytes.data();
  set_hash(b);
  last_end = b.end();
  piece.blocks.push_back(b);
  nodes_[id].block = &piece.blocks.back();
  return (flags & kHasVersions) == 0 || add_versions(in, piece.blocks.back());
}

bool BlockMap::add(std::span<const uint8_t> body) {
  pieces_.push_back(std::make_unique<Piece>());
  Piece& piece = *pieces_.back();
  piece.bytes.assign(body.begin(), body.end());
  Source in(piece.bytes);
  const uint64_t first = in.varint(), count = in.count(8);
  // Numbers increase from record to record; a lost record leaves a hole no larger than the file could fill.
  if (!in.ok() || first < nodes_.size() || first > max_blocks_ || count > max_blocks_ - first) return false;
  nodes_.resize(first + count);
  piece.blocks.reserve(count);
  Addr last_end = 0;
  for (uint64_t i = 0; i < count; ++i) {
    if (!add_block(in, static_cast<uint32_t>(first + i), last_end)) return false;
  }
  uint64_t from = 0;
  for (uint64_t i = 0, exits = in.count(3); i < exits; ++i) {
    from = in.difference(from);
    const uint8_t slot = in.u8();
    const uint64_t to = in.difference(from);
    if (!in.ok() || from >= nodes_.size() || to >= nodes_.size() || slot >= kExitSlots) return false;
    nodes_[from].exits[slot] = static_cast<uint32_t>(to);
  }
  return in.ok() && in.left() == 0;
}

// First the numbers of all chains, then where they lead.
void BlockMap::finish() {
  for (uint32_t id = 1; id < nodes_.size(); ++id) {
    if (nodes_[id].block != nullptr) make_chain(id);
  }
  for (uint32_t run = index_of(RunTable::kFirst); run < chains_.size(); ++run) {
    Chain& chain = chains_[run];
    // So far these are numbers of blocks.
    for (uint32_t& next : chain.next) next = link_to(next);
    const Block& last = *runs_.blocks(RunId{run})[chain.steps - 1];
    if (last.kind == BranchKind::kRet) chain.next[0] = kByCall;
    if (chain.push != 0) chain.push = push_of(nodes_[chain.push]);
  }
}

void BlockMap::make_chain(uint32_t id) {
  const Block* blocks[kMaxChain];
  Chain chain;
  Run run;
  for (uint32_t at = id;;) {
    const Node& node = nodes_[at];
    const Block& b = *node.block;
    blocks[chain.steps++] = &b;
    run.hash = run.hash * b.power + b.hash;
    run.instructions += b.count;
    run.branches += is_branch(b.kind);
    chain.decides = b.kind == BranchKind::kCond;
    if (is_call(b.kind)) chain.push = at;
    for (uint32_t bit = 0; bit < 2; ++bit) chain.next[bit] = node.exits[exit_slot(b.kind, bit != 0)];
    at = chain.next[1];
    if (!goes_on(b.kind) || chain.steps == kMaxChain || at == 0 || nodes_[at].block == nullptr) break;
    const Block& then = *nodes_[at].block;
    if ((is_call(then.kind) && chain.push != 0) || run.instructions + then.count > UINT16_MAX) break;
  }
  chain.instructions = static_cast<uint16_t>(run.instructions);
  run.size = chain.steps;
  if (pointers_left_ < chain.steps) {
    pointers_.push_back(std::make_unique_for_overwrite<const Block*[]>(kPointers));
    pointers_left_ = kPointers;
  }
  const Block** const kept = pointers_.back().get() + kPointers - pointers_left_;
  std::copy_n(blocks, chain.steps, kept);
  pointers_left_ -= chain.steps;
  nodes_[id].chain = writer_.add(run, kept);
  if (nodes_[id].chain == RunId::kNone) return;  // no room
  chains_.resize(index_of(nodes_[id].chain) + 1);
  node_of_.resize(index_of(nodes_[id].chain) + 1);
  chains_.back() = chain;
  node_of_.back() = id;
}

std::span<const TextPiece> BlockMap::text_of(const Block& block) const {
  const auto found = versions_.find(&block);
  return found == versions_.end() ? std::span<const TextPiece>() : std::span(found->second);
}

}  // namespace asof::blocks
