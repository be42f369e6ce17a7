// asof text as a program: --history, --diff T1 T2, --mode, and what it rejects.
#include <nlohmann/json.hpp>

#include <map>

#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

std::vector<nlohmann::json> json_lines(const Ran& r) {
  std::vector<nlohmann::json> out;
  for (const std::string& line : lines_of(r.out)) {
    out.push_back(nlohmann::json::parse(line, nullptr, false));
    EXPECT_FALSE(out.back().is_discarded()) << line;
  }
  return out;
}

TEST(TextCli, HistoryTellsWhenWhoAndFromWhichRecord) {
  const Ran r = run_asof("text vfs_read --history -i " + kDemo);
  EXPECT_EQ(r.status, 0) << r.err;
  const auto lines = lines_of(r.out);
  ASSERT_EQ(lines.size(), 3U) << r.out;
  EXPECT_NE(lines[0].find("2 changes"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("jump_label: nop to jump: 0f 1f 44 00 00"), std::string::npos) << lines[1];
  EXPECT_NE(lines[1].find("poke #4, cpu 0, offset 0x"), std::string::npos) << lines[1];
  EXPECT_NE(lines[2].find("jump_label: jump to nop"), std::string::npos) << lines[2];

  const auto json = json_lines(run_asof("text vfs_read --history --format jsonl -i " + kDemo));
  ASSERT_EQ(json.size(), 2U);
  EXPECT_EQ(json[0]["type"], "change");
  EXPECT_EQ(json[0]["mechanism"], "jump_label");
  EXPECT_EQ(json[0]["sym"], "vfs_read");
  EXPECT_EQ(json[0]["new"].get<std::string>().substr(0, 2), "e9");
  EXPECT_LT(json[0]["time"], json[1]["time"]);
}

TEST(TextCli, HistoryOfARangeHasBpfPrograms) {
  const auto json =
      json_lines(run_asof("text ffffffffc0400000-ffffffffc0401000 --history --format jsonl -i " + kDemo));
  std::map<std::string, int> actions;
  for (const auto& c : json) ++actions[c["action"].get<std::string>()];
  EXPECT_GE(actions["program loaded"], 2);
  EXPECT_GE(actions["program unregistered"], 1);
}

TEST(TextCli, DifferenceOfTheWholeKernelIsConsistent) {
  const auto json = json_lines(run_asof("text --diff start end --format jsonl -i " + kDemo));
  ASSERT_FALSE(json.empty());
  EXPECT_EQ(json[0]["type"], "diff");
  EXPECT_EQ(json[0]["pokes"], 10);
  uint64_t sites = 0, back = 0, by_mechanism = 0;
  for (const auto& d : json) {
    if (d["type"] == "site") ++(d["differs"] ? sites : back);
    if (d["type"] == "mechanism") by_mechanism += d["sites"].get<uint64_t>() + d["back"].get<uint64_t>();
  }
  EXPECT_EQ(json[0]["sites"], sites);
  EXPECT_EQ(json[0]["back"], back);
  EXPECT_EQ(by_mechanism, sites + back);
  const auto text = lines_of(run_asof("text --diff start end -i " + kDemo).out);
  EXPECT_TRUE(text.at(0).starts_with("kernel text start .. end:")) << text.at(0);
}

TEST(TextCli, DifferenceOfAProcessAndOfAFunction) {
  const Ran pid = run_asof("text --diff start end --pid 100 -i " + kDemo);
  EXPECT_TRUE(pid.status == 0 || pid.status == 2) << pid.err;
  const Ran none = run_asof("text --diff start end --pid 999999 -i " + kDemo);
  EXPECT_EQ(none.status, 2);
  EXPECT_NE(none.err.find("E-TEXT-091"), std::string::npos) << none.err;
  const auto one = json_lines(run_asof("text vfs_read --diff start end --format jsonl -i " + kDemo));
  EXPECT_EQ(one.at(0)["pokes"], 2);
}

TEST(TextCli, DiffWithoutTimesTakesAFunctionOnEitherSide) {
  const Ran before = run_asof("text vfs_read --diff -i " + kDemo);
  const Ran after = run_asof("text -i " + kDemo + " --diff vfs_read");
  EXPECT_EQ(before.status, 0) << before.err;
  EXPECT_EQ(after.status, 0) << after.err;
  EXPECT_NE(before.out, "");
  EXPECT_EQ(before.out, after.out);
}

TEST(TextCli, ModeChangesHowCodeIsRead) {
  // 48 is a prefix in 64-bit code, and an instruction of its own in 32-bit code.
  const Ran wide = run_asof("text vfs_read -i " + kDemo);
  const Ran narrow = run_asof("text vfs_read --mode 32 -i " + kDemo);
  EXPECT_EQ(narrow.status, 0) << narrow.err;
  EXPECT_NE(wide.out, narrow.out);
  EXPECT_NE(narrow.out.find("dec eax"), std::string::npos) << narrow.out;
  EXPECT_EQ(wide.out.find("dec eax"), std::string::npos);
}

TEST(TextCli, InstantsMayBeStartAndEnd) {
  const Ran start = run_asof("text vfs_read@start -i " + kDemo),
            end = run_asof("text vfs_read@end -i " + kDemo);
  EXPECT_EQ(start.status, 0) << start.err;
  EXPECT_TRUE(lines_of(start.out)[0].ends_with(", at the start")) << start.out;
  EXPECT_TRUE(lines_of(end.out)[0].ends_with(", at the end")) << end.out;
  EXPECT_EQ(start.err, "");
  EXPECT_EQ(end.err, "");
  // Loaded while the trace ran.
  const std::string program = "bpf_prog_f428610b9dc73580_drop_odd";
  EXPECT_EQ(run_asof("text " + program + "@end -i " + kDemo).status, 0);
  const Ran before = run_asof("text " + program + "@start -i " + kDemo);
  EXPECT_EQ(before.status, 2) << before.out;
  EXPECT_NE(run_asof("text vfs_read@noon -i " + kDemo).err.find("is not ADDR"), std::string::npos);
}

TEST(TextCli, RefusesWhatItDoesNotUnderstand) {
  for (const char* arguments :
       {"text", "text --diff 5 4", "text --diff 1 soon", "text a b c", "text f --history --diff 1 2",
        "text f --format jsonl", "text f --mode 31", "text 0-ffffffffffffffff"}) {
    const Ran r = run_asof(std::string(arguments) + " -i " + kDemo);
    EXPECT_EQ(r.status, 1) << arguments << r.out;
    EXPECT_NE(r.err, "") << arguments;
  }
}

}  // namespace
}  // namespace asof::test
