// ScriptNames: an address as perf script names it: symbol, file, and the address in the file.
#pragma once
#include <tsl/robin_map.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/io/addr_key.h"
#include "decoder/model/capture.h"
#include "decoder/model/symbol_epochs.h"

namespace asof {

struct ScriptName {
  const Symbol* symbol = nullptr;
  uint64_t offset = 0;
  std::string_view dso = "[unknown]";
};

class ScriptNames {
 public:
  explicit ScriptNames(const Capture& capture);
  ScriptName at(Space space, Addr a, Time t);
  // What perf shows of a caller in user space: the offset in the file that is mapped there. Elsewhere the address.
  Addr caller_address(int32_t pid, Addr a, Time t) const;

 private:
  struct Known {
    ScriptName name;
    TimeBounds valid{kTimeMax, kTimeMin};
  };
  struct Mapping {
    Time from;
    AddrRange range;
    uint64_t offset;
  };
  static constexpr size_t kMostKnown = size_t{1} << 19U;

  // Narrows `valid` down to the time for which the answer holds.
  std::string_view file_at(Space space, Addr a, Time t, TimeBounds& valid) const;

  const Capture& capture_;
  SymbolEpochs epochs_;
  std::vector<std::string> files_;  // names of CodeFileMap::files as they may be shown
  tsl::robin_map<AddrKey, Known, AddrKeyHash> known_;
  std::map<int32_t, std::vector<Mapping>> mappings_;  // by process, in order of time
};

}  // namespace asof
