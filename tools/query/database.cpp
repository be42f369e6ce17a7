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

}  // namespace

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
