// make_man TEMPLATES OUT: manual pages as scdoc(5) source. A template (docs/man/VERB.scd, asof.scd for the
// program) holds what a person wrote; @OPTIONS@, @EXAMPLES@, @VERBS@ and @SCHEMA@ are filled in from the tree of
// options and the schema, so pages and program agree. Runs when asof is built; not installed.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tools/cli/option_tree.h"
#include "tools/cli/verb_table.h"
#include "tools/query/schema.h"

namespace {

using namespace asof;

// Characters that scdoc takes for markup.
std::string plain(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '_' || c == '*' || c == '\\' || c == '+' || c == '~') out += '\\';
    out += c;
  }
  return out;
}

std::string option_entry(const OptionInfo& o) {
  std::vector<std::string> names;
  names.reserve(o.names.size());
  for (const std::string& n : o.names) names.push_back("*" + plain(n) + "*");
  const std::string value =
      o.kind == ValueKind::kWords ? fmt::format("{}", fmt::join(o.words, "|")) : o.value;
  return fmt::format("{}{}\n\t{}\n\n", fmt::join(names, ", "), value.empty() ? "" : " _" + plain(value) + "_",
                     plain(o.description));
}

std::string options_text(const VerbInfo& verb) {
  std::string out = "# OPTIONS\n\n";
  std::string group = "Options";
  for (const OptionInfo& o : verb.options) {
    if (o.group.empty()) continue;
    if (o.group != group) out += fmt::format("## {}\n\n", group = o.group);
    out += option_entry(o);
  }
  return out;
}

std::string examples_text(std::string_view verb) {
  std::string out = "# EXAMPLES\n\n";
  for (const Example& e : examples_of(verb)) {
    out += fmt::format("*{}*\n\t{}\n\n", plain(e.command), plain(e.meaning));
  }
  return out;
}

std::string verbs_text(const std::vector<VerbInfo>& tree) {
  std::string out;
  for (const VerbInfo& v : tree) out += fmt::format("*{}*\n\t{}\n\n", v.name, plain(v.description));
  return out;
}

std::string synopsis(const VerbInfo& verb) {
  std::string out = fmt::format("*asof {}* [options]", verb.name);
  for (const OptionInfo& p : verb.positionals) out += fmt::format(" [_{}_]", plain(p.names[0]));
  return out;
}

void fill(std::string& text, const std::string& mark, const std::string& with) {
  if (const size_t at = text.find(mark); at != std::string::npos) text.replace(at, mark.size(), with);
}

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
}

void make_pages(const std::filesystem::path& templates, const std::filesystem::path& to) {
  CLI::App app("", "asof");
  add_verbs(app);
  const std::vector<VerbInfo> tree = option_tree(app);
  std::string page = read(templates / "asof.scd");
  fill(page, "@VERBS@\n", verbs_text(tree));
  write(to / "asof.1.scd", page);
  for (const VerbInfo& verb : tree) {
    // A test asks for each verb's template; the build does not fail for one that is not written yet.
    if (!std::filesystem::exists(templates / (verb.name + ".scd"))) continue;
    page = fmt::format("asof-{0}(1)\n\n# NAME\n\nasof-{0} - {1}\n\n# SYNOPSIS\n\n{2}\n\n", verb.name,
                       plain(verb.description), synopsis(verb));
    page += read(templates / (verb.name + ".scd"));
    fill(page, "@OPTIONS@\n", options_text(verb));
    fill(page, "@EXAMPLES@\n", examples_text(verb.name));
    fill(page, "@SCHEMA@\n", schema_scdoc());
    page += "\n# SEE ALSO\n\n*asof*(1)\n";
    write(to / ("asof-" + verb.name + ".1.scd"), page);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: make_man TEMPLATES OUT\n");
    return 1;
  }
  try {
    make_pages(argv[1], argv[2]);
  } catch (const std::exception& e) {
    fmt::print(stderr, "make_man: {}\n", e.what());
    return 2;
  }
  return 0;
}
