// SymbolEpochs: how long a name is valid. A symbol table answers for one instant, and so does a map of files; code that caches an
// answer must know until when it is valid, or the output would depend on the order of queries.
#pragma once
#include <vector>

#include "decoder/model/capture.h"
#include "decoder/model/symbols.h"
#include "textstore/address.h"
#include "textstore/time.h"

namespace asof {

class SymbolEpochs {
 public:
  // Of functions.
  explicit SymbolEpochs(const SymbolTable& symbols);
  // Of functions, of the files whose code it is, and of source lines.
  explicit SymbolEpochs(const Capture& capture);

  // An interval around t, both ends included, in which no symbol that touches `range`, and none of the files there, appears
  // or disappears. Of functions the longest.
  TimeBounds around(Space space, AddrRange range, Time t) const;

 private:
  struct Lifetime {  // of a symbol that is not valid for all time
    Space space;
    AddrRange range;
    Time from, until;
    Addr max_end;  // of this one and all before it in the same space
  };
  void add(Space space, AddrRange range, Time from, Time until);
  void add(const SymbolTable& symbols);
  void add_modules(const Capture& capture);
  void finish();

  std::vector<Lifetime> lifetimes_;  // by space, then begin
};

}  // namespace asof
