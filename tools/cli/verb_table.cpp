#include "tools/cli/verb_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace asof {
namespace {

constexpr VerbEntry kVerbs[] = {
    {"decode", add_decode},     {"timeline", add_timeline}, {"query", add_query},
    {"stacks", add_stacks},     {"branches", add_branches}, {"coverage", add_coverage},
    {"diff", add_diff},         {"script", add_script},     {"inject", add_inject},
    {"report", add_report},     {"text", add_text},         {"doctor", add_doctor},
    {"events", add_events},     {"packets", add_packets},   {"digest", add_digest},
    {"validate", add_validate}, {"record", add_record},     {"pack", add_pack},
    {"unpack", add_unpack},     {"tables", add_tables},     {"plan", add_plan},
    {"merge", add_merge},       {"errors", add_errors},     {"completion", add_completion},
    {"version", add_version},
};

std::string examples_text(std::string_view verb) {
  std::string out = "Examples:\n";
  for (const Example& e : examples_of(verb)) {
    out += fmt::format("  {}\n      {}\n", e.command, e.meaning);
  }
  return out + fmt::format("More: man asof-{}", verb);
}

}  // namespace

std::span<const VerbEntry> verbs() { return kVerbs; }

bool is_verb(std::string_view word) {
  return std::any_of(std::begin(kVerbs), std::end(kVerbs),
                     [&](const VerbEntry& v) { return word == v.name; });
}

std::vector<RunVerb> add_verbs(CLI::App& app, std::string_view only) {
  std::vector<RunVerb> runners;
  for (const VerbEntry& v : kVerbs) {
    RunVerb& runner = runners.emplace_back();
    if (!only.empty() && only != v.name) continue;
    runner = v.add(app);
    app.get_subcommand(v.name)->footer(examples_text(v.name));
  }
  return runners;
}

}  // namespace asof
