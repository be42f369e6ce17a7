#include "tests/support/assembler.h"

#include <stdexcept>

namespace asof::test {

namespace {

constexpr size_t kFunctionAlign = 16;

std::vector<uint8_t> relative_bytes(uint8_t opcode, Addr from, Addr to) {
  const auto d = static_cast<uint32_t>(to - (from + 5));
  return {opcode, static_cast<uint8_t>(d), static_cast<uint8_t>(d >> 8), static_cast<uint8_t>(d >> 16),
          static_cast<uint8_t>(d >> 24)};
}

}  // namespace

std::vector<uint8_t> jmp32_bytes(Addr from, Addr to) { return relative_bytes(0xe9, from, to); }
std::vector<uint8_t> call_bytes(Addr from, Addr to) { return relative_bytes(0xe8, from, to); }

Assembler& Assembler::label(const std::string& name) {
  labels_[name] = here();
  return *this;
}

Assembler& Assembler::function(const std::string& name) {
  while (here() % kFunctionAlign != 0) code_.push_back(0xcc);
  symbols_.push_back({name, here(), 0});
  return label(name);
}

Assembler& Assembler::bytes(std::initializer_list<uint8_t> b) {
  code_.insert(code_.end(), b.begin(), b.end());
  return *this;
}

Assembler& Assembler::bytes(const std::vector<uint8_t>& b) {
  code_.insert(code_.end(), b.begin(), b.end());
  return *this;
}

Assembler& Assembler::fill(uint8_t byte, size_t count) {
  code_.insert(code_.end(), count, byte);
  return *this;
}

Assembler& Assembler::straight(unsigned n) {
  static const std::vector<uint8_t> kTable[kStraightKinds] = {
      {0x90},                                                        // nop
      {0x55},                                                        // push %rbp
      {0x48, 0x89, 0xe5},                                            // mov %rsp,%rbp
      {0x31, 0xc0},                                                  // xor %eax,%eax
      {0x48, 0x83, 0xec, 0x18},                                      // sub $0x18,%rsp
      {0xb8, 0x2a, 0x00, 0x00, 0x00},                                // mov $42,%eax
      {0x48, 0x8b, 0x44, 0x24, 0x08},                                // mov 8(%rsp),%rax
      {0x65, 0x48, 0x8b, 0x04, 0x25, 0x28, 0x00, 0x00, 0x00},        // mov %gs:0x28,%rax
      {0x48, 0xb8, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11},  // movabs
      {0x0f, 0xb6, 0x17},                                            // movzbl (%rdi),%edx
      {0xf0, 0xff, 0x07},                                            // lock incl (%rdi)
      {0x66, 0x0f, 0x6f, 0x06},                                      // movdqa (%rsi),%xmm0
      {0xc5, 0xfd, 0x6f, 0x07},                                      // vmovdqa (%rdi),%ymm0
      {0xf3, 0xa4},                                                  // rep movsb
  };
  return bytes(kTable[n % kStraightKinds]);
}

Assembler& Assembler::relative(std::initializer_list<uint8_t> opcode, unsigned width, const CodeRef& to) {
  bytes(opcode);
  fixups_.push_back({code_.size(), width, to});
  return fill(0, width);
}

Assembler& Assembler::jmp8(const CodeRef& to) { return relative({0xeb}, 1, to); }
Assembler& Assembler::jmp32(const CodeRef& to) { return relative({0xe9}, 4, to); }
Assembler& Assembler::jcc8(Cond c, const CodeRef& to) {
  return relative({static_cast<uint8_t>(0x70 | static_cast<uint8_t>(c))}, 1, to);
}
Assembler& Assembler::jcc32(Cond c, const CodeRef& to) {
  return relative({0x0f, static_cast<uint8_t>(0x80 | static_cast<uint8_t>(c))}, 4, to);
}
Assembler& Assembler::loop(const CodeRef& to) { return relative({0xe2}, 1, to); }
Assembler& Assembler::call(const CodeRef& to) { return relative({0xe8}, 4, to); }
Assembler& Assembler::ret_pop(uint16_t n) {
  return bytes({0xc2, static_cast<uint8_t>(n), static_cast<uint8_t>(n >> 8)});
}

std::vector<uint8_t> Assembler::finish() {
  for (const Fixup& f : fixups_) {
    const Addr to = f.to.name.empty() ? f.to.address : labels_.at(f.to.name);
    const auto d = static_cast<int64_t>(to - (base_ + f.at + f.width));
    const int64_t limit = f.width == 1 ? 0x7f : 0x7fffffff;
    if (d > limit || d < -limit - 1) throw std::out_of_range("branch to " + f.to.name + " is too far");
    for (unsigned i = 0; i < f.width; ++i)
      code_[f.at + i] = static_cast<uint8_t>(static_cast<uint64_t>(d) >> 8 * i);
  }
  fixups_.clear();
  for (size_t i = 0; i < symbols_.size(); ++i) {
    symbols_[i].size = (i + 1 < symbols_.size() ? symbols_[i + 1].address : here()) - symbols_[i].address;
  }
  return code_;
}

}  // namespace asof::test
