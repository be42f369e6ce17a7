// Names in a capture are chosen by whoever made it. The demo capture with names of the same length that hold escape
// sequences and line feeds: no verb may pass them on, and no line may be split.
#include <filesystem>
#include <map>

#include "tests/support/bytes.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolder = "\x1b[J\n";       // of the program's file
constexpr std::string_view kSymbol = "\x1b]0;a\x07x";  // of a function in it

void replace_all(std::string& text, std::string_view old, std::string_view name) {
  ASSERT_EQ(old.size(), name.size());
  size_t found = 0;
  for (size_t at = text.find(old); at != std::string::npos; at = text.find(old, at + name.size())) {
    text.replace(at, old.size(), name);
    ++found;
  }
  ASSERT_NE(found, 0U) << old;
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

class HostileNames : public ::testing::Test {
 protected:
  void SetUp() override {
    const fs::path demo = ASOF_TEST_DATA "/demo";
    fs::copy(demo / "perf.data", capture_, fs::copy_options::recursive);
    std::string data = read_file(capture_ / "data");
    replace_all(data, "/opt/demo/worker", "/opt/" + std::string(kFolder) + "/worker");
    replace_all(data, std::string("\0worker\0", 8), std::string("\0\x1b[2J\n!\0", 8));
    replace_all(data, "count_packets",
                "count\r\n\x1b\x9b\x07"
                "ets");
    write_file(capture_ / "data", data);
    std::string symbols = read_file(capture_ / "kcore_dir/kallsyms");
    replace_all(symbols, " vfs_read\n", " =fs\x1b[2JX\n");
    replace_all(symbols, "update_process_times", "update_\x1b]0;\x07ss_times");
    write_file(capture_ / "kcore_dir/kallsyms", symbols);
    std::string program = read_file(demo / "symfs/opt/demo/worker");
    replace_all(program, std::string("\0compute\0", 9),
                std::string("\0"
                            "\x1b]0;a\x07x"
                            "\0",
                            9));
    fs::create_directories(symfs_ / "opt" / kFolder);
    write_file(symfs_ / "opt" / kFolder / "worker", program);
  }
  Ran run(const std::string& verb, const std::string& more) const {
    return run_asof(verb + " " + capture_.string() + " --symfs " + symfs_.string() + " " + more);
  }

  const TempDir dir_;
  const fs::path capture_ = dir_.path() / "perf.data", symfs_ = dir_.path() / "symfs";
};

TEST_F(HostileNames, ReachNeitherTheTerminalNorTheLines) {
  const std::map<std::string, std::string> verbs = {{"decode", ""},
                                                    {"decode ", "--format jsonl"},
                                                    {"report", ""},
                                                    {"doctor", ""},
                                                    {"doctor ", "--format jsonl"},
                                                    {"digest", ""},
                                                    {"events", ""},
                                                    {"stacks", ""},
                                                    {"branches", "-o -"},
                                                    {"validate", ""},
                                                    {"validate ", "--format json"},
                                                    {"timeline", "--format csv -o -"},
                                                    {"timeline ", "--format jsonl -o -"},
                                                    {"query", "'select name, dso from functions order by 1'"},
                                                    {"diff " + capture_.string(), ""}};
  const std::string clean = ASOF_TEST_DATA "/demo/perf.data", clean_symfs = ASOF_TEST_DATA "/demo/symfs";
  for (const auto& [verb, more] : verbs) {
    SCOPED_TRACE(verb + " " + more);
    const Ran ran = run(verb, more);
    EXPECT_FALSE(ran.out.empty()) << ran.err;
    for (const std::string* text : {&ran.out, &ran.err}) {
      for (const char c : *text) {
        const auto byte = static_cast<uint8_t>(c);
        ASSERT_TRUE(byte >= 0x20 || c == '\n' || c == '\t') << *text;
        ASSERT_NE(byte, 0x7f) << *text;
        ASSERT_NE(byte, 0x9b) << *text;
      }
    }
    if (verb.starts_with("diff")) continue;
    const Ran usual = run_asof(verb + " " + clean + " --symfs " + clean_symfs + " " + more);
    EXPECT_EQ(lines_of(ran.out).size(), lines_of(usual.out).size());
    EXPECT_EQ(ran.status, usual.status);
  }
}

TEST_F(HostileNames, AreNoFormulaInATable) {
  const Ran ran = run("timeline", "--format csv -o -");
  EXPECT_NE(ran.out.find(",'=fs\\x1b[2JX,"), std::string::npos) << ran.out.substr(0, 2000);
  EXPECT_EQ(ran.out.find(",=f"), std::string::npos);
}

}  // namespace
}  // namespace asof::test
