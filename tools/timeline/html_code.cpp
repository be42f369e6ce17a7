#include "tools/timeline/html_code.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/output/format.h"

namespace asof {

HtmlCode::HtmlCode(const Capture& capture, bool inlined)
    : capture_(capture),
      arm64_(code_machine(capture.machine) == CodeMachine::kArm64),
      code_(capture, inlined) {}

std::string HtmlCode::origin(OriginRef ref) const {
  return capture_.text ? format_origin(*capture_.text, ref) : "";
}

void HtmlCode::put_blocks(HtmlJson& json, const HtmlCycles& cycles) {
  json.key("blocks").open('[');
  for (const CodeRun& run : code_.all()) {
    json.open('{').pair("symbol", run.symbol).pair("origin", run.origin_text);
    if (is_poke(run.origin) && !is_before_poke(run.origin)) json.pair_number("changed", 1);
    if (!run.instructions.empty())
      cycles.put_block(json, run.space, run.instructions.front().address, run.origin);
    json.key("lines").open('[');
    for (const CodeInstruction& i : run.instructions)
      json.text(fmt::format("{:x}  {:<30} {}", i.address, i.bytes, i.text));
    json.close(']').key("texts").open('[');
    for (const CodeInstruction& i : run.instructions) json.text(i.text);
    json.close(']');
    if (std::ranges::any_of(run.instructions, [](const auto& i) { return static_cast<bool>(i.source); })) {
      json.key("sources").open('[');
      for (const CodeInstruction& i : run.instructions)
        json.text(i.inlined.empty() ? source_text(i.source) : i.inlined);
      json.close(']');
    }
    json.close('}');
  }
  json.close(']');
}

std::string HtmlCode::instructions(std::span<const uint8_t> bytes, Addr at, Time t) {
  std::string out;
  while (!bytes.empty()) {
    const unsigned n = code_.disassembler().length(bytes, 64);
    const auto one = bytes.first(n == 0 ? bytes.size() : std::min<size_t>(n, bytes.size()));
    if (!out.empty()) out += '\n';
    if (out.size() > 2'000) return out + "...";
    out += fmt::format("{}  {}", format_bytes(one), n == 0 ? "" : code_.disassembler().text(one, at, 64));
    if (const auto target = direct_target(one, at, arm64_))
      out += fmt::format("\n    <{}>", code_.symbol(kKernelSpace, *target, t));
    at += one.size();
    bytes = bytes.subspan(one.size());
  }
  return out.empty() ? "no code" : out;
}

}  // namespace asof
