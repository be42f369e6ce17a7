// EtmProgram: a random arm64 program of functions that only call later ones, with loops, static branches (NOP
// or B), traced functions (NOP or BL after MOV x9, x30), indirect calls and jumps, ISB and SVC. Function 0
// runs forever.
#pragma once
#include <string>
#include <vector>

#include "tests/support/etm_machine.h"

namespace asof::test {

class EtmProgram {
 public:
  static constexpr Addr kText = 0xffff800008010000;
  static constexpr int kFunctions = 7;

  // `probes`: with sites for kprobes, and the code of stop_machine. `text`: the address of the text.
  explicit EtmProgram(uint64_t seed, bool probes = false, Addr text = kText);

  // A word that changes: NOP, or a branch to `target`.
  struct Site {
    Addr at = 0;
    Addr target = 0;
    bool call = false;
    uint32_t on() const { return call ? a64::bl(at, target) : a64::b(at, target); }
  };

  Addr text() const { return text_; }
  Addr entry() const { return assembler_.address("f0"); }
  Addr vector() const { return assembler_.address("vector"); }
  // Where stop_machine goes, the callback it calls there, and the callback's ISB.
  Addr stopper() const { return assembler_.address("stopper"); }
  Addr callback() const { return assembler_.address("callback"); }
  Addr stop_isb() const { return assembler_.address("callback.isb"); }
  const std::vector<uint32_t>& words() const { return words_; }
  std::vector<uint8_t> bytes() const;
  const std::vector<Site>& sites() const { return sites_; }
  // Instructions that take a kprobe: no branches.
  const std::vector<Addr>& probes() const { return probes_; }
  // Functions by address.
  std::vector<std::pair<Addr, std::string>> functions() const;
  // Loads the text and the rules of its branches.
  void install(EtmMachine& machine) const;

 private:
  std::string label(const char* what);
  void filler(uint64_t most);
  void entries();
  void function(int f);
  void piece(int f);
  void branch_over();
  void loop();
  void indirect_call(int f);
  void jump_table();
  void static_branch();
  void unlikely(size_t site, int f);

  struct Indirect {
    std::string at;
    std::vector<std::string> to;
  };
  struct Named {
    std::string at, to;
    bool call = false;
  };

  SimRandom random_;
  const bool with_probes_;
  const Addr text_;
  A64Assembler assembler_{text_};
  std::vector<uint32_t> words_;
  std::vector<Site> sites_;
  std::vector<Addr> probes_;
  std::vector<Named> named_;
  std::vector<size_t> open_;  // sites whose other path is not yet emitted
  std::vector<Indirect> indirect_;
  std::vector<std::pair<std::string, unsigned>> loops_;
  int next_ = 0;
};

}  // namespace asof::test
