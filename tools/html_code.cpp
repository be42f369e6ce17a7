#include "tools/html_code.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/format.h"

namespace asof {

HtmlCode::HtmlCode(const Capture& capture)
    : capture_(capture),
      arm64_(code_machine(capture.machine) == CodeMachine::kArm64),
      disassembler_(Syntax::kIntel, code_machine(capture.machine)) {}

std::string HtmlCode::symbol(Space space, Addr a, Time t) const {
  const auto found = capture_.symbols.find(space, a, t);
  if (!found) return fmt::format("{:#x}", a);
  return found->offset == 0 ? found->symbol->name
                            : fmt::format("{}+{:#x}", found->symbol->name, found->offset);
}

std::string HtmlCode::origin(OriginRef ref) const {
  return capture_.text ? format_origin(*capture_.text, ref) : "";
}

uint32_t HtmlCode::block_of(const BlockSlice& b) {
  const FlowPiece& p = b.piece;
  BlockKey key{p.space, p.ip, p.origin, p.text};
  return blocks_.try_emplace(std::move(key), static_cast<uint32_t>(blocks_.size()), &b).first->second.first;
}

void HtmlCode::put_blocks(HtmlJson& json) {
  std::vector<const BlockSlice*> order(blocks_.size());
  for (const auto& [key, value] : blocks_) order[value.first] = value.second;
  json.key("blocks").open('[');
  for (const BlockSlice* b : order) {
    const FlowPiece& p = b->piece;
    json.open('{').pair("symbol", symbol(p.space, p.ip, b->begin)).pair("origin", origin(p.origin));
    if (is_poke(p.origin)) json.pair_number("changed", 1);
    std::vector<std::string> lines, texts;
    size_t at = 0;
    for (const uint8_t length : p.lengths) {
      const auto bytes = std::span(p.text).subspan(at, std::min<size_t>(length, p.text.size() - at));
      texts.push_back(disassembler_.text(bytes, p.ip + at, p.mode));
      lines.push_back(fmt::format("{:x}  {:<30} {}", p.ip + at, format_bytes(bytes), texts.back()));
      at += bytes.size();
    }
    for (const auto& [key, list] : {std::pair{"lines", &lines}, {"texts", &texts}}) {
      json.key(key).open('[');
      for (const std::string& line : *list) json.text(line);
      json.close(']');
    }
    json.close('}');
  }
  json.close(']');
}

std::string HtmlCode::instructions(std::span<const uint8_t> bytes, Addr at, Time t) {
  std::string out;
  while (!bytes.empty()) {
    const unsigned n = disassembler_.length(bytes, 64);
    const auto one = bytes.first(n == 0 ? bytes.size() : std::min<size_t>(n, bytes.size()));
    if (!out.empty()) out += '\n';
    if (out.size() > 2'000) return out + "...";
    out += fmt::format("{}  {}", format_bytes(one), n == 0 ? "" : disassembler_.text(one, at, 64));
    if (const auto target = direct_target(one, at, arm64_))
      out += fmt::format("\n    <{}>", symbol(kKernelSpace, *target, t));
    at += one.size();
    bytes = bytes.subspan(one.size());
  }
  return out.empty() ? "no code" : out;
}

}  // namespace asof
