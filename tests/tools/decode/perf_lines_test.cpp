// `perf script` and `asof decode` with the same fields, line by line, on the demo capture. Each difference is
// of one of the classes below, each with its reason, and what ran shows which is right. The table is in
// docs/validation.md, "perf script, line by line". The counts are those of perf 6.1.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>

#include "decoder/model/capture.h"
#include "tests/support/shadow_stacks.h"
#include "tests/support/truth.h"
#include "tests/tools/peer_perf.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

constexpr Time kTick = 350;  // ns between two timing packets of the demo, and a little more
// Code up to the branch whose packet follows a timing packet has the time of that packet, however early it
// began.
constexpr Time kStretch = 60;
constexpr const char* kFields = "comm,pid,tid,cpu,time,ip,sym,symoff,dso,insn,insnlen,flags";

struct Line {
  int cpu = -1;
  std::string comm, thread, flags, sym, dso, length, insn;
  Time time = 0;
  Addr ip = 0;
  std::string text;
};

// "worker  1201/1201  [000]     5.999999999:   call     401006 _start+0x6 (/opt/demo/worker) ilen: 5 insn: e8
// .."
bool parse(const std::string& text, Line& l) {
  const size_t open = text.find('['), colon = text.find(": ", open), dso = text.find(" (", colon),
               close = text.find(") ilen: ", dso), insn = text.find(" insn: ", close);
  if (open == std::string::npos || insn == std::string::npos) return false;
  l.text = text;
  std::istringstream who(text.substr(0, open));
  who >> l.comm >> l.thread;
  std::istringstream when(text.substr(open + 1, colon - open - 1));
  char bracket = 0, point = 0;
  Time seconds = 0, ns = 0;
  when >> l.cpu >> bracket >> seconds >> point >> ns;
  l.time = seconds * 1'000'000'000 + ns;
  std::vector<std::string> words;
  std::istringstream where(text.substr(colon + 1, dso - colon - 1));
  for (std::string word; where >> word;) words.push_back(word);
  if (words.size() < 2) return false;
  l.sym = words.back();
  const std::string& ip = words[words.size() - 2];
  std::from_chars(ip.data(), ip.data() + ip.size(), l.ip, 16);
  for (size_t i = 0; i + 2 < words.size(); ++i) l.flags += (i != 0 ? " " : "") + words[i];
  l.dso = text.substr(dso + 2, close - dso - 2);
  l.length = text.substr(close + 8, insn - close - 8);
  l.insn = text.substr(insn + 7);
  l.insn.erase(l.insn.find_last_not_of(' ') + 1);
  return true;
}

struct Output {
  std::map<int, std::vector<Line>> lines;  // by CPU
  size_t others = 0;                       // errors
};

Output output_of(const std::string& text) {
  Output out;
  for (const std::string& s : lines_of(text)) {
    Line l;
    if (parse(s, l)) {
      out.lines[l.cpu].push_back(std::move(l));
    } else {
      ++out.others;
    }
  }
  return out;
}

// Every line is what ran, and its time is that of the timing packet before it, within one stretch.
void expect_true(const std::vector<Line>& lines, int cpu) {
  const auto runs = read_truth_runs(fmt::format("{}/demo/truth/cpu{}.blocks.zst", ASOF_TEST_DATA, cpu));
  size_t line = 0;
  for (size_t r = 0; r < runs.size(); ++r) {
    const TruthRun& run = runs[r];
    Addr ip = run.address;
    for (uint32_t i = 0; i < run.instructions; ++i, ++line) {
      ASSERT_LT(line, lines.size());
      const Line& l = lines[line];
      ASSERT_EQ(l.ip, ip) << l.text;
      ASSERT_LT(l.time, run.time + kStretch) << l.text;
      ASSERT_GT(l.time, run.time - kTick) << l.text;
      ip += static_cast<Addr>(std::stoi(l.length));
    }
    ASSERT_EQ(ip, run.address + run.bytes);
  }
  EXPECT_EQ(line, lines.size());
}

// Which of perf's lines are in asof's, and the classes of the rest.
class Comparison {
 public:
  Comparison(const std::vector<Line>& asof, const std::vector<Line>& perf, std::vector<Time> switches)
      : asof_(asof), perf_(perf), switches_(std::move(switches)) {
    size_t i = 0, j = 0;
    while (i < asof.size() || j < perf.size()) {
      if (i < asof.size() && j < perf.size() && asof[i].ip == perf[j].ip) {
        fields(asof[i++], perf[j++]);
        continue;
      }
      const auto [di, dj] = meet(i, j);
      apart(i, di, j, dj);
      i += di, j += dj;
    }
  }
  std::map<std::string, size_t> classes;

 private:
  static constexpr size_t kSame = 6;  // this many equal lines are a meeting point
  // BPF sub-program: perf reads its bytes at the start of the main program's image.
  static bool in_sub_program(const Line& l) { return l.sym.starts_with("bpf_prog_6d02ab1980335e21_F+"); }

  bool same(size_t i, size_t j) const {
    size_t n = 0;
    while (n < kSame && i + n < asof_.size() && j + n < perf_.size() && asof_[i + n].ip == perf_[j + n].ip)
      ++n;
    return n == kSame || (n != 0 && (i + n == asof_.size() || j + n == perf_.size()));
  }
  std::pair<size_t, size_t> meet(size_t i, size_t j) const {
    for (size_t both = 1; both < 4000; ++both) {
      for (size_t dj = 0; dj <= std::min(both, perf_.size() - j); ++dj) {
        if (both - dj <= asof_.size() - i && same(i + both - dj, j + dj)) return {both - dj, dj};
      }
    }
    return {asof_.size() - i, perf_.size() - j};
  }

  void apart(size_t i, size_t missing, size_t j, size_t extra) {
    // Wrong from within the sub-program on, lost up to the next packet with a whole address.
    if (i != 0 && in_sub_program(asof_[i - 1]) &&
        std::all_of(perf_.begin() + static_cast<ptrdiff_t>(j),
                    perf_.begin() + static_cast<ptrdiff_t>(j + extra), in_sub_program)) {
      classes["sub-program: missing in perf"] += missing;
      classes["sub-program: did not run"] += extra;
    } else if (extra == 0 && i + missing < asof_.size() && asof_[i + missing].time - asof_[i].time > 5'000) {
      classes["in front of a loss: missing in perf"] += missing;
    } else {
      unexplained("other instructions", i < asof_.size() ? asof_[i].text : "",
                  j < perf_.size() ? perf_[j].text : "");
    }
  }

  void fields(const Line& a, const Line& p) {
    const bool time = a.time != p.time, thread = a.thread != p.thread, dso = a.dso != p.dso;
    const bool insn = a.length != p.length || a.insn != p.insn || a.flags != p.flags;
    ++classes["lines of the same instruction"];
    classes["equal in every field"] += !time && !thread && !dso && !insn;
    if (time) ++classes[p.time > a.time ? "time: perf later" : "time: perf earlier"];
    // The first switch has no time.
    const auto beside = [](Time x, Time t) {
      return saturating_add(t, -kTick) < x && x < saturating_add(t, kTick);
    };
    const bool beside_switch =
        std::ranges::any_of(switches_, [&](Time t) { return beside(a.time, t) || beside(p.time, t); });
    const bool module = a.dso == "[demo]" && p.dso == "[kernel.kallsyms]";
    if (thread)
      beside_switch ? void(++classes["thread: beside a switch"]) : unexplained("thread", a.text, p.text);
    if (dso) module ? void(++classes["dso: module"]) : unexplained("dso", a.text, p.text);
    if (insn)
      in_sub_program(a) ? void(++classes["sub-program: other bytes"]) : unexplained("insn", a.text, p.text);
    if (a.comm != p.comm || a.sym != p.sym) unexplained("comm or symbol", a.text, p.text);
  }
  void unexplained(const std::string& what, const std::string& a, const std::string& p) {
    if (++classes["unexplained: " + what] <= 3) ADD_FAILURE() << what << "\n" << a << "\n" << p;
  }

  const std::vector<Line>& asof_;
  const std::vector<Line>& perf_;
  std::vector<Time> switches_;
};

std::string command(const std::string& shell) {
  const TempDir dir;
  const std::string out = dir.path() / "out";
  if (std::system(("( " + shell + " ) >" + out + " 2>/dev/null </dev/null").c_str()) != 0) return {};
  return read_file(out);
}

TEST(PerfLines, DifferencesAreTheListedOnes) {
  ASOF_SKIP_WITHOUT_PERF();
  const Output asof = output_of(run_asof(fmt::format("decode {} --ns -q -F {}", kDemo, kFields)).out);
  const Output perf =
      output_of(command(fmt::format("perf script -i {} --ns --itrace=i0nse -F {}", kDemo, kFields)));
  ASSERT_EQ(asof.lines.size(), 2U);
  ASSERT_EQ(perf.lines.size(), 2U);
  const auto capture = open_capture(std::string(ASOF_TEST_DATA) + "/demo/perf.data", {});
  ASSERT_TRUE(capture) << capture.error().reason;
  std::map<std::string, size_t> classes{{"lines of asof alone", asof.others},
                                        {"errors of perf", perf.others}};
  for (const int cpu : {0, 1}) {
    expect_true(asof.lines.at(cpu), cpu);
    std::vector<Time> switches;
    for (const Stream& s : capture->streams) {
      for (const ContextChange& c : s.contexts)
        if (s.cpu == cpu) switches.push_back(c.time);
    }
    const Comparison c(asof.lines.at(cpu), perf.lines.at(cpu), switches);
    for (const auto& [what, count] : c.classes) classes[what] += count;
  }
  const std::map<std::string, size_t> listed{
      {"lines of the same instruction", 58'699},
      {"equal in every field", 36'095},
      {"time: perf earlier", 2'660},
      {"time: perf later", 18'963},
      {"thread: beside a switch", 1'877},
      {"dso: module", 682},
      {"sub-program: other bytes", 74},
      {"sub-program: did not run", 339},
      {"sub-program: missing in perf", 2'923},
      {"in front of a loss: missing in perf", 3},
      {"errors of perf", 75},
      {"lines of asof alone", 0},
  };
  EXPECT_EQ(classes, listed);
}

}  // namespace
}  // namespace asof::test
