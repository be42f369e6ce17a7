#include "tools/disasm/code_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/output/format.h"

namespace asof {

CodeText::CodeText(const Capture& capture, bool inlined)
    : capture_(capture),
      inlined_(inlined),
      disassembler_(Syntax::kIntel, code_machine(capture.machine)),
      lines_(capture) {}

std::string CodeText::symbol(Space space, Addr a, Time t) const {
  if (is_kernel_address(a)) space = kKernelSpace;
  const auto found = capture_.symbols.find(space, a, t);
  if (!found) return fmt::format("{:#x}", a);
  return found->offset == 0 ? found->symbol->shown()
                            : fmt::format("{}+{:#x}", found->symbol->shown(), found->offset);
}

const CodeRun& CodeText::of(const BlockSlice& b) {
  const FlowPiece& p = b.piece;
  std::vector<uint32_t>& known = by_place_[{p.space, p.ip, p.origin}];
  for (const uint32_t id : known) {
    const CodeRun& run = runs_[id];
    if (run.mode == p.mode && run.text == p.text) return run;
  }
  known.push_back(static_cast<uint32_t>(runs_.size()));
  runs_.push_back(make(b));
  return runs_.back();
}

CodeRun CodeText::make(const BlockSlice& b) {
  const FlowPiece& p = b.piece;
  CodeRun run{.id = static_cast<uint32_t>(runs_.size()),
              .space = p.space,
              .mode = p.mode,
              .origin = p.origin,
              .symbol = symbol(p.space, p.ip, b.begin),
              .origin_text = capture_.text ? format_origin(*capture_.text, p.origin) : std::string(),
              .text = p.text,
              .instructions = {}};
  size_t at = 0;
  for (const uint8_t length : p.lengths) {
    const auto bytes = std::span(p.text).subspan(at, std::min<size_t>(length, p.text.size() - at));
    run.instructions.push_back(
        {p.ip + at, format_bytes(bytes), disassembler_.text(bytes, p.ip + at, p.mode),
         lines_.at(p.space, p.ip + at, b.begin),
         inlined_ ? inlined_text(lines_.frames_at(p.space, p.ip + at, b.begin)) : std::string()});
    at += bytes.size();
  }
  return run;
}

}  // namespace asof
