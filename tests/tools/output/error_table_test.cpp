// Every code the sources use is explained, and docs/errors.md agrees with the table.
#include "tools/output/error_table.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

namespace asof {
namespace {

const std::filesystem::path kRoot = std::filesystem::path(ASOF_TEST_DATA) / "../..";

std::string read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(ErrorTable, ExplainsEveryCodeTheSourcesUse) {
  std::set<std::string> used;
  const std::regex code("\\bCode::(k[A-Za-z0-9]+)");
  const std::regex comment("//.*");
  for (const char* layer : {"textstore", "arch", "decoder", "api", "tools"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot / layer)) {
      const auto extension = entry.path().extension();
      if (extension != ".cpp" && extension != ".h") continue;
      const std::string text = std::regex_replace(read(entry.path()), comment, "");
      for (std::sregex_iterator it(text.begin(), text.end(), code), end; it != end; ++it)
        used.insert((*it)[1]);
    }
  }
  EXPECT_GT(used.size(), 40u);
  std::set<std::string> explained{"kNone"};
#define ASOF_CODE(name, text) explained.insert(#name);
#include "textstore/codes.def"
#undef ASOF_CODE
  EXPECT_EQ(used, explained);
}

TEST(ErrorTable, EveryEntryIsWhole) {
  for (const CodeInfo& e : error_table()) {
    EXPECT_FALSE(e.title.empty() || e.meaning.empty() || e.causes.empty() || e.remedy.empty()) << e.code;
    ASSERT_TRUE(code_of(e.code)) << e.code;
    EXPECT_EQ(&info_of(*code_of(e.code)), &e);
  }
}

TEST(ErrorTable, DocumentIsTheTable) {
  EXPECT_EQ(read(kRoot / "docs/errors.md"), error_table_markdown())
      << "run: build/release/asof errors --markdown > docs/errors.md";
}

}  // namespace
}  // namespace asof
