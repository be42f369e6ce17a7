// asof tables: the decoded capture as Parquet files in folders, for engines that read many of them.
#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "decoder/blocks/block_file.h"
#include "decoder/io/folder.h"
#include "textstore/plain_text.h"
#include "tools/cli/flow_found.h"
#include "tools/cli/progress.h"
#include "tools/cli/shard_option.h"
#include "tools/cli/verbs.h"
#include "tools/output/format.h"
#include "tools/output/output.h"
#include "tools/output/unfinished_file.h"
#include "tools/query/decode_tables.h"
#include "tools/tables/lake_tables.h"
#include "tools/tables/sum_tables.h"

namespace asof {
namespace {

namespace fs = std::filesystem;

struct TablesOptions {
  InputOptions input;
  DecodeChoice choice;
  std::string output, names, time, shard;
  bool list = false;
};

// A file that is written row by row.
class LakeFile {
 public:
  LakeFile(const fs::path& path, std::vector<ParquetColumn> columns) : path_(path.string()) {
    std::error_code failed;
    fs::create_directories(path.parent_path(), failed);
    file_ = std::make_unique<UnfinishedFile>(path_);
    error_ = file_->error();
    if (error_) return;
    out_.emplace(file_->output());
    writer_.emplace(std::move(columns), [this](std::string_view bytes) { out_->write(bytes); });
  }
  ParquetWriter* writer() { return writer_ ? &*writer_ : nullptr; }
  Result<void> finish() {
    if (error_) return std::unexpected(*error_);
    writer_->finish();
    out_->flush();
    if (auto failure = Output::take_failure()) return std::unexpected(std::move(*failure));
    return file_->keep();
  }

 private:
  std::string path_;
  std::unique_ptr<UnfinishedFile> file_;
  std::optional<Output> out_;
  std::optional<ParquetWriter> writer_;
  std::optional<Error> error_;
};

void put_cell(ParquetWriter& w, size_t to, ParquetType type, sqlite3_stmt* s, int from) {
  if (sqlite3_column_type(s, from) == SQLITE_NULL) return w.null(to);
  const auto text = [&] {
    const auto* bytes = static_cast<const char*>(sqlite3_column_blob(s, from));
    return std::string_view(bytes, static_cast<size_t>(sqlite3_column_bytes(s, from)));
  };
  switch (type) {
    case ParquetType::kInt64:
      return w.integer(to, sqlite3_column_int64(s, from));
    case ParquetType::kDouble:
      return w.real(to, sqlite3_column_double(s, from));
    case ParquetType::kBytes:
      return w.text(to, text());
    case ParquetType::kText:
      // Readers take it for UTF-8, and print it.
      return is_plain_text(text()) ? w.text(to, text()) : w.text(to, plain_text(text()));
  }
}

class TableWriter {
 public:
  TableWriter(const LakeTable& table, const std::string& folder, std::optional<Shard> shard)
      : table_(table),
        folder_(fs::path(folder) / table.name),
        shard_(shard),
        name_(shard ? shard_name(*shard) + ".parquet" : kWhole),
        first_(table.by_cpu ? 1 : 0) {}

  Result<void> write(sqlite3* db) {
    if (auto ok = alone(); !ok) return ok;
    sqlite3_stmt* prepared = nullptr;
    int status = sqlite3_prepare_v2(db, table_.sql.c_str(), -1, &prepared, nullptr);
    const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> s(prepared, sqlite3_finalize);
    if (auto ok = table_.by_cpu ? Result<void>() : open({}); !ok) return ok;
    while (status == SQLITE_OK || status == SQLITE_ROW) {
      status = sqlite3_step(s.get());
      if (status != SQLITE_ROW) break;
      if (interrupted()) return {};
      if (auto ok = row(s.get()); !ok) return ok;
    }
    if (status != SQLITE_DONE)
      return fail(Code::kNoResources, table_.name, Error::kNoOffset, sqlite3_errmsg(db), "");
    // A table without rows is a file too, so that queries of all tables work.
    if (!file_ && rows_ == 0 && (!shard_ || shard_->index == 0)) {
      if (auto ok = open(-1); !ok) return ok;
    }
    return close();
  }
  uint64_t rows() const { return rows_; }

 private:
  static constexpr const char* kWhole = "data.parquet";
  // Rows of one run, or of the shards of one: beside others, readers of the folder would take them twice.
  Result<void> alone() const {
    const std::string of = shard_ ? fmt::format("-of-{}.parquet", shard_->count) : std::string(kWhole);
    std::string beside;
    walk_files(folder_.string(), [&](const std::string& path) {
      if (path.ends_with(".parquet") && !path.ends_with(of)) beside = path;
      return beside.empty();
    });
    if (!beside.empty())
      return fail(Code::kCannotWrite, beside, Error::kNoOffset,
                  "rows of another run, or of another number of shards, would be beside these",
                  "remove it, or choose another folder with -o");
    return {};
  }
  Result<void> open(std::optional<int64_t> cpu) {
    if (auto ok = close(); !ok) return ok;
    cpu_ = cpu;
    const fs::path folder = cpu ? folder_ / fmt::format("cpu={}", *cpu) : folder_;
    file_ = std::make_unique<LakeFile>(
        folder / name_, std::vector<ParquetColumn>(table_.columns.begin() + static_cast<ptrdiff_t>(first_),
                                                   table_.columns.end()));
    return {};
  }
  Result<void> close() {
    if (!file_) return {};
    const auto done = file_->finish();
    file_.reset();
    return done;
  }
  Result<void> row(sqlite3_stmt* s) {
    if (table_.by_cpu && (!file_ || cpu_ != sqlite3_column_int64(s, 0))) {
      if (auto ok = open(sqlite3_column_int64(s, 0)); !ok) return ok;
    }
    ParquetWriter* const w = file_->writer();
    if (w == nullptr) return close();
    for (size_t i = first_; i < table_.columns.size(); ++i)
      put_cell(*w, i - first_, table_.columns[i].type, s, static_cast<int>(i));
    w->end_row();
    ++rows_;
    return {};
  }

  const LakeTable& table_;
  const fs::path folder_;
  const std::optional<Shard> shard_;
  const std::string name_;
  const size_t first_;  // column that is in the file
  std::unique_ptr<LakeFile> file_;
  std::optional<int64_t> cpu_;
  uint64_t rows_ = 0;
};

Result<std::vector<const LakeTable*>> chosen(const TablesOptions& o) {
  std::vector<const LakeTable*> out;
  const auto names = split_list(o.names);
  std::vector<std::string> known;
  for (const LakeTable& t : lake_tables()) {
    known.push_back(t.name);
    if (names.empty() ? t.usual : std::ranges::count(names, t.name) != 0) out.push_back(&t);
  }
  for (const std::string& name : names) {
    if (std::ranges::find(known, name) == known.end())
      return fail(Code::kBadOption, "", Error::kNoOffset,
                  fmt::format("--table {}: there is no such table", name), "asof tables --list");
  }
  return out;
}

std::string list_text() {
  std::string out;
  for (const LakeTable& t : lake_tables())
    out += fmt::format("{:<18} {}{}{}\n", t.name, t.meaning, t.by_cpu ? "; by CPU" : "",
                       t.usual ? "" : "; only where --table names it");
  return out;
}

// The tables of `facts`, and sums of calls. A block stream may have them already; then the rest takes a pass of its own,
// unless single calls are wanted. `met`: what `options` takes note of.
Result<DecodedTables> decode_sums(const Capture& capture, const TimelineOptions& options,
                                  const QueryFacts& facts, const DecodeChoice& choice,
                                  const FlowErrors& met) {
  const TimeBounds time = options.pipeline.time;
  const bool all = time.lo == kTimeMin && time.hi == kTimeMax && !options.detail && facts.complete &&
                   !facts.names.contains("calls") && !facts.names.contains("call");
  CallTotals totals;
  CallsBeside beside{.sink = &totals};
  ExitCode status = kExitOk;
  std::vector<Notice> met_by_calls;
  if (all && capture.blocks && capture.blocks->has_calls()) {
    ProgressBar bar(choice.progress, "calls");
    TimelineOptions calls = options;  // that meets the errors that the rest meets
    FlowErrors errors(capture, choice, time);
    errors.watch(calls);
    const auto summary = run_timeline(capture, calls, totals, bar.callback());
    if (!summary) return std::unexpected(summary.error());
    status = errors.judge(exit_code_for(*summary));
    met_by_calls = errors.notices();
    beside = {.told = [&totals](SqliteSink& sink) { totals.tell(sink); }};
  }
  auto decoded = decode_tables(capture, options, facts, {}, choice.progress, beside);
  if (!decoded) return decoded;
  if (decoded->status == kExitOk) decoded->status = status;
  // The rest may be tables that need no flow.
  if (met.notices().empty()) std::ranges::move(met_by_calls, std::back_inserter(decoded->notices));
  if (const auto written = write_sums(totals, decoded->sink->database()); !written)
    return std::unexpected(written.error());
  return decoded;
}

ExitCode run_tables(TablesOptions& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  const auto cannot = [&](const Error& error, ExitCode status) {
    diagnostics.error(error);
    return status;
  };
  if (!finish_choice(o.choice, diagnostics)) return kExitUsage;
  if (o.list) {
    auto out = Output::open("-");
    if (!out) return kExitInput;
    out->write(list_text());
    return flush_output(*out, diagnostics) ? kExitOk : kExitInput;
  }
  const auto tables = chosen(o);
  if (!tables) return cannot(tables.error(), kExitUsage);
  if (o.output.empty())
    return cannot({Code::kBadOption, "", Error::kNoOffset, "no folder for the tables", "-o DIR"}, kExitUsage);
  std::optional<Shard> part;
  if (!o.shard.empty()) {
    const auto shard = parse_shard(o.shard);
    if (!shard) return cannot(shard.error(), kExitUsage);
    if (tables->size() != 1 || tables->front()->name != "calls")
      return cannot({Code::kBadOption, "", Error::kNoOffset, "--shard is for single calls", "--table calls"},
                    kExitUsage);
    part = *shard;
  }
  std::string sql;
  for (const LakeTable* t : *tables) sql += (t->reads.empty() ? t->sql : t->reads) + ";";
  const bool sums = std::ranges::any_of(*tables, &LakeTable::sums);
  const QueryFacts facts = examine(sql, DetailTables::kWhenNamed);
  const auto capture = open_for_verb(o.input, diagnostics);
  if (!capture) return kExitInput;
  TimelineOptions options;
  options.pipeline = o.choice.pipeline;
  options.detail = facts.detail;
  if (part) {
    if (const auto ok = check_call_shard(*capture, o.time); !ok) return cannot(ok.error(), kExitUsage);
  }
  if (!take_time(o.time, *capture, diagnostics, options.pipeline.time)) return kExitUsage;
  options.detail_time = options.pipeline.time;
  FlowErrors errors(*capture, o.choice, options.pipeline.time);
  errors.watch(options);
  const auto decoded = sums ? decode_sums(*capture, options, facts, o.choice, errors)
                            : decode_tables(*capture, options, facts, {}, o.choice.progress, {.part = part});
  if (!decoded) return cannot(decoded.error(), kExitInput);
  for (const Notice& n : decoded->notices) diagnostics.notice(n);
  errors.tell(diagnostics);
  uint64_t rows = 0;
  for (const LakeTable* t : *tables) {
    TableWriter writer(*t, o.output, part);
    if (const auto done = writer.write(decoded->sink->database()); !done)
      return cannot(done.error(), kExitInput);
    if (interrupted()) return kExitInterrupted;
    rows += writer.rows();
  }
  diagnostics.note(fmt::format("{}: {}, {}", o.output, format_plural(tables->size(), "table", "tables"),
                               format_plural(rows, "row", "rows")));
  return errors.judge(decoded->status, diagnostics);
}

}  // namespace

RunVerb add_tables(CLI::App& app) {
  auto o = std::make_shared<TablesOptions>();
  CLI::App* verb = app.add_subcommand(
      "tables", "calls, gaps, changes of text as Parquet files, for DuckDB, Spark and others");
  add_input_options(*verb, o->input);
  add_decode_options(*verb, o->choice, o->input.capture);
  verb->add_option("-o,--output", o->output, "folder: TABLE/data.parquet, or TABLE/cpu=N/data.parquet")
      ->type_name("DIR");
  verb->add_option("--table", o->names, "which (default: aggregates and what is small)")->type_name("LIST");
  verb->add_option(
          "--shard", o->shard,
          "of a block stream, with --table calls: part K (from 0) of N; the files of all are the table")
      ->type_name("K/N");
  verb->add_flag("--list", o->list, "which tables there are");
  add_time_option(*verb, o->time);
  return [o] { return run_tables(*o); };
}

}  // namespace asof
