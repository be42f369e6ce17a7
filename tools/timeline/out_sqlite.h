// SqliteSink: a timeline as SQLite tables (sqlite_schema.h), row by row as the decoder finds them; nothing is
// folded. Times are nanoseconds, addresses signed 64-bit integers, as SQLite has them. One transaction;
// indices after the rows.
#pragma once
#include <memory>
#include <set>
#include <string>

#include "decoder/calls/cycle_costs.h"
#include "decoder/calls/timeline.h"
#include "textstore/result.h"
#include "tools/disasm/code_text.h"

struct sqlite3;

namespace asof {

class SqliteSink final : public TimelineSink {
 public:
  // `path` is written anew; ":memory:" for a database that is gone with the sink. An existing file is
  // replaced if it is empty or a database of asof (application_id), else it stays as it is: E-FILE-090.
  // `detail`: with the tables of straight runs, instructions and branches. `inlined`: which calls were inlined there.
  static Result<std::unique_ptr<SqliteSink>> open(const std::string& path, bool detail, bool inlined);
  ~SqliteSink() override;
  // `names`: of all tables and columns that are asked for. Other tables stay empty. Before begin().
  void keep_only(const std::set<std::string>& names);
  // `names`: of the indices that are wanted; without this call all are.
  void index_only(const std::set<std::string>& names);

  void begin(const Capture& capture) override;
  void track(const TimelineTrack& t) override;
  void function(const TimelineFunction& f) override;
  // Functions that are not called by the end, neither here nor in a slice, are not in the table.
  void called(uint32_t function);
  void slice(const Slice& s) override;
  // A slice that is not in the table, around others: for depths.
  void around(uint64_t id, uint64_t parent);
  void run(const RunSlice& r) override;
  void gap(const GapSlice& g) override;
  void event(const EventMark& e) override;
  void poke(const PokeSlice& p) override;
  void lifetime(const LifetimeSlice& l) override;
  void counter(const CounterPoint& p) override;
  void block(const BlockSlice& b) override;
  bool stopped() const override;
  // Into the tables of cycles.
  void cycles(const CycleCosts& costs);

  // Indices, views, end of the transaction. The first error, if any (a full disk).
  Result<void> finish();
  sqlite3* database();
  // What source lines could not be read.
  std::vector<Notice> take_notices();

 private:
  struct Impl;
  void text_versions();
  void remove_uncalled();
  void fill_depths();
  void indices(bool of_detail);
  explicit SqliteSink(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace asof
