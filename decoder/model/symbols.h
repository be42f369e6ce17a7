// SymbolTable: names of addresses, by space and time. Built once, const afterwards.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "textstore/address.h"
#include "textstore/time.h"

namespace asof {

struct Symbol {
  Space space = kKernelSpace;
  AddrRange range;  // end == begin: size unknown, runs to the next symbol
  Time from = kTimeMin;
  Time until = kTimeMax;
  std::string name;
  std::string dso;  // "[kernel.kallsyms]", "[module]", path, "bpf_prog_<tag>_<name>"
  int rank = 0;     // higher wins where ranges overlap (BPF over kallsyms)
};

struct SymbolAt {
  const Symbol* symbol = nullptr;
  uint64_t offset = 0;
};

class SymbolTable {
 public:
  SymbolTable();
  ~SymbolTable();
  SymbolTable(SymbolTable&&) noexcept;
  SymbolTable& operator=(SymbolTable&&) noexcept;

  void add(Symbol symbol);
  void
  finish();  // find() is valid from here on, add() no more. The first look-up sorts: not every verb has one

  // The symbol that covers `a` at instant t.
  std::optional<SymbolAt> find(Space space, Addr a, Time t) const;
  // All symbols with this exact name.
  std::vector<const Symbol*> named(std::string_view name) const;
  std::vector<const Symbol*> all() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace asof
