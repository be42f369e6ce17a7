// perf's line: tools/perf/builtin-script.c (perf_sample__fprintf_brstack). BOLT's: bolt/docs/profiles.md of
// LLVM.
#include "tools/profile/branch_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "decoder/perf/records.h"
#include "textstore/plain_text.h"
#include "tools/decode/decode_style.h"
#include "tools/output/csv.h"

namespace asof {

BranchNames::BranchNames(const Capture& capture, std::vector<std::string> dsos)
    : capture_(capture), dsos_(std::move(dsos)), epochs_(capture.symbols) {}

BranchEnd BranchNames::at(Space space, Addr a, Time t) {
  if (is_kernel_address(a)) space = kKernelSpace;
  NamedBranchEnd& e = entries_[{space, a}];
  if (t >= e.valid.lo && t <= e.valid.hi) return e.end;
  e.valid = epochs_.around(space, {a, a + 1}, t);
  const auto found = capture_.symbols.find(space, a, t);
  e.end.symbol = found ? found->symbol : nullptr;
  const auto is_named = [&](const std::string& dso) {
    const std::string& own = e.end.symbol->dso;
    return own == dso || own.ends_with("/" + dso);  // as in perf, the file name alone is enough
  };
  e.end.wanted = dsos_.empty() || (e.end.symbol != nullptr && std::ranges::any_of(dsos_, is_named));
  return e.end;
}

bool BranchNames::holds(Space space, Addr a) const {
  if (is_kernel_address(a)) space = kKernelSpace;
  const TimeBounds valid = epochs_.around(space, {a, a + 1}, 0);
  return valid.lo == kTimeMin && valid.hi == kTimeMax;
}

namespace {

class PerfScriptWriter final : public BranchWriter {
 public:
  PerfScriptWriter(const Capture& capture, BranchNames& names, Write write)
      : capture_(capture), names_(names), write_(std::move(write)) {}

  void take(const TakenBranch& b) override {
    if (!started_) start();
    const bool wanted =
        names_.at(b.from_space, b.from, b.time).wanted || names_.at(b.to_space, b.to, b.time).wanted;
    // A stack is of branches that follow each other: readers take the code in between as executed.
    if (!b.follows || !wanted || stack_.size() == kLongest) flush();
    if (wanted) stack_.push_back(b);
  }
  void finish() override {
    if (!started_) start();
    flush();
  }

 private:
  void start() {
    started_ = true;
    if (!capture_.perf) return;
    capture_.perf->for_each([&](const Record& r) {
      const std::string type = record_type_name(r.type);
      if (type != "MMAP" && type != "MMAP2") return true;
      const auto m = parse_mmap(r);
      if (m && m->executable) write_mapping(*m);
      return true;
    });
  }
  void write_mapping(const MmapRecord& m) {
    write_(fmt::format("PERF_RECORD_MMAP2 {}/{}: [{:#x}({:#x}) @ {:#x} {:02x}:{:02x} {} {}]: r-xp {}\n",
                       m.pid, m.tid, m.addr, m.len, m.pgoff, m.maj, m.min, m.inode, m.inode_generation,
                       plain_text(m.filename)));
  }
  void flush() {
    if (stack_.empty()) return;
    std::string line = fmt::format("{:16x} ", stack_.back().to);
    for (auto b = stack_.rbegin(); b != stack_.rend(); ++b)
      fmt::format_to(std::back_inserter(line), " {:#x}/{:#x}/-/-/-/0 ", b->from, b->to);
    write_(line + "\n");
    stack_.clear();
  }

  // Hardware has 32; readers take any number. Code between two stacks is in neither.
  static constexpr size_t kLongest = 1024;
  const Capture& capture_;
  BranchNames& names_;
  Write write_;
  bool started_ = false;
  std::vector<TakenBranch> stack_;  // oldest first
};

struct PairHash {
  size_t operator()(const std::tuple<Addr, Addr, bool>& k) const {
    return ((std::get<0>(k) * kHashFactor) ^ std::get<1>(k) ^ static_cast<uint64_t>(std::get<2>(k))) *
               kHashFactor >>
           16U;
  }
};

class BoltWriter final : public BranchWriter {
 public:
  BoltWriter(BranchNames& names, Addr base, Write write)
      : names_(names), base_(base), write_(std::move(write)) {}

  void take(const TakenBranch& b) override {
    const BranchEnd from = names_.at(b.from_space, b.from, b.time);
    const BranchEnd to = names_.at(b.to_space, b.to, b.time);
    if (b.follows && wanted_ && from.wanted && b.from >= last_to_) ++falls_[{last_to_, b.from, external_}];
    last_to_ = b.to;
    wanted_ = to.wanted;
    external_ = from.symbol != to.symbol;
    if (from.wanted || to.wanted)
      ++branches_[{from.wanted ? b.from - base_ : 0, to.wanted ? b.to - base_ : 0, false}];
  }
  void finish() override {
    for (const auto& [key, count] : sorted(branches_))
      write_(fmt::format("B {:x} {:x} {} 0\n", std::get<0>(key), std::get<1>(key), count));
    for (const auto& [key, count] : sorted(falls_)) {
      write_(fmt::format("{} {:x} {:x} {}\n", std::get<2>(key) ? 'f' : 'F', std::get<0>(key) - base_,
                         std::get<1>(key) - base_, count));
    }
  }

 private:
  using Key = std::tuple<Addr, Addr, bool>;
  using Counts = tsl::robin_map<Key, uint64_t, PairHash>;
  static std::vector<std::pair<Key, uint64_t>> sorted(const Counts& counts) {
    std::vector<std::pair<Key, uint64_t>> out(counts.begin(), counts.end());
    std::ranges::sort(out);
    return out;
  }
  BranchNames& names_;
  Addr base_;
  Write write_;
  Counts branches_, falls_;
  Addr last_to_ = 0;
  bool wanted_ = false, external_ = false;
};

std::string name_fields(const Symbol* s) {
  return s == nullptr ? "," : csv_field(s->shown()) + "," + csv_field(s->dso);
}

}  // namespace

std::unique_ptr<BranchWriter> make_perf_script_writer(const Capture& capture, BranchNames& names,
                                                      BranchWriter::Write write) {
  return std::make_unique<PerfScriptWriter>(capture, names, std::move(write));
}
std::unique_ptr<BranchWriter> make_bolt_writer(BranchNames& names, Addr base, BranchWriter::Write write) {
  return std::make_unique<BoltWriter>(names, base, std::move(write));
}

void BranchCounts::write_csv(const BranchWriter::Write& write) const {
  // Symbols of different processes can have the same names: such rows are one.
  std::map<std::tuple<Addr, Addr, std::string>, uint64_t> rows;
  for (const auto& [k, count] : counts_) {
    const std::string rest = fmt::format("{},{},{}", k.kind, name_fields(k.left), name_fields(k.entered));
    rows[{k.from, k.to, rest}] += count;
  }
  write("from,to,count,kind,from_symbol,from_dso,to_symbol,to_dso\n");
  for (const auto& [row, count] : rows) {
    const auto& [from, to, rest] = row;
    write(fmt::format("{:#x},{:#x},{},{}\n", from, to, count, rest));
  }
}

}  // namespace asof
