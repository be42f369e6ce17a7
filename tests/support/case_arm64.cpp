#include "tests/support/case_arm64.h"

#include <fmt/format.h>

#include <map>

#include "tests/support/etm_asm.h"

namespace asof::test {

namespace {

const std::map<std::string, uint32_t>& fixed_words() {
  static const std::map<std::string, uint32_t> all = {
      {"nop", a64::kNop},      {"isb", a64::kIsb},        {"ret", a64::kRet},
      {"retaa", a64::kRetaa},  {"eret", a64::kEret},      {"mov x9, x30", a64::kMovX9X30},
      {"bti c", a64::kBtiC},   {"br x1", a64::br(1)},     {"br x16", a64::br(16)},
      {"blr x1", a64::blr(1)}, {"braa x1", a64::braa(1)}, {"svc", a64::svc(0)},
      {"ldr x16", 0x58000050},  // loads the literal two words further on
  };
  return all;
}

unsigned number_or(const std::string& word, unsigned otherwise) {
  return word.empty() ? otherwise : static_cast<unsigned>(parse_number(word));
}

}  // namespace

std::optional<std::vector<uint8_t>> encode_arm64(const CaseProgram& program, Addr at,
                                                 const std::string& words) {
  if (const auto it = fixed_words().find(words); it != fixed_words().end()) return a64::bytes_of(it->second);
  const std::vector<std::string> w = split_words(words);
  if (w.size() != 2) return std::nullopt;
  if (w[0] == "mov") return a64::bytes_of(a64::straight(number_or(w[1], 0)));
  if (w[0] == "brk") return a64::bytes_of(a64::brk(static_cast<uint16_t>(parse_number(w[1]))));
  if (w[0] == "word") return a64::bytes_of(static_cast<uint32_t>(parse_number(w[1])));
  try {
    if (w[0] == "b") return a64::bytes_of(a64::b(at, program.address(w[1])));
    if (w[0] == "bl") return a64::bytes_of(a64::bl(at, program.address(w[1])));
    if (w[0] == "b.ne") return a64::bytes_of(a64::b_cond(at, program.address(w[1]), 1));
    if (w[0] == "cbz") return a64::bytes_of(a64::cbz(at, program.address(w[1]), 0));
    if (w[0] == "tbz") return a64::bytes_of(a64::tbz(at, program.address(w[1]), 0, 3));
  } catch (const std::out_of_range&) {
    throw CaseError(fmt::format("'{}' does not reach its target", words));
  }
  return std::nullopt;
}

bool arm64_option(CaseArm64& out, const std::vector<std::string>& words) {
  if (words[0] == "return-stack")
    out.return_stack = true;
  else if (words[0] == "counter-offset")
    out.counter_offset = case_time(words.at(1)) - kCaseBase;
  else if (words[0] == "counter-unknown")
    out.counter_unknown = true;
  else if (words[0] == "big-endian")
    out.big_endian = true;
  else
    return false;
  return true;
}

}  // namespace asof::test
