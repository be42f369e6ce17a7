#include "tools/query/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "tools/timeline/sqlite_schema.h"

namespace asof {
namespace {

constexpr int kMark = 0x61736f66;  // "asof": PRAGMA application_id

std::unexpected<Error> refuse(const std::string& path, std::string reason) {
  return fail(Code::kBadDatabase, path, Error::kNoOffset, std::move(reason),
              "write it again with 'asof query -o FILE.db'");
}

// A name that SQLite takes for a path, whatever is in it.
std::string uri_of(const std::string& path) {
  std::string out = "file:";
  for (const char c : std::filesystem::absolute(path).string())
    out += c == '%' || c == '?' || c == '#' ? fmt::format("%{:02x}", static_cast<unsigned char>(c))
                                            : std::string(1, c);
  // No lock and no file beside it is needed: asof writes a database completely before anybody reads it.
  return out + "?mode=ro&immutable=1";
}

bool run(sqlite3* db, const std::string& sql) {
  return sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK;
}

// Those that lack, and those after the first of them again: their order decides which of two SQLite takes.
bool add_indices(sqlite3* db, const std::set<std::string>& names) {
  bool lacks = false;
  for (const SqliteIndex& index : kIndices) {
    const std::string name = index.name;
    const std::string count =
        "SELECT count(*) FROM sqlite_master WHERE type = 'index' AND name = '" + name + "'";
    const bool there = pragma(db, count.c_str()) > 0;
    if (!there && !names.contains(name)) continue;
    lacks = lacks || !there;
    if (!lacks) continue;
    if (there && !run(db, "DROP INDEX " + name)) return false;
    if (!run(db, create_index(index))) return false;
  }
  return true;
}

}  // namespace

std::string copy_database(sqlite3* from, sqlite3* to) {
  sqlite3_backup* copy = sqlite3_backup_init(to, "main", from, "main");
  if (copy == nullptr) return sqlite3_errmsg(to);
  sqlite3_backup_step(copy, -1);
  return sqlite3_backup_finish(copy) == SQLITE_OK ? std::string() : sqlite3_errmsg(to);
}

Result<Database> with_indices(sqlite3* from, const std::set<std::string>& names) {
  sqlite3* opened = nullptr;
  const int status = sqlite3_open(":memory:", &opened);
  Database db(opened);
  const auto failed = [&](std::string why) {
    return fail(Code::kCacheNotUsable, "", Error::kNoOffset, std::move(why));
  };
  if (status != SQLITE_OK) return failed(sqlite3_errmsg(opened));
  if (std::string wrong = copy_database(from, opened); !wrong.empty()) return failed(std::move(wrong));
  run(opened, "PRAGMA journal_mode=OFF");
  if (!run(opened, "BEGIN") || !add_indices(opened, names) || !run(opened, "COMMIT"))
    return failed(sqlite3_errmsg(opened));
  return db;
}

int64_t pragma(sqlite3* db, const char* sql) {
  sqlite3_stmt* s = nullptr;
  int64_t value = -1;
  if (sqlite3_prepare_v2(db, sql, -1, &s, nullptr) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
    value = sqlite3_column_int64(s, 0);
  sqlite3_finalize(s);
  return value;
}

void CloseDatabase::operator()(sqlite3* db) const { sqlite3_close_v2(db); }

bool is_database(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  std::array<char, 16> header{};
  std::ifstream in(path, std::ios::binary);
  in.read(header.data(), header.size());
  return in && std::string_view(header.data(), header.size()).starts_with("SQLite format 3");
}

Result<Database> open_database(const std::string& path) {
  sqlite3* opened = nullptr;
  const int status =
      sqlite3_open_v2(uri_of(path).c_str(), &opened, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, nullptr);
  Database db(opened);
  if (status != SQLITE_OK) return refuse(path, sqlite3_errmsg(opened));
  sqlite3_exec(opened, "PRAGMA cell_size_check=ON", nullptr, nullptr, nullptr);
  const int64_t mark = pragma(opened, "PRAGMA application_id");
  if (mark == -1) return refuse(path, sqlite3_errmsg(opened));
  if (mark != kMark) return refuse(path, "an SQLite database that asof did not write");
  if (pragma(opened, "PRAGMA user_version") > kSchemaVersion) return refuse(path, "written by a newer asof");
  if (pragma(opened, "SELECT count(*) FROM sqlite_master") < 0) return refuse(path, sqlite3_errmsg(opened));
  return db;
}

}  // namespace asof
