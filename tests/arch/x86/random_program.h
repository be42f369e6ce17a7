// A random program for the simulated machine: functions that call each other, loops, indirect branches,
// static branches, system calls.
#pragma once
#include <fmt/format.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/arch/x86/scene.h"
#include "tests/support/machine.h"

namespace asof::x86::test {

using asof::test::Machine;
using asof::test::SimCpu;
using asof::test::SimRandom;

inline constexpr Addr kText = 0xffffffff81000000;
inline constexpr Addr kUser = 0x401000;
inline constexpr int kFunctions = 8;
inline constexpr Cond kConds[] = {Cond::kEqual, Cond::kNotEqual, Cond::kLess, Cond::kSign, Cond::kBelow};

// A program of functions that call each other downwards: loops, branches, indirect calls and jumps, static
// branches, system calls. Function 0 runs for ever.
class Program {
 public:
  Program(uint64_t seed, bool user, bool calls_programs = false)
      : random_(seed), a_(user ? kUser : kText), user_(user), calls_programs_(calls_programs) {
    if (!user) entries();
    for (int f = 0; f < kFunctions; ++f) function(f);
    bytes_ = a_.finish();
    bytes_.resize((bytes_.size() + 15) / 16 * 16 + 16, 0xcc);
  }

  Addr entry() const { return a_.address("f0"); }
  Addr base() const { return a_.base(); }
  Addr address(const std::string& n) const { return a_.address(n); }
  const Bytes& bytes() const { return bytes_; }
  const std::vector<Addr>& sites() const { return sites_; }
  Addr on(size_t site) const { return a_.address(fmt::format("on{}", site)); }

  void rules(Machine& m) const {
    for (const auto& [label, targets] : indirect_) {
      std::vector<Addr> to;
      for (const std::string& t : targets) to.push_back(a_.address(t));
      m.on_indirect(a_.address(label), [to](SimCpu& c) { return to[c.random.below(to.size())]; });
    }
    for (const auto& [label, rounds] : loops_) m.loop_at(a_.address(label), rounds);
  }
  // The first place of loaded programs; `live` says where one is now.
  static constexpr Addr kProgramAt = 0xffffffffc0001000;
  void program_rule(Machine& m, std::function<std::optional<Addr>()> live) const {
    if (!calls_programs_) return;
    const Addr other = a_.address("tick");
    m.on_indirect(a_.address("program"),
                  [other, live = std::move(live)](SimCpu&) { return live().value_or(other); });
  }

 private:
  void entries() {
    a_.function("int3").straight(1).straight(4).iret();
    a_.function("sync").straight(2).iret();
    a_.function("timer").straight(3).call("tick").straight(1).iret();
    a_.function("tick").straight(2).jcc8(Cond::kEqual, "tick.l").straight(5).label("tick.l").ret();
    a_.function("syscall").straight(6).call("f1").straight(2).sysret();
  }
  unsigned any() { return static_cast<unsigned>(random_.below(Assembler::kStraightKinds)); }
  void filler(uint64_t most) {
    for (uint64_t i = random_.below(most + 1); i != 0; --i) a_.straight(any());
  }
  std::string label(const char* what) { return fmt::format("{}{}{}", user_ ? "u" : "k", what, next_++); }

  void function(int f) {
    a_.function(fmt::format("f{}", f));
    if (random_.chance(50)) a_.endbr64();
    const std::string top = label("top");
    a_.label(top);
    for (uint64_t part = random_.between(1, 5); part != 0; --part) piece(f);
    if (f == 0 && calls_programs_) a_.label("program").call_rax();
    if (f == 0) {
      // A loop that leaves no trace would not tell how often it ran.
      a_.jcc32(kConds[random_.below(5)], top).jmp32(top);
    } else {
      a_.ret();
    }
    for (const size_t site : pending_sites_) unlikely(site, f);
    pending_sites_.clear();
  }
  void piece(int f) {
    filler(4);
    switch (random_.below(user_ ? 8 : 7)) {
      case 0: {
        const std::string skip = label("skip");
        random_.chance(50) ? a_.jcc8(kConds[random_.below(5)], skip)
                           : a_.jcc32(kConds[random_.below(5)], skip);
        filler(3);
        a_.label(skip);
        return;
      }
      case 1: {
        const std::string again = label("again"), branch = label("loop");
        a_.label(again);
        filler(3);
        a_.straight(any()).label(branch).jcc8(Cond::kNotEqual, again);
        loops_.emplace_back(branch, static_cast<unsigned>(random_.between(2, 6)));
        return;
      }
      case 2:
        if (f + 1 < kFunctions)
          a_.call(fmt::format("f{}", random_.between(static_cast<uint64_t>(f) + 1, kFunctions - 1)));
        return;
      case 3: {
        if (f + 1 >= kFunctions) return;
        const std::string at = label("icall");
        a_.label(at).call_rax();
        std::vector<std::string> to;
        for (int i = f + 1; i < kFunctions; ++i) to.push_back(fmt::format("f{}", i));
        indirect_.emplace_back(at, to);
        return;
      }
      case 4: {
        const std::string at = label("ijump"), x = label("case"), y = label("case"), z = label("join");
        a_.label(at).jmp_rax().label(x);
        filler(2);
        a_.jmp8(z).label(y);
        filler(2);
        a_.label(z);
        indirect_.emplace_back(at, std::vector<std::string>{x, y});
        return;
      }
      case 5: {  // "call next"
        const std::string next = label("next");
        if (random_.chance(30)) {
          // The return address stays on the stack; only the simulated one must be taken off again.
          a_.straight(any());
          return;
        }
        a_.jmp8(next).fill(0xcc, random_.below(4)).label(next);
        return;
      }
      case 6:
        if (!user_) {
          const size_t site = sites_.size();
          sites_.push_back(a_.here());
          a_.nop5().label(fmt::format("back{}", site));
          pending_sites_.push_back(site);
        }
        return;
      default:
        a_.syscall();
    }
  }
  void unlikely(size_t site, int f) {
    a_.label(fmt::format("on{}", site));
    filler(2);
    if (random_.chance(50)) {
      const std::string skip = label("skip");
      a_.jcc8(kConds[random_.below(5)], skip).straight(any()).label(skip);
    } else if (f + 1 < kFunctions && random_.chance(60)) {
      a_.call(fmt::format("f{}", f + 1));
    }
    a_.jmp32(fmt::format("back{}", site));
  }

  SimRandom random_;
  Assembler a_;
  bool user_;
  bool calls_programs_;
  Bytes bytes_;
  std::vector<Addr> sites_;
  std::vector<size_t> pending_sites_;
  std::vector<std::pair<std::string, std::vector<std::string>>> indirect_;
  std::vector<std::pair<std::string, unsigned>> loops_;
  int next_ = 0;
};

// A loaded program: a few branches and sites of none, told apart by what its branches are.
inline Bytes loaded_program(uint64_t seed, Addr at) {
  constexpr size_t kSize = 128;
  SimRandom random(seed);
  Assembler a(at);
  a.label("p");
  for (uint64_t parts = random.between(1, 4); parts != 0; --parts) {
    for (uint64_t n = random.below(3); n != 0; --n)
      a.straight(static_cast<unsigned>(random.below(Assembler::kStraightKinds)));
    const std::string skip = fmt::format("s{}", parts);
    if (random.chance(60)) a.jcc8(kConds[random.below(5)], skip).straight(0);
    a.label(skip);
  }
  a.ret();
  Bytes out = a.finish();
  out.resize(kSize, 0xcc);
  return out;
}

}  // namespace asof::x86::test
