#include "tests/support/etm_asm.h"

#include <array>
#include <stdexcept>

namespace asof::test {

namespace a64 {

namespace {

// A branch offset in words, as a field of `bits` bits.
uint32_t offset_field(Addr from, Addr to, unsigned bits) {
  const auto distance = static_cast<int64_t>(to - from);
  const int64_t limit = int64_t{1} << (bits + 1);
  if (distance % 4 != 0 || distance < -limit || distance >= limit)
    throw std::out_of_range("branch target out of reach");
  return static_cast<uint32_t>(distance / 4) & ((1U << bits) - 1);
}

constexpr std::array<uint32_t, kStraightKinds> kStraight = {
    0xd2800020,  // mov x0, #1
    0x91000421,  // add x1, x1, #1
    0xf9400042,  // ldr x2, [x2]
    0xf9000043,  // str x3, [x2]
    0xaa0103e4,  // mov x4, x1
    0xd503201f,  // nop
    0x8b020020,  // add x0, x1, x2
    0xcb020020,  // sub x0, x1, x2
    0xa9bf7bfd,  // stp x29, x30, [sp, #-16]!
    0xa8c17bfd,  // ldp x29, x30, [sp], #16
    0x90000005,  // adrp x5, .
    0x58000046,  // ldr x6, . + 8
    0xd53bd047,  // mrs x7, tpidr_el0
    0xd5033bbf,  // dmb ish
    0x9b027c20,  // mul x0, x1, x2
    0xb8226820,  // str w0, [x1, x2]
};

}  // namespace

uint32_t b(Addr from, Addr to) { return 0x14000000U | offset_field(from, to, 26); }
uint32_t bl(Addr from, Addr to) { return 0x94000000U | offset_field(from, to, 26); }
uint32_t b_cond(Addr from, Addr to, unsigned condition) {
  return 0x54000000U | offset_field(from, to, 19) << 5 | (condition & 15U);
}
uint32_t cbz(Addr from, Addr to, unsigned reg, bool nonzero, bool x) {
  return (x ? 0xb4000000U : 0x34000000U) | (nonzero ? 1U << 24 : 0U) | offset_field(from, to, 19) << 5 |
         (reg & 31U);
}
uint32_t tbz(Addr from, Addr to, unsigned reg, unsigned bit, bool nonzero) {
  return 0x36000000U | (bit & 32U) << 26 | (nonzero ? 1U << 24 : 0U) | (bit & 31U) << 19 |
         offset_field(from, to, 14) << 5 | (reg & 31U);
}

uint32_t straight(unsigned n) { return kStraight[n % kStraightKinds]; }

std::vector<uint8_t> bytes_of(uint32_t word) {
  return {static_cast<uint8_t>(word), static_cast<uint8_t>(word >> 8), static_cast<uint8_t>(word >> 16),
          static_cast<uint8_t>(word >> 24)};
}

std::vector<uint8_t> bytes_of(std::span<const uint32_t> words) {
  std::vector<uint8_t> all;
  for (const uint32_t word : words) {
    const std::vector<uint8_t> b = bytes_of(word);
    all.insert(all.end(), b.begin(), b.end());
  }
  return all;
}

uint32_t word_of(std::span<const uint8_t> bytes) {
  if (bytes.size() < 4) return 0;
  return static_cast<uint32_t>(bytes[0]) | static_cast<uint32_t>(bytes[1]) << 8 |
         static_cast<uint32_t>(bytes[2]) << 16 | static_cast<uint32_t>(bytes[3]) << 24;
}

}  // namespace a64

namespace {

// A field of a branch, sign-extended, in bytes.
Addr displacement(uint32_t word, unsigned low, unsigned bits) {
  const uint32_t field = (word >> low) & ((1U << bits) - 1);
  const uint64_t sign = uint64_t{1} << (bits - 1);
  return ((field ^ sign) - sign) * 4;
}

}  // namespace

A64Insn a64_decode(Addr at, uint32_t word) {
  switch (word) {
    case a64::kIsb:
      return {A64Kind::kIsb};
    case a64::kRet:
    case a64::kRetaa:
    case a64::kRetab:
      return {A64Kind::kRet};
    case a64::kEret:
    case a64::kEretaa:
      return {A64Kind::kEret};
    default:
      break;
  }
  if ((word & 0xfc000000) == 0x14000000) return {A64Kind::kB, at + displacement(word, 0, 26)};
  if ((word & 0xfc000000) == 0x94000000) return {A64Kind::kBl, at + displacement(word, 0, 26)};
  if ((word & 0xff000010) == 0x54000000) return {A64Kind::kCond, at + displacement(word, 5, 19)};
  if ((word & 0x7e000000) == 0x34000000) return {A64Kind::kCond, at + displacement(word, 5, 19)};
  if ((word & 0x7e000000) == 0x36000000) return {A64Kind::kCond, at + displacement(word, 5, 14)};
  if ((word & 0xfffffc1f) == 0xd61f0000 || (word & 0xfffffc1f) == 0xd71f081f) return {A64Kind::kBr};
  if ((word & 0xfffffc1f) == 0xd63f0000 || (word & 0xfffffc1f) == 0xd73f081f) return {A64Kind::kBlr};
  if ((word & 0xffe0001f) == 0xd4000001) return {A64Kind::kSvc};
  if ((word & 0xffe0001f) == 0xd4200000) return {A64Kind::kBrk};
  return {};
}

A64Assembler& A64Assembler::label(const std::string& name) {
  labels_[name] = here();
  return *this;
}

A64Assembler& A64Assembler::word(uint32_t w) {
  words_.push_back(w);
  return *this;
}

A64Assembler& A64Assembler::fix(Form form, const std::string& to, unsigned operand) {
  fixups_.push_back({words_.size(), form, to, operand});
  return word(a64::kNop);
}

std::vector<uint32_t> A64Assembler::finish() {
  for (const Fixup& f : fixups_) {
    const Addr from = base_ + 4 * f.at, to = labels_.at(f.to);
    uint32_t& w = words_[f.at];
    switch (f.form) {
      case Form::kB:
        w = a64::b(from, to);
        break;
      case Form::kBl:
        w = a64::bl(from, to);
        break;
      case Form::kCond:
        w = a64::b_cond(from, to, f.operand);
        break;
      case Form::kCbz:
        w = a64::cbz(from, to, f.operand);
        break;
      case Form::kTbz:
        w = a64::tbz(from, to, f.operand, 5);
        break;
    }
  }
  fixups_.clear();
  return words_;
}

}  // namespace asof::test
