// The options of all verbs as data, read from the definitions in CLI11: shell completion and manual pages are
// written from it, so they have exactly the options that exist.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace asof {

enum class ValueKind : uint8_t {
  kNone,   // a flag
  kWords,  // one of OptionInfo::words
  kList,   // some of OptionInfo::words, with commas between
  kFile,   // file or directory
  kOther,
};

struct OptionInfo {
  std::vector<std::string> names;  // "-k", "--vmlinux"; without dashes for a positional
  std::string value;               // placeholder: "FILE"; empty for a flag
  std::string description;
  std::string group;
  ValueKind kind = ValueKind::kNone;
  std::vector<std::string> words;
};

struct VerbInfo {
  std::string name, description;
  std::vector<OptionInfo> options;      // in order of declaration
  std::vector<OptionInfo> positionals;  // an option may be in both: INPUT is -i, too
};

// Of CLI11's name of a type, the words that there are: "TEXT:{intel,att}" -> intel, att.
std::vector<std::string> words_of_type(const std::string& type);

std::vector<VerbInfo> option_tree(const CLI::App& app);

}  // namespace asof
