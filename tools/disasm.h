// Disassembly as text. Capstone prints; Zydis checks it, because Capstone 4 refuses some current instructions
// and takes others for something else. Where the two do not agree on length and mnemonic, Zydis prints; where
// neither knows the bytes they are shown as such. Nothing here decides control flow.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "textstore/address.h"

namespace asof {

enum class Syntax : uint8_t { kIntel, kAtt };

// Not thread-safe: one for each thread.
class Disassembler {
 public:
  explicit Disassembler(Syntax syntax);
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
