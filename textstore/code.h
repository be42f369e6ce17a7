// The stable codes of errors, gaps and notices. Decisions depend on the value of a code; its text
// ("E-FLOW-001") is for people and scripts.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string_view>

namespace asof {

enum class Code : uint8_t {
  kNone,
#define ASOF_CODE(name, text) name,
#include "textstore/codes.def"
#undef ASOF_CODE
};

// What a code is about: the middle of its text.
enum class CodeFamily : uint8_t { kNone, kData, kFile, kFlow, kLost, kSide, kText };

std::string_view code_text(Code code);               // "E-FLOW-001"; empty for kNone
std::optional<Code> code_of(std::string_view text);  // nullopt: no such code
CodeFamily family_of(Code code);
std::string_view family_text(CodeFamily family);  // "FLOW"; empty for kNone
// E-: an error or a loss; else (I-) information.
bool is_error_or_loss(Code code);
// E-DATA-1xx, E-SIDE-3xx and E-FILE: a file is damaged, not there, or says what cannot be.
bool is_damage(Code code);

std::ostream& operator<<(std::ostream& out, Code code);  // its text

}  // namespace asof
