// MappedText: is an address in a file that a record says is mapped? AutoFDO's reader takes a sample only if all of its
// addresses are: code that KSYMBOL records announce (BPF, trampolines) is in none.
#pragma once
#include <vector>

#include "tools/script/script_names.h"

namespace asof {

class MappedText {
 public:
  explicit MappedText(const Capture& capture);
  bool has(Space space, Addr a, Time t);

 private:
  ScriptNames names_;
  std::vector<AddrRange> kernel_;  // vmlinux and modules, in order
};

}  // namespace asof
