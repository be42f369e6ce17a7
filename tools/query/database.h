// Databases that asof wrote, read again: `asof query FILE.db`.
#pragma once
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "textstore/result.h"

struct sqlite3;

namespace asof {

struct CloseDatabase {
  void operator()(sqlite3* db) const;
};
using Database = std::unique_ptr<sqlite3, CloseDatabase>;

// By its first bytes: a regular file that is an SQLite database, whoever wrote it.
bool is_database(const std::string& path);
// To be read only. E-FILE-095: asof did not write it, or a newer one did, or it is damaged.
Result<Database> open_database(const std::string& path);
// Page by page, so that rows have the order and numbers that they have. What went wrong; empty: nothing.
std::string copy_database(sqlite3* from, sqlite3* to);
// The same in memory, with those of asof's indices that it has and these. An error, as there is no memory for it.
Result<Database> with_indices(sqlite3* from, const std::set<std::string>& names);
// The number that a PRAGMA gives; -1: it cannot be read.
int64_t pragma(sqlite3* db, const char* sql);

}  // namespace asof
