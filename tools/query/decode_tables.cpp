#include "tools/query/decode_tables.h"

#include <algorithm>

#include "tools/cli/progress.h"
#include "tools/cli/verbs.h"

namespace asof {

void leave_out(const std::set<std::string>& names, TimelineOptions& options) {
  const auto reads = [&](std::initializer_list<const char*> any) {
    return std::ranges::any_of(any, [&](const char* n) { return names.contains(n); });
  };
  // "call" is also a column: blocks tell the call they belong to.
  options.calls = reads({"calls", "call", "functions", "tracks"});
  options.flow = options.calls || options.detail ||
                 reads({"runs", "gaps", "events", "poke_visits", "counters"}) ||
                 (reads({"pokes"}) && reads({"begin", "end", "breakpoints"}));
}

Result<DecodedTables> decode_tables(const Capture& capture, const TimelineOptions& wanted,
                                    const QueryFacts& facts, const std::string& output,
                                    ProgressMode progress) {
  TimelineOptions options = wanted;
  auto sink = SqliteSink::open(output.empty() ? ":memory:" : output, options.detail);
  if (!sink) return std::unexpected(sink.error());
  if (output.empty() && facts.complete) {
    (*sink)->keep_only(facts.names);
    leave_out(facts.names, options);
  }
  ProgressBar bar(progress, "query");
  const auto summary = run_timeline(capture, options, **sink, bar.callback());
  if (!summary) return std::unexpected(summary.error());
  if (const auto done = (*sink)->finish(); !done) return std::unexpected(done.error());
  DecodedTables tables;
  tables.status = exit_code_for(*summary);
  tables.notices = (*sink)->take_notices();
  tables.sink = std::move(*sink);
  return tables;
}

}  // namespace asof
