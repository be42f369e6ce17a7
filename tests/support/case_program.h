// CaseProgram: the code of a case file (tests/cases/, tests/README.md "Cases"): one instruction per line,
// with labels between them. A line of the expected flow names a *block*: the instructions from one label up
// to the next. Blocks are thus found by position and not by what the instructions do; the code under test
// determines that itself.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "textstore/address.h"

namespace asof::test {

// A case file that cannot be understood: gives file, line and reason.
class CaseError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct CaseInsn {
  Addr at = 0;
  std::vector<uint8_t> bytes;
};

// Where the decoder can find an area's bytes.
enum class CaseArea : uint8_t {
  kKernel,      // kcore, inside [_stext, _etext)
  kModule,      // kcore, /proc/modules, a mapping
  kGenerated,   // kcore, a [bpf] symbol of kallsyms
  kLateModule,  // as kModule, but only in the copy taken at the end
  kLateGenerated,
  kUnclaimed,  // kcore, but nothing says that it is text
  kHidden,     // in no copy
  kUser,       // a program's file, mapped when the recording begins
  kLateUser,   // a program's file, mapped by events only
};

struct CaseText {
  std::string name;
  CaseArea area = CaseArea::kKernel;
  Addr begin = 0;
  int32_t process = 1;  // kUser, kLateUser: whose text
  std::vector<CaseInsn> insns;
  std::vector<uint8_t> bytes() const;  // INT3 fills what `org` and `align` skip
  uint64_t size() const { return insns.empty() ? 0 : insns.back().at + insns.back().bytes.size() - begin; }
};

struct CaseBlock {
  size_t text = 0;
  size_t first = 0, count = 0;  // of its instructions
};

std::string trimmed(std::string_view s);
std::vector<std::string> split_words(std::string_view s);
// Splits at `separator` and removes surrounding blanks from the parts.
std::vector<std::string> split_at(std::string_view s, char separator);
uint64_t parse_number(std::string_view word);

class CaseProgram {
 public:
  void use_arm64() { arm64_ = true; }
  bool is_arm64() const { return arm64_; }
  void begin_text(const std::string& name, CaseArea area, Addr begin, int32_t process);
  // One line of a [text] section: "label:", "label: instruction", "instruction", "org X", "align N",
  // "fill N BYTE", "nops N".
  void line(std::string_view text);
  void finish();  // labels become addresses

  const std::vector<CaseText>& texts() const { return texts_; }
  const CaseText& text(const std::string& name) const;
  const std::map<std::string, Addr>& labels() const { return labels_; }
  // "label", "label+3", "label-0x10", "0xffffffff81000000".
  Addr address(std::string_view expression) const;
  std::span<const CaseInsn> block(const std::string& label) const;
  // "nop5; ret", "db cc 55", "text NAME" or "nothing", placed at `at`.
  std::vector<CaseInsn> assemble(Addr at, std::string_view list) const;

 private:
  struct Source {
    std::string words;
    Addr at = 0;
  };
  CaseInsn encode(Addr at, const std::string& words) const;
  void place(const std::string& words);

  std::vector<CaseText> texts_;
  std::vector<std::vector<std::string>> sources_;  // of each text's instructions
  std::map<std::string, Addr> labels_;
  std::map<std::string, CaseBlock> blocks_;
  std::string open_;  // block that the next instruction belongs to
  Addr here_ = 0;
  bool arm64_ = false;
};

std::vector<uint8_t> bytes_of(std::span<const CaseInsn> insns);

}  // namespace asof::test
