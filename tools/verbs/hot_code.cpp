#include "tools/verbs/hot_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace asof {

template <class Each>
void BlockCounter::parts_of(const Chunk& chunk, const Block& b, uint32_t count, Each&& each) const {
  HotBlock hot{{chunk.stream, chunk.segment},
               std::clamp(chunk.steps.time_at(0), b.from, std::max(b.from, b.until)),
               by_instruction_ ? uint64_t{1} : count};
  if (!by_instruction_) return each(BlockKey{b.ip, b.space, b.from}, hot);
  Addr at = b.ip;
  for (uint32_t i = 0; i < count; at += b.lengths[i++]) each(BlockKey{at, b.space, b.from}, hot);
}

void BlockCounter::add(const Chunk& chunk) {
  const StepList& steps = chunk.steps;
  if (steps.table() != nullptr && steps.table() != table_) {
    settle();
    table_ = steps.table();
  }
  for (const StepCode code : steps.codes()) {
    if (code == StepCode::kLoose) continue;
    const uint32_t run = index_of(run_of(code));
    if (run >= visits_.size()) visits_.resize(std::max<size_t>(run + 1, 2 * visits_.size()));
    if (visits_[run]++ == 0) meet(chunk, code);
  }
  for (const Step& step : steps.loose())
    parts_of(chunk, *step.block, step.count,
             [&](const BlockKey& key, const HotBlock& hot) { blocks_[key].add(hot); });
}

void BlockCounter::meet(const Chunk& chunk, StepCode code) {
  const Block* const* const blocks = chunk.steps.run_blocks(code);
  for (uint32_t i = 0; i < chunk.steps.run(code).size; ++i)
    parts_of(chunk, *blocks[i], blocks[i]->count, [&](const BlockKey& key, const HotBlock& hot) {
      parts_.push_back({run_of(code), key, hot});
    });
}

void BlockCounter::settle() {
  for (Part& p : parts_) {
    p.once.instructions *= visits_[index_of(p.run)];
    blocks_[p.key].add(p.once);
  }
  parts_.clear();
  visits_.assign(visits_.size(), 0);
}

void BlockCounter::add_to(HotBlocks& all) {
  settle();
  for (const auto& [block, hot] : blocks_) all[block].add(hot);
}

namespace {

// Code that no symbol names: of the kernel, or of a file.
std::string unnamed(const BlockKey& block, Time t, HotBy by, SharedSourceLines& lines) {
  const std::string what = by == HotBy::kLine ? "no line and no symbol" : "no symbol";
  std::string file = lines.file_at(block.space, block.ip, t);
  if (!file.empty() && by == HotBy::kFile) return file;
  if (file.empty() && is_kernel_address(block.ip)) file = "[kernel]";
  return file.empty() ? what : fmt::format("{} ({})", what, file);
}

std::string name_by(const Capture& capture, const BlockKey& block, Time t, HotBy by, bool inlined,
                    SharedSourceLines& lines) {
  if (by == HotBy::kLine) {
    std::string line = full_source_text(lines.at(block.space, block.ip, t));
    if (!line.empty()) return line;
  }
  const auto at = capture.symbols.find(block.space, block.ip, t);
  if (!at) return unnamed(block, t, by, lines);
  if (by == HotBy::kFile) return at->symbol->dso;
  if (by == HotBy::kLine) return fmt::format("no line: {} ({})", at->symbol->shown(), at->symbol->dso);
  if (inlined) {
    const auto frames = lines.frames_at(block.space, block.ip, t);
    if (frames.size() > 1 && !frames[0].function.empty())
      return fmt::format("{}, inlined in {} ({})", frames[0].function, at->symbol->shown(), at->symbol->dso);
  }
  return fmt::format("{} ({})", at->symbol->shown(), at->symbol->dso);
}

}  // namespace

std::vector<std::pair<std::string, uint64_t>> hottest_by(const HotBlocks& blocks, const Capture& capture,
                                                         HotBy by, bool inlined, SharedSourceLines& lines) {
  std::map<std::string, uint64_t> by_name;
  for (const auto& [block, hot] : blocks)
    by_name[name_by(capture, block, hot.time, by, inlined, lines)] += hot.instructions;
  std::vector<std::pair<std::string, uint64_t>> out(by_name.begin(), by_name.end());
  std::ranges::sort(out, [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return out;
}

}  // namespace asof
