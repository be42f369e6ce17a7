#include "tools/disasm.h"

#include <Zydis/Zydis.h>
#include <capstone/capstone.h>
#include <fmt/format.h>

#include <array>
#include <string_view>

namespace asof {
namespace {

struct ModeEntry {
  int bits;
  cs_mode capstone;
  ZydisMachineMode machine;
  ZydisStackWidth stack;
};
constexpr std::array<ModeEntry, 3> kModes{
    {{16, CS_MODE_16, ZYDIS_MACHINE_MODE_LEGACY_16, ZYDIS_STACK_WIDTH_16},
     {32, CS_MODE_32, ZYDIS_MACHINE_MODE_LEGACY_32, ZYDIS_STACK_WIDTH_32},
     {64, CS_MODE_64, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64}}};

size_t mode_index(int bits) { return bits == 16 ? 0 : bits == 32 ? 1 : 2; }

// The two libraries spell conditions differently: Capstone "jae", Zydis "jnb".
std::string_view zydis_condition(std::string_view c) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kNames{{{"e", "z"},
                                                                                 {"ne", "nz"},
                                                                                 {"ae", "nb"},
                                                                                 {"a", "nbe"},
                                                                                 {"ge", "nl"},
                                                                                 {"g", "nle"},
                                                                                 {"pe", "p"},
                                                                                 {"po", "np"}}};
  for (const auto& [from, to] : kNames) {
    if (c == from) return to;
  }
  return c;
}

bool same_mnemonic(std::string_view capstone, std::string_view zydis) {
  if (capstone == zydis) return true;
  for (const std::string_view stem : {"j", "set", "cmov"}) {
    if (capstone.starts_with(stem) && zydis.starts_with(stem)) {
      return zydis_condition(capstone.substr(stem.size())) == zydis.substr(stem.size());
    }
  }
  return capstone == "movabs" && zydis == "mov";
}

std::string bytes_text(std::span<const uint8_t> bytes) {
  std::string out = ".byte ";
  for (size_t i = 0; i < bytes.size(); ++i) out += fmt::format("{}{:#04x}", i == 0 ? "" : ", ", bytes[i]);
  return out;
}

}  // namespace

struct Disassembler::Impl {
  struct PerMode {
    csh capstone = 0;
    cs_insn* insn = nullptr;
    ZydisDecoder zydis;
  };
  std::array<PerMode, 3> modes;
  ZydisFormatter formatter;

  ~Impl() {
    for (PerMode& m : modes) {
      if (m.insn != nullptr) cs_free(m.insn, 1);
      if (m.capstone != 0) cs_close(&m.capstone);
    }
  }
};

Disassembler::Disassembler(Syntax syntax) : impl_(std::make_unique<Impl>()) {
  ZydisFormatterInit(&impl_->formatter,
                     syntax == Syntax::kIntel ? ZYDIS_FORMATTER_STYLE_INTEL : ZYDIS_FORMATTER_STYLE_ATT);
  for (size_t i = 0; i < kModes.size(); ++i) {
    Impl::PerMode& m = impl_->modes[i];
    ZydisDecoderInit(&m.zydis, kModes[i].machine, kModes[i].stack);
    if (cs_open(CS_ARCH_X86, kModes[i].capstone, &m.capstone) != CS_ERR_OK) {
      m.capstone = 0;
      continue;
    }
    cs_option(m.capstone, CS_OPT_SYNTAX, syntax == Syntax::kIntel ? CS_OPT_SYNTAX_INTEL : CS_OPT_SYNTAX_ATT);
    m.insn = cs_malloc(m.capstone);
  }
}

Disassembler::~Disassembler() = default;
Disassembler::Disassembler(Disassembler&&) noexcept = default;

std::string Disassembler::text(std::span<const uint8_t> bytes, Addr ip, int mode) {
  Impl::PerMode& m = impl_->modes[mode_index(mode)];
  ZydisDecodedInstruction insn;
  std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
  const bool zydis =
      ZYAN_SUCCESS(ZydisDecoderDecodeFull(&m.zydis, bytes.data(), bytes.size(), &insn, operands.data())) &&
      insn.length == bytes.size();
  const uint8_t* code = bytes.data();
  size_t left = bytes.size();
  uint64_t address = ip;
  const bool capstone =
      m.insn != nullptr && cs_disasm_iter(m.capstone, &code, &left, &address, m.insn) && left == 0;
  if (capstone && zydis) {
    const char* name = cs_insn_name(m.capstone, m.insn->id);
    if (name != nullptr && same_mnemonic(name, ZydisMnemonicGetString(insn.mnemonic))) {
      std::string out = m.insn->mnemonic;
      if (m.insn->op_str[0] != '\0') (out += ' ') += m.insn->op_str;
      return out;
    }
  }
  if (!zydis) return bytes_text(bytes);
  std::array<char, 256> buffer{};
  if (!ZYAN_SUCCESS(ZydisFormatterFormatInstruction(&impl_->formatter, &insn, operands.data(),
                                                    insn.operand_count_visible, buffer.data(), buffer.size(),
                                                    ip, nullptr))) {
    return bytes_text(bytes);
  }
  return buffer.data();
}

unsigned Disassembler::length(std::span<const uint8_t> bytes, int mode) {
  ZydisDecodedInstruction insn;
  const Impl::PerMode& m = impl_->modes[mode_index(mode)];
  return ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&m.zydis, nullptr, bytes.data(), bytes.size(), &insn))
             ? insn.length
             : 0;
}

}  // namespace asof
