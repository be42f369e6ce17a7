// Every code the sources use is explained, and docs/errors.md is what the table says.
#include "tools/output/catalogue.h"

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

TEST(Catalogue, ExplainsEveryCodeTheSourcesUse) {
  std::set<std::string> used;
  const std::regex code("\"([EI]-(?:FILE|SIDE|TEXT|LOST|DATA|FLOW)-[0-9]{3})\"");
  const std::regex comment("//.*");
  for (const char* layer : {"textstore", "arch", "decoder", "tools"}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(kRoot / layer)) {
      const auto extension = entry.path().extension();
      if (extension != ".cpp" && extension != ".h") continue;
      const std::string text = std::regex_replace(read(entry.path()), comment, "");
      for (std::sregex_iterator it(text.begin(), text.end(), code), end; it != end; ++it)
        used.insert((*it)[1]);
    }
  }
  EXPECT_GT(used.size(), 40u);
  for (const std::string& c : used) EXPECT_NE(find_code(c), nullptr) << c << " is used and not explained";
  for (const CodeInfo& info : catalogue()) {
    EXPECT_TRUE(used.contains(std::string(info.code))) << info.code << " is explained and not used";
  }
}

TEST(Catalogue, EveryEntryIsWhole) {
  for (const CodeInfo& e : catalogue()) {
    EXPECT_FALSE(e.title.empty() || e.meaning.empty() || e.causes.empty() || e.remedy.empty()) << e.code;
    EXPECT_EQ(find_code(e.code), &e);
  }
  EXPECT_EQ(find_code("E-FLOW-999"), nullptr);
  EXPECT_EQ(family_of("E-TEXT-001"), "TEXT");
  EXPECT_EQ(family_of("nonsense"), "");
}

TEST(Catalogue, DocumentIsTheTable) {
  EXPECT_EQ(read(kRoot / "docs/errors.md"), catalogue_markdown())
      << "run: build/release/asof errors --markdown > docs/errors.md";
}

}  // namespace
}  // namespace asof
