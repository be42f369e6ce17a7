// FunctionTable: functions as slices name them, numbered in the order they are met. The parts that the kernel
// or a compiler makes of one function (foo and foo.cold) are one function.
#pragma once
#include <tsl/robin_map.h>
#include <tsl/robin_set.h>

#include <functional>
#include <vector>

#include "decoder/calls/timeline.h"
#include "decoder/io/addr_key.h"

namespace asof {

struct Landing;

class FunctionTable {
 public:
  using Announce = std::function<void(const TimelineFunction&)>;
  FunctionTable(const Capture& capture, Announce announce);

  // Where the flow went; makes the function if it is new.
  Landing landing(const Symbol* symbol, Space space, Addr at, OriginRef origin);
  // The function of this symbol or, without one, of this address; makes it if it is new.
  uint32_t id(const Symbol* symbol, Space space, Addr at) {
    return symbol != nullptr ? named(symbol).id : unnamed(space, at);
  }
  const TimelineFunction& operator[](uint32_t id) const { return functions_[id]; }
  const Symbol* symbol(uint32_t id) const { return symbols_[id]; }  // nullptr: it has none
  uint32_t untraced() const { return 0; }

  bool kernel(uint32_t id) const { return traits_[id].kernel; }
  // Jumps to what its caller wanted to call: retpolines (arch/x86/lib/retpoline.S).
  bool jump_thunk(uint32_t id) const { return traits_[id].jump_thunk; }
  // Is jumped to instead of a RET, and returns for its caller.
  bool return_thunk(uint32_t id) const { return traits_[id].return_thunk; }
  bool slot(uint32_t id) const { return traits_[id].slot; }
  // Leaves it on another thread's stack (arch/x86/entry/entry_64.S, arch/arm64/kernel/entry.S).
  bool switcher(const Symbol* symbol) const { return symbol != nullptr && symbol == switcher_; }
  bool has_switcher() const { return switcher_ != nullptr; }
  uint32_t version(uint32_t id, Time t) const { return traits_[id].changes ? version_at(id, t) : 1; }

 private:
  uint32_t version_at(uint32_t id, Time t) const;

  struct Traits {
    bool kernel = false, jump_thunk = false, return_thunk = false, slot = false;
    bool changes = false;  // there is more than one version of its text
  };
  struct Named {
    uint32_t id;
    bool part;  // not where the function begins
    bool pad;   // begins with a landing pad
  };
  Named named(const Symbol* symbol);
  uint32_t unnamed(Space space, Addr at);
  uint64_t unnamed_key(const AddrKey& at);
  uint32_t add(TimelineFunction f, const Symbol* symbol);
  void fill_bpf(TimelineFunction& f, const Symbol* symbol) const;

  const Capture& capture_;
  Announce announce_;
  std::vector<TimelineFunction> functions_;
  std::vector<Traits> traits_;
  std::vector<const Symbol*> symbols_;
  tsl::robin_map<const Symbol*, Named> by_symbol_;
  tsl::robin_map<AddrKey, uint32_t, AddrKeyHash> by_address_;
  tsl::robin_set<uint64_t> unnamed_keys_;
  const Symbol* switcher_ = nullptr;
};

}  // namespace asof
