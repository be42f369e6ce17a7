// asof query: its tables read back by the sqlite3 program, and compared with what is known of the demo.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/skip_without.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

std::string ask(const std::string& sql, const std::string& options = {}) {
  const Ran r = run_asof("query \"" + sql + "\" " + options + " -i " + kDemo);
  EXPECT_EQ(r.status, 0) << r.err;
  const auto lines = lines_of(r.out);
  return lines.size() < 2 ? std::string() : lines[1];
}

TEST(Query, SelfInstructionsOfCpuTracksAreAllInstructions) {
  EXPECT_EQ(ask("SELECT sum(self_instructions) FROM call JOIN tracks ON tracks.id = track WHERE tracks.kind "
                "= 'cpu'"),
            "61625");
  EXPECT_EQ(ask("SELECT count(*) FROM pokes"), "10");
  EXPECT_EQ(ask("SELECT count(*) FROM gaps WHERE code = 'E-LOST-103'"), "1");
  EXPECT_EQ(ask("SELECT count(DISTINCT bpf_id) FROM text_lives WHERE kind = 'bpf'"), "2");
}

// A poke has one number everywhere: what asof text calls poke 4 is row 4.
TEST(Query, PokesAreNumberedAsInText) {
  const Ran text = run_asof("text vfs_read --history --format jsonl -i " + kDemo);
  ASSERT_EQ(text.status, 0) << text.err;
  for (const char* number : {"4", "9"}) {
    EXPECT_NE(text.out.find(std::string("\"poke\":") + number + ","), std::string::npos) << text.out;
    EXPECT_EQ(ask(std::string("SELECT printf('%x', address) FROM pokes WHERE id = ") + number),
              "ffffffff810001fa");
  }
  EXPECT_EQ(ask("SELECT min(id) || ' ' || max(id) FROM pokes"), "1 10");
}

TEST(Query, SlicesLieWithinTheirParents) {
  const std::string outside =
      "SELECT count(*) FROM calls c JOIN calls p ON p.id = c.parent WHERE c.begin < p.begin OR c.end > p.end "
      "OR "
      "c.track != p.track OR c.instructions > p.instructions";
  EXPECT_EQ(ask(outside), "0");
  EXPECT_EQ(ask("SELECT count(*) > 9000 FROM calls"), "1");
  // The simulated program has no return without its call.
  EXPECT_EQ(ask("SELECT count(*) FROM calls WHERE flags LIKE '%unbalanced%' OR flags LIKE '%skipped%'"), "0");
}

// A real kernel that changes its text: calls nest, every return matches a call, and every instruction that
// truth/summary.json counts belongs to a call.
TEST(Query, BoardCallsAreBalanced) {
  const std::string board = shared("captures/x86-board-small");
  SKIP_WITHOUT(board);
  const Ran r = run_asof(
      "query \"SELECT (SELECT count(*) FROM calls c JOIN calls p ON p.id = c.parent WHERE c.begin < p.begin "
      "OR "
      "c.end > p.end OR c.track != p.track OR c.instructions > p.instructions), (SELECT count(*) FROM calls "
      "WHERE flags LIKE '%unbalanced%'), (SELECT sum(self_instructions) FROM call JOIN tracks ON tracks.id = "
      "track WHERE tracks.kind = 'cpu')\" -i " +
      board + "/perf.data");
  EXPECT_EQ(r.status, 0) << r.err;
  ASSERT_EQ(lines_of(r.out).size(), 2U);
  EXPECT_EQ(lines_of(r.out)[1], "0\t0\t1212119");
}

// The capture does not exist, and nobody notices.
TEST(Query, WrongSqlFailsBeforeAnythingIsRead) {
  for (const char* sql : {"SELECT nonsense FROM calls", "SELECT 1 FROM nowhere", "SELEC 1",
                          "CREATE TEMP TABLE mine AS SELECT name FROM call; SELECT nam FROM mine"}) {
    const Ran r = run_asof(std::string("query \"") + sql + "\" -i /nonexistent/perf.data");
    EXPECT_EQ(r.status, 1) << sql;
    EXPECT_NE(r.err.find("SQL: "), std::string::npos) << sql << '\n' << r.err;
    EXPECT_EQ(r.err.find("/nonexistent"), std::string::npos) << r.err;
  }
  const Ran r = run_asof("query \"SELECT 1 FROM instructions\" --detail calls -i /nonexistent/perf.data");
  EXPECT_NE(r.err.find("no such table: instructions"), std::string::npos) << r.err;
}

TEST(Query, LaterStatementsUseWhatEarlierOnesMade) {
  EXPECT_EQ(ask("CREATE TEMP TABLE mine AS SELECT id FROM pokes; SELECT count(*) FROM mine"), "10");
  EXPECT_EQ(ask("CREATE TEMP TABLE mine(a, b); INSERT INTO mine VALUES (1, 2); UPDATE mine SET b = 3; ALTER "
                "TABLE mine RENAME COLUMN b TO c; SELECT c FROM mine"),
            "3");
  EXPECT_EQ(ask("SELECT count(*) > 0 FROM call JOIN instructions ON instructions.cpu = 0 WHERE call.id = 1 "
                "LIMIT 1"),
            "1")
      << "a view and a table of detail";
}

// Detail is decoded for what a query reads, by whatever way, and for nothing else.
TEST(Query, DetailIsFoundByWhatIsRead) {
  for (const char* sql :
       {"CREATE TEMP TABLE m AS SELECT 0 AS cpu; SELECT count(*) FROM m JOIN instructions i ON i.cpu = m.cpu",
        "CREATE TEMP VIEW v AS SELECT cpu FROM \\\"Instructions\\\" WHERE cpu = 0; SELECT count(*) FROM v",
        "CREATE TEMP TABLE t(a,b,c,d,e,f,g,h,i,j,k,l); INSERT INTO t SELECT * FROM BLOCKS; SELECT count(*) "
        "FROM instructions WHERE cpu = 0",
        "CREATE TEMP TABLE t(x NOT NULL); INSERT INTO t SELECT max(time) FROM pokes; SELECT count(*) FROM "
        "instructions WHERE cpu = 0",
        "WITH i AS (SELECT * FROM [instructions]) SELECT count(*) FROM i WHERE cpu = 0"})
    EXPECT_GT(std::atoi(ask(sql).c_str()), 20'000) << sql;
  EXPECT_EQ(ask("CREATE TEMP TABLE t(a,b,c,d,e,f,g,h,i,j,k,l); INSERT INTO t SELECT * FROM blocks; SELECT "
                "count(*) > 9000 FROM t"),
            "1");
  // A column of that name is no table of it.
  EXPECT_EQ(ask("SELECT (SELECT count(*) FROM gaps WHERE code = 'E-LOST-103') + (SELECT count(*) FROM "
                "sqlite_master WHERE name = 'blocks')"),
            "1");
}

// The capture does not exist, and nobody notices.
TEST(Query, OnlyReads) {
  const TempDir dir;
  const std::string other = (dir.path() / "other.db").string();
  const std::vector<std::string> denied = {
      "ATTACH '" + other + "' AS other; CREATE TABLE other.mine AS SELECT id FROM pokes",
      "attach database '" + other + "' as o",
      "VACUUM INTO '" + other + "'",
      "VACUUM",
      "DETACH main",
      "CREATE TABLE mine AS SELECT 1",
      "CREATE VIEW mine AS SELECT 1",
      "CREATE INDEX mine ON calls(end)",
      "CREATE TRIGGER mine AFTER INSERT ON calls BEGIN SELECT 1; END",
      "CREATE VIRTUAL TABLE temp.mine USING fts5(x)",
      "INSERT INTO calls(id) VALUES (1)",
      "WITH x AS (SELECT 1) INSERT INTO \\\"main\\\".[Calls](id) SELECT * FROM x",
      "REPLACE INTO pokes(id) VALUES (1)",
      "UPDATE calls SET id = 1",
      "DELETE FROM gaps",
      "DROP TABLE pokes",
      "DROP VIEW call",
      "ALTER TABLE calls RENAME COLUMN depth TO d",
      "ANALYZE",
      "REINDEX",
      "SELECT load_extension('x')",
      "SELECT 1 FROM calls WHERE Load_Extension('x') IS NULL",
      "PRAGMA journal_mode=WAL",
      "PRAGMA user_version=3",
      "PRAGMA writable_schema(1)",
      "PRAGMA temp_store_directory='/'",
      "SELECT 1; SELECT 2; DELETE FROM calls",
      "UPDATE sqlite_master SET sql = 'x' WHERE name = 'calls'",
      "UPDATE main.sqlite_schema SET sql = 'x'",
      "INSERT INTO sqlite_master(type) VALUES ('table')",
      "PRAGMA database_list",
      "EXPLAIN DELETE FROM calls",
      "CREATE TEMP TRIGGER t AFTER INSERT ON mine BEGIN DELETE FROM main.calls; END"};
  for (const std::string& sql : denied) {
    const Ran r = run_asof("query \"" + sql + "\" -i /nonexistent/perf.data");
    EXPECT_EQ(r.status, 1) << sql;
    EXPECT_NE(r.err.find("SQL: "), std::string::npos) << sql << '\n' << r.err;
    EXPECT_TRUE(r.err.starts_with("E-FILE-094") || sql.find("TRIGGER t") != std::string::npos ||
                sql.find("SET sql") != std::string::npos)
        << sql << r.err;
    EXPECT_EQ(r.out, "");
    EXPECT_FALSE(std::filesystem::exists(other)) << sql;
  }
  // A trigger on a temporary table that writes into another.
  const Ran r = run_asof(
      "query \"CREATE TEMP TABLE m(a); CREATE TEMP TRIGGER t AFTER INSERT ON m BEGIN DELETE "
      "FROM gaps; END; INSERT INTO m VALUES (1)\" -i /nonexistent/perf.data");
  EXPECT_TRUE(r.err.starts_with("E-FILE-094")) << r.err;
  for (const char* sql :
       {"PRAGMA table_info(calls)", "SELECT name FROM pragma_table_info('calls')", "PRAGMA user_version",
        "EXPLAIN SELECT 1", "BEGIN; SELECT 1; COMMIT", "SELECT value FROM json_each('[1]')"})
    EXPECT_EQ(run_asof("query -q \"" + std::string(sql) + "\" -i " + kDemo).status, 0) << sql;
}

TEST(Query, NoStatementIsNoQuery) {
  for (const char* sql : {"", ";", " ; -- nothing", "/* */"}) {
    const Ran r = run_asof("query \"" + std::string(sql) + "\" -i /nonexistent/perf.data");
    EXPECT_EQ(r.status, 1) << sql;
    EXPECT_NE(r.err.find("neither a query"), std::string::npos) << r.err;
  }
}

// Neither a query without an end nor one that is only examined holds asof up.
TEST(Query, EndsWhenInterrupted) {
  const std::string endless =
      "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT count(*) FROM r";
  for (const std::string& sql : {endless, "CREATE TEMP TABLE t AS " + endless}) {
    const int status = std::system(("timeout -s INT 2 " ASOF_BINARY " query -q \"" + sql + "\" -i " + kDemo +
                                    " >/dev/null 2>&1; test $? = 124")
                                       .c_str());
    EXPECT_EQ(status, 0) << sql;
  }
}

// Of tables that a query does not name no rows are kept; a database in a file has all.
TEST(Query, TablesThatAreNotNamedMakeNoDifference) {
  const TempDir dir;
  const std::string file = (dir.path() / "all.db").string();
  const std::vector<std::string> tables = {
      "tracks",        "functions", "calls",       "runs",       "gaps",
      "events",        "pokes",     "poke_visits", "text_lives", "counters",
      "text_versions", "call",      "blocks",      "code",       "code_instructions",
      "branches"};
  std::vector<std::string> queries = {
      "SELECT count(*) FROM pokes p JOIN calls c ON c.begin < p.time WHERE c.depth = 1",
      "SELECT count(*) FROM POKES",
      "SELECT count(*) FROM RUNS AS r JOIN Pokes",
      "SELECT count(*) FROM (SELECT 1 FROM Calls)",
      "WITH p AS (SELECT 1 FROM POKES) SELECT count(*) FROM p",
      "CREATE TEMP TABLE m(a,b,c,d,e,f,g,h,i,j); INSERT INTO m SELECT * FROM pokes; SELECT count(*) FROM m",
      "CREATE TEMP TABLE t(x NOT NULL); INSERT INTO t SELECT max(time) FROM pokes; SELECT count(*) FROM t",
      "CREATE TEMP VIEW v AS SELECT * FROM pokes; SELECT count(*) FROM v",
      "SELECT sum(Depth), count(source) FROM calls"};
  for (const std::string& t : tables) queries.push_back("SELECT * FROM " + t);
  for (const std::string& sql : queries) {
    const Ran all = run_asof("query -q --detail insn -o " + file + " \"" + sql + "\" -i " + kDemo);
    const Ran few = run_asof("query -q --detail insn \"" + sql + "\" -i " + kDemo);
    EXPECT_EQ(few.status, 0) << few.err;
    EXPECT_GT(few.out.size(), 2U) << sql;
    EXPECT_TRUE(few.out == all.out) << sql << ": " << few.out.size() << " bytes, " << all.out.size();
  }
}

// Also where calls are not built and tables are left out.
TEST(Query, SameForAnyNumberOfWorkers) {
  for (const char* sql :
       {"SELECT count(*), sum(id * begin % 1000003), sum(id * end % 1000003), sum(parent), sum(instructions "
        "* id) "
        "FROM calls",
        "SELECT * FROM gaps", "SELECT * FROM events", "SELECT * FROM runs", "SELECT * FROM counters",
        "SELECT * FROM poke_visits JOIN pokes ON pokes.id = poke", "SELECT * FROM call WHERE depth = 2",
        "SELECT cpu, tid, time_lo, code, from_ip FROM blocks",
        "SELECT * FROM instructions WHERE tid = 1202"}) {
    for (const char* filter : {"", "--time 20%-60%", "-C 1", "--time 50%-51% -C 0"}) {
      const std::string arguments = " \"" + std::string(sql) + "\" " + filter + " -i " + kDemo;
      const Ran one = run_asof("query -j1" + arguments), two = run_asof("query -j2" + arguments);
      EXPECT_EQ(one.status, 0) << one.err;
      EXPECT_TRUE(one.out == two.out) << sql << ' ' << filter;
      EXPECT_EQ(one.err, two.err);
    }
  }
}

// What a query does not read is not decoded, and what it reads is the same: of a window as of the whole.
TEST(Query, WhatIsLeftOutMakesNoDifferenceInAWindow) {
  const TempDir dir;
  const std::string file = (dir.path() / "all.db").string();
  const std::string detailed = (dir.path() / "detail.db").string();
  const std::string board = shared("captures/x86-board-small");
  std::vector<std::string> captures = {kDemo + " --time 20%-60%", kDemo + " -C 1"};
  if (std::filesystem::exists(board)) captures.push_back(board + "/perf.data");
  for (const std::string& capture : captures) {
    ASSERT_EQ(run_asof("query -q -o " + file + " -i " + capture).status, 0);
    const bool small = capture.starts_with(kDemo);
    if (small) {
      ASSERT_EQ(run_asof("query -q --detail insn -o " + detailed + " -i " + capture).status, 0);
    }
    for (const char* sql :
         {"SELECT id, time, address, symbol, mechanism, action, bytes FROM pokes", "SELECT * FROM pokes",
          "SELECT count(*) FROM pokes", "SELECT * FROM poke_visits", "SELECT * FROM text_versions",
          "SELECT * FROM text_lives", "SELECT * FROM gaps", "SELECT * FROM runs", "SELECT * FROM events",
          "SELECT * FROM counters", "SELECT id, cpu, tid, time_lo, time_hi, from_ip, to_ip FROM blocks",
          "SELECT * FROM blocks"}) {
      const Ran own = run_asof("query -q \"" + std::string(sql) + "\" -i " + capture);
      const bool detail = std::string(sql).find("blocks") != std::string::npos;
      if (detail && !small) continue;
      const Ran all = run_asof("query -q " + (detail ? detailed : file) + " \"" + std::string(sql) + "\"");
      EXPECT_TRUE(own.out == all.out) << sql << ' ' << capture << '\n' << own.err << all.err;
    }
  }
}

TEST(Query, FileIsReadBySqlitesOwnProgram) {
  if (std::system("sqlite3 --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "sqlite3 is not installed";
  TempDir dir;
  const std::string file = dir.path() / "out.db";
  EXPECT_EQ(run_asof("query -o " + file + " -i " + kDemo).status, 0);
  EXPECT_EQ(std::system(("test \"$(sqlite3 " + file + " 'PRAGMA integrity_check')\" = ok").c_str()), 0);
  const std::string own = ask("SELECT count(*), min(begin), max(end) FROM calls");
  EXPECT_EQ(std::system(("test \"$(sqlite3 -separator '\t' " + file +
                         " 'SELECT count(*), min(begin), max(end) FROM calls')\" = '" + own + "'")
                            .c_str()),
            0);
}

// A file of asof, or an empty one, is replaced; any other stays.
TEST(Query, FilesOfOthersStay) {
  TempDir dir;
  const std::string file = dir.path() / "out.db";
  const std::string command = "query -o " + file + " -i " + kDemo;
  const std::string foreign = "SQLite format 3" + std::string(200, '\0') + "somebody's data";
  for (const std::string& theirs : {std::string("notes\n"), foreign}) {
    std::ofstream(file, std::ios::binary) << theirs;
    const Ran r = run_asof(command);
    EXPECT_EQ(r.status, 2);
    EXPECT_NE(r.err.find("E-FILE-090"), std::string::npos) << r.err;
    EXPECT_EQ(read_file(file), theirs);
  }
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  EXPECT_EQ(run_asof(command).status, 2);
  EXPECT_TRUE(std::filesystem::is_directory(file));
  std::filesystem::remove(file);
  std::ofstream(file).close();
  EXPECT_EQ(run_asof(command).status, 0);
  const std::string first = read_file(file);
  EXPECT_GT(first.size(), 100'000U);
  EXPECT_EQ(run_asof(command).status, 0);
  EXPECT_EQ(read_file(file), first);
}

TEST(Query, WrongSqlIsReported) {
  const std::string count = "'SELECT count(*) FROM calls'";
  EXPECT_EQ(run_asof("query -q " + kDemo + " " + count).out,
            run_asof("query -q " + count + " -i " + kDemo).out);
  EXPECT_EQ(run_asof("query " + kDemo + " " + count + " -i other.data").status, 1);
  const Ran r = run_asof("query 'SELECT nonsense FROM calls' -i " + kDemo);
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.err.find("no such column"), std::string::npos) << r.err;
}

}  // namespace
}  // namespace asof::test
