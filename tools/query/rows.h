// Rows of a query as text: docs/usage.md, "Queries".
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tools/output/output.h"

struct sqlite3_stmt;

namespace asof {

enum class RowFormat : uint8_t { kTsv, kCsv, kJsonLines, kTable };

class RowPrinter {
 public:
  RowPrinter(RowFormat format, Output& out) : format_(format), out_(out) {}
  // Runs a statement and prints its rows, names of columns first. SQLite's status: SQLITE_DONE, or an error.
  int print(sqlite3_stmt* statement);

 private:
  struct Cell {
    std::string text;
    bool number = false;
  };
  using Row = std::vector<Cell>;

  Row names(sqlite3_stmt* s) const;
  Cell cell(sqlite3_stmt* s, int column) const;
  void line(const Row& row, bool header);
  void json_line(const Row& keys, const Row& row);
  void table_line(const Row& row);
  // Rows whose widths decide those of the columns.
  void show_waiting();

  RowFormat format_;
  Output& out_;
  std::vector<Row> waiting_;
  std::vector<size_t> widths_;
  bool printed_ = false;
};

}  // namespace asof
