// The command line before and after CLI11: what stands for the verb, and what to say of a wrong one.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "textstore/result.h"

namespace asof {

// Arguments with the verb in front: `asof perf.data` and `asof -F ip perf.data` mean decode, `asof help VERB`
// means `asof VERB --help`, `asof perf.data report`, `asof -i perf.data report` and `asof -v report` mean `asof report ...`. An
// error for a first word that is neither a verb nor a file.
Result<std::vector<std::string>> normal_arguments(std::vector<std::string> arguments);

// Something that can be INPUT is there.
bool is_input(const std::string& path);

// What is wrong with the options of a verb, in one or two lines: the option that does not exist and those near
// to it, or asof's way to do what perf does with it.
std::string explain_parse_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace asof
