#include "tools/query/sql_guard.h"

#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "tools/output/output.h"
#include "tools/timeline/out_sqlite.h"
#include "tools/timeline/sqlite_schema.h"

namespace asof {
namespace {

// Operations of SQLite's machine between two looks at whether asof was interrupted.
constexpr int kOperations = 10'000;

std::string_view text_of(const char* text) { return text == nullptr ? std::string_view() : text; }

// Names are the same in any case.
std::string lower_case(std::string_view name) {
  std::string out(name);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// They tell, and change nothing. The first ones take the name of what they are asked about.
bool pragma_reads(const std::string& name, bool has_argument) {
  constexpr std::array<std::string_view, 8> kAbout = {"table_info",       "table_xinfo",    "table_list",
                                                      "index_list",       "index_info",     "index_xinfo",
                                                      "foreign_key_list", "integrity_check"};
  constexpr std::array<std::string_view, 10> kPlain = {
      "function_list",  "collation_list", "module_list", "pragma_list", "compile_options",
      "application_id", "user_version",   "page_count",  "page_size",   "encoding"};
  return std::ranges::find(kAbout, name) != kAbout.end() ||
         (!has_argument && std::ranges::find(kPlain, name) != kPlain.end());
}

struct ActionName {
  int action;
  std::string_view name;
};
constexpr std::array<ActionName, 20> kActions{{{SQLITE_ALTER_TABLE, "ALTER TABLE"},
                                               {SQLITE_ANALYZE, "ANALYZE"},
                                               {SQLITE_ATTACH, "ATTACH"},
                                               {SQLITE_CREATE_INDEX, "CREATE INDEX"},
                                               {SQLITE_CREATE_TABLE, "CREATE TABLE"},
                                               {SQLITE_CREATE_TRIGGER, "CREATE TRIGGER"},
                                               {SQLITE_CREATE_VIEW, "CREATE VIEW"},
                                               {SQLITE_CREATE_VTABLE, "CREATE VIRTUAL TABLE"},
                                               {SQLITE_DELETE, "DELETE"},
                                               {SQLITE_DETACH, "DETACH"},
                                               {SQLITE_DROP_INDEX, "DROP INDEX"},
                                               {SQLITE_DROP_TABLE, "DROP TABLE"},
                                               {SQLITE_DROP_TRIGGER, "DROP TRIGGER"},
                                               {SQLITE_DROP_VIEW, "DROP VIEW"},
                                               {SQLITE_DROP_VTABLE, "DROP TABLE"},
                                               {SQLITE_FUNCTION, "function"},
                                               {SQLITE_INSERT, "INSERT"},
                                               {SQLITE_PRAGMA, "PRAGMA"},
                                               {SQLITE_REINDEX, "REINDEX"},
                                               {SQLITE_UPDATE, "UPDATE"}}};

std::string action_text(int action, const char* first, const char* second) {
  const auto found = std::ranges::find(kActions, action, &ActionName::action);
  std::string out(found == kActions.end() ? "a statement" : found->name);
  const char* what = action == SQLITE_FUNCTION || action == SQLITE_ALTER_TABLE ? second : first;
  // SQLite tells of CREATE as of a row of its own table.
  if (text_of(what).starts_with("sqlite_") && action == SQLITE_INSERT) return "CREATE";
  if (text_of(what).starts_with("sqlite_") && action == SQLITE_DELETE) return "DROP";
  // VACUUM is made of ATTACH.
  if (action == SQLITE_ATTACH && text_of(first).empty()) return "ATTACH or VACUUM";
  return what == nullptr ? out : out + " " + what;
}

bool makes_temporary(int action) {
  return action == SQLITE_CREATE_TEMP_TABLE || action == SQLITE_CREATE_TEMP_INDEX ||
         action == SQLITE_CREATE_TEMP_VIEW || action == SQLITE_CREATE_TEMP_TRIGGER ||
         action == SQLITE_DROP_TEMP_TABLE || action == SQLITE_DROP_TEMP_INDEX ||
         action == SQLITE_DROP_TEMP_VIEW || action == SQLITE_DROP_TEMP_TRIGGER;
}

// Functions that give tables (json_each) are declared as a change of SQLite's own table, which a statement
// cannot make (SQLITE_DBCONFIG_DEFENSIVE).
bool declares(int action, std::string_view table) {
  return action == SQLITE_UPDATE && (table == "sqlite_master" || table == "sqlite_schema");
}

bool only_reads(int action) {
  return action == SQLITE_SELECT || action == SQLITE_READ || action == SQLITE_FUNCTION ||
         action == SQLITE_RECURSIVE;
}

bool names_detail(const std::set<std::string>& tables) {
  return std::any_of(kTables.begin() + kBlocks, kTables.end(),
                     [&](const SqliteTable& t) { return tables.contains(t.name); });
}

// Where SQLite could not be asked.
bool text_names_detail(const std::string& sql) {
  const std::string text = lower_case(sql);
  constexpr std::array<std::string_view, 4> kNames = {"blocks", "code", "instructions", "branches"};
  return std::ranges::any_of(kNames, [&](std::string_view n) { return text.find(n) != std::string::npos; });
}

// Those that the plan of a statement names.
void note_indices(sqlite3* db, sqlite3_stmt* statement, std::set<std::string>& names) {
  sqlite3_stmt* plan = nullptr;
  const std::string sql = std::string("EXPLAIN QUERY PLAN ") + sqlite3_sql(statement);
  if (sqlite3_prepare_v2(db, sql.c_str(), -1, &plan, nullptr) == SQLITE_OK) {
    constexpr int kDetailColumn = 3;
    while (sqlite3_step(plan) == SQLITE_ROW) {
      const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(plan, kDetailColumn));
      const std::string line = std::string(text == nullptr ? "" : text) + " ";
      for (const SqliteIndex& index : kIndices)
        if (line.find(std::string("INDEX ") + index.name + " ") != std::string::npos)
          names.insert(index.name);
    }
  }
  sqlite3_finalize(plan);
}

// On empty tables, with or without those of detail.
QueryFacts examine_on(const std::string& sql, bool detail) {
  QueryFacts facts;
  const auto empty = SqliteSink::open(":memory:", detail, false);
  facts.complete = empty && (*empty)->finish();
  if (!facts.complete) return facts;
  sqlite3* const db = (*empty)->database();
  SqlGuard guard(db);
  std::set<std::string> indices;
  bool explains = false;
  bool failed = false;  // a statement that may succeed on tables with rows, and later ones may need
  for (const char* rest = sql.c_str(); *rest != 0 && facts.wrong.empty() && facts.refused.empty();) {
    sqlite3_stmt* s = nullptr;
    int status = sqlite3_prepare_v2(db, rest, -1, &s, &rest);
    if (status != SQLITE_OK && (!failed || !guard.refused().empty())) {
      facts.wrong = sqlite3_errmsg(db);
    } else if (s != nullptr) {
      ++facts.statements;
      explains = explains || sqlite3_stmt_isexplain(s) != 0;
      if (!explains) note_indices(db, s, indices);
      if (sqlite3_column_count(s) == 0) status = sqlite3_step(s);
    }
    failed = failed || (status != SQLITE_OK && status != SQLITE_DONE);
    sqlite3_finalize(s);
    facts.refused = guard.refused();
    if (status != SQLITE_OK && s == nullptr) break;
  }
  facts.names = guard.names();
  facts.asks_pragma = guard.asks_pragma();
  facts.complete = guard.complete() && !failed;
  if (facts.complete && !explains && !facts.depends_on_more()) facts.indices = std::move(indices);
  facts.detail = detail && (names_detail(guard.tables()) || (failed && text_names_detail(sql)));
  return facts;
}

}  // namespace

SqlGuard::SqlGuard(sqlite3* db) : db_(db) {
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_set_authorizer(db, decide, this);
  sqlite3_progress_handler(
      db, kOperations, [](void*) { return interrupted() ? 1 : 0; }, nullptr);
}

SqlGuard::~SqlGuard() {
  sqlite3_set_authorizer(db_, nullptr, nullptr);
  sqlite3_progress_handler(db_, 0, nullptr, nullptr);
}

int SqlGuard::decide(void* guard, int action, const char* first, const char* second, const char* database,
                     const char*) {
  auto& g = *static_cast<SqlGuard*>(guard);
  // Of what writes SQLite does not tell all that it reads.
  if (!only_reads(action) && !declares(action, text_of(first))) g.complete_ = false;
  if (!g.allowed(action, first, second, database)) {
    if (g.refused_.empty()) g.refused_ = action_text(action, first, second);
    return SQLITE_DENY;
  }
  g.asks_pragma_ = g.asks_pragma_ || action == SQLITE_PRAGMA;
  if (declares(action, text_of(first))) return SQLITE_OK;
  for (const char* name : {first, second})
    if (name != nullptr) g.names_.insert(lower_case(name));
  if (action == SQLITE_READ && first != nullptr) g.tables_.insert(lower_case(first));
  return SQLITE_OK;
}

bool SqlGuard::allowed(int action, const char* first, const char* second, const char* database) const {
  switch (action) {
    case SQLITE_FUNCTION:
      return lower_case(text_of(second)) != "load_extension" &&
             lower_case(text_of(second)) != "fts3_tokenizer";
    case SQLITE_INSERT:
    case SQLITE_UPDATE:
    case SQLITE_DELETE:
      return lower_case(text_of(database)) == "temp" || declares(action, text_of(first));
    case SQLITE_ALTER_TABLE:
      return lower_case(text_of(first)) == "temp";
    case SQLITE_PRAGMA:
      return pragma_reads(lower_case(text_of(first)), second != nullptr);
    case SQLITE_TRANSACTION:
    case SQLITE_SAVEPOINT:
      return true;
    default:
      return only_reads(action) || makes_temporary(action);
  }
}

bool QueryFacts::depends_on_more() const {
  constexpr std::array<std::string_view, 5> kNames = {"dbstat", "last_insert_rowid", "changes",
                                                      "total_changes", "sqlite_offset"};
  return asks_pragma || std::ranges::any_of(names, [&](const std::string& n) {
           return (n.starts_with("sqlite_") && !n.starts_with("sqlite_temp_")) ||
                  std::ranges::find(kNames, n) != kNames.end();
         });
}

QueryFacts examine(const std::string& sql, DetailTables detail) {
  if (detail == DetailTables::kNever) return examine_on(sql, false);
  QueryFacts facts = examine_on(sql, true);
  facts.detail = facts.detail || detail == DetailTables::kAlways;
  // Statements that write do not tell all that they read, but they fail where it is not there.
  if (!facts.detail && !facts.complete && facts.wrong.empty())
    facts.detail = !examine_on(sql, false).wrong.empty();
  return facts;
}

}  // namespace asof
