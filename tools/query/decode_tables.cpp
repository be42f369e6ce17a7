#include "tools/query/decode_tables.h"

#include <algorithm>
#include <array>

#include "decoder/calls/call_part.h"
#include "tools/cli/progress.h"
#include "tools/cli/verbs.h"

namespace asof {

namespace {

// They take decoding of their own, which is slower: where all tables are wanted, only if there are any.
bool reads_cycles(const Capture& capture, const QueryFacts& facts, const std::string& output) {
  if (!output.empty() || !facts.complete) return capture.x86.has_cyc;
  return std::ranges::any_of(std::array{"function_cycles", "block_cycles", "call_cycles"},
                             [&](const char* table) { return facts.names.contains(table); });
}

// Tables, and what is made beside them.
class Both final : public TimelineSink {
 public:
  Both(SqliteSink& tables, const CallsBeside& beside) : tables_(tables), beside_(beside) {}
  void begin(const Capture& c) override { tables_.begin(c); }
  void track(const TimelineTrack& t) override {
    if (beside_.told) return;
    tables_.track(t);
    if (beside_.sink != nullptr) beside_.sink->track(t);
  }
  void function(const TimelineFunction& f) override {
    if (beside_.told) return;
    tables_.function(f);
    if (beside_.sink != nullptr) beside_.sink->function(f);
  }
  void slice(const Slice& s) override {
    tables_.slice(s);
    if (beside_.sink != nullptr) beside_.sink->slice(s);
  }
  void run(const RunSlice& r) override { tables_.run(r); }
  void gap(const GapSlice& g) override { tables_.gap(g); }
  void event(const EventMark& e) override { tables_.event(e); }
  void block(const BlockSlice& b) override { tables_.block(b); }
  void poke(const PokeSlice& p) override { tables_.poke(p); }
  void lifetime(const LifetimeSlice& l) override { tables_.lifetime(l); }
  void counter(const CounterPoint& p) override { tables_.counter(p); }
  bool stopped() const override { return tables_.stopped(); }

 private:
  SqliteSink& tables_;
  const CallsBeside& beside_;
};

}  // namespace

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
                                    const QueryFacts& facts, const std::string& output, ProgressMode progress,
                                    const CallsBeside& beside) {
  TimelineOptions options = wanted;
  auto sink = SqliteSink::open(output.empty() ? ":memory:" : output, options.detail, false);
  if (!sink) return std::unexpected(sink.error());
  if (output.empty() && facts.complete) {
    (*sink)->keep_only(facts.names);
    if (facts.indices) (*sink)->index_only(*facts.indices);
    std::set<std::string> names = facts.names;
    if (beside.told) std::erase_if(names, [](const auto& n) { return n == "functions" || n == "tracks"; });
    leave_out(names, options);
  }
  ProgressBar bar(progress, "query");
  Both rows(**sink, beside);
  const AroundPart around = [&sink](uint64_t id, uint64_t parent) { (*sink)->around(id, parent); };
  const auto summary = beside.part
                           ? run_timeline_part(capture, options, *beside.part, rows, around, bar.callback())
                           : run_timeline(capture, options, rows, bar.callback());
  if (!summary) return std::unexpected(summary.error());
  if (beside.told) beside.told(**sink);
  DecodedTables tables;
  if (reads_cycles(capture, facts, output)) {
    CycleCosts costs(capture);
    if (const auto done = count_cycles(capture, wanted.pipeline, costs); !done)
      return std::unexpected(done.error());
    (*sink)->cycles(costs);
    if (!costs.any()) {
      const Error none = no_cycles(capture);
      tables.notices.push_back({.severity = Notice::Severity::kLoss,
                                .code = none.code,
                                .where = none.where,
                                .reason = none.reason,
                                .hint = none.hint});
    }
  }
  if (const auto done = (*sink)->finish(); !done) return std::unexpected(done.error());
  tables.status = exit_code_for(*summary);
  for (Notice& n : (*sink)->take_notices()) tables.notices.push_back(std::move(n));
  tables.sink = std::move(*sink);
  return tables;
}

}  // namespace asof
