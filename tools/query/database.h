// Databases that asof wrote, read again: `asof query FILE.db`.
#pragma once
#include <cstdint>
#include <memory>
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
// The number that a PRAGMA gives; -1: it cannot be read.
int64_t pragma(sqlite3* db, const char* sql);

}  // namespace asof
