#include "tools/timeline/html_cycles.h"

#include <algorithm>

namespace asof {
namespace {

constexpr size_t kMostCalls = 20'000;

}  // namespace

HtmlCycles::HtmlCycles(const CycleCosts* costs) : costs_(costs) {
  if (costs == nullptr) return;
  for (const FunctionCycles& f : costs->functions()) functions_[{f.name, f.dso}] = f.cost;
  for (const BlockCycles& b : costs->blocks()) blocks_[{b.space, b.address, b.origin}] = b.cost;
}

void HtmlCycles::put(HtmlJson& json, const CycleCost& c) {
  json.key("cycles").open('[').number(c.cycles_least).number(c.cycles_most);
  json.number(c.instructions_least).number(c.instructions_most).close(']');
}

void HtmlCycles::put_function(HtmlJson& json, const std::string& name, const std::string& dso) const {
  if (const auto found = functions_.find({name, dso}); found != functions_.end()) put(json, found->second);
}

void HtmlCycles::put_block(HtmlJson& json, Space space, Addr at, OriginRef origin) const {
  if (const auto found = blocks_.find({space, at, origin}); found != blocks_.end()) put(json, found->second);
}

void HtmlCycles::put_calls(HtmlJson& json) const {
  if (costs_ == nullptr || !costs_->any()) return;
  json.key("cycles").open('{');
  json.pair_number("counted", costs_->cycles()).pair_number("uncertain", costs_->uncertain());
  json.key("calls").open('[');
  const auto calls = costs_->calls();
  for (size_t i = 0; i < std::min(calls.size(), kMostCalls); ++i) {
    const CallCycles& c = calls[i];
    json.open('[').text(c.caller).text(c.callee).number(c.calls).number(c.least).number(c.most).close(']');
  }
  json.close(']').close('}');
}

}  // namespace asof
