// Core cycles in the HTML view: of functions themselves, of blocks, and of calls from one function to another.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "decoder/calls/cycle_costs.h"
#include "tools/timeline/html_json.h"

namespace asof {

class HtmlCycles {
 public:
  // `costs`: nullptr: none were asked for.
  explicit HtmlCycles(const CycleCosts* costs);

  // "cycles": [cycles, at least and at most, instructions likewise] of a function, or of a run that begins here.
  void put_function(HtmlJson& json, const std::string& name, const std::string& dso) const;
  void put_block(HtmlJson& json, Space space, Addr at, OriginRef origin) const;
  // "cycles": what is counted and left out, and calls as [caller, callee, calls, cycles at least, at most].
  void put_calls(HtmlJson& json) const;

 private:
  static void put(HtmlJson& json, const CycleCost& c);

  const CycleCosts* costs_;
  std::map<std::pair<std::string, std::string>, CycleCost> functions_;
  std::map<std::tuple<Space, Addr, OriginRef>, CycleCost> blocks_;
};

}  // namespace asof
