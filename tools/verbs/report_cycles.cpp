#include "tools/verbs/report_cycles.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tools/output/format.h"
#include "tools/output/json.h"

namespace asof {
namespace {

std::string range(const std::string& least, const std::string& most) {
  return least == most ? least : fmt::format("{} to {}", least, most);
}

// No more instructions ran than `most`, in no fewer cycles than `least`, and the other way round.
std::array<std::string, 2> ipc(const CycleCost& c) {
  return {format_ratio(c.instructions_least, c.cycles_most),
          format_ratio(c.instructions_most, c.cycles_least, Rounding::kUp)};
}

std::string ipc_text(const CycleCost& c) {
  const auto [least, most] = ipc(c);
  if (least == "-") return "-";
  return most == "-" ? "at least " + least : range(least, most);
}

std::string cycles_text(uint64_t least, uint64_t most) {
  return range(format_count(least), format_count(most));
}

template <class Row, class Print>
void print_rows(const std::vector<Row>& rows, size_t top, Output& out, Print&& print) {
  const size_t shown = top == 0 ? rows.size() : std::min(top, rows.size());
  for (size_t i = 0; i < shown; ++i) out.write(print(rows[i]));
  if (shown < rows.size())
    out.write(fmt::format("  and {} more; --top 0 shows all\n", format_count(rows.size() - shown)));
}

JsonLine cost_line(std::string_view type, const CycleCost& c) {
  JsonLine line(type);
  line.number("cycles_least", c.cycles_least)
      .number("cycles_most", c.cycles_most)
      .number("instructions_least", c.instructions_least)
      .number("instructions_most", c.instructions_most);
  return line;
}

std::string block_name(const BlockCycles& b) {
  return b.symbol.empty() ? fmt::format("{:x}", b.address) : fmt::format("{:x} {}", b.address, b.symbol);
}

}  // namespace

void print_cycles(const CycleCosts& cycles, size_t top, Output& out) {
  if (!cycles.any()) return;
  out.write(fmt::format("cycles: {} counted", format_count(cycles.cycles())));
  if (cycles.uncertain() != 0)
    out.write(fmt::format(", {} more where the flow is not certain are left out",
                          format_count(cycles.uncertain())));
  out.write("\ncycles of functions themselves:\n");
  out.write(fmt::format("  {:>24} {:>16} {}\n", "cycles", "IPC", "function (file)"));
  print_rows(cycles.functions(), top, out, [](const FunctionCycles& f) {
    return fmt::format("  {:>24} {:>16} {} ({})\n", cycles_text(f.cost.cycles_least, f.cost.cycles_most),
                       ipc_text(f.cost), f.name, f.dso);
  });
  out.write("cycles of blocks:\n");
  out.write(fmt::format("  {:>24} {:>16} {}\n", "cycles", "IPC", "block"));
  print_rows(cycles.blocks(), top, out, [](const BlockCycles& b) {
    return fmt::format("  {:>24} {:>16} {}, {} instructions\n",
                       cycles_text(b.cost.cycles_least, b.cost.cycles_most), ipc_text(b.cost), block_name(b),
                       b.instructions);
  });
  const auto calls = cycles.calls();
  if (calls.empty()) return;
  out.write("cycles of calls, with what they call:\n");
  out.write(fmt::format("  {:>24} {:>16} {}\n", "cycles", "calls", "caller -> callee"));
  print_rows(calls, top, out, [](const CallCycles& c) {
    return fmt::format("  {:>24} {:>16} {} -> {}\n", cycles_text(c.least, c.most), format_count(c.calls),
                       c.caller, c.callee);
  });
}

void print_cycles_json(const CycleCosts& cycles, size_t top, Output& out) {
  const auto some = [&](const auto& rows, auto&& line) {
    for (size_t i = 0; i < (top == 0 ? rows.size() : std::min(top, rows.size())); ++i)
      out.write(line(rows[i]));
  };
  out.write(
      JsonLine("cycles").number("counted", cycles.cycles()).number("left_out", cycles.uncertain()).end());
  some(cycles.functions(), [](const FunctionCycles& f) {
    return cost_line("function_cycles", f.cost).text("name", f.name).text("dso", f.dso).end();
  });
  some(cycles.blocks(), [](const BlockCycles& b) {
    return cost_line("block_cycles", b.cost)
        .text("address", fmt::format("{:#x}", b.address))
        .text("symbol", b.symbol)
        .number("size", b.size)
        .number("instructions", b.instructions)
        .end();
  });
  some(cycles.calls(), [](const CallCycles& c) {
    return JsonLine("call_cycles")
        .text("caller", c.caller)
        .text("callee", c.callee)
        .number("calls", c.calls)
        .number("cycles_least", c.least)
        .number("cycles_most", c.most)
        .end();
  });
}

}  // namespace asof
