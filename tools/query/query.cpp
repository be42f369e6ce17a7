// asof query: the decoded capture as SQL tables (out_sqlite.h), queried at once or kept in a file.
#include <sqlite3.h>

#include "tools/cli/progress.h"
#include "tools/cli/verbs.h"
#include "tools/output/output.h"
#include "tools/query/sql_guard.h"
#include "tools/timeline/out_sqlite.h"

namespace asof {
namespace {

struct QueryText {
  InputOptions input;
  DecodeChoice choice;
  std::string first, sql, output, detail, time;
};

// What it refuses is known before anything is decoded.
ExitCode refuse_sql(const std::string& wrong, const std::string& refused, Diagnostics& diagnostics) {
  if (refused.empty()) {
    diagnostics.error({Code::kBadOption, "", Error::kNoOffset, "SQL: " + wrong, "tables: docs/timeline.md"});
  } else {
    diagnostics.error({Code::kSqlRefused, "", Error::kNoOffset, "SQL: " + refused + ": a query only reads",
                       "CREATE TEMP TABLE is allowed; -o FILE.db keeps a database that sqlite3 opens"});
  }
  return kExitUsage;
}

// Rows of one statement as lines, columns apart by tabs, names first.
int print_statement(sqlite3_stmt* s, Output& out) {
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
  return status == SQLITE_ROW ? SQLITE_DONE : status;
}

// `decoded`: the exit status that decoding has given.
ExitCode answer(sqlite3* db, const std::string& sql, ExitCode decoded, Diagnostics& diagnostics) {
  if (interrupted()) {  // tables lack what was not decoded
    if (!sql.empty()) diagnostics.note("interrupted: the query was not run");
    return kExitInterrupted;
  }
  auto out = Output::open("-");
  if (!out) return kExitInput;
  const SqlGuard guard(db);
  int status = SQLITE_DONE;
  for (const char* rest = sql.c_str(); *rest != 0 && status == SQLITE_DONE;) {
    sqlite3_stmt* s = nullptr;
    status = sqlite3_prepare_v2(db, rest, -1, &s, &rest);
    if (status == SQLITE_OK) status = s == nullptr ? SQLITE_DONE : print_statement(s, *out);
    sqlite3_finalize(s);
  }
  if (!flush_output(*out, "standard output", diagnostics)) return kExitInput;
  if (interrupted()) return kExitInterrupted;
  return status == SQLITE_DONE ? decoded : refuse_sql(sqlite3_errmsg(db), guard.refused(), diagnostics);
}

// One argument is the query, two are the capture and the query.
bool take_arguments(QueryText& o, Diagnostics& diagnostics) {
  if (o.sql.empty()) {
    o.sql = o.first;
  } else if (o.input.input == InputOptions().input) {
    o.input.input = o.first;
  } else {
    diagnostics.error({Code::kBadOption, "", Error::kNoOffset,
                       "two captures: '" + o.input.input + "' and '" + o.first + "'",
                       "give the capture in front of the query, or by -i"});
    return false;
  }
  return true;
}

ExitCode run_query(QueryText& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  if (!finish_choice(o.choice, diagnostics) || !take_arguments(o, diagnostics)) return kExitUsage;
  const QueryFacts facts = examine(o.sql, o.detail == "calls"  ? DetailTables::kNever
                                          : o.detail == "insn" ? DetailTables::kAlways
                                                               : DetailTables::kWhenNamed);
  if (interrupted()) return kExitInterrupted;
  if (!facts.wrong.empty() || !facts.refused.empty())
    return refuse_sql(facts.wrong, facts.refused, diagnostics);
  if (facts.statements == 0 && o.output.empty()) {
    diagnostics.error({Code::kBadOption, "", Error::kNoOffset, "neither a query nor -o FILE",
                       "for instance: asof query \"SELECT name, count(*) FROM call GROUP BY name\""});
    return kExitUsage;
  }
  const auto capture = open_for_verb(o.input, diagnostics);
  if (!capture) return kExitInput;
  TimelineOptions options;
  options.pipeline = o.choice.pipeline;
  options.detail = facts.detail;
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
  return answer((*sink)->database(), o.sql, status, diagnostics);
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
