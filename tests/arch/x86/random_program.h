// A random program for the simulated machine: functions that call each other, loops, indirect branches,
// static branches, system calls.
#pragma once
#include <fmt/format.h>

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/arch/x86/flow_fixture.h"
#include "tests/support/machine.h"

namespace asof::x86::test {

using asof::test::CodeSymbol;
using asof::test::Machine;
using asof::test::SimCpu;
using asof::test::SimRandom;

inline constexpr Addr kText = 0xffffffff81000000;
inline constexpr Addr kUser = 0x401000;
inline constexpr int kFunctions = 8;
inline constexpr Cond kConds[] = {Cond::kEqual, Cond::kNotEqual, Cond::kLess, Cond::kSign, Cond::kBelow};

// Optional features of a program.
struct Features {
  bool programs = false;  // calls loaded programs
  bool modules = false;   // calls a module (module_text.h)
  bool unseen = false;    // has sites that change without a record of their own
  bool switches = false;  // of tasks
  bool guests = false;    // runs virtual machines
  bool fentry = false;    // functions begin with a no-op for the function tracer
  bool probes = false;    // has sites for kprobes
  bool uprobes = false;   // the kernel has the trap after a single step
  bool ret0 = false;      // some of the calls among them can become "return 0"
  Addr dispatcher = 0;    // is called directly; 0: none
};

// A program of functions that call each other downwards: loops, branches, indirect calls and jumps, static
// branches, system calls. Function 0 runs forever.
class Program {
 public:
  Program(uint64_t seed, bool user, const Features& features = {})
      : random_(seed), a_(user ? kUser : kText), user_(user), features_(features) {
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

  // A call whose target can change, or a no-op that can become a jump: five bytes, in two states.
  struct Unseen {
    Addr at = 0;
    std::array<std::string, 2> to;  // of each state; "": a no-op
  };
  const std::vector<Unseen>& unseen() const { return unseen_; }
  const std::vector<Addr>& fentries() const { return fentries_; }
  // An instruction that can have a kprobe.
  struct Probe {
    Addr at = 0;
    Bytes insn;
  };
  const std::vector<Probe>& probes() const { return probes_; }
  const std::vector<CodeSymbol>& symbols() const { return a_.symbols(); }
  Bytes state(const Unseen& u, bool on) const {
    const std::string& to = u.to[on ? 1 : 0];
    if (to == "ret0") return {0x2e, 0x2e, 0x2e, 0x31, 0xc0};
    if (to.empty()) return asof::test::nop5_bytes();
    return u.to[0].empty() ? asof::test::jmp32_bytes(u.at, address(to))
                           : asof::test::call_bytes(u.at, address(to));
  }

  // What the handler emulates for a CPU that hits INT3 there during the change (arch/x86/kernel/static_call.c
  // __static_call_transform(): the function, not the `xor` that replaces it).
  Bytes emulated(const Unseen& u, bool on) const {
    return u.to[on ? 1 : 0] == "ret0" ? asof::test::call_bytes(u.at, address("ret0")) : state(u, on);
  }

  // `space`: the owner of these branches, where another process has others at the same addresses.
  void rules(Machine& m, const Program* elsewhere = nullptr, Space space = kKernelSpace) const {
    const std::map<Addr, std::vector<Addr>> mine = targets();
    const auto others = elsewhere == nullptr ? std::map<Addr, std::vector<Addr>>() : elsewhere->targets();
    for (const auto& [at, to] : mine) {
      const auto other = others.find(at);
      const std::vector<Addr> to_other = other == others.end() ? to : other->second;
      m.on_indirect(at, [to, to_other, space](SimCpu& c) {
        const std::vector<Addr>& all = c.task->space == space ? to : to_other;
        return all[c.random.below(all.size())];
      });
    }
    for (const auto& [label, rounds] : loops_) m.loop_at(a_.address(label), rounds);
    for (const std::string& label : module_calls_) {
      m.on_indirect(a_.address(label),
                    [](SimCpu& c) { return kModuleAt + kModuleSpacing * c.random.below(kModuleFunctions); });
    }
  }
  // Functions of modules are at fixed addresses.
  static constexpr Addr kModuleAt = 0xffffffffc0100000, kModuleSpacing = 256;
  static constexpr uint64_t kModuleFunctions = 3;
  static constexpr int kLeaves = 5;  // functions from here on call no modules, so that modules may call them
  // The first address of loaded programs; `live` gives where one is now.
  static constexpr Addr kProgramAt = 0xffffffffc0001000;
  void program_rule(Machine& m, std::function<std::optional<Addr>()> live) const {
    if (!features_.programs) return;
    const Addr other = a_.address("tick");
    m.on_indirect(a_.address("program"),
                  [other, live = std::move(live)](SimCpu&) { return live().value_or(other); });
  }

 private:
  // Where indirect branches lead.
  std::map<Addr, std::vector<Addr>> targets() const {
    std::map<Addr, std::vector<Addr>> out;
    for (const auto& [label, targets] : indirect_)
      for (const std::string& t : targets) out[a_.address(label)].push_back(a_.address(t));
    return out;
  }
  void entries() {
    a_.function("int3").straight(1).straight(4).iret();
    a_.function("sync").straight(2).iret();
    a_.function("timer").straight(3).call("tick").straight(1).iret();
    if (features_.uprobes) a_.function("debug").label("debug.top").straight(2).iret();
    a_.function("tick").straight(2).jcc8(Cond::kEqual, "tick.l").straight(5).label("tick.l").ret();
    a_.function("syscall").straight(6).call("f1").straight(2).sysret();
    if (features_.guests)
      a_.function("vcpu")
          .straight(2)
          .label("vmresume")
          .bytes({0x0f, 0x01, 0xc3})
          .label("vmexit")
          .straight(3)
          .ret();
    if (features_.ret0) a_.function("ret0").bytes({0x31, 0xc0}).ret();
    if (!features_.switches) return;
    a_.function("resched").straight(2).call("switch").straight(1).iret();
    a_.function("switch").straight(1).mov_cr3_rax().straight(1).ret();
    a_.function("fresh").straight(1).iret();  // where a task begins
  }
  unsigned any() { return static_cast<unsigned>(random_.below(Assembler::kStraightKinds)); }
  void filler(uint64_t most) {
    for (uint64_t i = random_.below(most + 1); i != 0; --i) a_.straight(any());
  }
  std::string label(const char* what) { return fmt::format("{}{}{}", user_ ? "u" : "k", what, next_++); }

  void function(int f) {
    a_.function(fmt::format("f{}", f));
    if (random_.chance(50)) a_.endbr64();
    if (features_.fentry) {
      fentries_.push_back(a_.here());
      a_.nop5();
    }
    const std::string top = label("top");
    a_.label(top);
    for (uint64_t part = random_.between(1, 5); part != 0; --part) {
      piece(f);
      if (features_.unseen && random_.chance(40)) change_unseen(f);
      if (features_.modules && f < kLeaves && random_.chance(20)) call_module();
      if (features_.probes && random_.chance(25)) probed(f);
    }
    if (f == 0 && features_.modules) call_module();
    if (f == 0 && features_.programs) a_.label("program").call_rax();
    if (f == 0 && features_.guests && !user_) a_.call("vcpu");
    if (f == 0 && features_.dispatcher != 0) a_.label("dispatch").call(features_.dispatcher);
    if (f == 0) {
      // A loop without packets would not show how often it ran.
      a_.jcc32(kConds[random_.below(5)], top).jmp32(top);
    } else {
      a_.ret();
    }
    for (const size_t site : pending_sites_) unlikely(std::to_string(site), f);
    pending_sites_.clear();
    for (const size_t site : pending_unseen_) unlikely(fmt::format("u{}", site), f);
    pending_unseen_.clear();
  }
  void change_unseen(int f) {
    Unseen u{a_.here(), {}};
    if (f + 2 < kFunctions && random_.chance(60)) {
      const auto any_callee = [&] {
        return fmt::format("f{}", random_.between(static_cast<uint64_t>(f) + 1, kFunctions - 1));
      };
      u.to = {any_callee(), any_callee()};
      if (features_.ret0 && random_.chance(40)) u.to[1] = "ret0";
      a_.call(u.to[0]);
    } else {
      const std::string name = fmt::format("u{}", unseen_.size());
      u.to = {"", "on" + name};
      a_.nop5().label("back" + name);
      pending_unseen_.push_back(unseen_.size());
    }
    unseen_.push_back(u);
  }
  // A straight instruction that can be copied to a slot.
  void probed(int f) {
    const Addr at = a_.here();
    Assembler one(at);
    one.straight(any());
    probes_.push_back({at, one.finish()});
    a_.label(fmt::format("probe{}.{}", f, probes_.size())).bytes(probes_.back().insn);
  }
  void call_module() {
    if (random_.chance(60)) {
      a_.call(kModuleAt + kModuleSpacing * random_.below(kModuleFunctions));
      return;
    }
    module_calls_.push_back(label("mcall"));
    a_.label(module_calls_.back()).call_rax();
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
          // The return address stays on the stack; only the simulated one must be popped again.
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
  void unlikely(const std::string& site, int f) {
    a_.label("on" + site);
    filler(2);
    if (random_.chance(50)) {
      const std::string skip = label("skip");
      a_.jcc8(kConds[random_.below(5)], skip).straight(any()).label(skip);
    } else if (f + 1 < kFunctions && random_.chance(60)) {
      a_.call(fmt::format("f{}", f + 1));
    }
    a_.jmp32("back" + site);
  }

  SimRandom random_;
  Assembler a_;
  bool user_;
  Features features_;
  Bytes bytes_;
  std::vector<Addr> sites_;
  std::vector<size_t> pending_sites_, pending_unseen_;
  std::vector<Unseen> unseen_;
  std::vector<Addr> fentries_;
  std::vector<Probe> probes_;
  std::vector<std::string> module_calls_;
  std::vector<std::pair<std::string, std::vector<std::string>>> indirect_;
  std::vector<std::pair<std::string, unsigned>> loops_;
  int next_ = 0;
};

// A loaded program: a few branches and straight instructions, without sites; its branches identify it. With
// `kernel` it may call functions of the kernel. Programs of one seed and different flavours have branches
// with other conditions at the same addresses.
inline Bytes loaded_program(uint64_t seed, Addr at, const Program* kernel = nullptr,
                            SimRandom* flavour = nullptr) {
  constexpr size_t kSize = 128;
  SimRandom random(seed);
  Assembler a(at);
  a.label("p");
  for (uint64_t parts = random.between(1, 4); parts != 0; --parts) {
    for (uint64_t n = random.below(3); n != 0; --n)
      a.straight(static_cast<unsigned>(random.below(Assembler::kStraightKinds)));
    const std::string skip = fmt::format("s{}", parts);
    if (random.chance(60)) {
      const Cond c = kConds[random.below(5)];
      a.jcc8(flavour == nullptr ? c : kConds[flavour->below(5)], skip).straight(0);
    }
    a.label(skip);
    if (kernel != nullptr && random.chance(40))
      a.call(kernel->address(fmt::format("f{}", random.between(Program::kLeaves, kFunctions - 1))));
  }
  a.ret();
  Bytes out = a.finish();
  out.resize(kSize, 0xcc);
  return out;
}

}  // namespace asof::x86::test
