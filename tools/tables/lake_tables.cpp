#include "tools/tables/lake_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "tools/tables/sum_tables.h"
#include "tools/timeline/sqlite_schema.h"

namespace asof {
namespace {

constexpr ParquetType kInt = ParquetType::kInt64, kText = ParquetType::kText;

LakeTable agg_function() {
  return {"agg_function",
          "SELECT s.cpu, s.time, f.name, f.kind, f.dso, s.version, s.calls, s.self_instructions, "
          "s.instructions, s.ns FROM function_sums AS s CROSS JOIN functions AS f ON f.id = s.function "
          "ORDER BY s.rowid",
          kSumsRead,
          {{"cpu", kInt},
           {"time", kInt},
           {"function", kText},
           {"kind", kText},
           {"dso", kText},
           {"version", kInt},
           {"calls", kInt},
           {"self_instructions", kInt},
           {"instructions", kInt},
           {"ns", kInt}},
          true,
          true,
          true,
          "calls by function, version of its text and the millisecond in which they began"};
}

LakeTable agg_edge() {
  return {
      "agg_edge",
      "SELECT s.cpu, s.time, caller.name, f.name, s.calls, s.ns FROM edge_sums AS s "
      "CROSS JOIN functions AS f ON f.id = s.function LEFT JOIN functions AS caller ON caller.id = s.caller "
      "ORDER BY s.rowid",
      kSumsRead,
      {{"cpu", kInt}, {"time", kInt}, {"caller", kText}, {"function", kText}, {"calls", kInt}, {"ns", kInt}},
      true,
      true,
      true,
      "calls by caller (null: not known), function and the millisecond in which they began"};
}

LakeTable coverage() {
  return {"coverage",
          "SELECT code.address, code.symbol, code.source, code.size, code.instructions, count(*) AS visits, "
          "min(blocks.time_lo) AS first, max(blocks.time_hi) AS last "
          "FROM blocks JOIN code ON code.id = blocks.code GROUP BY blocks.code ORDER BY code.address, first",
          "",
          {{"address", kInt},
           {"symbol", kText},
           {"source", kText},
           {"size", kInt},
           {"instructions", kInt},
           {"visits", kInt},
           {"first", kInt},
           {"last", kInt}},
          false,
          false,
          false,
          "every straight piece of code that ran, by version of its text: how often, first and last"};
}

ParquetType type_of(const std::string& declared) {
  if (declared == "TEXT") return kText;
  if (declared == "REAL") return ParquetType::kDouble;
  return declared == "BLOB" ? ParquetType::kBytes : kInt;
}

// From the declaration of its columns: "id INTEGER PRIMARY KEY, name TEXT".
std::vector<ParquetColumn> columns_of(const SqliteTable& t) {
  std::vector<ParquetColumn> out;
  std::istringstream text(t.columns);
  for (std::string column; std::getline(text, column, ',');) {
    std::istringstream words(column);
    std::string name, type;
    words >> name >> type;
    if (name != "PRIMARY" && type != "KEY" && static_cast<int>(out.size()) < t.count)
      out.push_back({name, type_of(type)});
  }
  return out;
}

// What rows are in the order of.
std::string order_of(const std::vector<ParquetColumn>& columns) {
  for (const char* name : {"begin", "time", "time_lo", "address", "id", "poke"}) {
    if (std::ranges::find(columns, name, &ParquetColumn::name) != columns.end()) return name;
  }
  return columns.front().name;
}

LakeTable plain(const SqliteTable& t) {
  LakeTable out;
  out.name = t.name;
  out.columns = columns_of(t);
  const auto cpu = std::ranges::find(out.columns, "cpu", &ParquetColumn::name);
  out.by_cpu = cpu != out.columns.end() && out.name != "tracks";
  if (out.by_cpu) std::rotate(out.columns.begin(), cpu, cpu + 1);
  std::string list;
  for (const ParquetColumn& c : out.columns) list += (list.empty() ? "\"" : ", \"") + c.name + "\"";
  out.sql = fmt::format("SELECT {} FROM {} ORDER BY {}\"{}\"", list, t.name, out.by_cpu ? "cpu, " : "",
                        order_of(out.columns));
  constexpr std::string_view kUsual[] = {"tracks", "functions",   "runs",          "gaps",
                                         "pokes",  "poke_visits", "text_versions", "text_lives"};
  out.usual = std::ranges::find(kUsual, out.name) != std::end(kUsual);
  out.meaning = "as in 'asof query'";
  return out;
}

}  // namespace

const std::vector<LakeTable>& lake_tables() {
  static const std::vector<LakeTable> all = [] {
    std::vector<LakeTable> out = {agg_function(), agg_edge(), coverage()};
    for (const SqliteTable& t : kTables) out.push_back(plain(t));
    return out;
  }();
  return all;
}

}  // namespace asof
