// A64 words for test programs, and an assembler with labels. Encodings: Arm ARM (DDI 0487), C4.1 and C6.2.
// Everything that does not branch is filler from a table; what matters to an ETM decoder (kind and target of
// branches, ISB, exceptions) is real.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "textstore/address.h"

namespace asof::test {

namespace a64 {
inline constexpr uint32_t kNop = 0xd503201f, kIsb = 0xd5033fdf, kRet = 0xd65f03c0, kRetaa = 0xd65f0bff,
                          kRetab = 0xd65f0fff, kEret = 0xd69f03e0, kEretaa = 0xd69f0bff,
                          kMovX9X30 = 0xaa1e03e9, kBtiC = 0xd503245f, kPaciasp = 0xd503233f,
                          kWfi = 0xd503207f, kYield = 0xd503203f;
inline constexpr uint16_t kKprobeBrk = 4, kKprobeStepBrk = 6;

// Throw std::out_of_range when the target is out of reach or not aligned.
uint32_t b(Addr from, Addr to);
uint32_t bl(Addr from, Addr to);
uint32_t b_cond(Addr from, Addr to, unsigned condition);
uint32_t cbz(Addr from, Addr to, unsigned reg, bool nonzero = false, bool x = true);
uint32_t tbz(Addr from, Addr to, unsigned reg, unsigned bit, bool nonzero = false);
constexpr uint32_t br(unsigned reg) { return 0xd61f0000U | reg << 5; }
constexpr uint32_t blr(unsigned reg) { return 0xd63f0000U | reg << 5; }
constexpr uint32_t braa(unsigned reg) { return 0xd71f0800U | reg << 5 | 31U; }
constexpr uint32_t blraa(unsigned reg) { return 0xd73f0800U | reg << 5 | 31U; }
constexpr uint32_t svc(uint16_t n) { return 0xd4000001U | static_cast<uint32_t>(n) << 5; }
constexpr uint32_t brk(uint16_t n) { return 0xd4200000U | static_cast<uint32_t>(n) << 5; }
// Straight-line instruction number n of a table of kStraightKinds.
uint32_t straight(unsigned n);
inline constexpr unsigned kStraightKinds = 16;

std::vector<uint8_t> bytes_of(uint32_t word);
std::vector<uint8_t> bytes_of(std::span<const uint32_t> words);
uint32_t word_of(std::span<const uint8_t> bytes);  // of the first four; 0 when there are fewer
}  // namespace a64

// What a word does, as far as it matters to the simulated machine and its trace unit.
enum class A64Kind : uint8_t {
  kStraight,
  kCond,
  kB,
  kBl,
  kBr,
  kBlr,
  kRet,
  kEret,
  kIsb,
  kSvc,
  kBrk,
};
struct A64Insn {
  A64Kind kind = A64Kind::kStraight;
  Addr target = 0;  // of direct branches
};
A64Insn a64_decode(Addr at, uint32_t word);

class A64Assembler {
 public:
  explicit A64Assembler(Addr base) : base_(base) {}

  Addr here() const { return base_ + 4 * words_.size(); }
  Addr base() const { return base_; }
  Addr address(const std::string& label) const { return labels_.at(label); }
  A64Assembler& label(const std::string& name);
  A64Assembler& word(uint32_t w);
  A64Assembler& straight(unsigned n) { return word(a64::straight(n)); }
  A64Assembler& nop() { return word(a64::kNop); }
  A64Assembler& b(const std::string& to) { return fix(Form::kB, to, 0); }
  A64Assembler& bl(const std::string& to) { return fix(Form::kBl, to, 0); }
  A64Assembler& b_cond(unsigned condition, const std::string& to) { return fix(Form::kCond, to, condition); }
  A64Assembler& cbz(unsigned reg, const std::string& to) { return fix(Form::kCbz, to, reg); }
  A64Assembler& tbz(unsigned reg, const std::string& to) { return fix(Form::kTbz, to, reg); }

  // Resolves the labels. Throws std::out_of_range for a label that is missing or too far away.
  std::vector<uint32_t> finish();

 private:
  enum class Form : uint8_t { kB, kBl, kCond, kCbz, kTbz };
  struct Fixup {
    size_t at = 0;
    Form form = Form::kB;
    std::string to;
    unsigned operand = 0;
  };
  A64Assembler& fix(Form form, const std::string& to, unsigned operand);

  Addr base_;
  std::vector<uint32_t> words_;
  std::map<std::string, Addr> labels_;
  std::vector<Fixup> fixups_;
};

}  // namespace asof::test
