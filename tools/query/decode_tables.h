// A capture decoded into the tables that a query reads.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "decoder/model/shard.h"
#include "tools/cli/options.h"
#include "tools/output/exit_code.h"
#include "tools/query/sql_guard.h"
#include "tools/timeline/out_sqlite.h"

namespace asof {

struct DecodedTables {
  std::unique_ptr<SqliteSink> sink;
  ExitCode status = kExitOk;
  std::vector<Notice> notices;  // of decoding
};

// What decoding can leave out where nothing else than `names` is read. Without flow nothing is decoded at all.
void leave_out(const std::set<std::string>& names, TimelineOptions& options);

// What is made of calls beside the tables.
struct CallsBeside {
  TimelineSink* sink = nullptr;  // is told of tracks, functions and slices, too
  // Set: calls were decoded before, and this tells tracks and functions. None of the tables has single calls.
  std::function<void(SqliteSink&)> told{};
  // Only single calls are wanted, and only those of a part (call_part.h).
  std::optional<Shard> part{};
};

// Into the file `output` with all tables, or, where it is empty, into memory with those of `facts`.
Result<DecodedTables> decode_tables(const Capture& capture, const TimelineOptions& options,
                                    const QueryFacts& facts, const std::string& output, ProgressMode progress,
                                    const CallsBeside& beside = {});

}  // namespace asof
