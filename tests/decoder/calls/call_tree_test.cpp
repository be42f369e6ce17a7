// Slices against the true call tree: random programs on the simulated machine (calls, returns, tail calls,
// recursion, system calls, interrupts), traced, written as a capture, opened and decoded; then the same with
// pieces of the trace destroyed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "decoder/calls/timeline.h"
#include "tests/decoder/capture_test_util.h"
#include "tests/support/assembler.h"
#include "tests/support/capture_builder.h"
#include "tests/support/sim_random.h"

namespace asof::test {
namespace {

constexpr Addr kKernel = 0xffffffff81000000, kUser = 0x401000;
constexpr int kFunctions = 7;
constexpr uint64_t kTicks = 40'000;

class RandomProgram {
 public:
  RandomProgram(uint64_t seed, bool user, bool recursion)
      : random_(seed), a_(user ? kUser : kKernel), prefix_(user ? "u" : "k"), recursion_(recursion) {
    if (!user) {
      a_.function("timer").straight(3).call("tick").straight(1).iret();
      a_.function("tick").straight(2).jcc8(Cond::kEqual, "tick.l").straight(5).label("tick.l").ret();
      a_.function("entry").straight(6).call("k1").straight(2).sysret();
    }
    for (int f = 0; f < kFunctions; ++f) function(f, user);
    bytes_ = a_.finish();
    bytes_.resize((bytes_.size() + 15) / 16 * 16 + 16, 0xcc);
  }
  Addr address(const std::string& name) const { return a_.address(name); }
  const Bytes& bytes() const { return bytes_; }
  const Assembler& code() const { return a_; }
  void rules(Machine& m) const {
    for (const auto& [label, targets] : indirect_) {
      std::vector<Addr> to;
      for (const std::string& t : targets) to.push_back(a_.address(t));
      m.on_indirect(a_.address(label), [to](SimCpu& c) { return to[c.random.below(to.size())]; });
    }
  }

 private:
  std::string name(int f) const { return fmt::format("{}{}", prefix_, f); }
  std::string label() { return fmt::format("{}.l{}", prefix_, next_++); }
  int later(int f) { return static_cast<int>(random_.between(static_cast<uint64_t>(f) + 1, kFunctions - 1)); }

  void function(int f, bool user) {
    a_.function(name(f));
    if (random_.chance(50)) a_.endbr64();
    const std::string top = label();
    a_.label(top).straight(static_cast<unsigned>(f));
    for (uint64_t n = random_.between(2, 4); n != 0; --n) piece(f, user);
    if (f == 0) {
      a_.jcc8(Cond::kEqual, top).jmp32(top);
      return;
    }
    if (recursion_ && random_.chance(50)) {
      const std::string skip = label();
      a_.jcc8(Cond::kNotEqual, skip).call(name(f)).straight(1).label(skip);
    }
    if (f + 1 < kFunctions && random_.chance(30)) {
      a_.straight(2).jmp32(name(later(f)));
      return;
    }
    if (f + 1 < kFunctions && random_.chance(30)) a_.jcc32(Cond::kSign, name(later(f)));
    a_.straight(0).ret();
  }
  void piece(int f, bool user) {
    a_.straight(static_cast<unsigned>(random_.below(Assembler::kStraightKinds)));
    const uint64_t what = random_.below(user ? 5 : 4);
    if (what == 0) {
      const std::string skip = label();
      a_.jcc8(Cond::kLess, skip).straight(3).label(skip);
    } else if (what == 1 && f + 1 < kFunctions) {
      a_.call(name(later(f)));
    } else if (what == 2 && f + 1 < kFunctions) {
      const std::string at = label();
      a_.label(at).call_rax();
      std::vector<std::string> to;
      for (int i = f + 1; i < kFunctions; ++i) to.push_back(name(i));
      indirect_.emplace_back(at, to);
    } else if (what == 4) {
      a_.syscall();
    }
  }

  SimRandom random_;
  Assembler a_;
  std::string prefix_;
  bool recursion_;
  Bytes bytes_;
  std::vector<std::pair<std::string, std::vector<std::string>>> indirect_;
  int next_ = 0;
};

struct Activation {
  std::string function{};
  Addr entry = 0, site = 0;
  size_t parent = SIZE_MAX;
  uint64_t begin = 0, end = 0;  // numbers of instructions
  bool async = false, syscall = false, tail = false;
};

// A recorded run of two CPUs.
class Recorded {
 public:
  // `losses`: how many times on each CPU the trace buffer, or the trace unit's own buffer, overflows.
  Recorded(uint64_t seed, bool recursion, unsigned losses = 0)
      : random_(seed * 31 + 7), kernel_(seed, false, recursion), user_(seed + 1000, true, recursion) {
    MachineConfig c;
    c.seed = seed;
    c.trace.return_compression = random_.chance(70);
    c.trace.cyc = random_.chance(40);
    c.trace.psb_bytes = static_cast<uint32_t>(random_.between(100, 700));
    c.syscall_entry = kernel_.address("entry");
    machine_ = std::make_unique<Machine>(c);
    machine_->memory().load(kKernelSpace, kKernel, kernel_.bytes());
    machine_->memory().load(1, kUser, user_.bytes());
    kernel_.rules(*machine_);
    user_.rules(*machine_);
    for (unsigned i = 0; i < c.cpus; ++i) {
      const int32_t id = 100 + static_cast<int32_t>(i);
      machine_->run_task(i, machine_->add_task(id, id, "t", 1, user_.address("u0"), 0), user_.address("u0"));
      machine_->start_trace(i);
      for (uint64_t t = c.tsc_start; t < c.tsc_start + kTicks; t += random_.between(500, 4000))
        machine_->interrupt_at(t + 300, i, kernel_.address("timer"));
    }
    for (unsigned i = 0; i < c.cpus; ++i) lose(i, losses);
    machine_->run_until(c.tsc_start + kTicks);
    for (unsigned i = 0; i < c.cpus; ++i) machine_->stop_trace(i);
    write();
  }

  Timeline timeline() const {
    CaptureOptions options = closed_options();
    options.symfs = (dir_ / "symfs").string();
    const auto capture = open_capture((dir_ / "perf.data").string(), options);
    EXPECT_TRUE(capture) << capture.error().reason;
    TimelineOptions one_track;
    one_track.thread_tracks = false;
    auto t = make_timeline(*capture, one_track, {.slices = 0});
    EXPECT_TRUE(t) << t.error().reason;
    return std::move(*t);
  }
  const std::vector<Executed>& executed(unsigned cpu) const {
    return machine_->cpu(cpu).truth.instructions();
  }
  const Bytes& trace(unsigned cpu) const { return machine_->cpu(cpu).tracer.writer().bytes(); }

  // Overwrites pieces of a CPU's trace with bytes that are not a packet.
  void destroy(unsigned cpu, unsigned pieces, SimRandom& random) const {
    constexpr uint8_t kNoPacket = 0xd9;
    const auto file = dir_ / "perf.data/data";
    Bytes all = read_bytes(file);
    const auto at = std::ranges::search(all, trace(cpu));
    ASSERT_FALSE(at.empty());
    for (; pieces != 0; --pieces) {
      const uint64_t size = random.between(3, 30), from = random.below(trace(cpu).size() - size);
      std::fill_n(at.begin() + static_cast<ptrdiff_t>(from), size, kNoPacket);
    }
    write_bytes(file, all);
  }

  std::vector<Activation> tree(unsigned cpu) const;

 private:
  // One after the other: tracing must be on where a loss ends.
  void lose(unsigned cpu, unsigned losses) {
    for (unsigned n = 0; n < losses; ++n) {
      const uint64_t slot = kTicks / losses, begin = machine_->config().tsc_start + n * slot;
      const uint64_t from = begin + random_.below(slot / 2),
                     until = from + random_.between(slot / 20, slot / 2 - 1);
      if (random_.chance(50)) {
        machine_->lose_trace_at(from, until, cpu);
      } else {
        machine_->overflow_at(from, until, cpu);
      }
    }
  }
  void write() {
    CaptureSpec s;
    s.kcore = {{kKernel, kernel_.bytes()}};
    s.text_begin = kKernel, s.text_end = kKernel + kernel_.bytes().size();
    s.symbols.push_back({kKernel, 'T', "_text", ""});
    for (const CodeSymbol& y : kernel_.code().symbols()) s.symbols.push_back({y.address, 'T', y.name, ""});
    s.symbols.push_back({s.text_end, 'T', "_etext", ""});
    UserProgram p;
    p.path = "/opt/test/program";
    p.elf.address = kUser;
    p.elf.text = user_.bytes();
    for (const CodeSymbol& y : user_.code().symbols()) p.elf.symbols.push_back({y.name, y.address, y.size});
    for (unsigned i = 0; i < 20; ++i) p.elf.build_id.push_back(static_cast<uint8_t>(0x10 + i));
    p.pids = {100, 101};
    s.programs.push_back(p);
    write_capture(*machine_, s, dir_.path(), "");
  }
  const std::string& function_at(Addr a) const {
    const auto& symbols = (is_kernel_address(a) ? kernel_ : user_).code().symbols();
    return std::prev(std::ranges::upper_bound(symbols, a, {}, &CodeSymbol::address))->name;
  }
  // The address of the flow after instruction i; interrupts taken there are skipped.
  Addr next_ip(const std::vector<Executed>& all, size_t i) const {
    size_t n = i + 1;
    if (n < all.size() && all[n].ip == kernel_.address("timer")) {
      while (n < all.size() && !is_iret(all[n])) ++n;
      ++n;
    }
    return n < all.size() ? all[n].ip : 0;
  }
  static bool is_iret(const Executed& e) { return e.bytes[0] == 0x48 && e.bytes[1] == 0xcf; }

  TempDir dir_;
  SimRandom random_;
  RandomProgram kernel_, user_;
  std::unique_ptr<Machine> machine_;
};

// By the meaning of the instructions alone, with the complete past known.
std::vector<Activation> Recorded::tree(unsigned cpu) const {
  const auto& all = executed(cpu);
  std::vector<Activation> out;
  std::vector<size_t> stack;
  const auto open = [&](Activation a, size_t at) {
    a.parent = stack.empty() ? SIZE_MAX : stack.back();
    a.begin = at;
    a.function = function_at(a.entry);
    stack.push_back(out.size());
    out.push_back(std::move(a));
  };
  const auto close = [&](size_t at) {
    out[stack.back()].end = at;
    stack.pop_back();
  };
  open({.entry = all[0].ip}, 0);
  for (size_t i = 0; i < all.size(); ++i) {
    const Executed& e = all[i];
    const Addr to = next_ip(all, i);
    const auto& b = e.bytes;
    const bool back = b[0] == 0xc3 || is_iret(e) || (b[0] == 0x48 && b[1] == 0x0f && b[2] == 0x07);
    if (back && i + 1 < all.size()) {
      close(i + 1);
    } else if (to == 0) {
      // No instruction was executed after it.
    } else if (b[0] == 0xe8 || (b[0] == 0xff && b[1] == 0xd0)) {
      open({.entry = to, .site = e.ip}, i + 1);
    } else if (b[0] == 0x0f && b[1] == 0x05) {
      open({.entry = to, .site = e.ip, .syscall = true}, i + 1);
    } else if (function_at(to) != function_at(e.ip)) {
      const Addr site = out[stack.back()].site;
      close(i + 1);
      open({.entry = to, .site = site, .tail = true}, i + 1);
    }
    if (i + 1 < all.size() && all[i + 1].ip == kernel_.address("timer"))
      open({.entry = all[i + 1].ip, .site = to, .async = true}, i + 1);
  }
  while (!stack.empty()) close(all.size());
  return out;
}

std::vector<const Slice*> slices_of(const Timeline& t, int cpu) {
  std::vector<const Slice*> out;
  for (const Slice& s : t.slices) {
    const TimelineTrack& track = t.tracks.at(s.track);
    if (track.kind == TimelineTrack::Kind::kCpu && track.cpu == cpu) out.push_back(&s);
  }
  std::ranges::sort(out, {}, &Slice::id);
  return out;
}

TEST(CallTree, EqualsTheTrueOne) {
  size_t tails = 0, asyncs = 0, recursions = 0, syscalls = 0;
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    const Recorded run(seed, true);
    const Timeline t = run.timeline();
    EXPECT_TRUE(t.gaps.empty());
    for (unsigned cpu = 0; cpu < 2; ++cpu) {
      const auto want = run.tree(cpu);
      auto got = slices_of(t, static_cast<int>(cpu));
      // The last instruction was a call, and the trace ended before the first instruction of its function.
      while (got.size() > want.size() && got.back()->instructions == 0) got.pop_back();
      ASSERT_GE(got.size(), want.size()) << seed;
      for (size_t i = 0; i < want.size(); ++i) {
        const Activation& w = want[i];
        const Slice& g = *got[i];
        const std::string where = fmt::format("seed {} CPU {} slice {} {} [{}]", seed, cpu, i, w.function,
                                              slice_flag_names(g.flags));
        ASSERT_EQ(t.functions.at(g.function).name, w.function) << where;
        ASSERT_EQ(g.parent, w.parent == SIZE_MAX ? 0 : got[w.parent]->id) << where;
        ASSERT_EQ(g.instructions, w.end - w.begin) << where;
        ASSERT_EQ(g.entry, w.entry) << where;
        if (w.site != 0) {
          ASSERT_EQ(g.call_site, w.site) << where;
        }
        ASSERT_EQ((g.flags & Slice::kTail) != 0, w.tail) << where;
        ASSERT_GE((g.flags & Slice::kAsync) != 0, w.async) << where;
        ASSERT_GE((g.flags & Slice::kSyscall) != 0, w.syscall) << where;
        ASSERT_EQ(g.flags & (Slice::kUnbalanced | Slice::kSkipped | Slice::kAcrossGap), 0U) << where;
        tails += w.tail, asyncs += w.async, syscalls += w.syscall;
        recursions += w.parent != SIZE_MAX && want[w.parent].function == w.function;
      }
    }
  }
  EXPECT_GT(tails, 100U);
  EXPECT_GT(asyncs, 300U);
  EXPECT_GT(syscalls, 100U);
  EXPECT_GT(recursions, 100U);
}

// Slices nest, and every instruction is counted once.
std::map<uint64_t, const Slice*> expect_nested(const Timeline& t, uint64_t seed) {
  uint64_t self = 0;
  std::map<uint64_t, const Slice*> by_id;
  for (const Slice& s : t.slices) by_id[s.id] = &s;
  for (const Slice& s : t.slices) {
    self += s.self_instructions;
    if (s.parent == 0) continue;
    if (!by_id.contains(s.parent)) {
      ADD_FAILURE() << seed << ": no slice " << s.parent;
      continue;
    }
    const Slice& p = *by_id.at(s.parent);
    EXPECT_EQ(p.track, s.track) << seed;
    EXPECT_LE(p.begin, s.begin) << seed << " " << s.id;
    EXPECT_GE(p.end, s.end) << seed << " " << s.id;
    EXPECT_GE(p.instructions, s.instructions) << seed;
    EXPECT_EQ(s.depth, p.depth + 1) << seed;
  }
  EXPECT_EQ(self, t.summary.instructions) << seed;
  return by_id;
}

// Without recursion: user functions, the entry, the kernel's functions, and the two of the timer.
constexpr uint32_t kDeepest = kFunctions + 1 + (kFunctions - 1) + 2;

// Bytes of the trace are destroyed, so it may even show calls that never happened. Nevertheless no function
// may occur twice on a stack, so no stack is deeper than the program's deepest path.
TEST(CallTree, DamagedTraceNestsAndStaysFlat) {
  SimRandom random(5);
  size_t gaps = 0;
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    const Recorded run(seed, false);
    for (unsigned cpu = 0; cpu < 2; ++cpu) run.destroy(cpu, 4, random);
    const Timeline t = run.timeline();
    gaps += t.gaps.size();
    expect_nested(t, seed);
    for (const Slice& s : t.slices) EXPECT_LT(s.depth, kDeepest) << seed;
  }
  EXPECT_GT(gaps, 40U);
}

// Can `inner` have `outer` as its caller? Functions only call and jump to later ones of their own kind;
// system calls enter at one address, and the timer calls one function.
bool can_call(const std::string& outer, const std::string& inner, bool async) {
  if (async || inner == "timer") return inner == "timer" && outer != inner;
  if (outer == "timer" || inner == "tick") return outer == "timer" && inner == "tick";
  if (inner == "entry") return outer[0] == 'u';
  if (outer == "entry") return inner[0] == 'k';
  return outer[0] == inner[0] && outer < inner;
}

// Parts of the trace are missing, but nothing in it is false. Every call that is shown is one that the
// program can make, whatever was lost in between.
TEST(CallTree, LossesInventNoCalls) {
  size_t gaps = 0, calls = 0;
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    const Recorded run(seed, false, 8);

    const Timeline t = run.timeline();
    gaps += t.gaps.size();
    const auto by_id = expect_nested(t, seed);
    for (const Slice& s : t.slices) {
      EXPECT_LT(s.depth, kDeepest) << seed;
      if (s.parent == 0) continue;
      ++calls;
      const std::string& inner = t.functions.at(s.function).name;
      const std::string& outer = t.functions.at(by_id.at(s.parent)->function).name;
      if (t.functions.at(s.function).kind == TimelineFunction::Kind::kUntraced) continue;
      EXPECT_TRUE(can_call(outer, inner, (s.flags & Slice::kAsync) != 0))
          << seed << ": " << outer << " > " << inner << " " << slice_flag_names(s.flags);
    }
  }
  EXPECT_GT(gaps, 200U);
  EXPECT_GT(calls, 10'000U);
}

}  // namespace
}  // namespace asof::test
