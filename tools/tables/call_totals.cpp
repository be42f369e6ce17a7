#include "tools/tables/call_totals.h"

#include <sqlite3.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "textstore/time.h"

namespace asof {
namespace {

constexpr Time kMillisecond = 1'000'000;

bool known(Time t) { return t != kTimeMin && t != kTimeMax; }

}  // namespace

size_t CallTotals::KeyHash::operator()(const Key& k) const {
  uint64_t h = static_cast<uint64_t>(k.time) * kHashFactor;
  for (const uint32_t part : {static_cast<uint32_t>(k.cpu), k.function, k.version, k.caller})
    h = (h ^ h >> 32U ^ part) * kHashFactor;
  return h >> 16U;
}

CallTotals::Total& CallTotals::Total::operator+=(const Total& o) {
  calls += o.calls;
  self_instructions += o.self_instructions;
  instructions += o.instructions;
  timed += o.timed;
  ns += o.ns;
  return *this;
}

void CallTotals::Called::add(const Key& key, const Total& total) {
  // Calls in a row are often of the same function.
  if (!entries.empty() && entries.back().key == key) {
    entries.back().total += total;
    return;
  }
  entries.push_back({key, total});
  if (entries.size() < next_merge) return;
  std::ranges::sort(entries, {}, &Entry::key);
  size_t kept = 0;
  for (size_t i = 1; i < entries.size(); ++i) {
    if (entries[i].key == entries[kept].key) {
      entries[kept].total += entries[i].total;
    } else {
      entries[++kept] = entries[i];
    }
  }
  entries.resize(kept + 1);
  next_merge = std::max<size_t>(64, 2 * entries.size());
}

void CallTotals::add(Called&& called, uint32_t caller) {
  for (Entry& e : called.entries) {
    e.key.caller = caller;
    totals_[e.key] += e.total;
  }
}

void CallTotals::track(const TimelineTrack& t) {
  if (cpu_tracks_.size() <= t.id) cpu_tracks_.resize(size_t{t.id} + 1);
  cpu_tracks_[t.id] = t.kind == TimelineTrack::Kind::kCpu;
}

void CallTotals::slice(const Slice& s) {
  if (s.track >= cpu_tracks_.size() || !cpu_tracks_[s.track]) return;
  if (const auto called = open_.find(s.id); called != open_.end()) {
    add(std::move(called.value()), s.function);
    open_.erase(called);
  }
  const Key key{known(s.begin) ? s.begin / kMillisecond * kMillisecond : kTimeMin, s.cpu, s.function,
                s.version};
  Total total{1, s.self_instructions, s.instructions};
  if (known(s.begin) && known(s.end)) {
    total.timed = 1;
    total.ns = elapsed(s.begin, s.end);
  }
  if (s.parent == 0) {
    totals_[key] += total;
  } else {
    open_[s.parent].add(key, total);
  }
}

Result<void> CallTotals::write(sqlite3* db) {
  for (auto at = open_.begin(); at != open_.end(); ++at) add(std::move(at.value()), kNoCaller);
  open_.clear();
  const auto failed = [&] {
    return fail(Code::kNoResources, "call_sums", Error::kNoOffset, sqlite3_errmsg(db), "");
  };
  if (sqlite3_exec(
          db,
          "CREATE TABLE call_sums(cpu INT, time INT, function INT, version INT, caller INT, calls INT, "
          "self_instructions INT, instructions INT, ns INT); BEGIN",
          nullptr, nullptr, nullptr) != SQLITE_OK)
    return failed();
  sqlite3_stmt* prepared = nullptr;
  const int ready =
      sqlite3_prepare_v2(db, "INSERT INTO call_sums VALUES (?,?,?,?,?,?,?,?,?)", -1, &prepared, nullptr);
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> s(prepared, sqlite3_finalize);
  if (ready != SQLITE_OK) return failed();
  for (const auto& [key, total] : totals_) {
    const auto bind = [&](int at, int64_t value, bool null) {
      null ? sqlite3_bind_null(s.get(), at) : sqlite3_bind_int64(s.get(), at, value);
    };
    bind(1, key.cpu, false);
    bind(2, key.time, key.time == kTimeMin);
    bind(3, key.function, false);
    bind(4, key.version, false);
    bind(5, key.caller, key.caller == kNoCaller);
    bind(6, static_cast<int64_t>(total.calls), false);
    bind(7, static_cast<int64_t>(total.self_instructions), false);
    bind(8, static_cast<int64_t>(total.instructions), false);
    bind(9, total.ns, total.timed == 0);
    if (sqlite3_step(s.get()) != SQLITE_DONE) return failed();
    sqlite3_reset(s.get());
  }
  if (sqlite3_exec(db, "COMMIT", nullptr, nullptr, nullptr) != SQLITE_OK) return failed();
  totals_.clear();
  return {};
}

}  // namespace asof
