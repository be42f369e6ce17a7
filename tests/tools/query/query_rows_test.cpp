// asof query: formats of rows, databases as input, the schema.
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/tools/run_asof.h"
#include "tools/query/schema.h"

namespace asof::test {
namespace {

std::string rows(const std::string& format, const std::string& sql) {
  const Ran r = run_asof("query -q --format " + format + " \"" + sql + "\" -i " + kDemo);
  EXPECT_EQ(r.status, 0) << r.err;
  return r.out;
}

constexpr const char* kHostile =
    "SELECT 1 AS a, NULL AS b, '' AS c, 'x,\\\"y' || char(10) || 'z' || char(9, 27, 92) AS d, x'00ff' AS e, "
    "2.0 AS "
    "a, -9e999 AS f, '=1+1' AS g, -9223372036854775808 AS h, 'é' || char(0) || 'x' AS i";

TEST(QueryRows, EveryFormatKeepsItsCells) {
  EXPECT_EQ(rows("tsv", kHostile),
            "a\tb\tc\td\te\ta\tf\tg\th\ti\n1\t\t\tx,\"y\\nz\\t\\x1b\\\\\t00ff\t2.0\t-Inf\t=1+1\t"
            "-9223372036854775808\té\\x00x\n");
  EXPECT_EQ(rows("csv", kHostile),
            std::string("a,b,c,d,e,a,f,g,h,i\n1,,\"\",\"x,\"\"y\nz\t\x1b\\\",00ff,2.0,-Inf,'=1+1,"
                        "-9223372036854775808,é\0x\n",
                        85));
  EXPECT_EQ(
      rows("jsonl", kHostile),
      "{\"a\":1,\"b\":null,\"c\":\"\",\"d\":\"x,\\\"y\\nz\\t\\u001B\\\\\",\"e\":\"00ff\",\"a_2\":2.0,\"f\":"
      "-1e999,\"g\":\"=1+1\",\"h\":-9223372036854775808,\"i\":\"é\\u0000x\"}\n");
  EXPECT_EQ(rows("table", "SELECT 'é' AS name, 5 AS n UNION ALL SELECT 'abc', 1234; SELECT 1 AS x"),
            "name     n\né        5\nabc   1234\n\nx\n1\n");
}

TEST(QueryRows, NoRowsAreNoError) {
  EXPECT_EQ(rows("tsv", "SELECT id, time FROM pokes WHERE 0"), "id\ttime\n");
  EXPECT_EQ(rows("csv", "SELECT id, time FROM pokes WHERE 0"), "id,time\n");
  EXPECT_EQ(rows("table", "SELECT id, time FROM pokes WHERE 0"), "id  time\n");
  EXPECT_EQ(rows("jsonl", "SELECT id, time FROM pokes WHERE 0"), "");
  EXPECT_EQ(run_asof("query --format xml 'SELECT 1' -i " + kDemo).status, 1);
}

// Widths are those of the first thousand rows; no row is lost.
TEST(QueryRows, LongTablesAreWhole) {
  const std::string sql =
      "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 2500) SELECT n FROM r";
  EXPECT_EQ(lines_of(rows("table", sql)).size(), 2501U);
}

TEST(QueryDatabase, AnswersAsTheCaptureDoes) {
  const TempDir dir;
  const std::string file = (dir.path() / "a b?#%.db").string();
  ASSERT_EQ(run_asof("timeline -q --detail insn -o '" + file + "' -i " + kDemo).status, 0);
  const std::string before = read_file(file);
  for (const char* sql : {"SELECT * FROM call", "SELECT count(*) FROM instructions", "SELECT * FROM pokes",
                          "CREATE TEMP TABLE t AS SELECT id FROM pokes; SELECT * FROM t"}) {
    const Ran decoded = run_asof("query -q \"" + std::string(sql) + "\" -i " + kDemo);
    const Ran kept = run_asof("query '" + file + "' \"" + sql + "\"");
    EXPECT_EQ(kept.status, 0) << kept.err;
    EXPECT_TRUE(kept.out == decoded.out && kept.out.size() > 4) << sql;
    EXPECT_TRUE(run_asof("query -i '" + file + "' \"" + sql + "\"").out == decoded.out) << sql;
  }
  EXPECT_EQ(read_file(file), before);
  EXPECT_NE(run_asof("query '" + file + "' 'DELETE FROM gaps'").err.find("E-FILE-094"), std::string::npos);
  EXPECT_EQ(read_file(file), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1) << "no journal beside it";
}

TEST(QueryDatabase, OptionsOfDecodingAreRefused) {
  const TempDir dir;
  const std::string file = (dir.path() / "a.db").string();
  ASSERT_EQ(run_asof("query -q -o " + file + " -i " + kDemo).status, 0);
  for (const char* option :
       {"--time 1,2", "-C 0", "--vmlinux x", "--detail insn", "-o y.db", "--text-at first"}) {
    const Ran r = run_asof("query " + file + " 'SELECT 1' " + option);
    EXPECT_EQ(r.status, 1) << option;
    EXPECT_NE(r.err.find("is a database"), std::string::npos) << r.err;
  }
  EXPECT_EQ(run_asof("query " + file + " 'SELECT 1' -j1 -v --progress never").out, "1\n1\n");
  const Ran none = run_asof("query " + file + " 'SELECT count(*) FROM instructions'");
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.err.find("no such table"), std::string::npos) << none.err;
  EXPECT_NE(run_asof("query " + file).err.find("no query for"), std::string::npos);
}

TEST(QueryDatabase, DamagedAndForeignOnesAreRefused) {
  const TempDir dir;
  const std::string file = (dir.path() / "a.db").string();
  ASSERT_EQ(run_asof("query -q -o " + file + " -i " + kDemo).status, 0);
  const std::string good = read_file(file);
  std::string foreign = good, newer = good, damaged = good;
  foreign[68] = 'x';
  newer[60] = 1;
  for (size_t i = 4096; i < damaged.size(); ++i) damaged[i] = static_cast<char>(damaged[i] * 7 + 3);
  const auto refused = [&](const std::string& content) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << content;
    const Ran r = run_asof("query " + file + " 'SELECT sum(begin) FROM calls'");
    return r.status == 2 && r.err.starts_with("E-FILE-095");
  };
  EXPECT_TRUE(refused(foreign));
  EXPECT_TRUE(refused(newer));
  EXPECT_TRUE(refused(damaged));
  EXPECT_TRUE(refused(good.substr(0, good.size() / 2)));
  EXPECT_TRUE(refused(good.substr(0, 200)));
  EXPECT_FALSE(refused(good));
}

// Every column of every table and view has a meaning, and no other has.
TEST(QuerySchema, IsThatOfTheDatabase) {
  std::string documented;
  for (const TableMeaning& t : table_meanings()) {
    for (const ColumnMeaning& c : t.columns) {
      documented += std::string(t.name) + "\t" + std::string(c.name) + "\n";
      EXPECT_FALSE(c.meaning.empty());
    }
  }
  // Of the view `call` the columns that calls has are not repeated.
  std::string real;
  for (const TableMeaning& t : table_meanings()) {
    const std::string where =
        t.name == "call" ? " WHERE name NOT IN (SELECT name FROM pragma_table_xinfo('calls'))" : "";
    const Ran r =
        run_asof("query -q --detail insn \"SELECT '" + std::string(t.name) +
                 "', name FROM pragma_table_xinfo('" + std::string(t.name) + "')" + where + "\" -i " + kDemo);
    real += r.out.substr(r.out.find('\n') + 1);
  }
  EXPECT_EQ(documented, real);
  const Ran tables = run_asof(
      "query -q --detail insn \"SELECT count(*) FROM sqlite_master WHERE type IN ('table', "
      "'view')\" -i " +
      kDemo);
  EXPECT_EQ(tables.out, "count(*)\n" + std::to_string(table_meanings().size()) + "\n");
}

TEST(QuerySchema, DocumentIsMadeFromIt) {
  EXPECT_EQ(read_file(std::filesystem::path(ASOF_TEST_DATA) / "../../docs/tables.md"), schema_markdown())
      << "run: build/release/asof query --schema --markdown > docs/tables.md";
  EXPECT_EQ(run_asof("query --schema").out, schema_text());
}

}  // namespace
}  // namespace asof::test
