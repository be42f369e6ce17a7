// Disassembly as text. Capstone prints; Zydis checks it, because Capstone 4 rejects some current instructions
// and misreads others. Where the two do not agree on length and mnemonic, Zydis prints; bytes that neither
// knows are shown as such. arm64 code is printed by Capstone alone: A64 as code of 64 bits, A32 of 32, T32 of
// 16. Nothing here decides control flow.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "textstore/address.h"

namespace asof {

enum class Syntax : uint8_t { kIntel, kAtt };
enum class CodeMachine : uint8_t { kX86, kArm64 };

// Of a capture, by its machine (uname -m).
CodeMachine code_machine(std::string_view machine);

// Not thread-safe: one for each thread.
class Disassembler {
 public:
  // `syntax` is of x86.
  explicit Disassembler(Syntax syntax, CodeMachine machine = CodeMachine::kX86);
  ~Disassembler();
  Disassembler(Disassembler&&) noexcept;

  // One instruction of exactly these bytes, code of `mode` bits (16, 32, 64).
  std::string text(std::span<const uint8_t> bytes, Addr ip, int mode);
  // Length of the instruction at the front; 0 when the bytes are none.
  unsigned length(std::span<const uint8_t> bytes, int mode);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace asof
