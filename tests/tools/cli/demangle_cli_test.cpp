// Names of C++, Rust and Go in every verb's output, and as filters: the demo capture with other names in its program.
#include <fmt/format.h>

#include <map>

#include "tests/support/demo_capture.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

class DemangleCli : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = std::make_unique<TempDir>();
    DemoCapture demo = make_demo();
    const std::map<std::string, std::string> names = {{"_start", "gopkg.in/app%2ev2.start"},
                                                      {"compute", "_ZN2ns7computeEi"},
                                                      {"leaf", "_ZN2ns7computeEl"},
                                                      {"hash_block", "_RNvNtCs1234_5crate4hash5block"}};
    for (UserProgram& p : demo.spec.programs) {
      for (ExecutableSymbol& s : p.elf.symbols) {
        if (const auto to = names.find(s.name); to != names.end()) s.name = to->second;
      }
    }
    write_capture(*demo.machine, demo.spec, dir_->path(), "names of C++, Rust and Go");
  }
  static void TearDownTestSuite() { dir_.reset(); }

  static Ran run(const std::string& verb, const std::string& rest = "") {
    return run_asof(fmt::format("{} {}/perf.data --symfs {}/symfs {}", verb, dir_->path().string(),
                                dir_->path().string(), rest));
  }
  static bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
  }

  static std::unique_ptr<TempDir> dir_;
};
std::unique_ptr<TempDir> DemangleCli::dir_;

TEST_F(DemangleCli, EveryVerbShowsNamesOfTheSource) {
  for (const std::string verb : {"decode -F ip,sym", "decode -F ip,sym --format jsonl", "decode --itrace b",
                                 "stacks", "stacks --by thread", "branches", "branches --format csv",
                                 "report --top 20", "query \"SELECT name FROM functions\" -i",
                                 "timeline --format csv -o -", "timeline --format jsonl -o -"}) {
    const auto with = [&](const std::string& option) {
      std::string text = verb;
      return run(text.insert(std::min(text.find(' '), text.size()), option));
    };
    const Ran shown = run(verb), raw = with(" --no-demangle"), one = with(" -j1");
    ASSERT_EQ(shown.status, 0) << verb << shown.err;
    EXPECT_EQ(shown.out, one.out) << verb;
    for (const char* name :
         {"ns::compute(int)", "ns::compute(long)", "crate::hash::block", "gopkg.in/app.v2.start"}) {
      EXPECT_TRUE(has(shown.out, name)) << verb << " " << name;
      EXPECT_FALSE(has(raw.out, name)) << verb << " " << name;
    }
    for (const char* name : {"_ZN2ns7computeEi", "_RNvNtCs1234_5crate4hash5block", "app%2ev2"}) {
      EXPECT_FALSE(has(shown.out, name)) << verb << " " << name;
      EXPECT_TRUE(has(raw.out, name)) << verb << " " << name;
    }
  }
}

TEST_F(DemangleCli, TablesHaveBothNames) {
  const Ran r =
      run("query --format csv \"SELECT name, linkage_name FROM functions WHERE linkage_name != name\" -i");
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(has(r.out, "ns::compute(int),_ZN2ns7computeEi\n")) << r.out;
  EXPECT_TRUE(has(r.out, "crate::hash::block,_RNvNtCs1234_5crate4hash5block\n")) << r.out;
}

TEST_F(DemangleCli, FiltersTakeAnyOfTheNames) {
  const std::string raw = run("decode -q -F ip,sym -S _ZN2ns7computeEi").out;
  ASSERT_FALSE(raw.empty());
  EXPECT_EQ(run("decode -q -F ip,sym -S 'ns::compute(int)'").out, raw);
  EXPECT_EQ(run("decode -q -F ip,sym -S 'ns::*(int)'").out, raw);
  EXPECT_NE(run("decode -q -F ip,sym -S 'crate::hash::block'").out, "");
  EXPECT_NE(run("decode -q -F ip,sym -S 'gopkg.in/app.v2.start'").out, "");
  const Ran both = run("decode -F ip,sym -S ns::compute");
  EXPECT_TRUE(has(both.out, "ns::compute(int)") && has(both.out, "ns::compute(long)"));
  EXPECT_TRUE(has(both.err, "'ns::compute' is 2 functions: ns::compute(int); ns::compute(long)")) << both.err;
  const Ran none = run("decode -F ip,sym -S ns::compute2");
  EXPECT_TRUE(none.out.empty());
  EXPECT_TRUE(has(none.err, "no function is 'ns::compute2'")) << none.err;
}

TEST_F(DemangleCli, TextTakesAnyOfTheNames) {
  const Ran raw = run("text _ZN2ns7computeEi -i"), source = run("text 'ns::compute(int)' -i");
  ASSERT_EQ(raw.status, 0) << raw.err;
  EXPECT_EQ(raw.out, source.out);
  EXPECT_TRUE(has(raw.out, "ns::compute(int)+0x0")) << raw.out;
  const Ran both = run("text ns::compute -i");
  EXPECT_TRUE(has(both.out, "ns::compute(int)+0x0") && has(both.out, "ns::compute(long)+0x0")) << both.out;
  EXPECT_TRUE(has(run("text --no-demangle _ZN2ns7computeEi -i").out, "_ZN2ns7computeEi+0x0"));
}

TEST_F(DemangleCli, DiffAndBlockStreams) {
  const std::string base = dir_->path().string(), capture = base + "/perf.data";
  const Ran diff = run_asof(fmt::format("diff {0} {0} --symfs {1}/symfs", capture, base));
  ASSERT_EQ(diff.status, 0) << diff.err;
  EXPECT_TRUE(has(diff.out, "ns::compute(int)") && has(diff.out, "crate::hash::block")) << diff.out;
  const std::string blocks = base + "/x.blocks";
  ASSERT_EQ(run("decode --format blocks -o " + blocks).status, 0);
  EXPECT_EQ(run_asof("stacks " + blocks).out, run("stacks").out);
  EXPECT_EQ(run_asof("stacks --no-demangle " + blocks).out, run("stacks --no-demangle").out);
}

}  // namespace
}  // namespace asof::test
