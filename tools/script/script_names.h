// ScriptNames: an address as perf script names it: symbol, file, and the address in the file.
#pragma once
#include <map>
#include <vector>

#include "tools/output/code_names.h"

namespace asof {

using ScriptName = CodeName;

class ScriptNames : public CodeNames {
 public:
  explicit ScriptNames(const Capture& capture);
  // What perf shows of a caller in user space: the offset in the file that is mapped there. Elsewhere the address.
  Addr caller_address(int32_t pid, Addr a, Time t) const;

 private:
  struct Mapping {
    Time from;
    AddrRange range;
    uint64_t offset;
  };
  std::map<int32_t, std::vector<Mapping>> mappings_;  // by process, in order of time
};

}  // namespace asof
