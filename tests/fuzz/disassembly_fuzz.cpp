// One instruction as the disassembler prints it: Capstone beside Zydis for x86, Capstone alone for arm64. A byte chooses, eight are
// the address, and the rest is code.
#include <algorithm>
#include <array>
#include <string>

#include "tests/fuzz/fuzz.h"
#include "tools/disasm/disasm.h"

namespace {

using asof::CodeMachine;
using asof::Disassembler;
using asof::Syntax;

bool is_bytes(const std::string& text) { return text.starts_with(".byte "); }

// Printable, and the same however often it is asked for.
std::string checked_text(Disassembler& d, asof::fuzz::Bytes code, asof::Addr ip, int mode) {
  std::string text = d.text(code, ip, mode);
  FUZZ_CHECK(!text.empty() && text.size() < 256);
  FUZZ_CHECK(std::ranges::all_of(text, [](char c) { return c == '\t' || (c >= ' ' && c <= '~'); }));
  FUZZ_CHECK(d.text(code, ip, mode) == text);
  return text;
}

}  // namespace

FUZZ_TARGET(disassembly) {
  static std::array<Disassembler, 3> all{Disassembler(Syntax::kIntel), Disassembler(Syntax::kAtt),
                                         Disassembler(Syntax::kIntel, CodeMachine::kArm64)};
  asof::fuzz::Input in(bytes);
  const uint8_t choice = in.byte();
  const asof::Addr ip = in.number(8);
  const asof::fuzz::Bytes code = in.rest().first(std::min<size_t>(in.rest().size(), 20));
  const bool arm = choice % 3 == 2;
  Disassembler& d = all[choice % 3];
  const int mode = std::array{16, 32, 64}[choice / 3 % 3];
  const unsigned length = d.length(code, mode);
  FUZZ_CHECK(length <= std::min<size_t>(code.size(), arm ? 4 : 15));
  if (length == 0) {
    if (!code.empty() && !arm) FUZZ_CHECK(is_bytes(checked_text(d, code, ip, mode)));
    return;
  }
  // Of x86, what Zydis knows is printed, by one of the two.
  FUZZ_CHECK(arm || !is_bytes(checked_text(d, code.first(length), ip, mode)));
  if (arm) checked_text(d, code.first(length), ip, mode);
  if (length > 1) checked_text(d, code.first(length - 1), ip, mode);
}
