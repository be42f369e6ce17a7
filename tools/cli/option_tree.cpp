#include "tools/cli/option_tree.h"

#include <algorithm>

#include "arch/arm64/packet_text.h"
#include "arch/x86/packet_text.h"
#include "decoder/perf/record_names.h"
#include "tools/cli/options.h"
#include "tools/output/error_table.h"

namespace asof {
namespace {

// Names of packets of all machines.
std::vector<std::string> packet_words() {
  std::vector<std::string> out;
  for (const auto names : {x86::packet_names(), arm64::packet_names()}) {
    for (const std::string_view n : names) {
      if (std::find(out.begin(), out.end(), n) == out.end()) out.emplace_back(n);
    }
  }
  return out;
}

// "i instructions, b branches, ..." -> i, b
std::vector<std::string> first_letters(const std::string& description) {
  std::vector<std::string> out;
  for (const std::string& item : split_list(description)) {
    const size_t at = item.find_first_not_of(' ');
    if (at != std::string::npos) out.emplace_back(1, item[at]);
  }
  return out;
}

// Values that are checked elsewhere, because several can be given at once.
std::vector<std::string> list_words(const std::string& verb, const OptionInfo& o) {
  const auto named = [&](const char* name) {
    return std::find(o.names.begin(), o.names.end(), name) != o.names.end();
  };
  // Verbs differ in what these take: their descriptions begin with it.
  if (named("--fields")) return split_list(o.description.substr(0, o.description.find(';')));
  if (named("--itrace")) return first_letters(o.description);
  if (named("--type")) return verb == "packets" ? packet_words() : record_type_names();
  std::vector<std::string> codes;
  if (named("--explain")) {
    for (const CodeInfo& info : error_table()) codes.emplace_back(info.code);
  }
  return codes;
}

bool takes_file(const OptionInfo& o) {
  if (o.value == "FILE" || o.value == "DIR") return true;
  const auto named = [&](const char* name) {
    return std::find(o.names.begin(), o.names.end(), name) != o.names.end();
  };
  return named("--input") || named("--output") || named("INPUT");
}

OptionInfo info_of(const std::string& verb, const CLI::Option& option) {
  OptionInfo out;
  for (const std::string& n : option.get_snames()) out.names.push_back("-" + n);
  for (const std::string& n : option.get_lnames()) out.names.push_back("--" + n);
  out.description = option.get_description();
  std::replace(out.description.begin(), out.description.end(), '\n', ' ');
  out.group = option.get_group();
  if (option.get_items_expected_max() == 0) return out;
  const std::string type = option.get_type_name();
  out.value = type.substr(0, type.find(':'));
  out.words = words_of_type(type);
  const bool list = out.words.empty();
  if (list) out.words = list_words(verb, out);
  out.kind = list && !out.words.empty() ? ValueKind::kList
             : !out.words.empty()       ? ValueKind::kWords
             : takes_file(out)          ? ValueKind::kFile
                                        : ValueKind::kOther;
  return out;
}

VerbInfo info_of(const CLI::App& verb) {
  VerbInfo out;
  out.name = verb.get_name();
  out.description = verb.get_description();
  for (const CLI::Option* option : verb.get_options()) {
    OptionInfo info = info_of(out.name, *option);
    if (!info.names.empty()) out.options.push_back(info);
    if (!option->get_positional()) continue;
    info.names = {option->get_name(true, false)};
    info.value.clear();
    if (info.kind == ValueKind::kOther && takes_file(info)) info.kind = ValueKind::kFile;
    out.positionals.push_back(std::move(info));
  }
  return out;
}

}  // namespace

// Names of a range or a unit are in other brackets.
std::vector<std::string> words_of_type(const std::string& type) {
  const size_t open = type.find('{');
  const size_t close = type.find('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  return split_list(type.substr(open + 1, close - open - 1));
}

std::vector<VerbInfo> option_tree(const CLI::App& app) {
  std::vector<VerbInfo> out;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    out.push_back(info_of(*verb));
  }
  return out;
}

}  // namespace asof
