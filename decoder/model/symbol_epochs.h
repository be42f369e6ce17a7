// SymbolEpochs: how long a name is valid. A symbol table answers for one instant; code that caches an answer
// must know until when it is valid, or the output would depend on the order of queries.
#pragma once
#include <vector>

#include "decoder/model/symbols.h"
#include "textstore/address.h"
#include "textstore/time.h"

namespace asof {

class SymbolEpochs {
 public:
  explicit SymbolEpochs(const SymbolTable& symbols);

  // The longest interval around t, both ends included, in which no symbol that touches `range` appears or
  // disappears.
  TimeBounds around(Space space, AddrRange range, Time t) const;

 private:
  struct Lifetime {  // of a symbol that is not valid for all time
    Space space;
    AddrRange range;
    Time from, until;
    Addr max_end;  // of this one and all before it in the same space
  };
  std::vector<Lifetime> lifetimes_;  // by space, then begin
};

}  // namespace asof
