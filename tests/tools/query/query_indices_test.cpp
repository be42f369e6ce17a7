// Which indices are made for a query, and that an answer is the same with those alone.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temp_dir.h"
#include "tests/tools/run_asof.h"
#include "tools/query/sql_guard.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

std::optional<Names> indices_of(const std::string& sql) {
  return examine(sql, DetailTables::kWhenNamed).indices;
}

TEST(QueryIndices, AreThoseOfThePlan) {
  EXPECT_EQ(indices_of("SELECT * FROM gaps"), Names());
  EXPECT_EQ(indices_of("SELECT flags FROM calls WHERE function = 3"), Names{"calls_function"});
  EXPECT_EQ(indices_of("SELECT flags FROM calls WHERE parent = 3; SELECT bytes FROM pokes WHERE address = 1"),
            (Names{"calls_parent", "pokes_address"}));
  EXPECT_EQ(indices_of("SELECT text FROM instructions WHERE address = 1"),
            (Names{"blocks_code", "code_instructions_address"}));
}

// Such a query tells which indices there are.
TEST(QueryIndices, AreAllWhereAQuerySeesThem) {
  for (const char* sql :
       {"SELECT name FROM sqlite_master", "PRAGMA index_list(calls)",
        "CREATE TEMP TABLE t AS SELECT * FROM calls",
        "EXPLAIN QUERY PLAN SELECT flags FROM calls WHERE function = 3", "SELECT sum(pgsize) FROM dbstat"})
    EXPECT_EQ(indices_of(sql), std::nullopt) << sql;
}

// In any order that SQLite gives them, as with all indices.
TEST(QueryIndices, AnswersAreThoseWithAll) {
  const TempDir dir;
  const std::string demo = std::string(ASOF_TEST_DATA) + "/demo", all = dir.path().string() + "/all.db",
                    cache = " --cache always --cache-dir " + dir.path().string() + "/cache ",
                    capture = " -i " + demo + "/perf.data --symfs " + demo + "/symfs ";
  ASSERT_EQ(run_asof("query --detail insn -o " + all + capture).status, 0);
  for (const char* sql :
       {"SELECT count(*) FROM blocks", "SELECT code FROM blocks",
        "SELECT cpu, count(*) FROM blocks GROUP BY 1",
        "SELECT * FROM calls WHERE function IN (SELECT id FROM functions WHERE versions > 1)",
        "SELECT parent, count(*) FROM calls GROUP BY parent",
        "SELECT * FROM calls WHERE track = 1 AND begin > 0",
        "SELECT * FROM instructions WHERE address IN (SELECT address FROM pokes)",
        "SELECT from_ip, to_ip, count(*) FROM branches GROUP BY 1, 2",
        "SELECT c.id, b.id FROM calls c JOIN blocks b ON b.call = c.id"}) {
    const Ran want = run_asof("query " + all + " \"" + sql + "\"");
    ASSERT_FALSE(want.out.empty()) << sql;
    const std::string asked = "query \"" + std::string(sql) + "\"" + capture;
    EXPECT_TRUE(run_asof(asked + "--no-cache").out == want.out) << sql;
    const Ran first = run_asof(asked + cache), again = run_asof(asked + cache + "-v");
    EXPECT_TRUE(first.out == want.out && again.out == want.out) << sql;
    EXPECT_NE(again.err.find("I-FILE-504"), std::string::npos) << sql;
  }
}

// They are added to tables that were kept without, which is no reason to decode again.
TEST(QueryIndices, AreAddedToKeptTables) {
  const TempDir dir;
  const std::string demo = std::string(ASOF_TEST_DATA) + "/demo", folder = dir.path().string() + "/cache";
  const auto ask = [&](const std::string& sql) {
    return run_asof("query -v \"" + sql + "\" -i " + demo + "/perf.data --symfs " + demo +
                    "/symfs --cache always --cache-dir " + folder);
  };
  EXPECT_EQ(ask("SELECT count(*) FROM calls WHERE flags = ''").err.find("I-FILE-504"), std::string::npos);
  const std::string sql = "SELECT count(*) FROM calls WHERE function = (SELECT max(function) FROM calls)";
  const auto size = [&] {
    uint64_t bytes = 0;
    for (const auto& e : fs::directory_iterator(folder)) bytes += e.file_size();
    return bytes;
  };
  const uint64_t before = size();
  for (int i = 0; i < 2; ++i) EXPECT_NE(ask(sql).err.find("I-FILE-504"), std::string::npos);
  EXPECT_GT(size(), before);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace asof::test
