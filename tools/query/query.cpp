// asof query: the decoded capture as SQL tables (out_sqlite.h), queried at once or kept in a file.
#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <filesystem>

#include "tools/cli/arguments.h"
#include "tools/cli/flow_found.h"
#include "tools/cli/verbs.h"
#include "tools/output/output.h"
#include "tools/query/database.h"
#include "tools/query/decode_tables.h"
#include "tools/query/named_queries.h"
#include "tools/query/query_cache.h"
#include "tools/query/rows.h"
#include "tools/query/schema.h"
#include "tools/query/sql_guard.h"

namespace asof {
namespace {

struct QueryText {
  InputOptions input;
  DecodeChoice choice;
  std::string first, second, sql, output, detail, time, named;
  RowFormat format = RowFormat::kTsv;
  bool schema = false, markdown = false, show_sql = false;
  CacheOptions cache;
  const CLI::App* verb = nullptr;
};

ExitCode wrong_option(Diagnostics& diagnostics, std::string reason, std::string hint) {
  diagnostics.error({Code::kBadOption, "", Error::kNoOffset, std::move(reason), std::move(hint)});
  return kExitUsage;
}

ExitCode refuse_sql(const std::string& wrong, const std::string& refused, Diagnostics& diagnostics) {
  if (refused.empty()) return wrong_option(diagnostics, "SQL: " + wrong, "tables: asof query --schema");
  diagnostics.error({Code::kSqlRefused, "", Error::kNoOffset, "SQL: " + refused + ": a query only reads",
                     "CREATE TEMP TABLE is allowed; -o FILE.db keeps a database that sqlite3 opens"});
  return kExitUsage;
}

// `decoded`: the exit status that decoding has given. `file`: the database, if it is one of the user's.
ExitCode answer(sqlite3* db, const QueryText& o, ExitCode decoded, const std::string& file,
                Diagnostics& diagnostics) {
  if (interrupted()) {  // tables lack what was not decoded
    if (!o.sql.empty()) diagnostics.note("interrupted: the query was not run");
    return kExitInterrupted;
  }
  auto out = Output::open("-");
  if (!out) return kExitInput;
  RowPrinter printer(o.format, *out);
  const SqlGuard guard(db);
  int status = SQLITE_DONE;
  for (const char* rest = o.sql.c_str(); *rest != 0 && status == SQLITE_DONE;) {
    sqlite3_stmt* s = nullptr;
    status = sqlite3_prepare_v2(db, rest, -1, &s, &rest);
    if (status == SQLITE_OK) status = s == nullptr ? SQLITE_DONE : printer.print(s);
    sqlite3_finalize(s);
  }
  const std::string wrong = sqlite3_errmsg(db);
  if (!flush_output(*out, diagnostics)) return kExitInput;
  if (interrupted()) return kExitInterrupted;
  if (status == SQLITE_DONE) return decoded;
  if (!file.empty() && (status == SQLITE_CORRUPT || status == SQLITE_NOTADB || status == SQLITE_IOERR)) {
    diagnostics.error({Code::kBadDatabase, file, Error::kNoOffset, wrong, "write it again with -o"});
    return kExitInput;
  }
  return refuse_sql(wrong, guard.refused(), diagnostics);
}

ExitCode print_text(const std::string& text, Diagnostics& diagnostics) {
  auto out = Output::open("-");
  if (!out) return kExitInput;
  out->write(text);
  return flush_output(*out, diagnostics) ? kExitOk : kExitInput;
}

std::string named_list() {
  std::string out;
  for (const NamedQuery& q : named_queries()) out += fmt::format("{:<16} {}\n", q.name, q.meaning);
  return out;
}

// Where the query is named or there is none, an argument is the capture; else one is the query, and two are
// the capture and the query, in any order. A file needs no query: with -o, one that is there is the capture. An error, or nothing.
std::string take_arguments(QueryText& o) {
  // In the other order: the query, and then the capture.
  if (!o.second.empty() && is_input(o.second) && !is_input(o.first)) std::swap(o.first, o.second);
  const bool one_file = !o.output.empty() && o.second.empty() && !o.first.empty() && is_input(o.first);
  const bool has_sql = o.named.empty() && !o.schema && !one_file;
  if (!has_sql && !o.second.empty()) return "two arguments: the query is named, so one is the capture";
  if (has_sql) o.sql = o.second.empty() ? o.first : o.second;
  const std::string capture = has_sql && o.second.empty() ? "" : o.first;
  if (capture.empty()) return {};
  if (o.input.input != InputOptions().input)
    return "two captures: '" + o.input.input + "' and '" + capture + "'";
  o.input.input = capture;
  return {};
}

bool take_named(QueryText& o) {
  const auto queries = named_queries();
  const auto found = std::ranges::find(queries, o.named, &NamedQuery::name);
  if (found == queries.end()) return false;
  o.sql = found->sql;
  return true;
}

// What says how to decode has no meaning for a database. The first such option that was given.
std::string option_of_decoding(const CLI::App& verb) {
  for (const CLI::Option* option : verb.get_options()) {
    const std::string group = option->get_group(), name = option->get_name();
    const bool decodes = group == "Text" || group == "Decoding" || group == "Filters" || group == "Cache" ||
                         name == "--output" || name == "--detail";
    if (decodes && option->count() != 0 && name != "--jobs" && name != "--progress") return name;
  }
  return {};
}

ExitCode query_file(const QueryText& o, Diagnostics& diagnostics) {
  if (const std::string name = option_of_decoding(*o.verb); !name.empty())
    return wrong_option(diagnostics, name + ": " + o.input.input + " is a database, nothing is decoded",
                        "query the capture, or use WHERE");
  const auto db = open_database(o.input.input);
  if (!db) {
    diagnostics.error(db.error());
    return kExitInput;
  }
  return answer(db->get(), o, kExitOk, o.input.input, diagnostics);
}

ExitCode query_capture(const QueryText& o, const QueryFacts& facts, Diagnostics& diagnostics) {
  CacheOptions kept = o.cache;
  // What was kept does not say how many errors there were, nor is it of a part.
  if (!o.output.empty() || o.choice.strict || o.choice.max_errors != UINT64_MAX)
    kept.mode = CacheMode::kNever;
  QueryCache cache(kept, facts);
  const auto capture = open_for_verb(o.input, diagnostics);
  if (!capture) return kExitInput;
  TimelineOptions options;
  options.pipeline = o.choice.pipeline;
  options.detail = facts.detail;
  if (!take_time(o.time, *capture, diagnostics, options.pipeline.time)) return kExitUsage;
  options.detail_time = options.pipeline.time;
  if (const auto found = cache.find(o.input, o.choice, o.time, facts.detail)) {
    diagnostics.notice({Notice::Severity::kInfo,
                        Code::kFromCache,
                        {},
                        Error::kNoOffset,
                        kTimeMin,
                        "answered from " + cache_folder(kept),
                        {},
                        1});
    for (const Notice& n : found->facts.notices) diagnostics.notice(n);
    return answer(found->database.get(), o, static_cast<ExitCode>(found->facts.status), {}, diagnostics);
  }
  FlowErrors errors(*capture, o.choice, options.pipeline.time);
  errors.watch(options);
  cache.begin_decoding();
  auto tables = decode_tables(*capture, options, cache.wanted(), o.output, o.choice.progress);
  if (!tables) {
    diagnostics.error(tables.error());
    return kExitInput;
  }
  std::ranges::move(errors.notices(), std::back_inserter(tables->notices));
  for (const Notice& n : tables->notices) diagnostics.notice(n);
  cache.keep(*tables, diagnostics);
  return answer(tables->sink->database(), o, errors.judge(tables->status, diagnostics), {}, diagnostics);
}

ExitCode run_query(QueryText& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  if (!finish_choice(o.choice, diagnostics)) return kExitUsage;
  if (const std::string wrong = take_arguments(o); !wrong.empty())
    return wrong_option(diagnostics, wrong, "give the capture in front of the query, or by -i");
  if (o.schema || o.markdown) return print_text(o.markdown ? schema_markdown() : schema_text(), diagnostics);
  if (o.named == "list") return print_text(named_list(), diagnostics);
  if (!o.named.empty() && !take_named(o))
    return wrong_option(diagnostics, "--named: there is no query '" + o.named + "'",
                        "asof query --named list");
  if (o.show_sql) return print_text(o.sql + "\n", diagnostics);
  const bool file = is_database(o.input.input);
  const QueryFacts facts = examine(o.sql, o.detail == "calls"          ? DetailTables::kNever
                                          : o.detail == "insn" || file ? DetailTables::kAlways
                                                                       : DetailTables::kWhenNamed);
  if (interrupted()) return kExitInterrupted;
  // A database may have been made without some tables, or by an older version: it is asked itself.
  std::error_code ignored;
  if (!facts.wrong.empty() && o.second.empty() && std::filesystem::exists(o.first, ignored))
    return wrong_option(diagnostics, "no query for " + o.first, "asof query " + o.first + " \"SELECT ...\"");
  if (!facts.refused.empty() || (!facts.wrong.empty() && !file))
    return refuse_sql(facts.wrong, facts.refused, diagnostics);
  if (facts.statements == 0 && o.output.empty() && facts.wrong.empty())
    return wrong_option(diagnostics, "neither a query nor -o FILE",
                        "for instance: asof query \"SELECT name, count(*) FROM call GROUP BY name\"");
  return file ? query_file(o, diagnostics) : query_capture(o, facts, diagnostics);
}

// "NAME:{list,...}", as CLI11 has it of options that take one of some words: help and completion read it.
std::string type_of_names() {
  std::string out = "NAME:{list";
  for (const NamedQuery& q : named_queries()) out += fmt::format(",{}", q.name);
  return out + "}";
}

}  // namespace

RunVerb add_query(CLI::App& app) {
  auto o = std::make_shared<QueryText>();
  CLI::App* verb =
      app.add_subcommand("query", "SQL on calls, gaps, changes of text; or all of it as an SQLite file");
  o->verb = verb;
  verb->add_option("INPUT", o->first,
                   "capture or FILE.db, when there are two arguments, in any order (default: perf.data)");
  verb->add_option("SQL", o->second, "what to ask; tables: --schema");
  add_input_options(*verb, o->input, false);
  add_decode_options(*verb, o->choice, o->input.capture);
  verb->add_option("--named", o->named, "a query that has a name, instead of SQL; list: which there are")
      ->type_name(type_of_names());
  verb->add_flag("--show-sql", o->show_sql, "print the SQL of --named, and nothing else");
  verb->add_flag("--schema", o->schema, "what the tables and columns mean");
  verb->add_flag("--markdown", o->markdown, "the schema as the page docs/tables.md");
  static const std::map<std::string, RowFormat> kFormats{{"tsv", RowFormat::kTsv},
                                                         {"csv", RowFormat::kCsv},
                                                         {"jsonl", RowFormat::kJsonLines},
                                                         {"table", RowFormat::kTable}};
  verb->add_option("--format", o->format, "tsv (default), csv, jsonl, or table: aligned, for people")
      ->transform(one_of(kFormats))
      ->type_name("FORMAT");
  verb->add_option("-o,--output", o->output,
                   "keep the database in this file; replaces an older database of asof, nothing else");
  verb->add_option("--detail", o->detail,
                   "insn: also blocks, instructions, branches (of themselves when the query names them); "
                   "calls: never")
      ->check(CLI::IsMember({"insn", "calls"}));
  add_time_option(*verb, o->time);
  const std::string group = "Cache";
  static const std::map<std::string, CacheMode> kModes{
      {"auto", CacheMode::kAuto}, {"always", CacheMode::kAlways}, {"never", CacheMode::kNever}};
  verb->add_option(
          "--cache", o->cache.mode,
          "keep tables for the next query: auto (default: what took more than a second to decode), always, "
          "never; also by $ASOF_CACHE")
      ->transform(one_of(kModes))
      ->type_name("WHEN")
      ->group(group);
  verb->add_flag_callback(
          "--no-cache", [o] { o->cache.mode = CacheMode::kNever; }, "as --cache never")
      ->group(group);
  verb->add_option("--cache-dir", o->cache.folder, "where (default: asof in $XDG_CACHE_HOME or ~/.cache)")
      ->type_name("DIR")
      ->group(group);
  verb->add_option("--cache-size", o->cache.most_bytes,
                   "the most it takes (default: 1GB); the least recently used go")
      ->transform(CLI::AsSizeValue(false))
      ->transform(not_negative())
      ->type_name("SIZE")
      ->group(group);
  return [o] { return run_query(*o); };
}

}  // namespace asof
