// SymbolTable: names of addresses, by space and time. Built once, const afterwards.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "textstore/address.h"
#include "textstore/time.h"

namespace asof {

// How names are shown: as the file has them, or as the source has them.
enum class NameStyle : uint8_t { kRaw, kWithParameters, kWithoutParameters };

// A name that is made when it is first asked for, by any thread. Copies make their own.
class LazyName {
 public:
  LazyName() = default;
  LazyName(const LazyName& other) noexcept : style(other.style) {}
  LazyName& operator=(const LazyName& other) noexcept;
  ~LazyName() { delete made_.load(std::memory_order_acquire); }
  const std::string& of(const std::string& name) const;

  NameStyle style = NameStyle::kRaw;

 private:
  mutable std::atomic<const std::string*> made_ = nullptr;
};

struct Symbol {
  Space space = kKernelSpace;
  AddrRange range;  // end == begin: size unknown, runs to the next symbol
  Time from = kTimeMin;
  Time until = kTimeMax;
  std::string name;  // as the file has it
  std::string dso;   // "[kernel.kallsyms]", "[module]", path, "bpf_prog_<tag>_<name>"
  int rank = 0;      // higher wins where ranges overlap (BPF over kallsyms)
  LazyName lazy{};
  uint32_t number = 0;  // in its table once that is finished: from 1, by the place in SymbolTable::all()

  // As it is to be shown: SymbolTable::show().
  const std::string& shown() const { return lazy.of(name); }
};

struct SymbolAt {
  const Symbol* symbol = nullptr;
  uint64_t offset = 0;
};

// By its own name or that of the source, with or without parameters.
bool is_called(const Symbol& symbol, std::string_view wanted);

class SymbolTable {
 public:
  SymbolTable();
  ~SymbolTable();
  SymbolTable(SymbolTable&&) noexcept;
  SymbolTable& operator=(SymbolTable&&) noexcept;

  void add(Symbol symbol);
  // As if `make` called add() now; it is called by the first look-up, in whatever thread, so that who needs no names does
  // not wait for all of a kernel's.
  using Add = std::function<void(Symbol)>;
  void add_later(std::function<void(const Add&)> make);
  // find() is valid from here on, add() no more. The first look-up sorts: not every verb has one.
  void finish();
  // Of Symbol::shown(). Before any other thread uses the table.
  void show(NameStyle style);
  NameStyle style() const;

  // The symbol that covers `a` at instant t.
  std::optional<SymbolAt> find(Space space, Addr a, Time t) const;
  // All symbols with this exact name.
  std::vector<const Symbol*> named(std::string_view name) const;
  // Those, or else all that this is the source name of, with or without parameters.
  std::vector<const Symbol*> called(std::string_view name) const;
  std::vector<const Symbol*> all() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace asof
