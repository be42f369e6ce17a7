// Instructions, straight runs and branches in SQLite and timelines: read back by the sqlite3 program and
// compared with what executed, with other verbs of asof, and with generated source lines.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "arch/block.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/skip_without.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/run_asof.h"
#include "tests/tools/timeline/html_unpack.h"

namespace asof::test {
namespace {

bool installed(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1 </dev/null").c_str()) == 0;
}

using Row = std::vector<std::string>;

class Instructions : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!installed("sqlite3 --version")) GTEST_SKIP() << "sqlite3 is not installed";
  }
  // A database that asof made of a capture.
  std::string database(const std::string& capture, const std::string& options) {
    const std::string file = dir.path() / fmt::format("{}.db", ++databases);
    const Ran r = run_asof("timeline " + options + " -o " + file + " " + capture);
    EXPECT_EQ(r.status, 0) << r.err;
    notices = r.err;
    return file;
  }
  std::vector<Row> ask(const std::string& file, const std::string& sql) const {
    const std::string out = dir.path() / "rows";
    const std::string command = fmt::format("sqlite3 -separator '|' {} \"{}\" >{}", file, sql, out);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    std::vector<Row> rows;
    for (const std::string& line : lines_of(read_file(out))) {
      Row row(1);
      for (const char c : line) {
        if (c == '|') {
          row.emplace_back();
        } else {
          row.back() += c;
        }
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }
  std::string one(const std::string& file, const std::string& sql) const {
    const auto rows = ask(file, sql);
    return rows.size() == 1 && rows[0].size() == 1 ? rows[0][0] : fmt::format("{} rows", rows.size());
  }
  // Count and hash of executed addresses, by CPU, against truth/summary.json.
  void expect_truth(const std::string& file, const std::string& truth) const {
    const auto cpus = nlohmann::json::parse(read_file(truth + "/summary.json")).at("cpus");
    for (const auto& [cpu, want] : cpus.items()) {
      const auto rows = ask(file, "SELECT address FROM instructions WHERE cpu = " + cpu + " ORDER BY id");
      EXPECT_EQ(rows.size(), want["instructions"].get<uint64_t>());
      uint64_t hash = 0;
      for (const Row& row : rows) hash = hash * kHashFactor + static_cast<uint64_t>(std::stoll(row[0]));
      EXPECT_EQ(fmt::format("{:#x}", hash), want["ip_hash"].get<std::string>()) << "cpu " << cpu;
    }
    EXPECT_GE(cpus.size(), 2U);
  }
  // Pairs of addresses and how often, as `asof branches` counts them.
  void expect_branches(const std::string& file, const std::string& capture) const {
    std::map<std::pair<uint64_t, uint64_t>, uint64_t> want, got;
    const Ran r = run_asof("branches -q --format csv " + capture);
    EXPECT_EQ(r.status, 0) << r.err;
    for (const std::string& line : lines_of(r.out)) {
      if (!line.starts_with("0x")) continue;
      const size_t a = line.find(','), b = line.find(',', a + 1);
      want[{std::stoull(line, nullptr, 16), std::stoull(line.substr(a + 1), nullptr, 16)}] +=
          std::stoull(line.substr(b + 1));
    }
    for (const Row& row : ask(file, "SELECT from_ip, to_ip, count(*) FROM branches GROUP BY 1, 2")) {
      got[{static_cast<uint64_t>(std::stoll(row[0])), static_cast<uint64_t>(std::stoll(row[1]))}] =
          std::stoull(row[2]);
    }
    EXPECT_GT(want.size(), 100U);
    EXPECT_EQ(got, want);
  }

  TempDir dir;
  int databases = 0;
  std::string notices;
};

TEST_F(Instructions, DemoIsWhatExecuted) {
  const std::string file = database(kDemo, "--detail insn");
  expect_truth(file, ASOF_TEST_DATA "/demo/truth");
  expect_branches(file, kDemo);
  EXPECT_EQ(one(file, "PRAGMA integrity_check"), "ok");
  EXPECT_EQ(one(file, "SELECT count(*) || ' ' || min(id) || ' ' || max(id) FROM instructions"),
            "61625 1 61625");
  EXPECT_EQ(
      one(file, "SELECT sum(n) FROM (SELECT code.instructions AS n FROM blocks JOIN code ON code.id = code)"),
      "61625");
  // Time bounds are not empty, and the rows of a CPU are in order.
  EXPECT_EQ(one(file, "SELECT count(*) FROM blocks WHERE time_hi <= time_lo"), "0");
  EXPECT_EQ(one(file,
                "SELECT count(*) FROM (SELECT time_lo, lag(time_lo) OVER w AS lo, lag(time_hi) OVER w AS hi "
                "FROM blocks "
                "WINDOW w AS (PARTITION BY cpu ORDER BY id)) WHERE time_lo < lo OR (time_lo > lo AND time_lo "
                "< hi)"),
            "0");
  // A run lies within the call it belongs to.
  EXPECT_EQ(
      one(file,
          "SELECT count(*) FROM blocks JOIN calls ON calls.id = call WHERE time_lo < begin OR time_lo > "
          "end OR blocks.cpu != calls.cpu"),
      "0");
  EXPECT_EQ(one(file, "SELECT count(*) FROM blocks WHERE call IS NULL"), "0");
}

// Every column of an instruction is what `asof decode` prints for it.
TEST_F(Instructions, TextIsThatOfDecode) {
  const std::string file = database(kDemo, "--detail insn");
  const Ran decoded = run_asof("decode -q --format jsonl -C 1 -F cpu,time,ip,insn,disasm " + kDemo);
  const auto rows =
      ask(file, "SELECT address, bytes, text, time_lo FROM instructions WHERE cpu = 1 ORDER BY id");
  size_t at = 0;
  for (const std::string& line : lines_of(decoded.out)) {
    const auto j = nlohmann::json::parse(line);
    if (j["type"] != "instruction") continue;
    ASSERT_LT(at, rows.size());
    const Row& row = rows[at++];
    ASSERT_EQ(fmt::format("{:#x}", static_cast<uint64_t>(std::stoll(row[0]))), j["ip"].get<std::string>());
    std::string bytes = j["insn"].get<std::string>();
    std::string plain = row[1];
    for (std::string* s : {&bytes, &plain}) std::erase(*s, ' ');
    ASSERT_EQ(plain, bytes);
    ASSERT_EQ(row[2], j["disasm"].get<std::string>());
    ASSERT_EQ(row[3], std::to_string(j["time"].get<int64_t>()));
  }
  EXPECT_EQ(at, rows.size());
  EXPECT_GT(at, 20'000U);
}

TEST_F(Instructions, BoardIsWhatExecuted) {
  const std::string archive = ASOF_TEST_DATA "/board-x86/capture.tar.xz";
  const std::string command = fmt::format("tar -C '{}' -xJf '{}'", dir.path().string(), archive);
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::string capture = dir.path() / "perf.data";
  const std::string file = database(capture, "--detail insn");
  expect_truth(file, dir.path() / "truth");
  expect_branches(file, capture);
}

TEST_F(Instructions, Arm64IsWhatExecuted) {
  const std::string capture = ASOF_TEST_DATA "/demo-arm64/perf.data";
  const std::string file = database(capture, "--detail insn");
  expect_truth(file, ASOF_TEST_DATA "/demo-arm64/truth");
  expect_branches(file, capture);
}

// A recording of LLDB with the program that ran, which others compiled; it has no times, only numbers of
// instructions.
TEST_F(Instructions, LinesOfARealProgram) {
  const std::string trace = shared("corpus/lldb-intelpt-trace/trace.json");
  SKIP_WITHOUT(trace);
  if (!installed("addr2line --version")) GTEST_SKIP() << "addr2line is not installed";
  const std::string file = database(trace, "--detail insn");
  const auto rows = ask(file,
                        "SELECT printf('%x', address), file || ':' || line, id, time_lo, time_hi FROM "
                        "instructions ORDER BY id");
  ASSERT_EQ(rows.size(), 21U);
  const std::string answers = dir.path() / "answers";
  for (const Row& row : rows) {
    const std::string command =
        fmt::format("addr2line -e {} {} >{}", shared("corpus/lldb-intelpt-trace/a.out"), row[0], answers);
    ASSERT_EQ(std::system(command.c_str()), 0);
    std::string want = lines_of(read_file(answers)).at(0);
    EXPECT_EQ(row[1], want.substr(0, want.find(" (discriminator")));
    EXPECT_LE(std::stoi(row[3]), std::stoi(row[2]) - 1);
    EXPECT_GE(std::stoi(row[4]), std::stoi(row[2]));
  }
}

// At a site that changed, the bytes that ran are those of the record before or after, depending on the time.
TEST_F(Instructions, ChangedTextIsThatOfItsTime) {
  const std::string file = database(kDemo, "--detail insn");
  size_t old_ran = 0, new_ran = 0;
  for (const Row& poke : ask(file, "SELECT address, time, bytes FROM pokes")) {
    const size_t arrow = poke[2].find(" -> ");
    const std::string before = poke[2].substr(0, arrow), after = poke[2].substr(arrow + 4);
    const Time t = std::stoll(poke[1]);
    const auto ran = ask(
        file, "SELECT bytes, time_lo, time_hi, text, source FROM instructions WHERE address = " + poke[0]);
    EXPECT_GT(ran.size(), 5U);
    const std::string next =
        one(file, "SELECT coalesce(min(time), 9e18) FROM pokes WHERE address = " + poke[0] + " AND time > " +
                      poke[1]);
    const std::string last = one(file, "SELECT coalesce(max(time), 0) FROM pokes WHERE address = " + poke[0] +
                                           " AND time < " + poke[1]);
    for (const Row& row : ran) {
      // Within the window of a change, only the trace shows which bytes ran.
      constexpr Time kWindow = 5000;
      const Time lo = std::stoll(row[1]), hi = std::stoll(row[2]);
      if (hi<t - kWindow&& static_cast<double>(lo)> std::stod(last) + kWindow) {
        EXPECT_EQ(row[0], before);
        ++old_ran;
      }
      if (lo > t + kWindow && static_cast<double>(hi) < std::stod(next) - kWindow) {
        EXPECT_EQ(row[0], after);
        EXPECT_TRUE(row[4].starts_with("poke #")) << row[4];
        EXPECT_EQ(row[3].starts_with("jmp"), after.starts_with("e9")) << row[3];
        ++new_ran;
      }
    }
  }
  EXPECT_GT(old_ran, 100U);
  EXPECT_GT(new_ran, 100U);
}

TEST_F(Instructions, TextVersionsAreThoseOfTheRecords) {
  const std::string file = database(kDemo, "");
  for (const Row& poke : ask(file, "SELECT address, time, bytes, id FROM pokes")) {
    std::string after = poke[2].substr(poke[2].find(" -> ") + 4);
    std::erase(after, ' ');
    std::ranges::transform(after, after.begin(), [](char c) { return static_cast<char>(std::toupper(c)); });
    EXPECT_EQ(
        one(file,
            fmt::format("SELECT hex(bytes) || source FROM text_versions WHERE address = {} AND begin = {}",
                        poke[0], poke[1])),
        fmt::format("{}poke #{}", after, poke[3]));
  }
  EXPECT_EQ(
      one(file,
          "SELECT count(*) FROM text_versions a JOIN text_versions b ON b.address = a.address AND b.version "
          "= a.version + 1 WHERE b.begin IS NULL OR a.end IS NULL OR b.begin != a.end + 1"),
      "0")
      << "no version in the demo is in doubt";
}

TEST_F(Instructions, DepthsAreThoseOfTheTree) {
  const std::string file = database(kDemo, "");
  EXPECT_EQ(one(file, "SELECT count(*) FROM calls WHERE depth IS NULL"), "0");
  EXPECT_EQ(
      one(file, "SELECT count(*) FROM calls c JOIN calls p ON p.id = c.parent WHERE c.depth != p.depth + 1"),
      "0");
  EXPECT_EQ(one(file, "SELECT count(*) FROM calls WHERE (parent = 0) != (depth = 0)"), "0");
  EXPECT_GT(std::stoi(one(file, "SELECT max(depth) FROM calls")), 4);
  // The tables of details are absent by default, and a query that uses them gets them.
  EXPECT_EQ(
      one(file,
          "SELECT count(*) FROM sqlite_master WHERE name IN ('instructions', 'blocks', 'branches', 'code')"),
      "0");
  const Ran asked = run_asof("query 'SELECT count(*) FROM instructions' -q -i " + kDemo);
  EXPECT_EQ(asked.out, "count(*)\n61625\n");
  EXPECT_EQ(run_asof("query 'SELECT sum(instructions) > 0 FROM calls; SELECT count(*) FROM branches' -q -i " +
                     kDemo)
                .status,
            0);
  EXPECT_EQ(run_asof("query --detail calls 'SELECT count(*) FROM instructions' -q -i " + kDemo).status, 1);
}

// A time range is exact: it has what the whole capture has in that range, and nothing else.
TEST_F(Instructions, TimeIsExact) {
  const Time begin = 6'000'020'000, end = 6'000'070'000;
  const std::string window = "--time 6.000020000,6.000070000";
  const std::string whole = database(kDemo, "--detail insn"),
                    part = database(kDemo, "--detail insn " + window);
  const std::string inside = fmt::format("time_lo BETWEEN {} AND {}", begin, end);
  const std::string sums = "SELECT count(*), sum(address), sum(time_lo), sum(time_hi) FROM instructions";
  EXPECT_EQ(ask(part, sums), ask(whole, sums + " WHERE " + inside));
  EXPECT_EQ(one(part,
                "SELECT sum(self_instructions) FROM calls JOIN tracks ON tracks.id = track WHERE tracks.kind "
                "= 'cpu'"),
            one(whole, "SELECT count(*) FROM instructions WHERE " + inside));
  for (const std::string table : {"calls", "runs", "gaps"}) {
    EXPECT_EQ(
        one(part, fmt::format("SELECT count(*) FROM {} WHERE begin < {} OR end > {}", table, begin, end)),
        "0");
    // Cut at the range and marked, or unchanged.
    EXPECT_EQ(one(part, fmt::format(
                            "SELECT count(*) FROM {} WHERE (flags LIKE '%clipped-begin%' AND begin != {}) OR "
                            "(flags LIKE '%clipped-end%' AND end != {})",
                            table, begin, end)),
              "0");
  }
  for (const std::string table : {"pokes", "events", "counters"})
    EXPECT_EQ(
        one(part, fmt::format("SELECT count(*) FROM {} WHERE time < {} OR time > {}", table, begin, end)),
        "0");
  EXPECT_GT(std::stoi(one(part, "SELECT count(*) FROM calls WHERE flags LIKE '%clipped-begin%'")), 2);
  EXPECT_GT(std::stoi(one(part, "SELECT count(*) FROM calls WHERE flags LIKE '%clipped-end%'")), 2);
  EXPECT_EQ(one(part, "SELECT count(*) FROM pokes"),
            one(whole, fmt::format("SELECT count(*) FROM pokes WHERE time BETWEEN {} AND {}", begin, end)));
  // Slices that are not cut are those of the whole capture. What began long before the window may be unknown
  // in it.
  const std::string calls =
      "SELECT f.name, t.name, c.begin, c.end, c.instructions, c.entry, flags LIKE '%resumed%' AS resumed "
      "FROM {0}calls "
      "c JOIN {0}functions f ON f.id = function JOIN {0}tracks t ON t.id = track WHERE flags NOT LIKE "
      "'%clipped%' AND "
      "flags NOT LIKE '%began%' AND c.begin >= {1} AND c.end <= {2}";
  const std::string a = fmt::format(fmt::runtime(calls), "", begin, end);
  const std::string b = fmt::format(fmt::runtime(calls), "whole.", begin, end);
  const std::string both = fmt::format("ATTACH '{}' AS whole; ", whole);
  EXPECT_GT(std::stoi(one(part, "SELECT count(*) FROM (" + a + ")")), 3000);
  EXPECT_EQ(one(part, both + "SELECT count(*) FROM (" + a + " EXCEPT " + b + ")"), "0");
  EXPECT_EQ(one(part, both + "SELECT count(*) FROM (" + b + " EXCEPT " + a + ") WHERE NOT resumed"), "0");
  // The value that is valid when the window begins.
  EXPECT_EQ(one(part, "SELECT value FROM counters WHERE kind = 'text version' ORDER BY time LIMIT 1"), "1.0");
}

// Debug files made for the demo's program and kernel: the line of a byte is its offset plus one. The kernel's
// was linked at another address than it ran at.
TEST_F(Instructions, SourceLinesOfProgramAndKernel) {
  if (!installed("as --version") || !installed("ld --version")) GTEST_SKIP() << "binutils are not installed";
  const auto make = [&](const std::string& name, uint64_t at, int bytes, const std::string& options) {
    std::string text = ".file 1 \"/src/" + name + ".c\"\n.text\n.globl _stext, _start\n_stext: _start:\n";
    for (int i = 0; i < bytes; ++i) text += fmt::format(".loc 1 {}\nnop\n", i + 1);
    write_text(dir.path() / (name + ".s"), text);
    const std::string base = dir.path() / name;
    const std::string command =
        fmt::format("as -g -o {0}.o {0}.s && ld {1} -Ttext={2:#x} -o {0} {0}.o", base, options, at);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return base;
  };
  const std::string id = "d0d7dee5ecf3fa01080f161d242b323940474e55";
  const std::string program = make("worker", 0x401000, 0x8d, "--build-id=0x" + id);
  const std::string kernel = make("vmlinux", 0xffffffff80400000, 0x1000, "");
  namespace fs = std::filesystem;
  const fs::path symfs = dir.path() / "symfs", debug = symfs / "usr/lib/debug/.build-id" / id.substr(0, 2);
  fs::copy(ASOF_TEST_DATA "/demo/symfs", symfs, fs::copy_options::recursive);
  fs::create_directories(debug);
  fs::copy(program, debug / (id.substr(2) + ".debug"));
  const std::string capture =
      fmt::format("{}/demo/perf.data --symfs {} --vmlinux {}", ASOF_TEST_DATA, symfs.string(), kernel);

  const std::string file = database(capture, "--detail insn --time 6.00002,6.00004");
  EXPECT_GT(std::stoi(one(file, "SELECT count(*) FROM instructions WHERE file LIKE '%worker.c'")), 3000);
  EXPECT_EQ(one(file,
                "SELECT count(*) FROM instructions WHERE address BETWEEN 0x401000 AND 0x40108c AND (file IS "
                "NULL OR "
                "file NOT LIKE '%/worker.c' OR line != address - 0x401000 + 1)"),
            "0");
  const std::string text = "address BETWEEN -2130706432 AND -2130702337";
  EXPECT_EQ(
      one(file, "SELECT count(*) FROM instructions WHERE " + text +
                    " AND (file IS NULL OR file NOT LIKE '%/vmlinux.c' OR line != address + 2130706432 + 1)"),
      "0");
  // Lines of a kernel that was changed while it ran, with the bytes that ran.
  EXPECT_GT(std::stoi(one(
                file, "SELECT count(*) FROM instructions WHERE line IS NOT NULL AND source LIKE 'poke #%'")),
            50);
  // Nothing has the source lines of modules and BPF programs.
  EXPECT_GT(std::stoi(one(file, "SELECT count(*) FROM instructions WHERE file IS NULL")), 100);

  const std::string page = dir.path() / "page.html";
  ASSERT_EQ(run_asof("timeline -o " + page + " " + capture).status, 0);
  EXPECT_NE(page_meta(read_file(page)).find("worker.c:17"), std::string::npos);
}

// Missing debug information is reported when source lines are wanted, and nothing else is missing.
TEST_F(Instructions, MissingSourceLinesAreReported) {
  database(kDemo, "--detail insn --time 6.00002,6.00003 -v");
  EXPECT_NE(notices.find("I-TEXT-207"), std::string::npos) << notices;
  database(kDemo, "-v");
  EXPECT_EQ(notices.find("I-TEXT-207"), std::string::npos) << "no source lines were wanted";
}

}  // namespace
}  // namespace asof::test
