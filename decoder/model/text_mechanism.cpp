#include "decoder/model/text_mechanism.h"

#include <algorithm>
#include <cstring>

namespace asof {
namespace {

using Bytes = std::span<const uint8_t>;

constexpr std::array<uint8_t, 2> kNop2 = {0x66, 0x90};
constexpr std::array<uint8_t, 5> kNop5 = {0x0f, 0x1f, 0x44, 0x00, 0x00};
// arch/x86/kernel/static_call.c: "xorl %eax, %eax" with prefixes, and RET followed by INT3.
constexpr std::array<uint8_t, 5> kReturnZero = {0x2e, 0x2e, 0x2e, 0x31, 0xc0};
constexpr uint8_t kInt3 = 0xcc, kCall = 0xe8, kJump32 = 0xe9, kJump8 = 0xeb, kReturn = 0xc3;
// Fentry calls are at the start of a function, or after its ENDBR64.
constexpr uint64_t kEndbrSize = 4;

template <size_t N>
bool is(Bytes bytes, const std::array<uint8_t, N>& pattern) {
  return std::ranges::equal(bytes, pattern);
}
bool is_nop(Bytes b) { return is(b, kNop2) || is(b, kNop5); }
bool is_call(Bytes b) { return b.size() == 5 && b[0] == kCall; }
bool is_jump(Bytes b) { return (b.size() == 5 && b[0] == kJump32) || (b.size() == 2 && b[0] == kJump8); }
bool is_jcc32(Bytes b) { return b.size() == 6 && b[0] == 0x0f && (b[1] & 0xf0U) == 0x80; }
bool is_static_call_end(Bytes b) { return is(b, kReturnZero) || (b.size() == 5 && b[0] == kReturn); }

bool of_bpf(std::string_view symbol) {
  return symbol.starts_with("bpf_") && symbol != "bpf_dispatcher_nop_func";
}
bool is_bpf_code(std::string_view symbol) {
  return symbol.starts_with("bpf_prog_") || symbol.starts_with("bpf_trampoline_") ||
         symbol.starts_with("bpf_dispatcher_");
}
bool is_ftrace_code(std::string_view s) {
  return s.starts_with("ftrace_") || s == "arch_ftrace_ops_list_func" || s == "function_trace_call";
}

template <class T>
T read_as(Bytes b, size_t at) {
  T value = 0;
  std::memcpy(&value, b.data() + at, sizeof value);
  return value;
}

// arm64 words (arch/arm64/include/asm/insn.h, brk-imm.h).
constexpr uint32_t kArmNop = 0xd503201f, kArmMovX9X30 = 0xaa1e03e9, kArmKprobe = 0xd4200080;
bool is_arm_b(uint32_t w) { return (w & 0xfc000000U) == 0x14000000U; }
bool is_arm_bl(uint32_t w) { return (w & 0xfc000000U) == 0x94000000U; }

}  // namespace

std::string_view mechanism_name(Mechanism m) {
  static constexpr std::array<std::string_view, kMechanisms> kNames{
      "unknown", "jump_label", "ftrace",      "kprobe",  "static_call",
      "bpf",     "module",     "out_of_line", "mapping", "jit"};
  return kNames[static_cast<size_t>(m)];
}

std::optional<Addr> direct_target(Bytes b, Addr at, bool arm64) {
  if (arm64) {
    if (b.size() != 4) return std::nullopt;
    const uint32_t word = read_as<uint32_t>(b, 0);
    if (!is_arm_b(word) && !is_arm_bl(word)) return std::nullopt;
    const auto words = static_cast<int32_t>(word << 6U) >> 6;
    return at + static_cast<Addr>(static_cast<int64_t>(words) * 4);
  }
  int64_t displacement = 0;
  if (b.size() == 2 && b[0] == kJump8) {
    displacement = read_as<int8_t>(b, 1);
  } else if (b.size() == 5 && (b[0] == kCall || b[0] == kJump32)) {
    displacement = read_as<int32_t>(b, 1);
  } else if (is_jcc32(b)) {
    displacement = read_as<int32_t>(b, 2);
  } else {
    return std::nullopt;
  }
  return at + b.size() + static_cast<Addr>(displacement);
}

Recognizer::Recognizer(const Capture& capture)
    : capture_(capture), arm64_(capture.machine == "aarch64" || capture.machine == "arm64") {}

Recognizer::Site Recognizer::site_at(Space space, Addr at, Time t) const {
  const auto found = capture_.symbols.find(space, at, t);
  if (!found) return {};
  const std::string& dso = found->symbol->dso;
  return {found->symbol->name, found->offset,
          dso.starts_with('[') && dso != "[kernel.kallsyms]" && space == kKernelSpace};
}

std::string_view Recognizer::target_name(Bytes bytes, const PokeRecord& poke) const {
  const auto target = direct_target(bytes, poke.addr, arm64_);
  return target ? site_at(kKernelSpace, *target, poke.time).symbol : std::string_view();
}

Recognized Recognizer::poke(const PokeRecord& p) const {
  if (p.old_len == 0 || p.new_len == 0) return whole(p);
  if (arm64_) return arm64(p);
  return x86(p, site_at(kKernelSpace, p.addr, p.time));
}

// An install or a removal: the symbol of its page shows whose memory it is. A removal comes before the
// symbol's end, an install after its beginning; a kprobe page is older than both.
Recognized Recognizer::whole(const PokeRecord& p) const {
  const bool install = p.old_len == 0;
  std::string_view symbol = site_at(kKernelSpace, p.addr, p.time).symbol;
  if (symbol.empty() && !install) symbol = site_at(kKernelSpace, p.addr, p.time - 1).symbol;
  if (symbol.starts_with("kprobe_optinsn"))
    return {Mechanism::kKprobe, install ? "optimised slot filled" : "optimised slot emptied"};
  if (symbol.starts_with("kprobe_")) return {Mechanism::kKprobe, install ? "slot filled" : "slot emptied"};
  if (symbol.starts_with("ftrace_"))
    return {Mechanism::kFtrace, install ? "trampoline installed" : "trampoline removed"};
  if (is_bpf_code(symbol)) return {Mechanism::kBpf, install ? "code installed" : "code removed"};
  return {Mechanism::kOutOfLine, install ? "code installed" : "code removed"};
}

Recognized Recognizer::x86(const PokeRecord& p, const Site& site) const {
  const Bytes from = p.old_bytes();
  const Bytes to = p.new_bytes();
  if (from.size() == 1 && to[0] == kInt3) return {Mechanism::kKprobe, "armed"};
  if (from.size() == 1 && from[0] == kInt3) return {Mechanism::kKprobe, "disarmed"};
  // arch_optimize_kprobes(), arch_unoptimize_kprobe(): the other side still has its INT3.
  if (from.size() == 5 && from[0] == kInt3 && to[0] == kJump32) return {Mechanism::kKprobe, "optimised"};
  if (to.size() == 5 && to[0] == kInt3 && from[0] == kJump32) return {Mechanism::kKprobe, "un-optimised"};
  if (site.symbol.starts_with("__SCT__bpf_dispatcher")) return {Mechanism::kBpf, "dispatcher switched"};
  if (site.symbol.starts_with("__SCT__")) return {Mechanism::kStaticCall, "trampoline retargeted"};
  if (site.symbol.starts_with("bpf_prog_"))
    return {Mechanism::kBpf, "call or tail call of a program changed"};
  if (is_bpf_code(site.symbol)) return {Mechanism::kBpf, "trampoline changed"};
  if (is_ftrace_code(site.symbol)) return {Mechanism::kFtrace, "callback of a trampoline changed"};
  return x86_branch(p, site);
}

// The function tracer writes the bytes that are already there when only its callbacks change; a kernel that
// pokes the same bytes elsewhere cannot be distinguished by them.
Mechanism Recognizer::unchanged(Bytes bytes, const Site& site) const {
  const bool entry = !site.symbol.empty() && (site.offset == 0 || site.offset == kEndbrSize);
  return is_call(bytes) && entry ? Mechanism::kFtrace : Mechanism::kUnknown;
}

Recognized Recognizer::x86_branch(const PokeRecord& p, const Site& site) const {
  const Bytes from = p.old_bytes();
  const Bytes to = p.new_bytes();
  if (std::ranges::equal(from, to)) return {unchanged(from, site), "written again"};
  const std::string_view before = target_name(from, p);
  const std::string_view after = target_name(to, p);
  const bool on = is_nop(from);
  const bool call = is_call(from) || is_call(to);
  if (of_bpf(before) || of_bpf(after)) {
    return {Mechanism::kBpf, !of_bpf(before)  ? "trampoline attached"
                             : !of_bpf(after) ? "trampoline detached"
                                              : "trampoline replaced"};
  }
  const bool entry = site.offset == 0 || site.offset == kEndbrSize;
  const bool tracer = is_ftrace_code(before) || is_ftrace_code(after);
  if (tracer || (call && !site.symbol.empty() && entry && (is_nop(from) || is_nop(to)))) {
    return {Mechanism::kFtrace, on ? "tracing on" : is_nop(to) ? "tracing off" : "tracer changed"};
  }
  if (is_nop(from) && is_jump(to)) return {Mechanism::kJumpLabel, "nop to jump"};
  if (is_jump(from) && is_nop(to)) return {Mechanism::kJumpLabel, "jump to nop"};
  if (is_static_call_end(from) || is_static_call_end(to) || (is_jcc32(from) && is_jcc32(to)))
    return {Mechanism::kStaticCall, "retargeted"};
  if (is_jump(from) && is_jump(to)) return {Mechanism::kStaticCall, "retargeted"};
  if (!call || site.symbol.empty()) return {Mechanism::kUnknown, call ? "call changed" : "changed"};
  return {Mechanism::kStaticCall, on ? "call set" : is_nop(to) ? "call removed" : "retargeted"};
}

Recognized Recognizer::arm64(const PokeRecord& p) const {
  if (p.old_len != 4 || p.new_len != 4) return {Mechanism::kUnknown, "changed"};
  const uint32_t from = read_as<uint32_t>(p.old_bytes(), 0);
  const uint32_t to = read_as<uint32_t>(p.new_bytes(), 0);
  if (from == to) return {Mechanism::kUnknown, "no change"};
  if (to == kArmKprobe) return {Mechanism::kKprobe, "armed"};
  if (from == kArmKprobe) return {Mechanism::kKprobe, "disarmed"};
  if (from == kArmNop && is_arm_b(to)) return {Mechanism::kJumpLabel, "nop to jump"};
  if (is_arm_b(from) && to == kArmNop) return {Mechanism::kJumpLabel, "jump to nop"};
  if (from == kArmNop && is_arm_bl(to)) return {Mechanism::kFtrace, "tracing on"};
  if (is_arm_bl(from) && to == kArmNop) return {Mechanism::kFtrace, "tracing off"};
  if (from == kArmNop && to == kArmMovX9X30) return {Mechanism::kFtrace, "site prepared"};
  if (is_arm_bl(from) && is_arm_bl(to)) return {Mechanism::kFtrace, "tracer changed"};
  return {Mechanism::kUnknown, "changed"};
}

Recognized Recognizer::content(Space space, Addr at, Time t, const Version* from, const Version* to) const {
  const bool came = to != nullptr;
  const Version* shown = came ? to : from;
  const OriginKind kind = shown == nullptr || is_poke(shown->origin)
                              ? OriginKind::kUnknown
                              : capture_.text->origin(shown->origin).kind;
  if (kind == OriginKind::kBpfImage) return {Mechanism::kBpf, came ? "program loaded" : "program unloaded"};
  if (kind == OriginKind::kJit) return {Mechanism::kJit, came ? "code emitted" : "code gone"};
  if (space != kKernelSpace) return {Mechanism::kMapping, came ? "mapped" : "covered by another mapping"};
  const Site site = site_at(space, at, came || t == kTimeMin ? t : t - 1);
  if (is_bpf_code(site.symbol)) return {Mechanism::kBpf, came ? "code registered" : "code unregistered"};
  if (site.symbol.starts_with("ftrace_"))
    return {Mechanism::kFtrace, came ? "trampoline registered" : "trampoline unregistered"};
  if (site.symbol.starts_with("kprobe_"))
    return {Mechanism::kKprobe, came ? "slot page registered" : "slot page unregistered"};
  if (site.module) return {Mechanism::kModule, came ? "module loaded" : "module gone"};
  return {Mechanism::kUnknown, came ? "appeared" : "went"};
}

}  // namespace asof
