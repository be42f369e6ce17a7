// Aggregates that are added up while calls end, against SQL over the table of all calls.
#include "tools/tables/call_totals.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>

#include "tests/support/skip_without.h"
#include "tests/tools/run_asof.h"
#include "tools/cli/verbs.h"
#include "tools/tables/lake_tables.h"
#include "tools/timeline/out_sqlite.h"

namespace asof::test {
namespace {

class Both final : public TimelineSink {
 public:
  Both(TimelineSink& a, TimelineSink& b) : a_(a), b_(b) {}
  void begin(const Capture& c) override { a_.begin(c); }
  void function(const TimelineFunction& f) override { a_.function(f); }
  void track(const TimelineTrack& t) override {
    a_.track(t);
    b_.track(t);
  }
  void slice(const Slice& s) override {
    a_.slice(s);
    b_.slice(s);
  }

 private:
  TimelineSink &a_, &b_;
};

std::string rows(sqlite3* db, const std::string& sql) {
  std::string out;
  sqlite3_stmt* s = nullptr;
  EXPECT_EQ(sqlite3_prepare_v2(db, sql.c_str(), -1, &s, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  while (sqlite3_step(s) == SQLITE_ROW) {
    for (int i = 0; i < sqlite3_column_count(s); ++i) {
      const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(s, i));
      out += fmt::format("{}|", text == nullptr ? "null" : text);
    }
    out += '\n';
  }
  sqlite3_finalize(s);
  return out;
}

const std::string& sql_of(const char* name) {
  return std::ranges::find(lake_tables(), name, &LakeTable::name)->sql;
}

constexpr const char* kFunctionsOfCalls =
    "SELECT calls.cpu, calls.begin / 1000000 * 1000000, functions.name, functions.kind, functions.dso, "
    "calls.version, "
    "count(*), sum(calls.self_instructions), sum(calls.instructions), sum(calls.end - calls.begin) "
    "FROM calls JOIN tracks ON tracks.id = calls.track JOIN functions ON functions.id = calls.function "
    "WHERE tracks.kind = 'cpu' GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6";
constexpr const char* kEdgesOfCalls =
    "SELECT calls.cpu, calls.begin / 1000000 * 1000000, caller.name, functions.name, count(*), "
    "sum(calls.end - calls.begin) "
    "FROM calls JOIN tracks ON tracks.id = calls.track JOIN functions ON functions.id = calls.function "
    "LEFT JOIN calls AS outer_call ON outer_call.id = calls.parent "
    "LEFT JOIN functions AS caller ON caller.id = outer_call.function "
    "WHERE tracks.kind = 'cpu' GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4";

void compare(const Capture& capture, const TimelineOptions& options) {
  auto sink = SqliteSink::open(":memory:", false, false);
  ASSERT_TRUE(sink);
  CallTotals totals;
  Both both(**sink, totals);
  const auto done = run_timeline(capture, options, both);
  ASSERT_TRUE(done) << done.error().reason;
  ASSERT_TRUE((*sink)->finish());
  ASSERT_TRUE(totals.write((*sink)->database()));
  const std::string functions = rows((*sink)->database(), kFunctionsOfCalls);
  EXPECT_GT(std::ranges::count(functions, '\n'), 10);
  EXPECT_TRUE(functions == rows((*sink)->database(), sql_of("agg_function")));
  const std::string edges = rows((*sink)->database(), kEdgesOfCalls);
  EXPECT_NE(edges.find("|null|"), std::string::npos);
  EXPECT_TRUE(edges == rows((*sink)->database(), sql_of("agg_edge")));
}

struct Recording {
  const char* name;
  const char* data;
};
void PrintTo(const Recording& recording, std::ostream* out) { *out << recording.name; }

class CallTotalsOf : public ::testing::TestWithParam<Recording> {};

TEST_P(CallTotalsOf, AreThoseOfTheTableOfCalls) {
  const std::string path = GetParam().data[0] == '/' ? GetParam().data : shared(GetParam().data);
  SKIP_WITHOUT(path);
  CaptureOptions o;
  o.host_files = false;
  o.symfs = ASOF_TEST_DATA "/demo/symfs";
  const auto capture = open_capture(path, o);
  ASSERT_TRUE(capture) << capture.error().reason;
  TimelineOptions options;
  compare(*capture, options);
  if (timeline_clock(*capture) != TimelineSummary::Clock::kNanoseconds) return;
  const TimeBounds whole = whole_time(*capture);
  const Time third = (whole.hi - whole.lo) / 3;
  options.pipeline.time = {whole.lo + third, whole.hi - third};
  compare(*capture, options);
}

INSTANTIATE_TEST_SUITE_P(Captures, CallTotalsOf,
                         ::testing::Values(Recording{"demo", ASOF_TEST_DATA "/demo/perf.data"},
                                           Recording{"demo_arm64", ASOF_TEST_DATA "/demo-arm64/perf.data"},
                                           Recording{"small", "captures/x86-board-small/perf.data"},
                                           Recording{"work", "captures/pt-work-1round"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace asof::test
