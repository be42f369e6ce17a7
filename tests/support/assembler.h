// Assembler: emits the few x86-64 instructions that test programs consist of, with labels. Everything that
// does not branch is filler from a table; what matters to a PT decoder (length, kind, target) is real.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "textstore/address.h"

namespace asof::test {

// Condition of a Jcc: low nibble of its opcode.
enum class Cond : uint8_t {
  kOverflow = 0,
  kBelow = 2,
  kEqual = 4,
  kNotEqual = 5,
  kSign = 8,
  kLess = 12,
  kGreater = 15
};

// An address in code, or the name of a label that may be defined later.
struct CodeRef {
  CodeRef(Addr a) : address(a) {}                 // NOLINT: intended conversion
  CodeRef(std::string n) : name(std::move(n)) {}  // NOLINT
  CodeRef(const char* n) : name(n) {}             // NOLINT
  Addr address = 0;
  std::string name;
};

struct CodeSymbol {
  std::string name;
  Addr address = 0;
  uint64_t size = 0;
};

class Assembler {
 public:
  explicit Assembler(Addr base) : base_(base) {}

  Addr here() const { return base_ + code_.size(); }
  Addr base() const { return base_; }
  Assembler& label(const std::string& name);
  // Starts a function: a label and a symbol, aligned to 16 with INT3 bytes before it, as compilers do for the
  // kernel.
  Assembler& function(const std::string& name);
  void define(const std::string& name, Addr address) { labels_[name] = address; }
  Addr address(const std::string& name) const { return labels_.at(name); }

  Assembler& bytes(std::initializer_list<uint8_t> b);
  Assembler& bytes(const std::vector<uint8_t>& b);
  Assembler& fill(uint8_t byte, size_t count);
  // Straight-line instruction number n of a table of kStraightKinds, from 1 to 10 bytes long.
  Assembler& straight(unsigned n);
  static constexpr unsigned kStraightKinds = 14;
  Assembler& nop2() { return bytes({0x66, 0x90}); }
  Assembler& nop5() { return bytes({0x0f, 0x1f, 0x44, 0x00, 0x00}); }
  Assembler& endbr64() { return bytes({0xf3, 0x0f, 0x1e, 0xfa}); }
  Assembler& jmp8(const CodeRef& to);
  Assembler& jmp32(const CodeRef& to);
  Assembler& jcc8(Cond c, const CodeRef& to);
  Assembler& jcc32(Cond c, const CodeRef& to);
  Assembler& loop(const CodeRef& to);  // LOOP rel8
  Assembler& call(const CodeRef& to);
  Assembler& jmp_rax() { return bytes({0xff, 0xe0}); }
  Assembler& jmp_mem_rdi() { return bytes({0xff, 0x27}); }
  Assembler& call_rax() { return bytes({0xff, 0xd0}); }
  Assembler& ret() { return bytes({0xc3}); }
  Assembler& ret_pop(uint16_t n);
  Assembler& syscall() { return bytes({0x0f, 0x05}); }
  Assembler& sysret() { return bytes({0x48, 0x0f, 0x07}); }
  Assembler& iret() { return bytes({0x48, 0xcf}); }
  Assembler& int3() { return bytes({0xcc}); }
  Assembler& mov_cr3_rax() { return bytes({0x0f, 0x22, 0xd8}); }
  Assembler& ptwrite_rax() { return bytes({0xf3, 0x48, 0x0f, 0xae, 0xe0}); }
  Assembler& rep_movsb() { return bytes({0xf3, 0xa4}); }

  // Resolves the labels. Throws std::out_of_range for a label that is missing, or that a short branch cannot
  // reach.
  std::vector<uint8_t> finish();
  // Functions, with sizes up to the next one; valid after finish().
  const std::vector<CodeSymbol>& symbols() const { return symbols_; }

 private:
  struct Fixup {
    size_t at = 0;
    unsigned width = 0;
    CodeRef to;
  };
  Assembler& relative(std::initializer_list<uint8_t> opcode, unsigned width, const CodeRef& to);

  Addr base_;
  std::vector<uint8_t> code_;
  std::map<std::string, Addr> labels_;
  std::vector<Fixup> fixups_;
  std::vector<CodeSymbol> symbols_;
};

// Bytes of a 5-byte direct jump or call at `from`.
std::vector<uint8_t> jmp32_bytes(Addr from, Addr to);
std::vector<uint8_t> call_bytes(Addr from, Addr to);
inline std::vector<uint8_t> nop5_bytes() { return {0x0f, 0x1f, 0x44, 0x00, 0x00}; }

}  // namespace asof::test
