// Aggregates that are added up while calls end, against SQL over the table of all calls.
#include "tools/tables/call_totals.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>

#include "tests/tools/recordings.h"
#include "tools/cli/verbs.h"
#include "tools/tables/lake_tables.h"
#include "tools/tables/sum_tables.h"
#include "tools/timeline/out_sqlite.h"

namespace asof::test {
namespace {

class Both final : public TimelineSink {
 public:
  Both(TimelineSink& a, TimelineSink& b) : a_(a), b_(b) {}
  void begin(const Capture& c) override { a_.begin(c); }
  void function(const TimelineFunction& f) override {
    a_.function(f);
    b_.function(f);
  }
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

const std::string kTracks = "SELECT * FROM tracks ORDER BY id",
                  kFunctions = "SELECT * FROM functions ORDER BY id";

struct Tables {
  std::string functions, edges, tracks, called;
  uint64_t slices = 0;  // that were told one by one
  static Tables of(sqlite3* db) {
    return {rows(db, sql_of("agg_function")), rows(db, sql_of("agg_edge")), rows(db, kTracks),
            rows(db, kFunctions)};
  }
};

// Each call told, and all of them in a table.
void one_by_one(const Capture& capture, const TimelineOptions& options, Tables& out) {
  auto sink = SqliteSink::open(":memory:", false, false);
  ASSERT_TRUE(sink);
  CallTotals totals;
  Both both(**sink, totals);
  const auto done = run_timeline(capture, options, both);
  ASSERT_TRUE(done) << done.error().reason;
  ASSERT_TRUE((*sink)->finish());
  sqlite3* const db = (*sink)->database();
  ASSERT_TRUE(write_sums(totals, db));
  out = Tables::of(db);
  out.slices = done->slices;
  EXPECT_TRUE(out.functions == rows(db, kFunctionsOfCalls));
  EXPECT_TRUE(out.edges == rows(db, kEdgesOfCalls));
}

// Refuses every so many sums, counts slices.
class Refuses final : public TimelineSink {
 public:
  Refuses(CallTotals& to, uint64_t every) : to_(to), every_(every) {}
  void track(const TimelineTrack& t) override { to_.track(t); }
  void function(const TimelineFunction& f) override { to_.function(f); }
  void slice(const Slice& s) override {
    ++slices;
    to_.slice(s);
  }
  bool takes_sums() const override { return true; }
  bool takes_sum(uint32_t track, Time begin, Time end) const override {
    return (every_ == 0 || ++asked_ % every_ != 0) && to_.takes_sum(track, begin, end);
  }
  void sum(const CallSums& s, uint32_t track, uint64_t parent) override { to_.sum(s, track, parent); }
  uint64_t slices = 0;

 private:
  CallTotals& to_;
  const uint64_t every_;
  mutable uint64_t asked_ = 0;
};

void added_up(const Capture& capture, const TimelineOptions& options, uint64_t refuse, Tables& out) {
  auto sink = SqliteSink::open(":memory:", false, false);
  ASSERT_TRUE(sink);
  CallTotals totals;
  Refuses told(totals, refuse);
  const auto done = run_timeline(capture, options, told);
  ASSERT_TRUE(done) << done.error().reason;
  (*sink)->begin(capture);
  totals.tell(**sink);
  ASSERT_TRUE((*sink)->finish());
  ASSERT_TRUE(write_sums(totals, (*sink)->database()));
  out = Tables::of((*sink)->database());
  out.slices = told.slices;
}

class CallTotalsOf : public RecordingTest {
 protected:
  static void expect(const Tables& want, const Tables& got) {
    EXPECT_TRUE(want.functions == got.functions);
    EXPECT_TRUE(want.edges == got.edges);
    EXPECT_TRUE(want.tracks == got.tracks);
    EXPECT_TRUE(want.called == got.called);
  }
};

TEST_P(CallTotalsOf, AreThoseOfTheTableOfCalls) {
  const auto capture = open();
  ASSERT_TRUE(capture) << capture.error().reason;
  TimelineOptions options;
  Tables want;
  one_by_one(*capture, options, want);
  EXPECT_GT(std::ranges::count(want.called, '\n'), 10);
  if (want.tracks.find("|cpu|") != std::string::npos) {
    EXPECT_GT(std::ranges::count(want.functions, '\n'), 10);
    EXPECT_NE(want.edges.find("|null|"), std::string::npos);
  }
  if (timeline_clock(*capture) != TimelineSummary::Clock::kNanoseconds) return;
  const TimeBounds whole = whole_time(*capture);
  if (whole.lo == kTimeMin || whole.hi == kTimeMax)
    return;  // of a thread, which says when it runs by flow alone
  const Time third = (whole.hi - whole.lo) / 3;
  options.pipeline.time = {whole.lo + third, whole.hi - third};
  one_by_one(*capture, options, want);
}

TEST_P(CallTotalsOf, AreThoseOfSums) {
  const auto capture = open();
  ASSERT_TRUE(capture) << capture.error().reason;
  Tables want;
  one_by_one(*capture, {}, want);
  for (const size_t steps : {size_t{64} * 1024, size_t{7}}) {
    TimelineOptions options;
    options.pipeline.decode.chunk_steps = steps;
    options.pipeline.jobs = 3;
    Tables got;
    added_up(*capture, options, steps == 7 ? 3 : 0, got);
    expect(want, got);
    RecordProperty(fmt::format("percent_alone_{}", steps),
                   static_cast<int>(got.slices * 100 / std::max<uint64_t>(want.slices, 1)));
    // Emulated machines need milliseconds for what others do in microseconds.
    if (steps > 1000) {
      EXPECT_LE(got.slices * 100, want.slices * 75);
    }
  }
}

TEST_P(CallTotalsOf, AreThoseOfABlockStream) {
  const auto capture = open();
  ASSERT_TRUE(capture) << capture.error().reason;
  Tables want;
  one_by_one(*capture, {}, want);
  const std::string blocks = dir_.path() / "flow.blocks";
  write_blocks(*capture, blocks);
  const auto read = open_capture(blocks, {});
  ASSERT_TRUE(read) << read.error().reason;
  Tables again, sums;
  one_by_one(*read, {}, again);
  expect(want, again);
  added_up(*read, {}, 0, sums);
  expect(want, sums);
}

INSTANTIATE_TEST_SUITE_P(Captures, CallTotalsOf, kSmallerRecordings, RecordingTest::name);

}  // namespace
}  // namespace asof::test
