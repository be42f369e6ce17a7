// A capture decoded into the tables that a query reads.
#pragma once
#include <memory>
#include <string>
#include <vector>

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

// Into the file `output` with all tables, or, where it is empty, into memory with those of `facts`. `beside` is told of
// tracks and slices, too.
Result<DecodedTables> decode_tables(const Capture& capture, const TimelineOptions& options,
                                    const QueryFacts& facts, const std::string& output, ProgressMode progress,
                                    TimelineSink* beside = nullptr);

}  // namespace asof
