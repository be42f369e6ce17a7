#include "tools/tables/sum_tables.h"

#include <sqlite3.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <tuple>

namespace asof {
namespace {

// Functions in the order of what tells them apart; those that it does not tell apart are one.
class Ranks {
 public:
  template <class Of>
  Ranks(const CallTotals& totals, Of of) : ranks_(totals.functions().size()) {
    const std::vector<TimelineFunction>& functions = totals.functions();
    std::vector<uint32_t> order;
    for (uint32_t f = 0; f < functions.size(); ++f) {
      if (totals.called(f)) order.push_back(f);  // others are not in the table functions
    }
    std::ranges::stable_sort(order, {},
                             [&](uint32_t f) { return std::pair(of(functions[f]), functions[f].key); });
    for (size_t i = 0; i < order.size(); ++i) {
      const TimelineFunction& f = functions[order[i]];
      if (i == 0 || of(functions[order[i - 1]]) != of(f)) keys_.push_back(static_cast<int64_t>(f.key));
      ranks_[order[i]] = static_cast<uint32_t>(keys_.size());
    }
  }
  // From 1.
  uint32_t of(uint32_t function) const { return ranks_[function]; }
  // TimelineFunction::key of the first that is there.
  int64_t key(uint32_t rank) const { return keys_[rank - 1]; }

 private:
  std::vector<uint32_t> ranks_;
  std::vector<int64_t> keys_;
};

struct Row {
  int32_t cpu = -1;
  Time time = kTimeMin;
  uint32_t first = 0, second = 0;
  CallTotals::Total total;
};
auto place_of(const Row& r) { return std::tuple(r.cpu, r.time, r.first, r.second); }

class Insert {
 public:
  Insert(sqlite3* db, const char* sql) {
    sqlite3_stmt* prepared = nullptr;
    ok_ = sqlite3_prepare_v2(db, sql, -1, &prepared, nullptr) == SQLITE_OK;
    statement_.reset(prepared);
  }
  Insert& put(int64_t value, bool null = false) {
    ++column_;
    null ? sqlite3_bind_null(statement_.get(), column_)
         : sqlite3_bind_int64(statement_.get(), column_, value);
    return *this;
  }
  Insert& put(uint64_t value) { return put(static_cast<int64_t>(value)); }
  void end_row() {
    ok_ = ok_ && sqlite3_step(statement_.get()) == SQLITE_DONE;
    sqlite3_reset(statement_.get());
    column_ = 0;
  }
  bool ok() const { return ok_; }

 private:
  std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> statement_{nullptr, sqlite3_finalize};
  int column_ = 0;
  bool ok_ = false;
};

bool write_functions(CallTotals& totals, sqlite3* db) {
  const Ranks ranks(totals, [](const TimelineFunction& f) {
    return std::tuple(std::string_view(f.name), function_kind_name(f.kind), std::string_view(f.dso));
  });
  std::vector<Row> rows;
  for (const auto& [key, total] : totals.totals())
    rows.push_back({key.cpu, key.time, ranks.of(key.function), key.version, total});
  merge_totals(rows, place_of);
  Insert insert(db, "INSERT INTO function_sums VALUES (?,?,?,?,?,?,?,?)");
  for (const Row& r : rows) {
    insert.put(int64_t{r.cpu})
        .put(r.time, r.time == kTimeMin)
        .put(ranks.key(r.first))
        .put(uint64_t{r.second});
    insert.put(r.total.calls).put(r.total.self_instructions).put(r.total.instructions);
    insert.put(static_cast<int64_t>(r.total.ns), r.total.timed == 0).end_row();
  }
  return insert.ok();
}

bool write_edges(CallTotals& totals, sqlite3* db) {
  const Ranks ranks(totals, [](const TimelineFunction& f) { return std::string_view(f.name); });
  std::vector<Row> rows;
  for (const auto& [key, total] : totals.totals()) {
    const uint32_t caller = key.caller == CallTotals::kNoCaller ? 0 : ranks.of(key.caller);
    rows.push_back({key.cpu, key.time, caller, ranks.of(key.function), total});
  }
  merge_totals(rows, place_of);
  Insert insert(db, "INSERT INTO edge_sums VALUES (?,?,?,?,?,?)");
  for (const Row& r : rows) {
    insert.put(int64_t{r.cpu}).put(r.time, r.time == kTimeMin);
    insert.put(r.first == 0 ? 0 : ranks.key(r.first), r.first == 0).put(ranks.key(r.second));
    insert.put(r.total.calls).put(static_cast<int64_t>(r.total.ns), r.total.timed == 0).end_row();
  }
  return insert.ok();
}

}  // namespace

Result<void> write_sums(CallTotals& totals, sqlite3* db) {
  const auto run = [db](const char* sql) {
    return sqlite3_exec(db, sql, nullptr, nullptr, nullptr) == SQLITE_OK;
  };
  const bool done =
      run("CREATE TABLE function_sums(cpu INT, time INT, function INT, version INT, calls INT, "
          "self_instructions INT, instructions INT, ns INT);"
          "CREATE TABLE edge_sums(cpu INT, time INT, caller INT, function INT, calls INT, ns INT); BEGIN") &&
      write_functions(totals, db) && write_edges(totals, db) && run("COMMIT");
  if (done) return {};
  return fail(Code::kNoResources, "sums of calls", Error::kNoOffset, sqlite3_errmsg(db), "");
}

}  // namespace asof
