#include "tools/disasm/disasm.h"

#include <Zydis/Zydis.h>
#include <capstone/capstone.h>
#include <fmt/format.h>

#include <array>
#include <mutex>
#include <string_view>

namespace asof {
namespace {

struct ModeEntry {
  int bits;
  cs_mode capstone;
  ZydisMachineMode machine;
  ZydisStackWidth stack;
};
struct ArmEntry {
  cs_arch arch;
  cs_mode mode;
};
// By mode_index(): T32, A32, A64.
constexpr std::array<ArmEntry, 3> kArmModes{
    {{CS_ARCH_ARM, CS_MODE_THUMB}, {CS_ARCH_ARM, CS_MODE_ARM}, {CS_ARCH_ARM64, CS_MODE_LITTLE_ENDIAN}}};

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

// Capstone 4 sorts a table of its own when it first writes an instruction in Intel syntax, under no lock.
void sort_table(csh capstone, cs_insn* insn) {
  static std::once_flag sorted;
  std::call_once(sorted, [&] {
    constexpr std::array<uint8_t, 1> kNop = {0x90};
    const uint8_t* code = kNop.data();
    size_t left = kNop.size();
    uint64_t address = 0;
    cs_disasm_iter(capstone, &code, &left, &address, insn);
  });
}

// After IT, Capstone prints the next instructions that it is asked for, up to four, with conditions: in a run of code the next ones,
// here any. No text may depend on what was asked for before.
void leave_it_block(csh capstone, cs_insn* scratch) {
  constexpr std::array<uint8_t, 8> kNops = {0, 0xbf, 0, 0xbf, 0, 0xbf, 0, 0xbf};
  const uint8_t* code = kNops.data();
  size_t left = kNops.size();
  uint64_t address = 0;
  while (left > 0 && cs_disasm_iter(capstone, &code, &left, &address, scratch)) {
  }
}

}  // namespace

struct Disassembler::Impl {
  struct PerMode {
    csh capstone = 0;
    cs_insn* insn = nullptr;
    cs_insn* scratch = nullptr;  // of T32
    ZydisDecoder zydis;
  };
  std::array<PerMode, 3> modes;
  ZydisFormatter formatter;
  CodeMachine machine = CodeMachine::kX86;

  void open_x86(Syntax syntax);
  void open_arm64();
  // By Capstone; nullptr when it does not know exactly these bytes.
  const cs_insn* capstone(std::span<const uint8_t> bytes, Addr ip, int mode);

  ~Impl() {
    for (PerMode& m : modes) {
      if (m.insn != nullptr) cs_free(m.insn, 1);
      if (m.scratch != nullptr) cs_free(m.scratch, 1);
      if (m.capstone != 0) cs_close(&m.capstone);
    }
  }
};

void Disassembler::Impl::open_arm64() {
  for (size_t i = 0; i < kArmModes.size(); ++i) {
    PerMode& m = modes[i];
    if (cs_open(kArmModes[i].arch, kArmModes[i].mode, &m.capstone) != CS_ERR_OK) {
      m.capstone = 0;
      continue;
    }
    m.insn = cs_malloc(m.capstone);
    if (kArmModes[i].mode == CS_MODE_THUMB) m.scratch = cs_malloc(m.capstone);
  }
}

const cs_insn* Disassembler::Impl::capstone(std::span<const uint8_t> bytes, Addr ip, int mode) {
  PerMode& m = modes[mode_index(mode)];
  const uint8_t* code = bytes.data();
  size_t left = bytes.size();
  uint64_t address = ip;
  const bool known =
      m.insn != nullptr && cs_disasm_iter(m.capstone, &code, &left, &address, m.insn) && left == 0;
  if (known && m.scratch != nullptr && m.insn->id == ARM_INS_IT) leave_it_block(m.capstone, m.scratch);
  return known ? m.insn : nullptr;
}

Disassembler::Disassembler(Syntax syntax, CodeMachine machine) : impl_(std::make_unique<Impl>()) {
  impl_->machine = machine;
  if (machine == CodeMachine::kX86) {
    impl_->open_x86(syntax);
  } else {
    impl_->open_arm64();
  }
}

void Disassembler::Impl::open_x86(Syntax syntax) {
  ZydisFormatterInit(&formatter,
                     syntax == Syntax::kIntel ? ZYDIS_FORMATTER_STYLE_INTEL : ZYDIS_FORMATTER_STYLE_ATT);
  for (size_t i = 0; i < kModes.size(); ++i) {
    PerMode& m = modes[i];
    ZydisDecoderInit(&m.zydis, kModes[i].machine, kModes[i].stack);
    if (cs_open(CS_ARCH_X86, kModes[i].capstone, &m.capstone) != CS_ERR_OK) {
      m.capstone = 0;
      continue;
    }
    cs_option(m.capstone, CS_OPT_SYNTAX, syntax == Syntax::kIntel ? CS_OPT_SYNTAX_INTEL : CS_OPT_SYNTAX_ATT);
    m.insn = cs_malloc(m.capstone);
    if (m.insn != nullptr && syntax == Syntax::kIntel) sort_table(m.capstone, m.insn);
  }
}

Disassembler::~Disassembler() = default;
Disassembler::Disassembler(Disassembler&&) noexcept = default;

CodeMachine code_machine(std::string_view machine) {
  for (const std::string_view arm : {"aarch64", "arm64", "armv8l", "armv7l", "arm"}) {
    if (machine == arm) return CodeMachine::kArm64;
  }
  return CodeMachine::kX86;
}

std::string Disassembler::text(std::span<const uint8_t> bytes, Addr ip, int mode) {
  const cs_insn* known = impl_->capstone(bytes, ip, mode);
  if (impl_->machine == CodeMachine::kArm64) {
    if (known == nullptr) return bytes_text(bytes);
    return known->op_str[0] == '\0' ? std::string(known->mnemonic)
                                    : fmt::format("{} {}", known->mnemonic, known->op_str);
  }
  Impl::PerMode& m = impl_->modes[mode_index(mode)];
  ZydisDecodedInstruction insn;
  std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
  const bool zydis =
      ZYAN_SUCCESS(ZydisDecoderDecodeFull(&m.zydis, bytes.data(), bytes.size(), &insn, operands.data())) &&
      insn.length == bytes.size();
  if (known != nullptr && zydis) {
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
  if (impl_->machine == CodeMachine::kArm64) {
    // T32: a first halfword from 0xe800 on has a second one.
    const unsigned size = mode == 16 && bytes.size() >= 2 && bytes[1] < 0xe8 ? 2 : 4;
    return bytes.size() >= size ? size : 0;
  }
  ZydisDecodedInstruction insn;
  const Impl::PerMode& m = impl_->modes[mode_index(mode)];
  return ZYAN_SUCCESS(ZydisDecoderDecodeInstruction(&m.zydis, nullptr, bytes.data(), bytes.size(), &insn))
             ? insn.length
             : 0;
}

}  // namespace asof
