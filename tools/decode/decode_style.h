// How one record of `asof decode` looks: as a line of text, or as one JSON object a line. An instruction is
// printed as prefix (who, when), body (what: the same at every visit of a block, so it is made once) and
// suffix.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/arch.h"
#include "decoder/calls/cycle_walk.h"
#include "decoder/lines/source_lines.h"
#include "decoder/model/capture.h"
#include "tools/decode/decode_options.h"

namespace asof {

struct Who {
  std::string_view comm;
  int pid = -1, tid = -1, cpu = -1;
  Time time = kTimeMin;
};

struct At {  // an address and its name
  Addr ip = 0;
  const Symbol* symbol = nullptr;
  uint64_t offset = 0;
  std::string_view dso = "[unknown]";
};

struct InsnText {
  At at;
  std::span<const uint8_t> bytes;
  BranchKind kind = BranchKind::kNone;
  std::string disasm;
  uint32_t version = 0;
  std::string source;
  SourceLine line;
  std::vector<SourceFrame> frames;
};

struct BranchText {
  At from, to;
  std::string_view flags;   // perf's names
  bool trace_edge = false;  // tracing starts or stops here: one side is unknown
};

class LineStyle {
 public:
  virtual ~LineStyle() = default;
  virtual void prefix(std::string& out, const Who& who) const = 0;
  virtual void body(std::string& out, const InsnText& insn) const = 0;
  virtual void suffix(std::string& out, Confidence confidence) const = 0;
  virtual void branch(std::string& out, const Who& who, const BranchText& branch) const = 0;
  virtual void event(std::string& out, const Who& who, const Event& event, const At& at) const = 0;
  // `span`: nullptr where it is not known what ran in these cycles.
  virtual void cycles(std::string& out, const Who& who, const Event& event, const CycleSpan* span) const = 0;
  virtual void gap(std::string& out, const Who& who, const Gap& gap, const std::string& text) const = 0;
};

std::unique_ptr<LineStyle> make_text_style(const DecodeFormat& format);
std::unique_ptr<LineStyle> make_json_style(const DecodeFormat& format);

// perf's word for a kind of branch: "jcc", "call", "return", ...; empty for none. `insn`, the branch itself,
// distinguishes interrupts and their returns from system calls on x86.
std::string_view branch_flags(BranchKind kind, std::span<const uint8_t> insn);
// Of the branch at its end.
std::string_view branch_flags(const Block& block);
// "cbr", "ptwrite", ... and its values as text.
std::string_view event_name(EventKind kind);
std::string event_details(const Event& event);

}  // namespace asof
