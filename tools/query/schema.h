// What the tables and columns of `asof query` mean: the source of `--schema`, docs/tables.md and the manual.
#pragma once
#include <span>
#include <string>
#include <string_view>

namespace asof {

struct ColumnMeaning {
  std::string_view name, meaning;
};
struct TableMeaning {
  std::string_view name, meaning;
  bool detail;  // only with --detail insn, or when a query reads it
  std::span<const ColumnMeaning> columns;
};
std::span<const TableMeaning> table_meanings();

std::string schema_text();      // for a terminal
std::string schema_markdown();  // docs/tables.md
std::string schema_scdoc();     // for the manual

}  // namespace asof
