// asof query: the decoded capture as SQL tables (out_sqlite.h), queried at once or kept in a file.
#include <sqlite3.h>

#include <set>

#include "tools/cli/progress.h"
#include "tools/cli/verbs.h"
#include "tools/output/output.h"
#include "tools/timeline/out_sqlite.h"

namespace asof {
namespace {

struct QueryText {
  InputOptions input;
  DecodeChoice choice;
  std::string first, sql, output, detail, time;
};

// Does the query need tables that only detail has? SQLite itself knows, from the empty tables.
bool asks_for_detail(const std::string& sql) {
  const auto empty = SqliteSink::open(":memory:", false);
  const auto full = SqliteSink::open(":memory:", true);
  if (!empty || !full) return false;
  const char* rest = sql.c_str();
  while (*rest != 0) {
    const char *without = rest, *with = rest;
    sqlite3_stmt* s = nullptr;
    const int fails = sqlite3_prepare_v2((*empty)->database(), rest, -1, &s, &without);
    sqlite3_finalize(s);
    const int works = sqlite3_prepare_v2((*full)->database(), rest, -1, &s, &with);
    sqlite3_finalize(s);
    if (works != SQLITE_OK) return false;
    if (fails != SQLITE_OK) return true;
    rest = with;
  }
  return false;
}

// What is known of a query before anything is decoded.
struct QueryFacts {
  std::string wrong;            // what is wrong with it
  std::set<std::string> names;  // of tables and columns, also by views: nothing else is needed
  bool complete = true;         // false: it may need others, too
};

// Names are the same in any case.
std::string lower_case(std::string name) {
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name;
}

int note_names(void* facts, int action, const char* first, const char* second, const char*, const char*) {
  auto& known = *static_cast<QueryFacts*>(facts);
  // Of what writes SQLite does not tell all that it reads.
  if (action != SQLITE_SELECT && action != SQLITE_READ && action != SQLITE_FUNCTION &&
      action != SQLITE_RECURSIVE)
    known.complete = false;
  if (action == SQLITE_ATTACH) return SQLITE_DENY;
  for (const char* name : {first, second})
    if (name != nullptr) known.names.insert(lower_case(name));
  return SQLITE_OK;
}

// Its statements are prepared on empty tables. Those that give no rows are executed there, as later ones may
// need them (CREATE, INSERT). What follows an ATTACH is not known before.
QueryFacts examine(const std::string& sql, bool detail) {
  QueryFacts facts;
  const auto empty = SqliteSink::open(":memory:", detail);
  facts.complete = empty && (*empty)->finish();
  if (!facts.complete) return facts;
  sqlite3* const db = (*empty)->database();
  sqlite3_set_authorizer(db, note_names, &facts);
  for (const char* rest = sql.c_str(); *rest != 0;) {
    sqlite3_stmt* s = nullptr;
    int status = sqlite3_prepare_v2(db, rest, -1, &s, &rest);
    if (status == SQLITE_AUTH) {
      facts.complete = false;
      return facts;
    }
    if (status != SQLITE_OK) {
      facts.wrong = sqlite3_errmsg(db);
      return facts;
    }
    if (s != nullptr && sqlite3_column_count(s) == 0) status = sqlite3_step(s);
    sqlite3_finalize(s);
    if (status != SQLITE_OK && status != SQLITE_DONE) {  // it may succeed on tables with rows
      facts.complete = false;
      return facts;
    }
  }
  return facts;
}

ExitCode refuse_sql(const std::string& wrong, Diagnostics& diagnostics) {
  diagnostics.error({Code::kBadOption, "", Error::kNoOffset, "SQL: " + wrong, "tables: docs/timeline.md"});
  return kExitUsage;
}

// Rows as lines, columns apart by tabs, names first. An error message, or nothing.
std::string print_rows(sqlite3* db, const std::string& sql, Output& out) {
  const char* rest = sql.c_str();
  while (*rest != 0) {
    sqlite3_stmt* s = nullptr;
    if (sqlite3_prepare_v2(db, rest, -1, &s, &rest) != SQLITE_OK) return sqlite3_errmsg(db);
    if (s == nullptr) continue;
    const int columns = sqlite3_column_count(s);
    for (int i = 0; i < columns; ++i) out.write(std::string(i == 0 ? "" : "\t") + sqlite3_column_name(s, i));
    if (columns != 0) out.write("\n");
    int status = SQLITE_DONE;
    while (!out.closed() && (status = sqlite3_step(s)) == SQLITE_ROW) {
      for (int i = 0; i < columns; ++i) {
        if (i != 0) out.write("\t");
        const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(s, i));
        if (text != nullptr) out.write({text, static_cast<size_t>(sqlite3_column_bytes(s, i))});
      }
      out.write("\n");
    }
    sqlite3_finalize(s);
    if (status != SQLITE_DONE && status != SQLITE_ROW) return sqlite3_errmsg(db);
  }
  return {};
}

ExitCode run_query(QueryText& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  if (!finish_choice(o.choice, diagnostics)) return kExitUsage;
  // One argument is the query, two are the capture and the query.
  if (o.sql.empty()) {
    o.sql = o.first;
  } else if (o.input.input == InputOptions().input) {
    o.input.input = o.first;
  } else {
    diagnostics.error({Code::kBadOption, "", Error::kNoOffset,
                       "two captures: '" + o.input.input + "' and '" + o.first + "'",
                       "give the capture in front of the query, or by -i"});
    return kExitUsage;
  }
  if (o.sql.empty() && o.output.empty()) {
    diagnostics.error({Code::kBadOption, "", Error::kNoOffset, "neither a query nor -o FILE",
                       "for instance: asof query \"SELECT name, count(*) FROM call GROUP BY name\""});
    return kExitUsage;
  }
  const QueryFacts facts = examine(o.sql, o.detail != "calls");
  if (!facts.wrong.empty()) return refuse_sql(facts.wrong, diagnostics);
  const auto capture = open_for_verb(o.input, diagnostics);
  if (!capture) return kExitInput;
  TimelineOptions options;
  options.pipeline = o.choice.pipeline;
  options.detail = o.detail == "insn" || (o.detail.empty() && asks_for_detail(o.sql));
  if (!take_time(o.time, *capture, diagnostics, options.pipeline.time)) return kExitUsage;
  options.detail_time = options.pipeline.time;
  auto sink = SqliteSink::open(o.output.empty() ? ":memory:" : o.output, options.detail);
  Result<void> done;
  ExitCode status = kExitOk;
  if (!sink) {
    done = std::unexpected(sink.error());
  } else {
    if (o.output.empty() && facts.complete) (*sink)->keep_only(facts.names);
    ProgressBar bar(o.choice.progress, "query");
    const auto summary = run_timeline(*capture, options, **sink, bar.callback());
    for (const Notice& n : (*sink)->take_notices()) diagnostics.notice(n);
    if (summary) status = exit_code_for(*summary);
    done = summary ? (*sink)->finish() : Result<void>(std::unexpected(summary.error()));
  }
  if (!done) {
    diagnostics.error(done.error());
    return kExitInput;
  }
  auto out = Output::open("-");
  if (!out) return kExitInput;
  const std::string wrong = print_rows((*sink)->database(), o.sql, *out);
  out->flush();
  return wrong.empty() ? status : refuse_sql(wrong, diagnostics);
}

}  // namespace

RunVerb add_query(CLI::App& app) {
  auto o = std::make_shared<QueryText>();
  CLI::App* verb =
      app.add_subcommand("query", "SQL on calls, gaps, changes of text; or all of it as an SQLite file");
  verb->add_option("INPUT", o->first, "capture, when there are two arguments (default: perf.data)");
  verb->add_option("SQL", o->sql, "what to ask; tables: docs/timeline.md");
  add_input_options(*verb, o->input, false);
  add_decode_options(*verb, o->choice);
  verb->add_option("-o,--output", o->output,
                   "keep the database in this file; replaces an older database of asof, nothing else");
  verb->add_option("--detail", o->detail,
                   "insn: also blocks, instructions, branches (of themselves when the query names them); "
                   "calls: never")
      ->check(CLI::IsMember({"insn", "calls"}));
  add_time_option(*verb, o->time);
  return [o] { return run_query(*o); };
}

}  // namespace asof
