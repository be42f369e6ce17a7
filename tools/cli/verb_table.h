// All verbs in one place: main() runs them; shell completion, manual pages and tests walk the same tree.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "tools/cli/verbs.h"

namespace asof {

// A command that works as written in a folder with a perf.data (a test runs each on the demo capture).
struct Example {
  const char* command;
  const char* meaning;
};
// Of a verb; empty for one that does not exist.
std::span<const Example> examples_of(std::string_view verb);

struct VerbEntry {
  const char* name;
  RunVerb (*add)(CLI::App&);
};
std::span<const VerbEntry> verbs();
bool is_verb(std::string_view word);

// Adds every verb, or `only` that one, with its examples as the end of its --help. Returns what runs them, in the order of
// verbs(); empty for one that was not added.
std::vector<RunVerb> add_verbs(CLI::App& app, std::string_view only = {});

}  // namespace asof
