// perf script -i CAPTURE --ns --itrace=i0nse -F cpu,time,ip,insn | perf_compare TRUTH_DIR
//
// Compares what perf decoded with what was executed, using the same comparison as `asof validate` for asof's
// own decoding. Instructions arrive as lines "[000]  11.126672123:  ffffffff81c00080 insn: 0f 01 f8"; a line
// with "instruction trace error" is a gap of the CPU that it names. With the field `event` after the time, lines of events
// other than `instructions` or `branches` are passed over: a recording's own samples have addresses, too, and perf prints
// the instruction there. Of a recording with --per-thread:
//
// perf script -i CAPTURE --itrace=i0nse -F tid,ip,insn | perf_compare TRUTH_DIR
//
// A thread of which each CPU's part has a truth of its own (CoreSight) is compared with all of them, by their times.
//
// perf script -i CAPTURE --ns --itrace=b -F cpu,time,ip,addr | perf_compare --branches TRUTH_DIR
//
// The same for CoreSight, for which perf prints branches, "[000]  2.458877728:  ffff800008010c00 =>
// ffff800008010c0c": A64 instructions ran from the target of one branch to the source of the next. Their
// times are meaningless (perf gives the same one to a whole buffer) and are ignored; address 0 is an end or a
// beginning of trace.
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <deque>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/validate/compare.h"

namespace {

using namespace asof;

// perf interpolates the time of an instruction between packets; it may be off by this much.
constexpr Time kPerfSlack = 10'000;  // ns
constexpr uint32_t kPieceInstructions = 64;

struct Line {
  TruthId id;  // the CPU or thread
  Time time = kTimeMin;
  Addr ip = 0;
  uint8_t length = 0;
  Addr to = 0;  // of a branch
};

std::string_view trimmed(std::string_view s) {
  const size_t first = s.find_first_not_of(' ');
  return first == std::string_view::npos ? std::string_view() : s.substr(first);
}

template <class T>
bool take_number(std::string_view& s, T& value, int base = 10) {
  s = trimmed(s);
  const auto parsed = std::from_chars(s.begin(), s.end(), value, base);
  if (parsed.ec != std::errc{}) return false;
  s.remove_prefix(static_cast<size_t>(parsed.ptr - s.begin()));
  return true;
}

// The event's name, if there is one: "instructions:u:". False: it is another than those that a trace decoder makes.
bool take_event(std::string_view& s) {
  s = trimmed(s);
  const std::string_view word = s.substr(0, s.find(' '));
  if (!word.ends_with(':')) return true;
  s.remove_prefix(word.size());
  return word.starts_with("instructions") || word.starts_with("branches");
}

std::optional<Line> parse(std::string_view s, bool branches) {
  Line line;
  s = trimmed(s);
  const bool cpu = s.starts_with('[');
  if (cpu) s.remove_prefix(1);
  int number = -1;
  if (!take_number(s, number) || number < 0 || (cpu && !s.starts_with(']'))) return {};
  if (cpu) s.remove_prefix(1);
  line.id = cpu ? TruthId{.cpu = number} : TruthId{.tid = number};
  if (cpu) {
    Time seconds = 0, fraction = 0;
    if (!take_number(s, seconds) || !s.starts_with('.')) return {};
    s.remove_prefix(1);
    const size_t before = s.size();
    if (!take_number(s, fraction) || before - s.size() != 9 || !s.starts_with(':')) return {};
    s.remove_prefix(1);
    line.time = seconds * 1'000'000'000 + fraction;
  }
  if (!take_event(s)) return {};
  if (!take_number(s, line.ip, 16)) return {};
  if (branches) {
    s = trimmed(s);
    if (!s.starts_with("=>")) return {};
    s.remove_prefix(2);
    return take_number(s, line.to, 16) ? std::optional(line) : std::nullopt;
  }
  const size_t bytes = s.find("insn:");
  if (bytes == std::string_view::npos) return {};
  s.remove_prefix(bytes + 5);
  for (unsigned byte = 0; take_number(s, byte, 16);) ++line.length;
  return line.length == 0 ? std::nullopt : std::optional(line);
}

// The runs of several truths in the order of their times.
class Runs {
 public:
  // False: it cannot be read.
  bool add(const std::string& file) {
    auto opened = TruthReader::open(file);
    if (opened) parts_.push_back({std::move(*opened), {}});
    return opened && advance(parts_.back());
  }
  bool next(TruthRun& run) {
    Part* first = nullptr;
    for (Part& p : parts_) {
      if (p.run && (first == nullptr || p.run->time < first->run->time)) first = &p;
    }
    if (first == nullptr) return false;
    run = *first->run;
    advance(*first);
    return true;
  }

 private:
  struct Part {
    TruthReader reader;
    std::optional<TruthRun> run;
  };
  static bool advance(Part& p) {
    TruthRun run;
    p.run = p.reader.next(run) ? std::optional(run) : std::nullopt;
    return !p.reader.error();
  }
  std::vector<Part> parts_;
};

class PerfCpu {
 public:
  void add_truth(const std::string& file) {
    if (!runs_.add(file)) return;
    if (!comparer_) comparer_.emplace([this](TruthRun& run) { return runs_.next(run); }, kPerfSlack);
  }
  bool usable() const { return comparer_.has_value(); }

  void add(const Line& line) {
    const bool follows = piece_.count != 0 && piece_.count < kPieceInstructions &&
                         line.ip == piece_.ip + piece_.bytes && line.time == piece_.time;
    if (!follows) {
      flush();
      piece_.ip = line.ip;
      piece_.time = line.time;
    }
    lengths_[piece_.count++] = line.length;
    piece_.bytes += line.length;
  }
  // A branch. The instructions between the last branch and this one ran.
  void add_branch(const Line& branch) {
    constexpr uint64_t kFar = 1 << 16;  // no code runs so many bytes without a branch
    if (arrived_ != 0 && branch.ip >= arrived_ && branch.ip - arrived_ < kFar) {
      for (Addr ip = arrived_; ip <= branch.ip; ip += 4)
        add({.id = branch.id, .time = kTimeMin, .ip = ip, .length = 4, .to = 0});
    }
    flush();
    arrived_ = branch.to;
  }
  void error(const std::string& text) {
    flush();
    comparer_->add_gap("perf", text);
    ++errors_;
  }
  void finish(TruthId id) {
    flush();
    comparer_->finish();
    const CompareResult& r = comparer_->result();
    fmt::print("{}: right {}, wrong {}, missing {}, late text {}, errors {}\n", truth_name(id), r.right,
               r.wrong, r.missing, r.late, errors_);
    for (const Difference& d : r.places) {
      fmt::print("  {}: {} instructions from {:#x}, where {:#x} ran\n",
                 d.kind == Difference::Kind::kWrong ? "wrong" : "missing", d.count, d.decoded_ip, d.truth_ip);
    }
  }

 private:
  void flush() {
    if (piece_.count == 0) return;
    piece_.lengths = kept_.emplace_back(lengths_.begin(), lengths_.begin() + piece_.count).data();
    comparer_->add(piece_);
    piece_ = {};
  }

  Runs runs_;
  std::optional<Comparer> comparer_;
  DecodedPiece piece_;
  std::array<uint8_t, kPieceInstructions> lengths_{};
  std::deque<std::vector<uint8_t>> kept_;
  uint64_t errors_ = 0;
  Addr arrived_ = 0;  // target of the last branch; 0: unknown
};

// The CPU, or else the thread, that a line with an error names.
TruthId named_in(std::string_view text) {
  int cpu = -1, tid = -1;
  const auto number_after = [&](std::string_view word, int& number) {
    const size_t at = text.find(word);
    if (at == std::string_view::npos) return;
    std::string_view rest = text.substr(at + word.size());
    take_number(rest, number);
  };
  number_after(" cpu ", cpu);
  number_after(" tid ", tid);
  return cpu >= 0 ? TruthId{.cpu = cpu} : TruthId{.tid = tid};
}

int run(const std::string& directory, bool branches) {
  const auto known = truth_ids(directory);
  if (!known) {
    fmt::print(stderr, "{}\n", known.error().reason);
    return 2;
  }
  std::map<TruthId, PerfCpu> cpus;
  for (const TruthId id : *known)
    cpus[id.tid < 0 ? id : TruthId{.tid = id.tid}].add_truth(truth_file(directory, id));
  uint64_t unread = 0;
  for (std::string text; std::getline(std::cin, text);) {
    if (text.find("instruction trace error") != std::string::npos) {
      if (const auto it = cpus.find(named_in(text)); it != cpus.end()) it->second.error(text);
      continue;
    }
    const auto line = parse(text, branches);
    const auto it = line ? cpus.find(line->id) : cpus.end();
    if (it == cpus.end() || !it->second.usable()) {
      ++unread;
    } else if (branches) {
      it->second.add_branch(*line);
    } else {
      it->second.add(*line);
    }
  }
  for (auto& [id, c] : cpus) {
    if (c.usable()) c.finish(id);
  }
  if (unread != 0) fmt::print("{} lines are no instructions of these CPUs\n", unread);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool branches = argc == 3 && std::string_view(argv[1]) == "--branches";
  if (argc != 2 && !branches) {
    std::fputs(
        "usage: perf script -i CAPTURE --ns --itrace=i0nse -F cpu,time,ip,insn | perf_compare TRUTH_DIR\n"
        "       perf script -i CAPTURE --ns --itrace=b -F cpu,time,ip,addr | perf_compare --branches "
        "TRUTH_DIR\n",
        stderr);
    return 1;
  }
  std::ios::sync_with_stdio(false);
  return run(argv[argc - 1], branches);
}
