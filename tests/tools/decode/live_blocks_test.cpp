// perf record -o - | asof decode - --format blocks, --time, --cpu: what comes while perf records, and at the end.
#include <map>

#include "tests/tools/decode/live_recordings.h"

namespace asof::test {
namespace {

std::string saved(const TempDir& dir, const std::string& name, const std::string& bytes) {
  const std::string path = dir.path() / name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

// Lines by CPU: those of one are in order however much of the others is there.
std::map<std::string, std::string> lines_by_cpu(const std::string& blocks) {
  std::map<std::string, std::string> out;
  for (const std::string& line :
       lines_of(run_asof("decode -q --ns -F cpu,time,ip,sym,symoff,conf -i " + blocks).out))
    out[line.substr(0, line.find(']'))] += line + "\n";
  return out;
}

class LiveBlocks : public testing::Test {
 protected:
  std::vector<LiveRecording> recordings() {
    std::vector<LiveRecording> out{demo("demo", 0.5),
                                   machine(dir_, "machine-6.12", "kernel-tailcall.tar.xz", 0.1)};
    for (LiveRecording& r : out) as_blocks(r);
    return out;
  }
  static void as_blocks(LiveRecording& r) {
    std::erase_if(r.options, [](const std::string& o) { return o == "--ns" || o.starts_with("--itrace"); });
    const auto fields = std::ranges::find(r.options, "-F");
    r.options.erase(fields, fields + 2);
    r.options.insert(r.options.end(), {"--format", "blocks"});
  }
  // All but the last round, and what came of it; then the rest.
  struct Live {
    std::string early;
    Ran ran;
  };
  static Live follow(const LiveRecording& r, const LivePipe& pipe, size_t wanted) {
    LiveProgram live(arguments(r));
    const size_t most = pipe.round_ends[pipe.round_ends.size() - 2];
    live.write(std::span(pipe.bytes).first(most));
    EXPECT_TRUE(live.wait_for_output(wanted)) << r.name;
    Live out{live.output(), {}};
    live.write(std::span(pipe.bytes).subspan(most));
    out.ran = live.end();
    return out;
  }
  TempDir dir_;
};

TEST_F(LiveBlocks, HaveWhatTheWholeRecordingHas) {
  for (const LiveRecording& r : recordings()) {
    const LivePipe pipe = as_live_pipe(r.path, 24, r.capture);
    const Ran whole = after_the_fact(pipe.bytes, r);
    ASSERT_EQ(whole.status, 0) << whole.err;
    const Live live = follow(r, pipe, static_cast<size_t>(r.early * static_cast<double>(whole.out.size())));
    EXPECT_EQ(live.ran.status, 0) << live.ran.err;
    EXPECT_NE(live.ran.err.find("of the trace was given out"), std::string::npos) << live.ran.err;
    EXPECT_TRUE(live.ran.out.starts_with(live.early));
    const std::string want = saved(dir_, "whole.blocks", whole.out),
                      got = saved(dir_, "live.blocks", live.ran.out);
    std::vector<std::string> verbs{"digest", "decode --ns -F ip,time,conf --itrace=cre"};
    if (r.name == "demo")
      verbs.insert(verbs.end(), {"decode --ns -F +conf,disasm,insn,textver,textsrc,flags --itrace=ibcrexwpI",
                                 "decode --format jsonl", "branches", "stacks",
                                 "query \"SELECT * FROM call\" -i", "query \"SELECT * FROM poke_visits\" -i",
                                 "query \"SELECT * FROM pokes\" -i", "query \"SELECT * FROM gaps\" -i"});
    for (const std::string& verb : verbs) {
      const Ran a = run_asof(verb + " " + want), b = run_asof(verb + " " + got);
      EXPECT_EQ(a.status, b.status) << verb << b.err;
      EXPECT_FALSE(a.out.empty()) << verb << a.err;
      EXPECT_TRUE(a.out == b.out) << r.name << ": " << verb;
      EXPECT_EQ(a.err, b.err) << r.name << ": " << verb;
    }
  }
}

// Cut anywhere it is what it was at a moment while perf recorded.
TEST_F(LiveBlocks, AreReadableAtEveryMoment) {
  std::mt19937 random(31);
  for (const LiveRecording& r : {recordings().front()}) {
    const LivePipe pipe = as_live_pipe(r.path, 24, r.capture);
    const Ran live = piece_by_piece(pipe.bytes, r, random);
    ASSERT_EQ(live.status, 0) << live.err;
    const auto whole = lines_by_cpu(saved(dir_, "all.blocks", live.out));
    size_t some = 0, all = 0;
    for (const auto& [cpu, lines] : whole) all += lines.size();
    for (int i = 1; i < 16; ++i) {
      const std::string path =
          saved(dir_, "part.blocks", live.out.substr(0, live.out.size() * static_cast<size_t>(i) / 16));
      const Ran told = run_asof("report -q " + path);
      EXPECT_TRUE(told.status == 0 || told.err.find("E-FILE-141") != std::string::npos)
          << told.status << told.err;
      if (told.status != 0) continue;
      EXPECT_NE(told.out.find("E-DATA-122"), std::string::npos) << told.out;
      size_t lines_there = 0;
      for (const auto& [cpu, lines] : lines_by_cpu(path)) {
        ASSERT_TRUE(whole.contains(cpu));
        EXPECT_TRUE(whole.at(cpu).starts_with(lines)) << r.name << " " << i << " " << cpu;
        lines_there += lines.size();
      }
      some += lines_there != 0 && lines_there < all ? 1 : 0;
    }
    EXPECT_GT(some, 0U) << r.name;
  }
}

// A trampoline of ftrace, which appears while perf records: its code is decoded before the end, and has its name.
TEST_F(LiveBlocks, NameCodeThatCameLater) {
  LiveRecording r = machine(dir_, "board-x86", "capture.tar.xz", 0);
  as_blocks(r);
  // Later on a poke shows what was in a module that nobody copied.
  const LivePipe pipe = as_live_pipe(r.path, 24, r.capture);
  std::mt19937 random(7);
  const Ran live = piece_by_piece(std::span(pipe.bytes).first(pipe.round_ends[11]), r, random);
  // Breakpoints of kprobes became jumps, which left what was between the two as it was.
  ASSERT_EQ(live.status, 0) << live.err;
  size_t named = 0;
  std::vector<size_t> sizes;
  for (size_t i = 4; i < 16; ++i) sizes.push_back(live.out.size() * i / 16);
  // On a slow machine most of it is written shortly before the end.
  for (size_t i = 5; i < 13; ++i) sizes.push_back(live.out.size() - (live.out.size() >> i));
  for (const size_t size : sizes) {
    const std::string path = saved(dir_, "part.blocks", live.out.substr(0, size));
    const Ran told = run_asof("report -q " + path);
    if (told.err.find("E-FILE-141") != std::string::npos) continue;  // not one description is whole
    ASSERT_NE(told.out.find("E-DATA-122"), std::string::npos) << told.err;
    for (const std::string& line :
         lines_of(run_asof("decode -q -F ip,sym --time 2.5017,2.5019 -i " + path).out)) {
      if (line.find("ffffffffc0201") == std::string::npos) continue;
      EXPECT_NE(line.find("ftrace_trampoline"), std::string::npos) << line;
      ++named;
    }
  }
  EXPECT_GT(named, 0U);
}

// What comes before the end is of a time, or of a CPU; at the end it is what the whole recording gives.
TEST_F(LiveBlocks, WindowsAndCpusComeBeforeTheEnd) {
  const LiveRecording r = demo("demo", 0);
  const LivePipe pipe = as_live_pipe(r.path, 24, r.capture);
  const Ran all = after_the_fact(pipe.bytes, r);
  const std::vector<std::string> lines = lines_of(all.out);
  const auto time_of = [&](size_t percent) {
    const std::string& line = lines[lines.size() * percent / 100];
    const size_t end = line.find(": "), begin = line.rfind(' ', end - 1) + 1;
    return line.substr(begin, end - begin);
  };
  struct Case {
    std::vector<std::string> options;
    bool early;
  };
  for (const Case& c :
       {Case{{"--time", "," + time_of(10)}, true}, Case{{"--time", time_of(10) + "," + time_of(30)}, true},
        Case{{"--time", time_of(5) + ","}, true}, Case{{"--time", "10%-40%"}, false}, Case{{"-C", "0"}, true},
        Case{{"-C", "0", "--time", time_of(5) + "," + time_of(40)}, true}}) {
    LiveRecording part = r;
    part.options.insert(part.options.end(), c.options.begin(), c.options.end());
    const Ran whole = after_the_fact(pipe.bytes, part);
    ASSERT_EQ(whole.status, 0) << whole.err;
    ASSERT_GT(whole.out.size(), 1000U) << c.options.back();
    EXPECT_LT(whole.out.size(), all.out.size());
    const Live live = follow(part, pipe, c.early ? whole.out.size() / 4 : 0);
    EXPECT_EQ(live.ran.status, 0) << live.ran.err;
    EXPECT_TRUE(live.ran.out == whole.out) << c.options.back() << live.ran.err;
    EXPECT_EQ(live.ran.err.find("nothing was given out: percentages"),
              c.early ? std::string::npos : live.ran.err.find("nothing was"))
        << live.ran.err;
  }
}

// A signal other than Ctrl-C, which is for the recorder, ends it: what is there is a stream that was interrupted.
TEST_F(LiveBlocks, AreKeptWhenAsofIsEnded) {
  const LiveRecording r = recordings().front();
  const LivePipe pipe = as_live_pipe(r.path, 24, r.capture);
  const Ran whole = after_the_fact(pipe.bytes, r);
  LiveProgram live(arguments(r));
  live.write(std::span(pipe.bytes).first(pipe.round_ends[pipe.round_ends.size() - 2]));
  EXPECT_TRUE(live.wait_for_output(whole.out.size() / 2));
  ASSERT_EQ(::kill(live.pid(), SIGTERM), 0);
  const Ran ran = live.end();
  EXPECT_EQ(ran.status, 130) << ran.err;
  const auto all = lines_by_cpu(saved(dir_, "whole.blocks", whole.out));
  const std::string path = saved(dir_, "ended.blocks", ran.out);
  EXPECT_NE(run_asof("report -q " + path).out.find("E-DATA-122"), std::string::npos);
  const auto part = lines_by_cpu(path);
  ASSERT_FALSE(part.empty());
  for (const auto& [cpu, lines] : part) EXPECT_TRUE(all.at(cpu).starts_with(lines));
}

}  // namespace
}  // namespace asof::test
