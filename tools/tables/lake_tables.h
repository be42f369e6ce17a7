// The tables that `asof tables` writes: SQL over those of `asof query`, and how a file is cut.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/output/parquet.h"

namespace asof {

struct LakeTable {
  std::string name;
  std::string sql;
  std::string reads;  // SQL that reads as much of `asof query`'s tables; empty: that is `sql`
  std::vector<ParquetColumn> columns;  // as the SQL gives them
  // Written as NAME/cpu=N/data.parquet: the first column of the SQL is the CPU, by which rows are ordered, and is in no
  // file. Else NAME/data.parquet.
  bool by_cpu = false;
  bool sums = false;   // of calls that were added up (sum_tables.h)
  bool usual = false;  // written without being named
  std::string meaning;
};

// Aggregates, then all tables of `asof query`.
const std::vector<LakeTable>& lake_tables();

}  // namespace asof
