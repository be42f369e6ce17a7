// Help for users: --help with examples that work, completion, manual pages. All three are made from the tree
// of options, and agree with it.
#include <fmt/format.h>
#include <cstring>

#include "tests/tools/on_terminal.h"
#include "tools/cli/option_tree.h"
#include "tools/cli/verb_table.h"

namespace asof::test {
namespace {

std::vector<VerbInfo> tree() {
  static CLI::App app("", "asof");
  static const auto runners = add_verbs(app);
  return option_tree(app);
}

// A folder with the demo as ./perf.data, truth and files of programs, and a shell in it.
class Shell {
 public:
  Shell() {
    for (const char* name : {"perf.data", "symfs", "truth"}) {
      std::filesystem::create_directory_symlink(std::filesystem::path(ASOF_TEST_DATA) / "demo" / name,
                                                dir_.path() / name);
    }
    std::filesystem::create_symlink(ASOF_BINARY, dir_.path() / "asof");
  }
  Ran run(const std::string& command, const char* shell = "sh") const {
    const auto at = [&](const char* name) { return (dir_.path() / name).string(); };
    std::ofstream(at("script")) << "PATH=" << dir_.path().string() << ":$PATH\n" << command << "\n";
    const std::string line =
        fmt::format("cd {} && {} ./script >out.txt 2>err.txt </dev/null", dir_.path().string(), shell);
    Ran ran;
    ran.status = WEXITSTATUS(std::system(line.c_str()));
    ran.out = read_file(at("out.txt"));
    ran.err = read_file(at("err.txt"));
    return ran;
  }

 private:
  TempDir dir_;
};

TEST(Help, EveryVerbHasExamplesAndAPage) {
  ASSERT_EQ(tree().size(), verbs().size());
  for (const VerbEntry& verb : verbs()) {
    EXPECT_FALSE(examples_of(verb.name).empty()) << verb.name;
    EXPECT_TRUE(std::filesystem::exists(fmt::format(ASOF_MANUALS "/{}.scd", verb.name))) << verb.name;
    const std::string help = run_asof(std::string(verb.name) + " --help").out;
    for (const Example& e : examples_of(verb.name)) {
      EXPECT_NE(help.find(e.command), std::string::npos) << verb.name;
      EXPECT_NE(std::string_view(e.command).find(fmt::format("asof {}", verb.name)), std::string::npos)
          << e.command;
    }
  }
}

// Commands of examples are as they are typed.
TEST(Help, LinesFitAndSayNoTypesOfTheParser) {
  for (const VerbEntry& verb : verbs()) {
    for (const std::string& line : lines_of(run_asof(std::string(verb.name) + " --help").out)) {
      if (line.starts_with("  asof ")) continue;
      EXPECT_LE(line.size(), 100U) << verb.name << ": " << line;
      for (const char* type : {"TEXT:", "UINT", " INT", "SIZE:", "MODE:", "(0x)", "WHEN:{", "{raw}"})
        EXPECT_EQ(line.find(type), std::string::npos) << verb.name << ": " << line;
    }
  }
  const std::string help = run_asof("script --help").out;
  EXPECT_NE(help.find("comm, tid, pid, time,"), std::string::npos) << help;
  EXPECT_NE(run_asof("query --help").out.find("syscall-latency, irq-latency"), std::string::npos);
}

TEST(Help, LinesAreAsWideAsTheTerminal) {
  ASOF_SKIP_WITHOUT_TERMINAL();
  size_t widest = 0;
  for (const std::string& line : on_terminal("errors --help")) widest = std::max(widest, line.size());
  EXPECT_LE(widest, 70U);
  for (const std::string& line : on_terminal("stacks --help")) {
    const bool of_text = line.starts_with("          ");
    EXPECT_TRUE(!of_text || line.size() <= 60U) << line;
  }
}

TEST(Help, EveryExampleWorksAsItStands) {
  for (const VerbEntry& verb : verbs()) {
    for (const Example& e : examples_of(verb.name)) {
      const Shell shell;
      const std::string_view command = e.command;
      if (command.starts_with("asof unpack")) shell.run("asof pack -q -o demo.asof.tar.zst");
      if (command.find(" plan") != std::string_view::npos ||
          command.find("whole.blocks") != std::string_view::npos)
        shell.run(
            "asof plan -q -o plan && asof decode -q --plan plan --shard 0/1 -o parts && asof merge -q plan "
            "parts -o whole.blocks");
      if (command.find("capture.db ") != std::string_view::npos)
        shell.run("asof query -q -o capture.db --detail insn");
      if (verb.name == std::string_view("record")) {  // it would record this machine
        const Ran r =
            shell.run("asof record --check" + std::string(command.substr(std::strlen("asof record"))));
        EXPECT_TRUE(r.status == 0 || r.status == 2) << command << "\n" << r.out << r.err;
        continue;
      }
      const Ran r = shell.run(e.command);
      EXPECT_EQ(r.status, 0) << e.command << "\n" << r.err;
    }
  }
}

std::vector<std::string> completed(const Shell& shell, const std::string& words) {
  const Ran r =
      shell.run("source <(asof completion bash)\nCOMP_WORDS=(" + words +
                    ")\nCOMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_asof\nprintf '%s\\n' \"${COMPREPLY[@]}\"",
                "bash");
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.err, "");
  return lines_of(r.out);
}

TEST(Completion, BashKnowsVerbsOptionsAndValues) {
  const Shell shell;
  using Words = std::vector<std::string>;
  EXPECT_EQ(completed(shell, "asof val"), Words{"validate"});
  EXPECT_EQ(completed(shell, "asof help dig"), Words{"digest"});
  EXPECT_EQ(completed(shell, "asof decode --text"), Words{"--text-at"});
  EXPECT_EQ(completed(shell, "asof decode --text-at ''"), (Words{"asof", "first", "last"}));
  EXPECT_EQ(completed(shell, "asof decode --color = ne"), Words{"never"}) << "--color=ne";
  EXPECT_EQ(completed(shell, "asof --forma"), Words{"--format"}) << "decode is the default verb";
  EXPECT_EQ(completed(shell, "asof text --syntax a"), Words{"att"});
  EXPECT_EQ(completed(shell, "asof completion f"), Words{"fish"});
  EXPECT_EQ(completed(shell, "asof report perf"), Words{"perf.data"});
  EXPECT_EQ(completed(shell, "asof report --kcore sym"), Words{"symfs"});
  EXPECT_EQ(completed(shell, "asof decode -j ''"), Words{""});
}

// Also those that take several at once.
TEST(Completion, BashKnowsListsOfValues) {
  const Shell shell;
  using Words = std::vector<std::string>;
  EXPECT_EQ(completed(shell, "asof decode -F sy"), (Words{"sym", "symoff"}));
  EXPECT_EQ(completed(shell, "asof script -F ip,callind"), Words{"ip,callindent"});
  EXPECT_EQ(completed(shell, "asof errors --explain E-FLOW-00").front(), "E-FLOW-001");
  EXPECT_EQ(completed(shell, "asof events --type TEXT"), Words{"TEXT_POKE"});
  EXPECT_EQ(completed(shell, "asof packets --type TIP.PG"), (Words{"TIP.PGE", "TIP.PGD"}));
  EXPECT_EQ(completed(shell, "asof query --named irq"), Words{"irq-latency"});
  const Words letters = completed(shell, "asof script --itrace ''");
  EXPECT_NE(std::ranges::find(letters, "Z"), letters.end());
}

TEST(Completion, BashKnowsEveryOption) {
  const Shell shell;
  for (const VerbInfo& verb : tree()) {
    std::vector<std::string> want;
    for (const OptionInfo& o : verb.options) want.insert(want.end(), o.names.begin(), o.names.end());
    EXPECT_EQ(completed(shell, "asof " + verb.name + " -"), want) << verb.name;
  }
}

TEST(Completion, ScriptsOfOtherShellsAreWellFormed) {
  const Shell shell;
  bool any = false;
  for (const std::string name : {"zsh", "fish"}) {
    if (shell.run("command -v " + name).status != 0) continue;
    any = true;
    const Ran r = shell.run(fmt::format("asof completion {0} >c && {0} -n c", name));
    EXPECT_EQ(r.status, 0) << r.err;
  }
  if (shell.run("command -v fish").status == 0) {
    const Ran r =
        shell.run("fish -c \"asof completion fish | source; complete -C 'asof decode --text-at f'\"");
    EXPECT_TRUE(r.out.starts_with("first\t") && lines_of(r.out).size() == 1) << r.out << r.err;
  }
  if (!any) GTEST_SKIP() << "neither zsh nor fish is installed";
}

TEST(Manual, PagesListEveryOptionAndExample) {
  const std::filesystem::path pages = std::filesystem::path(ASOF_BINARY).parent_path() / "share/man";
  if (!std::filesystem::exists(pages / "asof.1")) GTEST_SKIP() << "scdoc was missing when asof was built";
  for (const VerbInfo& verb : tree()) {
    std::string page = read_file(pages / fmt::format("asof-{}.1", verb.name));
    const auto is_escape = [](char c) { return c == '\\' || c == '&'; };  // of roff
    std::erase_if(page, is_escape);
    for (const OptionInfo& o : verb.options) {
      for (const std::string& n : o.names)
        EXPECT_NE(page.find(n), std::string::npos) << verb.name << " " << n;
    }
    for (const Example& e : examples_of(verb.name)) {
      std::string command = e.command;
      std::erase_if(command, is_escape);
      EXPECT_NE(page.find(command), std::string::npos) << e.command;
    }
  }
}

}  // namespace
}  // namespace asof::test
