// docs/script.md lists every option, field and letter of perf script; each is run: what is taken works, what is not says
// asof's way. Where perf 6.1 is installed, nothing that its help lists is missing.
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "tests/tools/peer_perf.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

// Words in backquotes of the first cell of each row, with the second cell.
std::map<std::string, std::string> rows(const std::string& heading) {
  std::map<std::string, std::string> out;
  std::istringstream text(read_file(ASOF_TEST_DATA "/../../docs/script.md"));
  bool inside = false;
  const std::regex word("`([^`]+)`");
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("## ")) inside = line == "## " + heading;
    if (!inside || !line.starts_with("| `")) continue;
    const size_t bar = line.find(" | ");
    const std::string cell = line.substr(0, bar), says = line.substr(bar + 3);
    for (auto at = std::sregex_iterator(cell.begin(), cell.end(), word); at != std::sregex_iterator(); ++at)
      out[(*at)[1]] = says;
  }
  return out;
}

bool is_taken(const std::string& says) { return !says.starts_with("not taken"); }

Ran try_out(const std::string& options) {
  return run_asof(fmt::format("script -q -C 1 --time ,6.000003 {} {}", options, kDemo));
}

void check(const std::string& options, const std::string& says) {
  const Ran r = try_out(options);
  if (is_taken(says)) {
    EXPECT_EQ(r.status, 0) << options << "\n" << r.err;
  } else {
    EXPECT_EQ(r.status, 1) << options << "\n" << r.err;
    EXPECT_NE(r.err.find("hint: "), std::string::npos) << options << r.err;
    EXPECT_TRUE(r.out.empty()) << options;
  }
}

TEST(PerfOptions, Options) {
  const std::map<std::string, std::string> values{{"-c", " worker"},     {"--comms", " worker"},
                                                  {"-C", " 1"},          {"--cpu", " 1"},
                                                  {"-F", " ip"},         {"--fields", " ip"},
                                                  {"-S", " compute"},    {"--symbols", " compute"},
                                                  {"--dsos", " worker"}, {"--graph-function", " compute"},
                                                  {"--itrace", "=b"},    {"--max-blocks", " 2"},
                                                  {"--max-stack", " 2"}, {"--pid", " 1203"},
                                                  {"--tid", " 1203"},    {"--stop-bt", " compute"},
                                                  {"--time", " ,6.1"}};
  // What names files, and what all tests have.
  const std::set<std::string> elsewhere{"-i",      "--input", "-k", "--vmlinux", "--kallsyms",
                                        "--symfs", "--time",  "-C", "--cpu"};
  const auto all = rows("Options");
  ASSERT_GT(all.size(), 70U);
  for (const auto& [option, says] : all) {
    if (elsewhere.contains(option)) continue;
    const auto value = values.find(option);
    check(option + (value == values.end() ? "" : value->second), says);
  }
}

TEST(PerfOptions, Fields) {
  const auto all = rows("Fields");
  ASSERT_GT(all.size(), 40U);
  for (const auto& [field, says] : all) {
    const bool of_stack = field.starts_with("brstack");
    if (field == "tod") continue;  // the demo does not know the time of day
    check(fmt::format("--itrace={} -F +{}", of_stack ? "i20il4" : "c", field), says);
  }
}

TEST(PerfOptions, Letters) {
  const auto all = rows("Letters of `--itrace`");
  ASSERT_GT(all.size(), 20U);
  for (const auto& [letter, says] : all)
    check(fmt::format("--itrace={}b", letter == "s" ? "s5" : letter), says);
}

TEST(PerfOptions, NoneIsMissing) {
  ASOF_SKIP_WITHOUT_PERF();
  const TempDir dir;
  const std::string file = dir.path() / "help";
  [[maybe_unused]] const int status = std::system(fmt::format("perf script -h >{} 2>&1", file).c_str());
  const std::string help = read_file(file);
  const auto options = rows("Options"), fields = rows("Fields");
  const std::regex option("\n    (?:(-[A-Za-z]),|   ) --([a-z0-9A-Z-]+)"), list("Fields: ([a-z_,-]+)");
  size_t found = 0;
  for (auto at = std::sregex_iterator(help.begin(), help.end(), option); at != std::sregex_iterator();
       ++at, ++found) {
    EXPECT_TRUE(options.contains("--" + (*at)[2].str())) << (*at)[2];
    if ((*at)[1].matched) {
      EXPECT_TRUE(options.contains((*at)[1])) << (*at)[1];
    }
  }
  EXPECT_GT(found, 60U);
  std::smatch names;
  ASSERT_TRUE(std::regex_search(help, names, list));
  std::istringstream words(names[1]);
  for (std::string field; std::getline(words, field, ',');) EXPECT_TRUE(fields.contains(field)) << field;
  const auto letters = rows("Letters of `--itrace`");
  const std::regex letter("\n\t+([a-zA-Z])(?:\\[[a-z]+\\]|NUMBER)?:");
  for (auto at = std::sregex_iterator(help.begin(), help.end(), letter); at != std::sregex_iterator(); ++at)
    EXPECT_TRUE(letters.contains((*at)[1])) << (*at)[1];
}

}  // namespace
}  // namespace asof::test
