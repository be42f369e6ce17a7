// One JSON object a line. Addresses and hashes are strings ("0x..."), times are nanoseconds of perf's clock.
#include <fmt/format.h>

#include "tools/decode/decode_style.h"
#include "tools/disasm/source_text.h"
#include "tools/output/format.h"
#include "tools/output/json.h"

namespace asof {
namespace {

class JsonStyle final : public LineStyle {
 public:
  explicit JsonStyle(const DecodeFormat& format) : f_(format) {}

  void prefix(std::string& out, const Who& who) const override { begin(out, "instruction", who); }

  void body(std::string& out, const InsnText& insn) const override {
    auto it = std::back_inserter(out);
    if (f_.has(kFieldFlags) && insn.kind != BranchKind::kNone)
      put_json_key(out, "flags", branch_flags(insn.kind, insn.bytes));
    put(out, "", insn.at);
    if (f_.has(kFieldInsnlen)) fmt::format_to(it, ",\"insnlen\":{}", insn.bytes.size());
    if (f_.has(kFieldInsn)) put_json_key(out, "insn", format_bytes(insn.bytes));
    if (f_.has(kFieldDisasm)) put_json_key(out, "disasm", insn.disasm);
    if (f_.has(kFieldTextver)) fmt::format_to(it, ",\"textver\":{}", insn.version);
    if (f_.has(kFieldTextsrc)) put_json_key(out, "textsrc", insn.source);
    if (f_.has(kFieldSrcline) && insn.line) put_json_key(out, "srcline", full_source_text(insn.line));
    if (f_.has(kFieldInline) && insn.frames.size() > 1) inlined(out, insn.frames);
  }

  void suffix(std::string& out, Confidence confidence) const override {
    if (f_.has(kFieldConf)) put_json_key(out, "conf", confidence_name(confidence));
    out += "}\n";
  }

  void branch(std::string& out, const Who& who, const BranchText& b) const override {
    begin(out, "branch", who);
    if (f_.has(kFieldFlags)) put_json_key(out, "flags", b.flags);
    put(out, "", b.from);
    put(out, "to_", b.to);
    out += "}\n";
  }

  void event(std::string& out, const Who& who, const Event& e, const At& at) const override {
    begin(out, event_name(e.kind), who);
    if (at.ip != 0) put(out, "", at);
    fmt::format_to(std::back_inserter(out), ",\"a\":\"{:#x}\",\"b\":\"{:#x}\",\"offset\":{}}}\n", e.a, e.b,
                   e.offset);
  }

  void cycles(std::string& out, const Who& who, const Event& e, const CycleSpan* span) const override {
    begin(out, event_name(e.kind), who);
    auto it = std::back_inserter(out);
    if (e.b == 0) fmt::format_to(it, ",\"cycles\":{}", e.a);
    if (span != nullptr)
      fmt::format_to(it, ",\"instructions\":{},\"instructions_least\":{},\"instructions_most\":{}",
                     span->instructions, span->least, span->most);
    fmt::format_to(it, ",\"offset\":{}}}\n", e.offset);
  }

  void gap(std::string& out, const Who& who, const Gap& gap, const std::string&) const override {
    begin(out, "gap", who);
    put_json_key(out, "code", code_text(gap.code));
    auto it = std::back_inserter(out);
    if (gap.ip != 0) fmt::format_to(it, ",\"ip\":\"{:#x}\"", gap.ip);
    if (gap.resume_ip != 0) fmt::format_to(it, ",\"resume_ip\":\"{:#x}\"", gap.resume_ip);
    fmt::format_to(it, ",\"offset\":{},\"bytes\":{}", gap.begin,
                   gap.end > gap.begin ? gap.end - gap.begin : 0);
    put_json_key(out, "reason", gap.reason);
    out += "}\n";
  }

 private:
  static void inlined(std::string& out, const std::vector<SourceFrame>& frames) {
    out += ",\"inline\":[";
    for (size_t i = 0; i < frames.size(); ++i) {
      out += i == 0 ? "{\"function\":" : ",{\"function\":";
      put_json_string(out, frames[i].function);
      if (frames[i].line) put_json_key(out, "srcline", full_source_text(frames[i].line));
      out += '}';
    }
    out += ']';
  }
  void begin(std::string& out, std::string_view type, const Who& who) const {
    auto it = std::back_inserter(out);
    fmt::format_to(it, "{{\"type\":\"{}\"", type);
    if (f_.has(kFieldComm)) put_json_key(out, "comm", who.comm);
    if (f_.has(kFieldPid)) fmt::format_to(it, ",\"pid\":{}", who.pid);
    if (f_.has(kFieldTid)) fmt::format_to(it, ",\"tid\":{}", who.tid);
    if (f_.has(kFieldCpu)) fmt::format_to(it, ",\"cpu\":{}", who.cpu);
    if (f_.has(kFieldTime) && who.time != kTimeMin) fmt::format_to(it, ",\"time\":{}", who.time);
  }

  void put(std::string& out, std::string_view side, const At& at) const {
    auto it = std::back_inserter(out);
    if (f_.has(kFieldIp)) fmt::format_to(it, ",\"{}ip\":\"{:#x}\"", side, at.ip);
    if (at.symbol == nullptr) {
      if (f_.has(kFieldDso) && at.dso != At{}.dso) put_json_key(out, fmt::format("{}dso", side), at.dso);
      return;
    }
    if (f_.has(kFieldSym)) put_json_key(out, fmt::format("{}sym", side), at.symbol->shown());
    if (f_.has(kFieldSymoff)) fmt::format_to(it, ",\"{}symoff\":{}", side, at.offset);
    if (f_.has(kFieldDso)) put_json_key(out, fmt::format("{}dso", side), at.symbol->dso);
  }

  DecodeFormat f_;
};

}  // namespace

std::unique_ptr<LineStyle> make_json_style(const DecodeFormat& format) {
  return std::make_unique<JsonStyle>(format);
}

}  // namespace asof
