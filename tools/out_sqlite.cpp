#include "tools/out_sqlite.h"

#include <sqlite3.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <variant>

#include "tools/decode_style.h"
#include "tools/format.h"
#include "tools/timeline_outputs.h"

namespace asof {
namespace {

struct Table {
  const char* name;
  const char* columns;
  int count;
};
enum TableId : size_t {
  kTracks,
  kFunctions,
  kCalls,
  kRuns,
  kGaps,
  kEvents,
  kPokes,
  kVisits,
  kLives,
  kCounters
};
constexpr std::array<Table, 10> kTables{{
    {"tracks", "id INTEGER PRIMARY KEY, kind TEXT, cpu INT, pid INT, tid INT, name TEXT", 6},
    {"functions",
     "id INTEGER PRIMARY KEY, name TEXT, kind TEXT, dso TEXT, begin INT, size INT, versions INT, bpf_id INT, "
     "bpf_tag TEXT",
     9},
    {"calls",
     "id INTEGER PRIMARY KEY, parent INT, track INT, function INT, begin INT, end INT, instructions INT, "
     "self_instructions INT, entry INT, call_site INT, flags TEXT, version INT, source TEXT, confidence "
     "TEXT, "
     "cpu INT",
     15},
    {"runs", "cpu INT, pid INT, tid INT, comm TEXT, begin INT, end INT", 6},
    {"gaps",
     "cpu INT, tid INT, begin INT, end INT, family TEXT, code TEXT, reason TEXT, ip INT, resume_ip INT, "
     "bytes INT, file_offset INT",
     11},
    {"events", "cpu INT, tid INT, time INT, kind TEXT, ip INT, a INT, b INT", 7},
    {"pokes",
     "id INTEGER PRIMARY KEY, time INT, address INT, symbol TEXT, mechanism TEXT, action TEXT, bytes TEXT, "
     "begin INT, end INT, breakpoints INT",
     10},
    {"poke_visits", "poke INT, cpu INT, last_old INT, first_new INT, breakpoints INT", 5},
    {"text_lives",
     "kind TEXT, name TEXT, address INT, size INT, begin INT, end INT, bpf_id INT, bpf_tag TEXT", 8},
    {"counters", "kind TEXT, cpu INT, time INT, value REAL", 4},
}};
constexpr const char* kAfter =
    "CREATE INDEX calls_function ON calls(function);"
    "CREATE INDEX calls_parent ON calls(parent);"
    "CREATE INDEX calls_track ON calls(track, begin);"
    "CREATE INDEX pokes_address ON pokes(address);"
    "CREATE VIEW call AS SELECT calls.*, functions.name AS name, functions.kind AS kind, tracks.name AS "
    "track_name FROM calls JOIN functions ON functions.id = calls.function JOIN tracks ON tracks.id = "
    "calls.track;"
    "COMMIT;";

// "asof" in the header of our databases, as file(1) and `PRAGMA application_id` show it
// (sqlite.org/fileformat2.html, section 1.3).
constexpr const char* kMark = "PRAGMA application_id=0x61736f66;";
constexpr size_t kHeader = 100, kMarkAt = 68;

// May a new database take the place of what has this name? Nothing, an empty file, and an older output of
// ours are nobody's loss.
bool replaceable(const std::string& path) {
  std::error_code failed;
  const auto there = std::filesystem::symlink_status(path, failed);
  if (there.type() == std::filesystem::file_type::not_found) return true;
  if (failed || !std::filesystem::is_regular_file(path, failed)) return false;
  std::array<char, kHeader> header{};
  std::ifstream in(path, std::ios::binary);
  if (!in) return false;
  in.read(header.data(), header.size());
  if (in.gcount() == 0) return true;
  const std::string_view text(header.data(), header.size());
  return text.starts_with("SQLite format 3") && text.substr(kMarkAt).starts_with("asof");
}

// An unknown time is NULL.
using Value = std::variant<std::monostate, int64_t, double, std::string_view>;
Value time_value(Time t) { return t == kTimeMin || t == kTimeMax ? Value{} : Value{int64_t{t}}; }
Value number(uint64_t n) { return static_cast<int64_t>(n); }

}  // namespace

struct SqliteSink::Impl {
  sqlite3* db = nullptr;
  std::array<sqlite3_stmt*, kTables.size()> insert{};
  const Capture* capture = nullptr;
  std::string path, error;

  ~Impl() {
    for (sqlite3_stmt* s : insert) sqlite3_finalize(s);
    sqlite3_close(db);
  }
  bool check(int status) {
    if (status == SQLITE_OK || status == SQLITE_DONE || status == SQLITE_ROW) return true;
    if (error.empty()) error = sqlite3_errmsg(db);
    return false;
  }
  void run(const char* sql) { check(sqlite3_exec(db, sql, nullptr, nullptr, nullptr)); }

  template <class... Values>
  void row(TableId table, const Values&... values) {
    if (!error.empty()) return;
    sqlite3_stmt* s = insert[table];
    int at = 0;
    (bind(s, ++at, Value(values)), ...);
    check(sqlite3_step(s));
    sqlite3_reset(s);
  }
  void bind(sqlite3_stmt* s, int at, const Value& v) {
    if (const auto* n = std::get_if<int64_t>(&v)) {
      check(sqlite3_bind_int64(s, at, *n));
    } else if (const auto* d = std::get_if<double>(&v)) {
      check(sqlite3_bind_double(s, at, *d));
    } else if (const auto* t = std::get_if<std::string_view>(&v)) {
      check(sqlite3_bind_text64(s, at, t->data(), t->size(), SQLITE_TRANSIENT, SQLITE_UTF8));
    } else {
      check(sqlite3_bind_null(s, at));
    }
  }
};

SqliteSink::SqliteSink(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SqliteSink::~SqliteSink() = default;

Result<std::unique_ptr<SqliteSink>> SqliteSink::open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  if (path != ":memory:") {
    if (!replaceable(path)) {
      return fail("E-FILE-090", path, Error::kNoOffset, "there is a file that is no database of asof",
                  "choose another file with -o, or remove this one");
    }
    std::remove(path.c_str());
  }
  impl->check(sqlite3_open(path.c_str(), &impl->db));
  // The file is made in one go or not at all: no journal. The mark is written at once, so that what an
  // interrupted run leaves can be replaced.
  impl->run("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;");
  impl->run(kMark);
  impl->run("BEGIN;");
  for (size_t i = 0; i < kTables.size() && impl->error.empty(); ++i) {
    const Table& t = kTables[i];
    impl->run(("CREATE TABLE " + std::string(t.name) + " (" + t.columns + ")").c_str());
    std::string marks = "?";
    for (int n = 1; n < t.count; ++n) marks += ",?";
    const std::string sql = "INSERT INTO " + std::string(t.name) + " VALUES (" + marks + ")";
    impl->check(sqlite3_prepare_v2(impl->db, sql.c_str(), -1, &impl->insert[i], nullptr));
  }
  if (!impl->error.empty()) {
    return fail("E-FILE-090", path, Error::kNoOffset, "cannot write: " + impl->error,
                "choose another file with -o");
  }
  return std::unique_ptr<SqliteSink>(new SqliteSink(std::move(impl)));
}

void SqliteSink::begin(const Capture& capture) { impl_->capture = &capture; }

void SqliteSink::track(const TimelineTrack& t) {
  const std::string_view kind = t.kind == TimelineTrack::Kind::kCpu ? "cpu" : "thread";
  impl_->row(kTracks, number(t.id), kind, int64_t{t.cpu}, int64_t{t.pid}, int64_t{t.tid},
             std::string_view(t.name));
}

void SqliteSink::function(const TimelineFunction& f) {
  impl_->row(kFunctions, number(f.id), std::string_view(f.name), function_kind_name(f.kind),
             std::string_view(f.dso), number(f.range.begin), number(f.range.size()), number(f.versions()),
             number(f.bpf_id), std::string_view(f.bpf_tag));
}

void SqliteSink::slice(const Slice& s) {
  const std::string flags = slice_flag_names(s.flags),
                    source = format_origin(*impl_->capture->text, s.origin);
  impl_->row(kCalls, number(s.id), number(s.parent), number(s.track), number(s.function), time_value(s.begin),
             time_value(s.end), number(s.instructions), number(s.self_instructions), number(s.entry),
             number(s.call_site), std::string_view(flags), number(s.version), std::string_view(source),
             confidence_name(s.confidence), int64_t{s.cpu});
}

void SqliteSink::run(const RunSlice& r) {
  impl_->row(kRuns, int64_t{r.cpu}, int64_t{r.pid}, int64_t{r.tid}, std::string_view(r.comm),
             time_value(r.begin), time_value(r.end));
}

void SqliteSink::gap(const GapSlice& g) {
  impl_->row(kGaps, int64_t{g.cpu}, int64_t{g.tid}, time_value(g.begin), time_value(g.end),
             gap_family(g.code), std::string_view(g.code), std::string_view(g.reason), number(g.ip),
             number(g.resume_ip), number(g.bytes), number(g.file_offset));
}

void SqliteSink::event(const EventMark& e) {
  impl_->row(kEvents, int64_t{e.cpu}, int64_t{e.tid}, time_value(e.event.time), event_name(e.event.kind),
             number(e.event.ip), number(e.event.a), number(e.event.b));
}

void SqliteSink::poke(const PokeSlice& p) {
  const std::string bytes = poke_bytes(*impl_->capture, p);
  impl_->row(kPokes, number(p.index), time_value(p.time), number(p.address), std::string_view(p.symbol),
             mechanism_name(p.mechanism), std::string_view(p.action), std::string_view(bytes),
             time_value(p.begin), time_value(p.end), number(p.breakpoints));
  for (const PokeVisit& v : p.visits) {
    impl_->row(kVisits, number(p.index), int64_t{v.cpu}, time_value(v.last_old), time_value(v.first_new),
               number(v.breakpoints));
  }
}

void SqliteSink::life(const LifeSlice& l) {
  impl_->row(kLives, life_kind_name(l.kind), std::string_view(l.name), number(l.range.begin),
             number(l.range.size()), time_value(l.begin), time_value(l.end), number(l.bpf_id),
             std::string_view(l.bpf_tag));
}

void SqliteSink::counter(const CounterPoint& p) {
  constexpr std::array<std::string_view, 3> kNames = {"text version", "instructions/us", "coverage"};
  impl_->row(kCounters, kNames[static_cast<size_t>(p.kind)], int64_t{p.cpu}, time_value(p.time), p.value);
}

bool SqliteSink::stopped() const { return !impl_->error.empty(); }

Result<void> SqliteSink::finish() {
  if (impl_->error.empty()) impl_->run(kAfter);
  if (impl_->error.empty()) return {};
  return fail("E-FILE-090", impl_->path, Error::kNoOffset, "cannot write: " + impl_->error,
              "is the disk full?");
}

sqlite3* SqliteSink::database() { return impl_->db; }

}  // namespace asof
