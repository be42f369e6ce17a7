#include "decoder/calls/cycle_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

namespace asof {
namespace {

constexpr size_t kMostFrames = 16384;  // of recursion without end the outermost go
constexpr size_t kMostSkipped = 64;    // frames that a return may leave at once

// Two numbers above 2^63 cannot be cycles.
uint64_t weight(const CycleCost& c) { return c.cycles_least / 2 + c.cycles_most / 2; }

}  // namespace

void SpanCosts::add(std::vector<Ran>& to, Ran ran) {
  if (!to.empty() && to.back().key == ran.key) {
    to.back().instructions += ran.instructions;
  } else {
    to.push_back(ran);
  }
}

void SpanCosts::begin() {
  doubtful_.clear();
  certain_.clear();
  waits_ = shared_ = false;
  first_ = true;
}

void SpanCosts::step(uint32_t key, uint32_t instructions, bool doubtful) {
  if (key >= costs_.size()) costs_.resize(std::max<size_t>(size_t{key} + 1, 2 * costs_.size()));
  add(doubtful ? doubtful_ : certain_, {key, instructions});
}

// The span that waits is over with what is doubtful now. Where that is not known, something else may have run in it.
void SpanCosts::close(bool known) {
  keys_.clear();
  for (const auto* part : {&span_, &doubtful_}) {
    for (const Ran& r : *part) keys_.push_back(r.key);
  }
  std::ranges::sort(keys_);
  keys_.erase(std::ranges::unique(keys_).begin(), keys_.end());
  for (const uint32_t key : keys_) costs_[key].cycles_most += cycles_;
  if (known && keys_.size() == 1) costs_[keys_[0]].cycles_least += cycles_;
  waits_ = false;
  shared_ = true;
}

void SpanCosts::count(uint64_t cycles) {
  if (waits_) close(true);
  for (const Ran& r : doubtful_) {
    costs_[r.key].instructions_most += r.instructions;
    if (!first_) costs_[r.key].instructions_least += r.instructions;
  }
  for (const Ran& r : certain_) {
    costs_[r.key].instructions_most += r.instructions;
    costs_[r.key].instructions_least += r.instructions;
  }
  span_.swap(doubtful_);
  span_.insert(span_.end(), certain_.begin(), certain_.end());
  doubtful_.clear();
  certain_.clear();
  cycles_ = cycles;
  waits_ = true;
  first_ = shared_ = false;
}

void SpanCosts::settled(bool known) {
  if (waits_) close(known);
}

// What is doubtful may have run in the last span; what is certain ran behind it.
void SpanCosts::end() {
  if (waits_) close(false);
  if (shared_) {
    for (const Ran& r : doubtful_) costs_[r.key].instructions_most += r.instructions;
  }
  begin();
}

struct CycleCosts::Tables {
  explicit Tables(const Capture& c) : capture(c), epochs(c.symbols) {}
  struct BlockInfo {
    uint32_t id = 0;
    uint32_t function = 0;
    TimeBounds named{kTimeMax, kTimeMin};  // times for which `function` is the answer
  };
  using BlockKey = std::tuple<Space, Addr, Time, uint32_t>;

  const BlockInfo& info(const Block& b, Time t) {
    BlockInfo& known = by_block[&b];
    if (known.named.lo > known.named.hi) {
      const auto [it, fresh] =
          block_ids.try_emplace({b.space, b.ip, b.from, b.size}, static_cast<uint32_t>(blocks.size()));
      if (fresh) blocks.push_back({b.ip, b.space, b.size, b.count, b.origin, symbol_text(b, t), {}});
      known.id = it->second;
    }
    if (t < known.named.lo || t > known.named.hi) {
      known.named = epochs.around(is_kernel_address(b.ip) ? kKernelSpace : b.space, {b.ip, b.ip + 1}, t);
      known.function = function_at(b, t);
    }
    return known;
  }
  std::string symbol_text(const Block& b, Time t) const {
    const auto at = capture.symbols.find(is_kernel_address(b.ip) ? kKernelSpace : b.space, b.ip, t);
    if (!at) return {};
    return at->offset == 0 ? at->symbol->shown() : fmt::format("{}+{:#x}", at->symbol->shown(), at->offset);
  }
  uint32_t function_at(const Block& b, Time t) {
    const auto at = capture.symbols.find(is_kernel_address(b.ip) ? kKernelSpace : b.space, b.ip, t);
    const Symbol* symbol = at ? at->symbol : nullptr;
    const auto [it, fresh] = function_ids.try_emplace(symbol, static_cast<uint32_t>(functions.size()));
    if (fresh) functions.push_back(symbol);
    return it->second;
  }
  std::string function_name(uint32_t id) const {
    return functions[id] == nullptr ? "[unknown]" : functions[id]->shown();
  }

  const Capture& capture;
  SymbolEpochs epochs;
  tsl::robin_map<const Block*, BlockInfo> by_block;
  std::map<BlockKey, uint32_t> block_ids;
  std::vector<BlockCycles> blocks;  // by id, without costs
  std::map<const Symbol*, uint32_t> function_ids;
  std::vector<const Symbol*> functions;  // by id; nullptr: no symbol
  std::map<std::pair<uint32_t, uint32_t>, CallCycles> calls;
  std::map<size_t, SpanCosts> function_costs, block_costs;  // by stream
  uint64_t cycles = 0, uncertain = 0;
  bool any = false;
};

class CycleCosts::StreamWalk final : public CycleWalk {
 public:
  StreamWalk(Tables& tables, SpanCosts& functions, SpanCosts& blocks)
      : t_(tables), functions_(functions), blocks_(blocks) {}

 private:
  struct Frame {
    Addr back;
    uint32_t caller, callee;
    uint64_t lowest, highest;  // cycles when it was called
    bool has_lowest;
  };
  struct Returned {
    uint32_t caller, callee;
    uint64_t least_from, most_from;  // the call retired at the latest, and at the earliest, then
    uint64_t lowest;                 // of the return's
  };

  void begin() override {
    t_.any = true;
    functions_.begin();
    blocks_.begin();
    frames_.clear();
    returned_.clear();
    last_.reset();
    now_ = before_ = 0;
    has_before_ = false;
    timed_ = 0;
    sure_ = true;
  }
  void step(const Step& s, bool doubtful) override {
    sure_ = sure_ && s.confidence <= Confidence::kEquivalent;
    const auto info = t_.info(*s.block, s.time);
    functions_.step(info.function, s.count, doubtful);
    blocks_.step(info.id, s.count, doubtful);
    arrive(s, info.function);
    last_ = s;
    function_ = info.function;
    knows_ = !doubtful || has_before_;
    lowest_ = !knows_ ? 0 : doubtful ? before_ : now_;
  }
  // What the step before was, and where it led.
  void arrive(const Step& s, uint32_t function) {
    if (!last_ || last_->count != last_->block->count) return;
    const BranchKind kind = last_->block->kind;
    if ((kind == BranchKind::kCall || kind == BranchKind::kCallInd) && s.block->ip != last_->block->end()) {
      if (frames_.size() == kMostFrames) drop_frames();
      frames_.push_back({last_->block->end(), function_, function, lowest_, 0, knows_});
    } else if (kind == BranchKind::kRet) {
      leave(s.block->ip, lowest_);
    }
  }
  void drop_frames() {
    frames_.erase(frames_.begin(), frames_.begin() + kMostFrames / 2);
    timed_ -= std::min(timed_, kMostFrames / 2);
  }
  void leave(Addr to, uint64_t lowest) {
    for (size_t i = frames_.size(), left = kMostSkipped; i > 0 && left > 0; --i, --left) {
      const Frame& f = frames_[i - 1];
      if (f.back != to) continue;
      // One that was called since the last count ends at the next one at the latest, as far as is known.
      const uint64_t highest = i - 1 < timed_ ? f.highest : UINT64_MAX;
      if (f.has_lowest) returned_.push_back({f.caller, f.callee, highest, f.lowest, lowest});
      frames_.resize(i - 1);
      timed_ = std::min(timed_, frames_.size());
      return;
    }
    frames_.clear();
    timed_ = 0;
  }
  void count(uint64_t cycles, size_t) override {
    before_ = now_;
    has_before_ = true;
    now_ += cycles;
    if (sure_) {
      t_.cycles += cycles;
      functions_.count(cycles);
      blocks_.count(cycles);
    } else {
      // The flow of this span may be another one: it ends the stretch, and begins the next one.
      t_.uncertain += cycles;
      for (SpanCosts* costs : {&functions_, &blocks_}) costs->end();
      last_.reset();
      frames_.clear();
      returned_.clear();
      timed_ = 0;
      has_before_ = false;
    }
    sure_ = true;
    for (; timed_ < frames_.size(); ++timed_) frames_[timed_].highest = now_;
    for (const Returned& r : returned_) {
      CallCycles& call = t_.calls[{r.caller, r.callee}];
      ++call.calls;
      call.most += now_ - r.most_from;
      if (r.least_from != UINT64_MAX && r.lowest > r.least_from) call.least += r.lowest - r.least_from;
    }
    returned_.clear();
  }
  void settled() override {
    functions_.settled(sure_);
    blocks_.settled(sure_);
  }
  void end() override {
    functions_.end();
    blocks_.end();
    frames_.clear();
    returned_.clear();
  }

  Tables& t_;
  SpanCosts &functions_, &blocks_;
  std::vector<Frame> frames_;
  std::vector<Returned> returned_;  // since the last count
  size_t timed_ = 0;                // frames whose `highest` is known
  std::optional<Step> last_;
  uint32_t function_ = 0;
  bool has_before_ = false;
  bool knows_ = false;  // the cycles of the last step are not below lowest_
  uint64_t lowest_ = 0;
  bool sure_ = true;               // of the flow since the last count
  uint64_t now_ = 0, before_ = 0;  // cycles at the last count and at the one before it
};

CycleCosts::CycleCosts(const Capture& capture) : tables_(std::make_unique<Tables>(capture)) {}
CycleCosts::~CycleCosts() = default;

void CycleCosts::take(const Chunk& chunk) {
  auto at = streams_.find(chunk.stream);
  if (at == streams_.end()) {
    Tables& t = *tables_;
    at = streams_.try_emplace(chunk.stream, t, t.function_costs[chunk.stream], t.block_costs[chunk.stream])
             .first;
  }
  at->second.take(chunk);
}

void CycleCosts::finish() {
  for (auto& [stream, walk] : streams_) walk.finish();
}

bool CycleCosts::any() const { return tables_->any; }
uint64_t CycleCosts::cycles() const { return tables_->cycles; }
uint64_t CycleCosts::uncertain() const { return tables_->uncertain; }

namespace {

std::vector<CycleCost> sum_of(const std::map<size_t, SpanCosts>& by_stream, size_t keys) {
  std::vector<CycleCost> all(keys);
  for (const auto& [stream, costs] : by_stream) {
    for (size_t k = 0; k < std::min(keys, costs.costs().size()); ++k) {
      const CycleCost& c = costs.costs()[k];
      all[k].instructions_least += c.instructions_least;
      all[k].instructions_most += c.instructions_most;
      all[k].cycles_least += c.cycles_least;
      all[k].cycles_most += c.cycles_most;
    }
  }
  return all;
}

}  // namespace

// Symbols of one name and file, as of a program that ran several times, are one function.
std::vector<FunctionCycles> CycleCosts::functions() const {
  const Tables& t = *tables_;
  const auto costs = sum_of(t.function_costs, t.functions.size());
  std::map<std::pair<std::string, std::string>, CycleCost> by_name;
  for (size_t i = 0; i < costs.size(); ++i) {
    if (costs[i].instructions_most == 0) continue;
    CycleCost& c = by_name[{t.function_name(static_cast<uint32_t>(i)),
                            t.functions[i] == nullptr ? std::string() : t.functions[i]->dso}];
    c.instructions_least += costs[i].instructions_least;
    c.instructions_most += costs[i].instructions_most;
    c.cycles_least += costs[i].cycles_least;
    c.cycles_most += costs[i].cycles_most;
  }
  std::vector<FunctionCycles> out;
  out.reserve(by_name.size());
  for (const auto& [name, cost] : by_name) out.push_back({name.first, name.second, cost});
  std::ranges::stable_sort(out, std::greater<>(), [](const FunctionCycles& f) { return weight(f.cost); });
  return out;
}

std::vector<BlockCycles> CycleCosts::blocks() const {
  const Tables& t = *tables_;
  const auto costs = sum_of(t.block_costs, t.blocks.size());
  std::vector<BlockCycles> out;
  for (const auto& [key, id] : t.block_ids) {
    if (costs[id].instructions_most == 0) continue;
    out.push_back(t.blocks[id]);
    out.back().cost = costs[id];
  }
  std::ranges::stable_sort(out, std::greater<>(), [](const BlockCycles& b) { return weight(b.cost); });
  return out;
}

std::vector<CallCycles> CycleCosts::calls() const {
  const Tables& t = *tables_;
  std::map<std::pair<std::string, std::string>, CallCycles> by_name;
  for (const auto& [ends, call] : t.calls) {
    CallCycles& c = by_name[{t.function_name(ends.first), t.function_name(ends.second)}];
    c.calls += call.calls;
    c.least += call.least;
    c.most += call.most;
  }
  std::vector<CallCycles> out;
  for (auto& [ends, call] : by_name) {
    call.caller = ends.first;
    call.callee = ends.second;
    out.push_back(std::move(call));
  }
  std::ranges::stable_sort(out, std::greater<>(),
                           [](const CallCycles& c) { return c.least / 2 + c.most / 2; });
  return out;
}

namespace {

class CycleConsumer final : public ChunkConsumer {
 public:
  explicit CycleConsumer(CycleCosts& costs) : costs_(costs) {}
  void deliver(Chunk& chunk, const Stream&, Prepared*) override { costs_.take(chunk); }

 private:
  CycleCosts& costs_;
};

}  // namespace

Result<void> count_cycles(const Capture& capture, PipelineOptions options, CycleCosts& costs) {
  options.decode.cycles = true;
  CycleConsumer consumer(costs);
  auto done = run_pipeline(capture, options, ChunkOrder::kByStream, consumer);
  costs.finish();
  return done;
}

}  // namespace asof
