// CodeNames: what is at an address: a function, or at least the file whose code it is. Answers are kept.
#pragma once
#include <tsl/robin_map.h>

#include <string>
#include <string_view>
#include <vector>

#include "decoder/io/addr_key.h"
#include "decoder/model/capture.h"
#include "decoder/model/symbol_epochs.h"

namespace asof {

struct CodeName {
  const Symbol* symbol = nullptr;
  uint64_t offset = 0;
  std::string_view dso = "[unknown]";
};

class CodeNames {
 public:
  explicit CodeNames(const Capture& capture);
  CodeName at(Space space, Addr a, Time t);

 private:
  struct Known {
    CodeName name;
    TimeBounds valid{kTimeMax, kTimeMin};
  };
  static constexpr size_t kMostKnown = size_t{1} << 19U;

  std::string_view file_at(Space space, Addr a, Time t) const;

  const Capture& capture_;
  SymbolEpochs epochs_;
  std::vector<std::string> files_;  // names of CodeFileMap::files as they may be shown
  tsl::robin_map<AddrKey, Known, AddrKeyHash> known_;
};

}  // namespace asof
