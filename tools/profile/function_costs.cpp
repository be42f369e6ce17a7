#include "tools/profile/function_costs.h"

#include <algorithm>

#include "arch/chunk_items.h"
#include "tools/output/output.h"

namespace asof {

FunctionCosts::FunctionCosts(const Capture& capture, TimeBounds time)
    : capture_(capture), epochs_(capture.symbols), time_(time), flows_(capture.streams.size()) {}

const Symbol* FunctionCosts::name(const Block& b, Time t) {
  Named& n = names_[&b];
  if (t >= n.valid.lo && t <= n.valid.hi) return n.symbol;
  const Space space = is_kernel_address(b.ip) ? kKernelSpace : b.space;
  n.valid = epochs_.around(space, {b.ip, b.ip + 1}, t);
  const auto found = capture_.symbols.find(space, b.ip, t);
  n.symbol = found ? found->symbol : nullptr;
  return n.symbol;
}

void FunctionCosts::advance(Flow& flow, Time t) {
  if (t == kTimeMin || t <= flow.time) return;
  const Time from = std::max(flow.time, time_.lo), to = std::min(t, time_.hi);
  if (flow.running && flow.time != kTimeMin && to > from)
    costs_[flow.in].ns += static_cast<uint64_t>(elapsed(from, to));
  flow.time = t;
}

void FunctionCosts::step(Flow& flow, const Step& s) {
  advance(flow, s.time);
  flow.running = true;
  flow.in = name(*s.block, s.time);
  if (s.time != kTimeMin && (s.time < time_.lo || s.time > time_.hi)) return;
  Cost& cost = costs_[flow.in];
  cost.instructions += s.count;
  cost.calls += flow.in != nullptr && s.block->ip == flow.in->range.begin;
}

void FunctionCosts::deliver(Chunk& chunk, const Stream&, Prepared*) {
  Flow& flow = flows_[chunk.stream];
  ChunkItems items(chunk);
  const auto stop = [&](Time t) {
    advance(flow, t);
    flow.running = false;
  };
  const auto items_before = [&](size_t index) {
    items.before(
        index, [&](const Gap& g) { stop(g.time.lo); },
        [&](const Event& e) {
          if (e.kind == EventKind::kTraceStop || e.kind == EventKind::kTraceStart) stop(e.time);
        });
  };
  for (auto s = chunk.steps.begin(); s != chunk.steps.end(); ++s) {
    items_before(s.position());
    step(flow, *s);
  }
  items_before(SIZE_MAX);
}

bool FunctionCosts::stopped() const { return interrupted(); }

std::map<FunctionCosts::Name, Cost> FunctionCosts::costs() const {
  std::map<Name, Cost> out;
  for (const auto& [symbol, cost] : costs_) {
    if (symbol == nullptr) {
      out[{}] += cost;
    } else {
      out[{symbol->shown(), symbol->dso}] += cost;
    }
  }
  return out;
}

}  // namespace asof
