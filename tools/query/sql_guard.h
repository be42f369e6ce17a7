// What SQL of a user may do: read tables, and make temporary ones. SqlGuard refuses the rest while SQLite
// prepares and runs statements, and notes what they read. examine() learns the same before anything is
// decoded, from empty tables.
#pragma once
#include <optional>
#include <set>
#include <string>

struct sqlite3;

namespace asof {

class SqlGuard {
 public:
  // Until it is gone, `db` refuses what changes tables that are not temporary, opens or writes files, loads
  // extensions or sets anything; and ends what it runs when asof is interrupted.
  explicit SqlGuard(sqlite3* db);
  ~SqlGuard();
  SqlGuard(const SqlGuard&) = delete;
  SqlGuard& operator=(const SqlGuard&) = delete;

  // What was refused, "ATTACH other.db"; empty: nothing.
  const std::string& refused() const { return refused_; }
  // Of tables and columns that were read, also through views, in lower case.
  const std::set<std::string>& names() const { return names_; }
  // Of tables and views alone.
  const std::set<std::string>& tables() const { return tables_; }
  // False: statements may have read more than names() tells.
  bool complete() const { return complete_; }
  bool asks_pragma() const { return asks_pragma_; }

 private:
  static int decide(void* guard, int action, const char* first, const char* second, const char* database,
                    const char* inner);
  bool allowed(int action, const char* first, const char* second, const char* database) const;

  sqlite3* db_;
  std::string refused_;
  std::set<std::string> names_, tables_;
  bool complete_ = true, asks_pragma_ = false;
};

// What is known of a query before anything is decoded.
struct QueryFacts {
  std::string wrong;            // what SQLite says is wrong with it
  std::string refused;          // SqlGuard::refused()
  std::set<std::string> names;  // of tables and columns that it reads: nothing else is needed
  bool complete = true;         // false: it may need others, too
  bool detail = false;          // it needs tables that only detail has
  bool asks_pragma = false;
  int statements = 0;
  // Those that SQLite reads for it where it has all. None: that is not known, or the query can tell which there are.
  std::optional<std::set<std::string>> indices = std::nullopt;

  // Does an answer depend on more than rows: on where SQLite has put them, or on what the connection did before?
  bool depends_on_more() const;
};

enum class DetailTables { kNever, kWhenNamed, kAlways };
// Statements that give no rows are run on the empty tables, as later ones may need them (CREATE TEMP TABLE).
QueryFacts examine(const std::string& sql, DetailTables detail);

}  // namespace asof
