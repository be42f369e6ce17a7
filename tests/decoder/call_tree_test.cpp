// Slices against the true call tree: random programs on the simulated machine (calls, returns, tail calls,
// recursion, system calls, interrupts), traced, written as a capture, opened and decoded; then the same with
// pieces of the trace destroyed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "decoder/timeline.h"
#include "tests/decoder/capture_lab.h"
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
  Recorded(uint64_t seed, bool recursion)
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

  // Overwrites pieces of a CPU's trace with what is no packet.
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
  // Where the flow went behind instruction i; interrupts taken there are passed over.
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

// By the instructions' meaning alone, with the whole past at hand.
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
      // Nothing executed behind it.
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
      // The last instruction called, and the trace ended before the first one of its function.
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

// What is left nests, is counted once, and is no deeper than what really ran. Without recursion: which of its
// activations the flow is in behind a gap, nobody could tell.
TEST(CallTree, DamagedTraceNestsAndStaysFlat) {
  SimRandom random(5);
  size_t gaps = 0;
  for (uint64_t seed = 1; seed <= 25; ++seed) {
    const Recorded run(seed, false);
    for (unsigned cpu = 0; cpu < 2; ++cpu) run.destroy(cpu, 4, random);
    const Timeline t = run.timeline();
    gaps += t.gaps.size();
    uint64_t self = 0;
    std::map<uint64_t, const Slice*> by_id;
    for (const Slice& s : t.slices) by_id[s.id] = &s;
    for (const Slice& s : t.slices) {
      self += s.self_instructions;
      if (s.parent == 0) continue;
      ASSERT_TRUE(by_id.contains(s.parent)) << seed;
      const Slice& p = *by_id.at(s.parent);
      ASSERT_EQ(p.track, s.track) << seed;
      ASSERT_LE(p.begin, s.begin) << seed << " " << s.id;
      ASSERT_GE(p.end, s.end) << seed << " " << s.id;
      ASSERT_GE(p.instructions, s.instructions) << seed;
      ASSERT_EQ(s.depth, p.depth + 1) << seed;
    }
    EXPECT_EQ(self, t.summary.instructions) << seed;
    for (unsigned cpu = 0; cpu < 2; ++cpu) {
      std::vector<uint32_t> depths;
      const auto want = run.tree(cpu);
      uint32_t deepest = 0, true_deepest = 0;
      for (const Activation& a : want) {
        depths.push_back(a.parent == SIZE_MAX ? 0 : depths[a.parent] + 1);
        true_deepest = std::max(true_deepest, depths.back());
      }
      for (const Slice* s : slices_of(t, static_cast<int>(cpu)))
        if (s->instructions != 0) deepest = std::max(deepest, s->depth);
      // A call of the same function from elsewhere during a gap looks like a return to the one before, whose
      // callers may be more: for as long as it lasts, and not by every gap anew.
      EXPECT_LE(deepest, 2 * true_deepest) << seed;
    }
  }
  EXPECT_GT(gaps, 40U);
}

}  // namespace
}  // namespace asof::test
