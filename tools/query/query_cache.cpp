#include "tools/query/query_cache.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <set>

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

// Of names those that decide what a table has.
bool decides(const std::string& name) {
  return name == "depth" || name == "call" ||
         std::ranges::any_of(kTables, [&](const SqliteTable& t) { return name == t.name; });
}

std::set<std::string> all_indices() {
  std::set<std::string> out;
  for (const SqliteIndex& index : kIndices) out.insert(index.name);
  return out;
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
  if (facts.depends_on_more() || cache_folder(options).empty() || options.most_bytes == 0)
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
  if (!found) return found;
  const std::set<std::string> indices = facts_.indices.value_or(all_indices());
  if (covers(found->facts) &&
      (std::ranges::includes(found->facts.indices, indices) || add_indices(*found, indices)))
    return found;
  had_ = std::move(found->facts);
  return std::nullopt;
}

// To a copy, which is kept in the place of the other; where it cannot be kept, the next query makes them again. False: there is
// no memory for it.
bool QueryCache::add_indices(FoundTables& found, const std::set<std::string>& names) {
  auto database = with_indices(found.database.get(), names);
  if (!database) return false;
  found.database = std::move(*database);
  found.facts.indices.insert(names.begin(), names.end());
  (void)cache_->keep(key_, found.facts, found.database.get());
  return true;
}

QueryFacts QueryCache::wanted() const {
  QueryFacts out = facts_;
  out.names.insert(had_.names.begin(), had_.names.end());
  if (out.indices) out.indices->insert(had_.indices.begin(), had_.indices.end());
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
  facts.indices = wanted().indices.value_or(all_indices());
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
