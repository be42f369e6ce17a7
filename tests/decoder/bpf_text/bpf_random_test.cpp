// Random histories of BPF programs that share a small piece of memory: ranges overlap in part, addresses and
// names recur, records are lost in either ring. Whatever runs must be among the candidates of the store;
// where nothing was lost, it must be the only one.
#include <fmt/format.h>

#include <map>
#include <set>

#include "tests/decoder/capture_test_util.h"
#include "tests/support/sim_random.h"

namespace asof {
namespace {

using namespace test;

constexpr Addr kArea = 0xffffffffc0002000;
constexpr uint64_t kAreaSize = 640;
constexpr uint64_t kGrace = 50;  // ns from the unregister to the end of the memory
enum : uint16_t { kBpf = 1, kRegister = 0, kUnregister = 1, kLoad = 1, kUnload = 2 };

struct Program {
  uint32_t id = 0;
  uint32_t cpu = 0;  // its records are in this CPU's ring
  uint64_t from = 0, until = 0;
  Addr at = 0;
  Bytes bytes;
  std::array<uint8_t, 8> tag{};
  std::string name;
};

struct Fact {
  enum class Kind : uint8_t { kRegister, kLoad, kUnload, kUnregister, kOther } kind;
  uint64_t time = 0;
  uint32_t cpu = 0;
  const Program* program = nullptr;
};

struct Losses {
  bool reported = true;  // by LOST records
  uint64_t most = 0;
};

class History {
 public:
  History(uint64_t seed, Losses losses) : random_(seed) {
    for (uint64_t t = 100, n = random_.between(3, 12); n != 0; --n) {
      place(t);
      t += random_.between(10, 120);
    }
    for (const Program& p : programs_) record(p);
    std::ranges::stable_sort(facts_, {}, &Fact::time);
    const uint64_t end = facts_.back().time + 1000;
    for (const uint32_t cpu : {0U, 1U}) facts_.push_back({Fact::Kind::kOther, end, cpu});
    lose(losses);
  }

  Result<Capture> open() {
    for (const Fact& f : facts_) write(f);
    for (const Program& p : programs_) {
      if (!without_image_.contains(p.id)) {
        BpfProgSpec spec;
        spec.id = p.id;
        spec.tag = p.tag;
        spec.name = p.name;
        spec.functions = {{p.at, p.bytes, p.tag}};
        recording_.programs.push_back(spec);
      }
    }
    return recording_.open();
  }
  const std::vector<Program>& programs() const { return programs_; }
  std::string story() const {
    std::string out;
    static constexpr const char* kWhat[] = {"register", "load", "unload", "unregister", "end"};
    for (const Program& p : programs_)
      out += fmt::format("program {} {} at +{} size {} from {} until {}{}\n", p.id, p.name, p.at - kArea,
                         p.bytes.size(), p.from, p.until, without_image_.contains(p.id) ? " no image" : "");
    for (const Fact& f : lost_)
      out += fmt::format("lost: {} {} at {} cpu {}\n", kWhat[static_cast<int>(f.kind)], f.program->id, f.time,
                         f.cpu);
    return out;
  }

 private:
  // Memory is allocated where it is free, and some time after it was freed.
  void place(uint64_t t) {
    Program p;
    p.id = static_cast<uint32_t>(programs_.size() + 1);
    p.cpu = static_cast<uint32_t>(random_.below(2));
    p.from = t;
    p.until = t + random_.between(20, 500);
    p.bytes.assign(16 * random_.between(1, 16), static_cast<uint8_t>(p.id));
    p.at = kArea + 16 * random_.below((kAreaSize - p.bytes.size()) / 16);
    const auto kind = static_cast<uint8_t>(random_.below(3));  // programs may share tags and names
    p.tag = {kind, 1, 2, 3, 4, 5, 6, 7};
    p.name = fmt::format("bpf_prog_0{}01020304050607_p", kind);
    for (const Program& q : programs_) {
      const bool apart = p.at >= q.at + q.bytes.size() || q.at >= p.at + p.bytes.size();
      if (!apart && p.from <= q.until + kGrace) return;
    }
    programs_.push_back(p);
  }
  void record(const Program& p) {
    facts_.push_back({Fact::Kind::kRegister, p.from, p.cpu, &p});
    facts_.push_back({Fact::Kind::kLoad, p.from + 1, p.cpu, &p});
    if (random_.chance(15)) return;  // stays loaded after the end of the recording
    const auto cpu = static_cast<uint32_t>(random_.below(2));
    facts_.push_back({Fact::Kind::kUnload, p.until - 1, cpu, &p});
    facts_.push_back({Fact::Kind::kUnregister, p.until, cpu, &p});
  }
  void lose(Losses losses) {
    if (losses.most == 0) return;
    const auto cpu = static_cast<uint32_t>(random_.below(2));
    uint64_t left = random_.between(1, losses.most);
    const size_t first = random_.below(facts_.size());
    std::vector<Fact> kept;
    uint64_t count = 0;
    for (size_t i = 0; i < facts_.size(); ++i) {
      const Fact& f = facts_[i];
      if (i >= first && left != 0 && f.cpu == cpu && f.kind != Fact::Kind::kOther) {
        lost_.push_back(f);
        ++count;
        --left;
        // perf requests an image when it reads the load record; it may have read it from another ring.
        if (f.kind == Fact::Kind::kLoad && random_.chance(60)) without_image_.insert(f.program->id);
        continue;
      }
      if (count != 0 && f.cpu == cpu && losses.reported) {
        losts_[kept.size()] = count;  // written before the ring's next record
        count = 0;
      }
      kept.push_back(f);
    }
    facts_ = std::move(kept);
  }
  void write(const Fact& f) {
    auto& w = recording_.writer;
    const Trailer at = Recording::at(f.time, f.cpu);
    if (const auto lost = losts_.find(static_cast<size_t>(&f - facts_.data())); lost != losts_.end())
      w.lost(3 + f.cpu, lost->second, at);
    switch (f.kind) {
      case Fact::Kind::kRegister:
      case Fact::Kind::kUnregister:
        return w.ksymbol(f.program->at, static_cast<uint32_t>(f.program->bytes.size()), kBpf,
                         f.kind == Fact::Kind::kRegister ? kRegister : kUnregister, f.program->name, at);
      case Fact::Kind::kLoad:
      case Fact::Kind::kUnload:
        return w.bpf_event(f.kind == Fact::Kind::kLoad ? kLoad : kUnload, f.program->id, f.program->tag, at);
      case Fact::Kind::kOther:
        return w.comm(1, 1, "end", false, at);
    }
  }

  SimRandom random_;
  std::vector<Program> programs_;
  std::vector<Fact> facts_, lost_;
  std::map<size_t, uint64_t> losts_;
  std::set<uint32_t> without_image_;
  Recording recording_;
};

// Each program's bytes at instants of its lifetime and its grace period.
void expect_possible(History& history, bool alone, uint64_t& sure, uint64_t& looked) {
  auto capture = history.open();
  ASSERT_TRUE(capture.has_value());
  for (const Program& p : history.programs()) {
    for (const uint64_t t : {p.from + 2, (p.from + p.until) / 2, p.until, p.until + kGrace}) {
      for (Addr a = p.at; a < p.at + p.bytes.size(); a += 16) {
        const auto found = contents(*capture->text, kKernelSpace, a, 1, static_cast<Time>(t));
        const bool unknown = std::ranges::count(found, Bytes()) != 0;
        const bool there = std::ranges::count(found, Bytes(1, p.bytes[0])) != 0;
        ASSERT_TRUE(there || (unknown && !alone))
            << "program " << p.id << " at +" << a - kArea << " time " << t << "\n"
            << history.story();
        ASSERT_TRUE(!alone || found.size() == 1) << "time " << t << "\n" << history.story();
        ++looked;
        sure += found.size() == 1 && there ? 1 : 0;
      }
    }
  }
}

TEST(BpfRandom, WithoutLossesWhatRunsIsKnown) {
  uint64_t sure = 0, looked = 0;
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    History history(seed, {});
    expect_possible(history, true, sure, looked);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_EQ(sure, looked);
}

TEST(BpfRandom, WhatRunsIsPossibleWhateverWasLost) {
  uint64_t sure = 0, looked = 0;
  for (uint64_t seed = 1; seed <= 800; ++seed) {
    SCOPED_TRACE(seed);
    History history(seed, {.reported = true, .most = 10});
    expect_possible(history, false, sure, looked);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(sure * 2, looked);
}

TEST(BpfRandom, OneRecordMissingWithoutALostRecord) {
  uint64_t sure = 0, looked = 0;
  for (uint64_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(seed);
    History history(seed, {.reported = false, .most = 1});
    expect_possible(history, false, sure, looked);
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(sure * 10, looked * 8);
}

}  // namespace
}  // namespace asof
