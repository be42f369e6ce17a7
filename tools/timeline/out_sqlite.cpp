#include "tools/timeline/out_sqlite.h"

#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <span>
#include <variant>

#include "textstore/plain_text.h"
#include "tools/decode/decode_style.h"
#include "tools/output/format.h"
#include "tools/output/output.h"
#include "tools/output/unfinished_file.h"
#include "tools/timeline/call_depths.h"
#include "tools/timeline/sqlite_schema.h"
#include "tools/timeline/timeline_outputs.h"

namespace asof {
namespace {

// "asof" in the header of our databases, as file(1) and `PRAGMA application_id` show it
// (sqlite.org/fileformat2.html, section 1.3).
constexpr const char* kMark = "PRAGMA application_id=0x61736f66;";
constexpr size_t kHeader = 100, kMarkAt = 68;

// May a new database replace the file of this name? An absent or empty file and an older output of ours may
// be replaced.
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
using Bytes = std::span<const uint8_t>;
using Value = std::variant<std::monostate, int64_t, double, std::string_view, Bytes>;
Value time_value(Time t) { return t == kTimeMin || t == kTimeMax ? Value{} : Value{int64_t{t}}; }
Value number(uint64_t n) { return static_cast<int64_t>(n); }

}  // namespace

struct SqliteSink::Impl {
  sqlite3* db = nullptr;
  std::array<sqlite3_stmt*, kTables.size()> insert{};
  std::array<bool, kTables.size()> left_out{};
  bool depths = true;
  std::optional<std::set<std::string>> only_indices;
  struct Function {
    int64_t key = 0;
    bool called = false;
  };
  std::vector<Function> functions;  // by TimelineFunction::id
  CallDepths call_depths;
  const Capture* capture = nullptr;
  std::unique_ptr<CodeText> code;
  size_t code_rows = 0;
  OriginRef named_origin = kNoOrigin;
  std::string source;  // of it
  bool detail = false, inlined = false;
  std::string path, error;
  std::string unfinished;  // the file's name until it is complete; empty: it is, or is none

  ~Impl() {
    for (sqlite3_stmt* s : insert) sqlite3_finalize(s);
    sqlite3_close(db);
    if (!unfinished.empty()) ::unlink(unfinished.c_str());
  }
  Result<void> make_file() {
    const auto fd = make_unfinished(path, unfinished);
    if (!fd) return std::unexpected(fd.error());
    ::close(*fd);
    return {};
  }
  void name_file() {
    if (unfinished.empty() || !error.empty()) return;
    if (const auto named = name_unfinished(unfinished, path))
      unfinished.clear();
    else
      error = named.error().reason;
  }
  bool check(int status) {
    if (status == SQLITE_OK || status == SQLITE_DONE || status == SQLITE_ROW) return true;
    if (error.empty()) error = sqlite3_errmsg(db);
    return false;
  }
  void run(const char* sql) { check(sqlite3_exec(db, sql, nullptr, nullptr, nullptr)); }

  // Most calls in a row are of the same file.
  std::string_view source_of(OriginRef origin) {
    if (origin != named_origin || source.empty()) {
      source = format_origin(*capture->text, origin);
      named_origin = origin;
    }
    return source;
  }

  template <class... Values>
  void row(SqliteTableId table, const Values&... values) {
    if (!error.empty() || left_out[table]) return;
    sqlite3_stmt* s = insert[table];
    int at = 0;
    (bind(s, ++at, Value(values)), ...);
    check(sqlite3_step(s));
    sqlite3_reset(s);
  }
  // What is bound lives until the row is there, so it is not copied.
  void bind(sqlite3_stmt* s, int at, const Value& v) {
    if (const auto* n = std::get_if<int64_t>(&v)) {
      check(sqlite3_bind_int64(s, at, *n));
    } else if (const auto* d = std::get_if<double>(&v)) {
      check(sqlite3_bind_double(s, at, *d));
    } else if (const auto* t = std::get_if<std::string_view>(&v)) {
      check(sqlite3_bind_text64(s, at, t->data(), t->size(), SQLITE_STATIC, SQLITE_UTF8));
    } else if (const auto* b = std::get_if<Bytes>(&v)) {
      check(sqlite3_bind_blob64(s, at, b->data(), b->size(), SQLITE_STATIC));
    } else {
      check(sqlite3_bind_null(s, at));
    }
  }
};

SqliteSink::SqliteSink(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SqliteSink::~SqliteSink() = default;

Result<std::unique_ptr<SqliteSink>> SqliteSink::open(const std::string& path, bool detail, bool inlined) {
  auto impl = std::make_unique<Impl>();
  impl->detail = detail;
  impl->inlined = inlined;
  impl->path = path;
  if (path != ":memory:") {
    if (auto refused = refuse_input(path)) return std::unexpected(std::move(*refused));
    if (!replaceable(path)) {
      return fail(Code::kCannotWrite, path, Error::kNoOffset, "there is a file that is no database of asof",
                  "choose another file with -o, or remove this one");
    }
    if (const auto made = impl->make_file(); !made) return std::unexpected(made.error());
  }
  // One thread at a time uses it.
  impl->check(sqlite3_open_v2((impl->unfinished.empty() ? path : impl->unfinished).c_str(), &impl->db,
                              SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr));
  // The file is made completely or not at all: no journal. The mark is written at once, so that what an
  // interrupted run leaves can be replaced.
  impl->run("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;");
  impl->run(kMark);
  impl->run(("PRAGMA user_version=" + std::to_string(kSchemaVersion)).c_str());
  impl->run("BEGIN;");
  for (size_t i = 0; i < (detail ? kTables.size() : kBlocks) && impl->error.empty(); ++i) {
    const SqliteTable& t = kTables[i];
    impl->run(("CREATE TABLE " + std::string(t.name) + " (" + t.columns + ")").c_str());
    std::string marks = "?";
    for (int n = 1; n < t.count; ++n) marks += ",?";
    const std::string sql = "INSERT INTO " + std::string(t.name) + " VALUES (" + marks + ")";
    impl->check(sqlite3_prepare_v2(impl->db, sql.c_str(), -1, &impl->insert[i], nullptr));
  }
  impl->run(kViews);
  if (detail) impl->run(kDetailViews);
  if (!impl->error.empty()) {
    return fail(Code::kCannotWrite, path, Error::kNoOffset, "cannot write: " + impl->error,
                "choose another file with -o");
  }
  return std::unique_ptr<SqliteSink>(new SqliteSink(std::move(impl)));
}

void SqliteSink::keep_only(const std::set<std::string>& names) {
  for (size_t i = 0; i < kTables.size(); ++i) impl_->left_out[i] = !names.contains(kTables[i].name);
  impl_->depths = names.contains("depth");
}

void SqliteSink::index_only(const std::set<std::string>& names) { impl_->only_indices = names; }

void SqliteSink::begin(const Capture& capture) {
  impl_->capture = &capture;
  impl_->call_depths = CallDepths(capture.streams.size());
  if (impl_->detail) impl_->code = std::make_unique<CodeText>(capture, impl_->inlined);
}

void SqliteSink::track(const TimelineTrack& t) {
  const std::string_view kind = t.kind == TimelineTrack::Kind::kCpu ? "cpu" : "thread";
  impl_->row(kTracks, number(t.id), kind, int64_t{t.cpu}, int64_t{t.pid}, int64_t{t.tid},
             std::string_view(t.name));
}

void SqliteSink::function(const TimelineFunction& f) {
  if (impl_->functions.size() <= f.id) impl_->functions.resize(size_t{f.id} + 1);
  impl_->functions[f.id].key = static_cast<int64_t>(f.key);
  impl_->row(kFunctions, number(f.key), std::string_view(f.name), function_kind_name(f.kind),
             std::string_view(f.dso), number(f.range.begin), number(f.range.size()), number(f.versions()),
             number(f.bpf_id), std::string_view(f.bpf_tag), std::string_view(f.linkage_name));
}

void SqliteSink::called(uint32_t function) { impl_->functions[function].called = true; }

void SqliteSink::slice(const Slice& s) {
  called(s.function);
  if (impl_->left_out[kCalls]) return;
  if (impl_->depths) impl_->call_depths.add(s.id, s.parent);
  const std::string flags = slice_flag_names(s.flags);
  impl_->row(kCalls, number(s.id), number(s.parent), number(s.track), impl_->functions[s.function].key,
             time_value(s.begin), time_value(s.end), number(s.instructions), number(s.self_instructions),
             number(s.entry), number(s.call_site), std::string_view(flags), number(s.version),
             impl_->source_of(s.origin), confidence_name(s.confidence), int64_t{s.cpu}, Value{});
}

void SqliteSink::around(uint64_t id, uint64_t parent) { impl_->call_depths.add(id, parent); }

void SqliteSink::run(const RunSlice& r) {
  const std::string flags = slice_flag_names(r.flags);
  impl_->row(kRuns, int64_t{r.cpu}, int64_t{r.pid}, int64_t{r.tid}, std::string_view(r.comm),
             time_value(r.begin), time_value(r.end), std::string_view(flags));
}

void SqliteSink::gap(const GapSlice& g) {
  const std::string flags = slice_flag_names(g.flags);
  impl_->row(kGaps, int64_t{g.cpu}, int64_t{g.tid}, time_value(g.begin), time_value(g.end),
             family_text(family_of(g.code)), code_text(g.code), std::string_view(g.reason), number(g.ip),
             number(g.resume_ip), number(g.bytes), number(g.file_offset), std::string_view(flags));
}

void SqliteSink::event(const EventMark& e) {
  impl_->row(kEvents, int64_t{e.cpu}, int64_t{e.tid}, time_value(e.event.time), event_name(e.event.kind),
             number(e.event.ip), number(e.event.a), number(e.event.b));
}

void SqliteSink::poke(const PokeSlice& p) {
  const std::string bytes = poke_bytes(*impl_->capture, p);
  impl_->row(kPokes, number(p.index + 1), time_value(p.time), number(p.address), std::string_view(p.symbol),
             mechanism_name(p.mechanism), std::string_view(p.action), std::string_view(bytes),
             time_value(p.begin), time_value(p.end), number(p.breakpoints));
  for (const PokeVisit& v : p.visits) {
    impl_->row(kVisits, number(p.index + 1), int64_t{v.cpu}, time_value(v.last_old), time_value(v.first_new),
               number(v.breakpoints));
  }
}

void SqliteSink::lifetime(const LifetimeSlice& l) {
  const bool seen = l.seen.lo <= l.seen.hi;
  impl_->row(kLifetimes, lifetime_kind_name(l.kind), std::string_view(l.name), number(l.range.begin),
             number(l.range.size()), time_value(l.begin), time_value(l.end), number(l.bpf_id),
             std::string_view(l.bpf_tag), seen ? time_value(l.seen.lo) : time_value(l.begin),
             seen ? time_value(l.seen.hi) : time_value(l.end));
}

void SqliteSink::counter(const CounterPoint& p) {
  constexpr std::array<std::string_view, 3> kNames = {"text version", "instructions/us", "coverage"};
  impl_->row(kCounters, kNames[static_cast<size_t>(p.kind)], int64_t{p.cpu}, time_value(p.time), p.value);
}

void SqliteSink::block(const BlockSlice& b) {
  if (!impl_->detail) return;
  const FlowPiece& p = b.piece;
  const CodeRun& run = impl_->code->of(b);
  if (run.id >= impl_->code_rows) {
    ++impl_->code_rows;
    impl_->row(kCode, number(run.id), number(p.ip), std::string_view(run.symbol), number(run.text.size()),
               number(run.instructions.size()), Bytes(run.text), std::string_view(run.origin_text));
    uint64_t k = 0;
    for (const CodeInstruction& i : run.instructions) {
      const std::string file = plain_text(i.source.file);
      impl_->row(kCodeInstructions, number(run.id), number(k++), number(i.address), std::string_view(i.bytes),
                 std::string_view(i.text), i.source ? Value(std::string_view(file)) : Value{},
                 i.source ? number(i.source.line) : Value{},
                 i.inlined.empty() ? Value{} : Value(std::string_view(i.inlined)));
    }
  }
  const size_t last_size = p.lengths.empty() ? 0 : p.lengths.back();
  const Addr last = p.ip + p.text.size() - last_size;
  const bool taken = p.taken && p.to != 0;
  impl_->row(kBlocks, number(b.id), int64_t{b.cpu}, int64_t{b.tid}, b.in != 0 ? number(b.in) : Value{},
             time_value(b.begin), time_value(b.end), number(run.id), number(b.instructions + 1),
             taken ? Value(branch_flags(p.branch, std::span(p.text).last(last_size))) : Value{},
             taken ? number(last) : Value{}, taken ? number(p.to) : Value{}, confidence_name(p.confidence));
}

void SqliteSink::cycles(const CycleCosts& costs) {
  using Text = std::string_view;
  const auto bounds = [&](SqliteTableId table, const CycleCost& c, const auto&... first) {
    impl_->row(table, first..., number(c.cycles_least), number(c.cycles_most), number(c.instructions_least),
               number(c.instructions_most));
  };
  for (const FunctionCycles& f : costs.functions())
    bounds(kFunctionCycles, f.cost, Text(f.name), Text(f.dso));
  for (const BlockCycles& b : costs.blocks()) {
    const std::string source = format_origin(*impl_->capture->text, b.origin);
    bounds(kBlockCycles, b.cost, number(b.address), Text(b.symbol), number(b.size), number(b.instructions),
           Text(source));
  }
  for (const CallCycles& c : costs.calls())
    impl_->row(kCallCycles, Text(c.caller), Text(c.callee), number(c.calls), number(c.least), number(c.most));
}

std::vector<Notice> SqliteSink::take_notices() {
  return impl_->code ? impl_->code->take_notices() : std::vector<Notice>();
}

bool SqliteSink::stopped() const { return !impl_->error.empty() || interrupted(); }

// Kernel text that changed: each piece of it with what it was, and when.
void SqliteSink::text_versions() {
  if (impl_->left_out[kVersions] || impl_->capture == nullptr || !impl_->capture->text) return;
  const TextStore& text = *impl_->capture->text;
  for (const Cell& cell : text.cells(kKernelSpace, {Addr{1} << 63U, UINT64_MAX})) {
    if (cell.versions.empty() || cell.stable()) continue;
    uint64_t number_of = 0;
    for (const Version& v : cell.versions) {
      const auto at =
          impl_->capture->symbols.find(kKernelSpace, cell.range.begin, std::max(v.from, kTimeMin + 1));
      const std::string source = format_origin(text, v.origin),
                        symbol = at ? at->symbol->shown() : std::string();
      impl_->row(kVersions, number(cell.range.begin), number(cell.range.size()), number(++number_of),
                 time_value(v.from), time_value(v.until),
                 v.bytes != nullptr ? Value(Bytes(v.bytes, cell.range.size())) : Value{},
                 std::string_view(source), std::string_view(symbol),
                 int64_t{!v.unsure && std::ranges::count_if(cell.versions, [&](const Version& other) {
                                        return other.possible_in({v.from, v.until});
                                      }) == 1});
    }
  }
}

// Which others the flow is in for an instant (a thunk, say) depends on who follows it, and how.
void SqliteSink::remove_uncalled() {
  for (const auto& f : impl_->functions) {
    if (!f.called) impl_->run(("DELETE FROM functions WHERE id = " + std::to_string(f.key)).c_str());
  }
}

void SqliteSink::fill_depths() {
  impl_->call_depths.finish();
  const auto depth = [](sqlite3_context* context, int, sqlite3_value** arguments) {
    const auto* all = static_cast<const CallDepths*>(sqlite3_user_data(context));
    sqlite3_result_int64(context, all->of(static_cast<uint64_t>(sqlite3_value_int64(arguments[0]))));
  };
  const auto name = [&](void (*function)(sqlite3_context*, int, sqlite3_value**)) {
    impl_->check(sqlite3_create_function_v2(impl_->db, "depth_of", 1, SQLITE_UTF8 | SQLITE_DETERMINISTIC,
                                            &impl_->call_depths, function, nullptr, nullptr, nullptr));
  };
  name(depth);
  impl_->run("UPDATE calls SET depth = depth_of(id);");
  name(nullptr);
  impl_->call_depths = CallDepths();
}

void SqliteSink::indices(bool of_detail) {
  for (const SqliteIndex& index : kIndices) {
    const bool wanted = !impl_->only_indices || impl_->only_indices->contains(index.name);
    if (index.detail == of_detail && wanted && impl_->error.empty()) impl_->run(create_index(index).c_str());
  }
}

Result<void> SqliteSink::finish() {
  text_versions();
  remove_uncalled();
  indices(false);
  if (impl_->error.empty() && impl_->depths) fill_depths();
  if (impl_->detail) indices(true);
  if (impl_->error.empty()) impl_->run("COMMIT;");
  impl_->name_file();
  if (impl_->error.empty()) return {};
  return fail(Code::kCannotWrite, impl_->path, Error::kNoOffset, "cannot write: " + impl_->error,
              "is the disk full?");
}

sqlite3* SqliteSink::database() { return impl_->db; }

}  // namespace asof
