#include "tools/query/query_cache.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "decoder/open/archive.h"
#include "tools/output/format.h"
#include "tools/output/output.h"
#include "tools/timeline/sqlite_schema.h"

namespace asof {
namespace {

constexpr double kLong = 1;  // seconds of CPU time

double cpu_seconds() {
  struct rusage use {};
  ::getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

// Answers that depend on more than rows: on where SQLite has put them, or on what the connection did before.
bool depends_on_more(const QueryFacts& facts) {
  constexpr std::array<std::string_view, 5> kNames = {"dbstat", "last_insert_rowid", "changes",
                                                      "total_changes", "sqlite_offset"};
  return facts.asks_pragma || std::ranges::any_of(facts.names, [&](const std::string& n) {
           return (n.starts_with("sqlite_") && !n.starts_with("sqlite_temp_")) ||
                  std::ranges::find(kNames, n) != kNames.end();
         });
}

// Of names those that decide what a table has.
bool decides(const std::string& name) {
  return name == "depth" || name == "call" ||
         std::ranges::any_of(kTables, [&](const SqliteTable& t) { return name == t.name; });
}

}  // namespace

CacheMode cache_mode(const CacheOptions& options) {
  if (options.mode) return *options.mode;
  const char* const set = std::getenv("ASOF_CACHE");
  const std::string_view word = set == nullptr ? "" : set;
  if (word == "always") return CacheMode::kAlways;
  return word.empty() || word == "auto" ? CacheMode::kAuto : CacheMode::kNever;
}

std::string cache_folder(const CacheOptions& options) {
  return options.folder.empty() ? AnswerCache::default_folder() : options.folder;
}

QueryCache::QueryCache(const CacheOptions& options, const QueryFacts& facts)
    : options_(options), facts_(facts), mode_(cache_mode(options)) {
  if (depends_on_more(facts) || cache_folder(options).empty() || options.most_bytes == 0)
    mode_ = CacheMode::kNever;
  TimelineOptions needed;
  needed.detail = facts.detail;
  if (facts.complete) leave_out(facts.names, needed);
  if (!needed.flow) mode_ = CacheMode::kNever;
}

bool QueryCache::covers(const KeptTables& kept) const {
  if (kept.all) return true;
  return facts_.complete && std::ranges::all_of(facts_.names, [&](const std::string& name) {
           return !decides(name) || kept.names.contains(name);
         });
}

std::optional<FoundTables> QueryCache::find(const InputOptions& input, const DecodeChoice& choice,
                                            const std::string& time, bool detail) {
  opened_ = log_.take();
  // An archive is unpacked to another place each time.
  if (mode_ == CacheMode::kNever || is_archive(input.input)) return std::nullopt;
  const auto files = files_text(opened_);
  if (!files) return std::nullopt;
  auto cache = AnswerCache::open(cache_folder(options_), options_.most_bytes);
  if (!cache) {
    wrong_ = fmt::format("{}: {}", cache.error().where, cache.error().reason);
    return std::nullopt;
  }
  cache_.emplace(std::move(*cache));
  key_ = program_ + options_text(input, choice, time, detail) + *files;
  auto found = cache_->find(key_);
  if (!found || covers(found->facts)) return found;
  had_ = std::move(found->facts);
  return std::nullopt;
}

QueryFacts QueryCache::wanted() const {
  QueryFacts out = facts_;
  out.names.insert(had_.names.begin(), had_.names.end());
  return out;
}

void QueryCache::begin_decoding() { began_ = cpu_seconds(); }

void QueryCache::keep(const DecodedTables& tables, Diagnostics& diagnostics) {
  const double took = cpu_seconds() - began_;
  const bool worth = mode_ == CacheMode::kAlways || (mode_ == CacheMode::kAuto && took >= kLong);
  if (!worth || interrupted()) return;
  const auto not_usable = [&](const std::string& why) {
    diagnostics.notice(
        {Notice::Severity::kError, Code::kCacheNotUsable, {}, Error::kNoOffset, kTimeMin, why, {}, 1});
  };
  if (!wrong_.empty()) return not_usable(wrong_);
  // A file that changed while it was decoded.
  if (key_.empty() ||
      std::ranges::any_of(opened_, [](const FileState& f) { return file_state(f.path) != f; }))
    return;
  KeptTables facts;
  facts.names = wanted().names;
  facts.all = !facts_.complete;
  facts.status = tables.status;
  facts.notices = tables.notices;
  facts.files = log_.take();
  if (!files_text(facts.files)) return;
  const auto bytes = cache_->keep(key_, facts, tables.sink->database());
  if (!bytes) return not_usable(fmt::format("{}: {}", bytes.error().where, bytes.error().reason));
  if (*bytes != 0)
    diagnostics.note(fmt::format("tables kept for the next query in {} ({}); --no-cache keeps none",
                                 cache_->folder(), format_size(*bytes)));
}

}  // namespace asof
