#include "tools/script/sample_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <string_view>

#include "decoder/io/reader.h"

namespace asof {
namespace {

// Numbers of registers in perf_event_attr.sample_regs_*: arch/x86/include/uapi/asm/perf_regs.h and its like.
constexpr std::array<std::string_view, 24> kX86{"AX", "BX",    "CX",  "DX",  "SI",  "DI",  "BP",  "SP",
                                                "IP", "FLAGS", "CS",  "SS",  "DS",  "ES",  "FS",  "GS",
                                                "R8", "R9",    "R10", "R11", "R12", "R13", "R14", "R15"};

std::string register_name(unsigned number, CodeMachine machine) {
  if (machine == CodeMachine::kX86)
    return number < kX86.size() ? std::string(kX86[number]) : fmt::format("XMM{}", (number - 32) / 2);
  constexpr unsigned kLr = 30, kSp = 31, kPc = 32, kVg = 46;
  switch (number) {
    case kLr:
      return "lr";
    case kSp:
      return "sp";
    case kPc:
      return "pc";
    case kVg:
      return "vg";
    default:
      return fmt::format("x{}", number);
  }
}

// A line of at most kInLine bytes: offset, bytes, text.
constexpr size_t kInLine = 8;
void bpf_line(std::string& out, std::span<const uint8_t> bytes, size_t at) {
  const auto it = std::back_inserter(out);
  const auto line = bytes.subspan(at, std::min(kInLine, bytes.size() - at));
  fmt::format_to(it, "{:>17} {:04x}:", at == 0 ? "BPF output:" : "", at);
  for (const uint8_t byte : line) fmt::format_to(it, " {:02x}", byte);
  out.append((kInLine - line.size()) * 3 + 2, ' ');
  for (const uint8_t byte : line) out += std::isprint(byte) != 0 ? static_cast<char>(byte) : '.';
  out.append(kInLine - line.size(), ' ');
  out += '\n';
}

}  // namespace

// The bits: struct perf_branch_entry.
std::string branch_entry_words(uint64_t flags) {
  const bool mispredicted = (flags & 1U) != 0, predicted = (flags & 2U) != 0;
  const uint64_t cycles = flags >> 4U & UINT16_MAX, type = flags >> 20U & 0xf;
  static constexpr std::array<std::string_view, 15> kTypes{
      "",       "COND",      "UNCOND",   "IND",  "CALL", "IND_CALL", "RET",  "SYSCALL",
      "SYSRET", "COND_CALL", "COND_RET", "ERET", "IRQ",  "SERROR",   "NO_TX"};
  return fmt::format("/{}/{}/{}/{}/{} ",
                     predicted      ? 'P'
                     : mispredicted ? 'M'
                                    : '-',
                     (flags & 4U) != 0 ? 'X' : '-', (flags & 8U) != 0 ? 'A' : '-', cycles,
                     type < kTypes.size() ? kTypes[type] : "");
}

std::string register_words(const FullSample::Registers& registers, uint64_t mask, CodeMachine machine,
                           bool swapped) {
  if (registers.values.empty()) return {};
  Reader in(registers.values, swapped);
  std::string out = fmt::format(" ABI:{} ", registers.abi);
  for (unsigned bit = 0; bit < 64; ++bit) {
    if ((mask >> bit & 1U) != 0)
      fmt::format_to(std::back_inserter(out), "{:>5}:0x{:x} ", register_name(bit, machine), in.u64());
  }
  return out;
}

std::string page_size_word(uint64_t bytes) {
  if (bytes == 0) return "N/A";
  constexpr std::string_view kUnits = "BKMGTPE";
  size_t unit = 0;
  while (unit + 1 < kUnits.size() && bytes >= 1024) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{}{}", bytes, kUnits[unit]);
}

std::string bpf_output_lines(std::span<const uint8_t> bytes) {
  if (bytes.empty()) return {};
  std::string out = "\n";
  for (size_t at = 0; at < bytes.size(); at += kInLine) bpf_line(out, bytes, at);
  const auto end = std::ranges::find(bytes, uint8_t{0});
  const bool text = end != bytes.end() &&
                    std::all_of(bytes.begin(), end, [](uint8_t c) { return std::isprint(c) != 0; }) &&
                    std::all_of(end, bytes.end(), [](uint8_t c) { return c == 0; });
  if (text)
    fmt::format_to(std::back_inserter(out), "{:>17} \"{}\"\n",
                   "BPF string:", std::string(bytes.begin(), end));
  return out;
}

}  // namespace asof
