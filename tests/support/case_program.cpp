#include "tests/support/case_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tests/support/case_arm64.h"

namespace asof::test {

namespace {

struct Fixed {
  std::string_view name;
  std::vector<uint8_t> bytes;
};

const std::vector<Fixed>& fixed_insns() {
  static const std::vector<Fixed> all = {
      {"nop", {0x90}},
      {"nop2", {0x66, 0x90}},
      {"nop5", {0x0f, 0x1f, 0x44, 0x00, 0x00}},
      {"endbr", {0xf3, 0x0f, 0x1e, 0xfa}},
      {"jmp *rax", {0xff, 0xe0}},
      {"call *rax", {0xff, 0xd0}},
      {"ret", {0xc3}},
      {"int3", {0xcc}},
      {"iret", {0x48, 0xcf}},
      {"syscall", {0x0f, 0x05}},
      {"sysret", {0x48, 0x0f, 0x07}},
  };
  return all;
}

// Instructions with a relative target: opcode and width of the displacement.
struct Relative {
  std::string_view name;
  std::vector<uint8_t> opcode;
  unsigned width;
};

const std::vector<Relative>& relative_insns() {
  static const std::vector<Relative> all = {
      {"jmp8", {0xeb}, 1}, {"jmp32", {0xe9}, 4},       {"call", {0xe8}, 4},
      {"jcc8", {0x75}, 1}, {"jcc32", {0x0f, 0x85}, 4},
  };
  return all;
}

std::string_view trim(std::string_view s) {
  const auto first = s.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(" \t\r") - first + 1);
}

bool is_label(std::string_view s) {
  return !s.empty() && std::ranges::all_of(s, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '$';
  });
}

}  // namespace

std::string trimmed(std::string_view s) { return std::string(trim(s)); }

std::vector<std::string> split_words(std::string_view s) {
  std::vector<std::string> out;
  for (size_t at = 0; at < s.size();) {
    const size_t begin = s.find_first_not_of(" \t\r", at);
    if (begin == std::string_view::npos) break;
    const size_t end = std::min(s.find_first_of(" \t\r", begin), s.size());
    out.emplace_back(s.substr(begin, end - begin));
    at = end;
  }
  return out;
}

std::vector<std::string> split_at(std::string_view s, char separator) {
  std::vector<std::string> out;
  for (;;) {
    const size_t at = s.find(separator);
    out.emplace_back(trim(s.substr(0, at)));
    if (at == std::string_view::npos) return out;
    s.remove_prefix(at + 1);
  }
}

uint64_t parse_number(std::string_view word) {
  const bool hex = word.starts_with("0x");
  const std::string_view digits = hex ? word.substr(2) : word;
  uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, hex ? 16 : 10);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size())
    throw CaseError(fmt::format("'{}' is not a number", word));
  return value;
}

std::vector<uint8_t> CaseText::bytes() const {
  std::vector<uint8_t> out(size(), 0xcc);
  for (const CaseInsn& i : insns)
    std::ranges::copy(i.bytes, out.begin() + static_cast<std::ptrdiff_t>(i.at - begin));
  return out;
}

std::vector<uint8_t> bytes_of(std::span<const CaseInsn> insns) {
  std::vector<uint8_t> out;
  for (const CaseInsn& i : insns) out.insert(out.end(), i.bytes.begin(), i.bytes.end());
  return out;
}

void CaseProgram::begin_text(const std::string& name, CaseArea area, Addr begin, int32_t process) {
  texts_.push_back({.name = name, .area = area, .begin = begin, .process = process, .insns = {}});
  sources_.emplace_back();
  open_.clear();
  here_ = begin;
}

const CaseText& CaseProgram::text(const std::string& name) const {
  for (const CaseText& t : texts_) {
    if (t.name == name) return t;
  }
  throw CaseError(fmt::format("unknown text '{}'", name));
}

// First pass: lengths do not depend on labels.
void CaseProgram::place(const std::string& words) {
  CaseText& text = texts_.back();
  size_t length = arm64_ ? 4 : 0;
  for (const Relative& r : relative_insns()) {
    if (arm64_) break;
    if (words.starts_with(r.name) && words.size() > r.name.size() && words[r.name.size()] == ' ' &&
        words.find('*') == std::string::npos)
      length = r.opcode.size() + r.width;
  }
  if (length == 0) length = encode(here_, words).bytes.size();
  text.insns.push_back({here_, std::vector<uint8_t>(length)});
  sources_.back().push_back(words);
  if (!open_.empty()) ++blocks_[open_].count;
  here_ += length;
}

void CaseProgram::line(std::string_view text) {
  if (texts_.empty()) throw CaseError("an instruction outside a [text] section");
  text = trim(text);
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    const std::string label(trim(text.substr(0, colon)));
    if (!is_label(label)) throw CaseError(fmt::format("'{}' is not a label", label));
    if (!labels_.emplace(label, here_).second) throw CaseError(fmt::format("label '{}' occurs twice", label));
    open_ = label;
    blocks_[label] = {texts_.size() - 1, texts_.back().insns.size(), 0};
    text = trim(text.substr(colon + 1));
  }
  if (text.empty()) return;
  const std::vector<std::string> words = split_words(text);
  if (words[0] == "org" || words[0] == "align") {
    const uint64_t n = parse_number(words.at(1));
    const Addr to = words[0] == "org" ? n : (here_ + n - 1) / n * n;
    if (to < here_) throw CaseError("org goes backwards");
    here_ = to;
    open_.clear();
  } else if (words[0] == "fill") {
    for (uint64_t n = parse_number(words.at(1)); n > 0; --n) place("db " + words.at(2));
  } else if (words[0] == "nops") {
    for (uint64_t n = parse_number(words.at(1)); n > 0; --n) place("nop");
  } else {
    place(fmt::format("{}", fmt::join(words, " ")));
  }
}

void CaseProgram::finish() {
  for (size_t t = 0; t < texts_.size(); ++t) {
    for (size_t i = 0; i < texts_[t].insns.size(); ++i) {
      texts_[t].insns[i] = encode(texts_[t].insns[i].at, sources_[t][i]);
    }
  }
}

Addr CaseProgram::address(std::string_view expression) const {
  expression = trim(expression);
  const size_t sign = expression.find_first_of("+-");
  const std::string name(trim(expression.substr(0, sign)));
  Addr a = 0;
  if (const auto it = labels_.find(name); it != labels_.end())
    a = it->second;
  else if (name.starts_with("0x"))
    a = parse_number(name);
  else
    throw CaseError(fmt::format("unknown label '{}'", name));
  if (sign == std::string_view::npos) return a;
  const uint64_t n = parse_number(trim(expression.substr(sign + 1)));
  return expression[sign] == '+' ? a + n : a - n;
}

std::span<const CaseInsn> CaseProgram::block(const std::string& label) const {
  const auto it = blocks_.find(label);
  if (it == blocks_.end() || it->second.count == 0)
    throw CaseError(fmt::format("no instructions after label '{}'", label));
  return std::span(texts_[it->second.text].insns).subspan(it->second.first, it->second.count);
}

CaseInsn CaseProgram::encode(Addr at, const std::string& words) const {
  if (arm64_) {
    const auto bytes = encode_arm64(*this, at, words);
    if (!bytes) throw CaseError(fmt::format("unknown instruction '{}'", words));
    return {at, *bytes};
  }
  for (const Fixed& f : fixed_insns()) {
    if (words == f.name) return {at, f.bytes};
  }
  if (words.starts_with("db ")) {
    CaseInsn out{at, {}};
    for (const std::string& w : split_words(words.substr(3)))
      out.bytes.push_back(static_cast<uint8_t>(parse_number("0x" + w)));
    return out;
  }
  for (const Relative& r : relative_insns()) {
    if (!words.starts_with(std::string(r.name) + " ")) continue;
    CaseInsn out{at, r.opcode};
    const Addr target = address(std::string_view(words).substr(r.name.size()));
    const uint64_t disp = target - (at + r.opcode.size() + r.width);
    const auto fits = static_cast<int64_t>(disp);
    if (r.width == 1 ? fits != static_cast<int8_t>(fits) : fits != static_cast<int32_t>(fits))
      throw CaseError(fmt::format("'{}' does not reach its target", words));
    for (unsigned i = 0; i < r.width; ++i) out.bytes.push_back(static_cast<uint8_t>(disp >> (8 * i)));
    return out;
  }
  throw CaseError(fmt::format("unknown instruction '{}'", words));
}

std::vector<CaseInsn> CaseProgram::assemble(Addr at, std::string_view list) const {
  list = trim(list);
  if (list == "nothing") return {};
  if (list.starts_with("text ")) return text(std::string(trim(list.substr(5)))).insns;
  std::vector<CaseInsn> out;
  for (const std::string& part : split_at(list, ';')) {
    out.push_back(encode(at, fmt::format("{}", fmt::join(split_words(part), " "))));
    at += out.back().bytes.size();
  }
  return out;
}

}  // namespace asof::test
