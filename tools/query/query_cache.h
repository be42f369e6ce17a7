// Whether and where a query looks for tables of an earlier one, and what it says about that.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "tools/query/answer_cache.h"
#include "tools/query/cache_key.h"
#include "tools/query/decode_tables.h"

namespace asof {

// kAuto: what took more than a second to decode.
enum class CacheMode : uint8_t { kAuto, kAlways, kNever };

struct CacheOptions {
  std::optional<CacheMode> mode;  // not given: $ASOF_CACHE, or kAuto
  std::string folder;             // empty: AnswerCache::default_folder()
  uint64_t most_bytes = uint64_t{1} << 30U;
};
CacheMode cache_mode(const CacheOptions& options);
std::string cache_folder(const CacheOptions& options);

// Of one query. Made before the capture is opened: it notes which files are read.
class QueryCache {
 public:
  QueryCache(const CacheOptions& options, const QueryFacts& facts);

  // The capture was opened. Tables with all that the query reads, if they are kept.
  std::optional<FoundTables> find(const InputOptions& input, const DecodeChoice& choice,
                                  const std::string& time, bool detail);
  // What to decode: what the query reads, and what was kept already.
  QueryFacts wanted() const;
  // To be called before and after decoding: what took so long is kept. One line for standard error, or none.
  void begin_decoding();
  void keep(const DecodedTables& tables, Diagnostics& diagnostics);

 private:
  bool covers(const KeptTables& kept) const;
  bool add_indices(FoundTables& found, const std::set<std::string>& names);

  CacheOptions options_;
  QueryFacts facts_;
  CacheMode mode_ = CacheMode::kNever;
  FilesRead log_;
  std::vector<FileState> opened_;
  // Taken before anything runs: oneTBB loads libraries when it is first used, which -j decides.
  std::string program_ = program_text();
  std::string key_;  // empty: nothing is kept
  KeptTables had_;
  std::string wrong_;  // with the folder
  std::optional<AnswerCache> cache_;
  double began_ = 0;
};

}  // namespace asof
