#include "tools/cli/help_format.h"

#include <unistd.h>

#include <algorithm>

#include "tools/cli/option_tree.h"
#include "tools/output/fold.h"
#include "tools/output/output.h"

namespace asof {
namespace {

constexpr size_t kNotATerminal = 100, kNarrowest = 60, kWidest = 130;
constexpr size_t kLongList = 40;

// Lists without blanks, as options take them, get some, or there is no place to break their lines.
std::string with_blanks(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const bool is_list = end > kLongList;
    for (const char c : text.substr(0, end))
      out += is_list && c == ',' ? std::string(", ") : std::string(1, c);
    if (end != text.size()) out += ' ';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

// Of the terminal that standard output is, within what can be read.
size_t help_columns() {
  static const size_t columns = Output::to(STDOUT_FILENO, "standard output").columns();
  return columns == 0 ? kNotATerminal : std::clamp(columns, kNarrowest, kWidest);
}

}  // namespace

// Without the value that an option has when it is given none: "--insn-trace{raw}".
std::string HelpFormat::make_option_name(const CLI::Option* option, bool is_positional) const {
  const std::string name = Formatter::make_option_name(option, is_positional);
  return name.substr(0, name.find('{'));
}

std::string HelpFormat::make_option_opts(const CLI::Option* option) const {
  if (option->get_items_expected_max() == 0) return "";
  const std::string type = option->get_type_name();
  std::string out = type.substr(0, type.find(':'));
  if (out == "TEXT" && !words_of_type(type).empty()) out = "WORD";
  if (out == "UINT" || out == "INT") out = "N";
  if (!out.empty()) out.insert(0, " ");
  if (!option->get_default_str().empty()) out += "=" + option->get_default_str();
  return out;
}

std::string HelpFormat::make_option_desc(const CLI::Option* option) const {
  std::string text = option->get_description();
  std::ranges::replace(text, '\n', ' ');
  // Most descriptions name the words themselves.
  const std::vector<std::string> words = words_of_type(option->get_type_name());
  if (std::ranges::any_of(words, [&](const std::string& w) { return text.find(w) == std::string::npos; }))
    text += (text.empty() ? "" : "; ") + CLI::detail::join(words, ", ");
  const size_t column = get_column_width();
  return fold_line(with_blanks(text), 0, help_columns() - column);
}

std::string HelpFormat::make_option_usage(const CLI::Option* option) const {
  const std::string name = make_option_name(option, true) + (option->get_expected_max() > 1 ? "..." : "");
  return option->get_required() ? name : "[" + name + "]";
}

}  // namespace asof
