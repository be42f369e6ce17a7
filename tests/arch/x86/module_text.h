// The text of a simulated module: functions at fixed addresses that call each other and the kernel, with
// static branches. One shape has many flavours, which differ in the targets of calls and in which branches
// are no-ops: instructions begin at the same addresses, so that old text mostly fits the trace of new text.
#pragma once
#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/arch/x86/random_program.h"

namespace asof::x86::test {

struct ModuleText {
  static constexpr AddrRange kRange{Program::kModuleAt,
                                    Program::kModuleAt + Program::kModuleSpacing* Program::kModuleFunctions};
  Bytes bytes;                               // of kRange
  std::vector<std::pair<Addr, Addr>> sites;  // static branches, all of them no-ops, and their targets
};

class ModuleMaker {
 public:
  ModuleMaker(uint64_t shape, uint64_t flavour, const Program& kernel)
      : shape_(shape), flavour_(flavour), kernel_(kernel), a_(Program::kModuleAt) {}

  ModuleText make(Machine& machine) {
    for (uint64_t f = 0; f < Program::kModuleFunctions; ++f) {
      a_.label(fmt::format("m{}", f));
      for (uint64_t part = shape_.between(1, 4); part != 0; --part) piece(f);
      a_.ret();
      for (const std::string& on : pending_) a_.label(on).straight(1).jmp32("back" + on);
      pending_.clear();
      a_.fill(0xcc, Program::kModuleAt + Program::kModuleSpacing * (f + 1) - a_.here());
    }
    ModuleText out;
    out.bytes = a_.finish();
    for (const auto& [at, on] : sites_) out.sites.emplace_back(at, a_.address(on));
    std::vector<Addr> leaves;
    for (int i = Program::kLeaves; i < kFunctions; ++i)
      leaves.push_back(kernel_.address(fmt::format("f{}", i)));
    for (const Addr at : indirect_)
      machine.on_indirect(at, [leaves](SimCpu& c) { return leaves[c.random.below(leaves.size())]; });
    return out;
  }

 private:
  void piece(uint64_t f) {
    for (uint64_t n = shape_.below(3); n != 0; --n)
      a_.straight(static_cast<unsigned>(shape_.below(Assembler::kStraightKinds)));
    const std::string name = fmt::format("l{}", next_++);
    switch (shape_.below(5)) {
      case 0:
        flavour_.chance(70) ? a_.jcc8(kConds[flavour_.below(5)], name) : a_.nop2();
        a_.straight(static_cast<unsigned>(shape_.below(Assembler::kStraightKinds))).label(name);
        return;
      case 1:
        flavour_.chance(80) ? a_.call(kernel_.address(leaf())) : a_.nop5();
        return;
      case 2:
        sites_.emplace_back(a_.here(), name);
        pending_.push_back(name);
        a_.nop5().label("back" + name);
        return;
      case 3:
        indirect_.push_back(a_.here());
        flavour_.chance(80) ? a_.call_rax() : a_.nop2();
        return;
      default:
        f + 1 < Program::kModuleFunctions&& flavour_.chance(70) ? a_.call(fmt::format("m{}", f + 1))
                                                                : a_.nop5();
    }
  }
  std::string leaf() { return fmt::format("f{}", flavour_.between(Program::kLeaves, kFunctions - 1)); }

  SimRandom shape_, flavour_;
  const Program& kernel_;
  Assembler a_;
  std::vector<std::pair<Addr, std::string>> sites_;
  std::vector<std::string> pending_;
  std::vector<Addr> indirect_;
  int next_ = 0;
};

}  // namespace asof::x86::test
