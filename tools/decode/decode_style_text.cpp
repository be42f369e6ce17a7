// Lines of text in the format of perf script: comm pid/tid [cpu] time: flags ip sym+offset (dso) ilen: insn:
// ...
#include <fmt/format.h>

#include <array>

#include "tools/decode/decode_style.h"
#include "tools/disasm/source_text.h"
#include "tools/output/format.h"

namespace asof {
namespace {

class TextStyle final : public LineStyle {
 public:
  explicit TextStyle(const DecodeFormat& format) : f_(format) {}

  void prefix(std::string& out, const Who& who) const override {
    auto it = std::back_inserter(out);
    if (f_.has(kFieldComm)) fmt::format_to(it, "{:>16} ", task_name(who.comm, who.tid));
    if (f_.has(kFieldPid) && f_.has(kFieldTid)) {
      fmt::format_to(it, "{:>5}/{:<5} ", id_text(who.pid), id_text(who.tid));
    } else if (f_.has(kFieldPid | kFieldTid)) {
      fmt::format_to(it, "{:>5} ", id_text(f_.has(kFieldPid) ? who.pid : who.tid));
    }
    if (f_.has(kFieldCpu) && who.cpu >= 0) fmt::format_to(it, "[{:03}] ", who.cpu);
    if (f_.has(kFieldTime)) fmt::format_to(it, "{:>12}: ", format_time(who.time, f_.nanoseconds));
  }

  void body(std::string& out, const InsnText& insn) const override {
    auto it = std::back_inserter(out);
    if (f_.has(kFieldFlags)) fmt::format_to(it, "  {:<15} ", branch_flags(insn.kind, insn.bytes));
    put(out, insn.at);
    if (f_.has(kFieldInsnlen)) fmt::format_to(it, " ilen: {}", insn.bytes.size());
    if (f_.has(kFieldInsn)) fmt::format_to(it, " insn: {}", format_bytes(insn.bytes));
    if (f_.has(kFieldDisasm)) fmt::format_to(it, "\t{}", insn.disasm);
    if (f_.has(kFieldTextver)) fmt::format_to(it, " v{}", insn.version);
    if (f_.has(kFieldTextsrc)) fmt::format_to(it, " <{}>", insn.source);
    source(out, insn);
  }

  void suffix(std::string& out, Confidence confidence) const override {
    if (f_.has(kFieldConf)) (out += ' ') += confidence_name(confidence);
    out += '\n';
  }

  void branch(std::string& out, const Who& who, const BranchText& b) const override {
    prefix(out, who);
    if (f_.has(kFieldFlags)) fmt::format_to(std::back_inserter(out), "  {:<15} ", b.flags);
    put(out, b.from);
    out += " => ";
    put(out, b.to);
    out += '\n';
  }

  void event(std::string& out, const Who& who, const Event& e, const At& at) const override {
    prefix(out, who);
    fmt::format_to(std::back_inserter(out), "{:>10}: {}", event_name(e.kind), event_details(e));
    if (at.ip != 0) {
      out += ' ';
      put(out, at);
    }
    out += '\n';
  }

  void cycles(std::string& out, const Who& who, const Event& e, const CycleSpan* span) const override {
    prefix(out, who);
    auto it = std::back_inserter(out);
    fmt::format_to(it, "{:>10}: ", event_name(e.kind));
    if (e.b != 0) {
      out += "counted from here on\n";
      return;
    }
    fmt::format_to(it, "{} cycles", e.a);
    if (span != nullptr) {
      fmt::format_to(it, ", {} instructions ({} to {})", span->instructions, span->least, span->most);
      if (e.a != 0)
        fmt::format_to(it, ", IPC {} ({} to {})", format_ratio(span->instructions, e.a),
                       format_ratio(span->least, e.a), format_ratio(span->most, e.a, Rounding::kUp));
    }
    out += '\n';
  }

  void gap(std::string& out, const Who&, const Gap& gap, const std::string& text) const override {
    fmt::format_to(std::back_inserter(out), "{} {}\n", code_text(gap.code), text);
  }

 private:
  // Inlined functions come with their lines.
  void source(std::string& out, const InsnText& insn) const {
    if (!f_.has(kFieldSrcline | kFieldInline)) return;
    const bool inlined = f_.has(kFieldInline) && insn.frames.size() > 1;
    if (!inlined && !f_.has(kFieldSrcline)) return;
    if (const std::string text = inlined ? inlined_text(insn.frames) : source_text(insn.line); !text.empty())
      fmt::format_to(std::back_inserter(out), " {}", text);
  }
  static std::string id_text(int32_t id) { return id < 0 ? "?" : std::to_string(id); }
  void put(std::string& out, const At& at) const {
    auto it = std::back_inserter(out);
    if (f_.has(kFieldIp)) fmt::format_to(it, "{:>16x}", at.ip);
    if (f_.has(kFieldSym)) {
      if (at.symbol == nullptr) {
        out += " [unknown]";
      } else {
        (out += ' ') += at.symbol->shown();
        if (f_.has(kFieldSymoff)) fmt::format_to(it, "+0x{:x}", at.offset);
      }
    }
    if (f_.has(kFieldDso)) fmt::format_to(it, " ({})", at.dso);
  }

  DecodeFormat f_;
};

}  // namespace

std::unique_ptr<LineStyle> make_text_style(const DecodeFormat& format) {
  return std::make_unique<TextStyle>(format);
}

namespace {

// x86's are one or two bytes; T32 has an SVC of two, which ends in 0xdf.
bool is_iret(std::span<const uint8_t> insn) {
  return !insn.empty() && insn.size() <= 2 && insn.back() == 0xcf;
}
bool is_int(std::span<const uint8_t> insn) {
  if (insn.size() == 1) return insn[0] == 0xcc || insn[0] == 0xf1;
  return insn.size() == 2 && insn[0] == 0xcd && insn[1] != 0xdf;
}

}  // namespace

std::string_view branch_flags(BranchKind kind, std::span<const uint8_t> insn) {
  switch (kind) {
    case BranchKind::kCond:
      return "jcc";
    case BranchKind::kJump:
    case BranchKind::kJumpInd:
    case BranchKind::kFarJump:
      return "jmp";
    case BranchKind::kCall:
    case BranchKind::kCallInd:
      return "call";
    case BranchKind::kRet:
      return "return";
    case BranchKind::kFarCall:
      return is_int(insn) ? "int" : "syscall";
    case BranchKind::kFarRet:
      return is_iret(insn) ? "iret" : "sysret";
    case BranchKind::kNone:
    case BranchKind::kPtwrite:
    case BranchKind::kPaging:
      break;
  }
  return {};
}

std::string_view branch_flags(const Block& b) {
  const uint8_t size = b.lengths[b.count - 1];
  return branch_flags(b.kind, {b.bytes + b.size - size, size});
}

std::string_view event_name(EventKind kind) {
  switch (kind) {
    case EventKind::kTraceStart:
      return "tr-start";
    case EventKind::kTraceStop:
      return "tr-end";
    case EventKind::kAsync:
      return "async";
    case EventKind::kOverflow:
      return "overflow";
    case EventKind::kExecMode:
      return "exec-mode";
    case EventKind::kTsxBegin:
      return "tx-begin";
    case EventKind::kTsxCommit:
      return "tx-commit";
    case EventKind::kTsxAbort:
      return "tx-abort";
    case EventKind::kPaging:
      return "paging";
    case EventKind::kVmcs:
      return "vmcs";
    case EventKind::kPtwrite:
      return "ptwrite";
    case EventKind::kMwait:
      return "mwait";
    case EventKind::kPwre:
      return "pwre";
    case EventKind::kExstop:
      return "exstop";
    case EventKind::kPwrx:
      return "pwrx";
    case EventKind::kCbr:
      return "cbr";
    case EventKind::kMaintenance:
      return "mnt";
    case EventKind::kBbp:
      return "bbp";
    case EventKind::kBip:
      return "bip";
    case EventKind::kBep:
      return "bep";
    case EventKind::kCfe:
      return "cfe";
    case EventKind::kEvd:
      return "evd";
    case EventKind::kTraceStopPacket:
      return "tr-stop";
    case EventKind::kPsb:
      return "psb";
    case EventKind::kTraceEvent:
      return "trace-event";
    case EventKind::kContext:
      return "context";
    case EventKind::kCycles:
      return "cyc";
  }
  return "event";
}

namespace {

// Intel SDM volume 3, "Control Flow Event (CFE) Packet" and "Event Data (EVD) Packet".
std::string cfe_name(uint64_t type) {
  static constexpr std::array<std::string_view, 14> kNames = {
      "",        "intr",   "iret",        "smi",      "rsm", "sipi",  "init",
      "vmentry", "vmexit", "vmexit-intr", "shutdown", "",    "uintr", "uiret"};
  const bool named = type < kNames.size() && !kNames[type].empty();
  return named ? std::string(kNames[type]) : fmt::format("type: {:#x}", type);
}
std::string evd_name(uint64_t type) {
  static constexpr std::array<std::string_view, 3> kNames = {"cr2", "vmx-exit-qualification",
                                                             "vmx-exit-reason"};
  return type < kNames.size() ? std::string(kNames[type]) : fmt::format("type: {:#x}", type);
}

}  // namespace

std::string event_details(const Event& e) {
  switch (e.kind) {
    case EventKind::kPtwrite:
      return fmt::format("IP: {} payload: {:#x}", e.ip != 0 ? 1 : 0, e.a);
    case EventKind::kMwait:
      return fmt::format("hints: {:#x} extensions: {:#x}", e.a, e.b);
    case EventKind::kPwre:
      return fmt::format("hw: {} cstate: {} sub-cstate: {}", e.b >> 8, e.a, e.b & 0xff);
    case EventKind::kExstop:
      return fmt::format("IP: {}", e.ip != 0 ? 1 : 0);
    case EventKind::kPwrx: {
      return fmt::format("deepest cstate: {} last cstate: {} wake reason: {:#x}", e.b & 0xff, e.a, e.b >> 8);
    }
    case EventKind::kCbr:
      return fmt::format("cbr: {}", e.a);
    case EventKind::kCfe:
      return fmt::format("{} vector: {}", cfe_name(e.a), e.b);
    case EventKind::kEvd:
      return fmt::format("{} payload: {:#x}", evd_name(e.a), e.b);
    case EventKind::kExecMode:
      return fmt::format("{} bits, interrupts {}", e.a, e.b != 0 ? "on" : "off");
    case EventKind::kBbp:
    case EventKind::kBep:
      return fmt::format("type: {:#x} size: {:#x}", e.a, e.b);
    case EventKind::kBip:
      return fmt::format("id: {:#x} payload: {:#x}", e.b, e.a);
    case EventKind::kPsb:
      return fmt::format("psb offs: {:#x}", e.offset);
    case EventKind::kTraceEvent:
      return fmt::format("outputs: {:#x}", e.a);
    case EventKind::kContext:
      return fmt::format("EL{} {}{} context: {:#x}", e.b & 3, (e.b & 4) != 0 ? "non-secure" : "secure",
                         (e.b & 8) != 0 ? "" : " AArch32", e.a);
    default:
      return {};
  }
}

}  // namespace asof
