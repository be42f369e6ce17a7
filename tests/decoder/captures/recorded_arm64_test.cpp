// Random recordings of arm64 kernels, opened and decoded as files. Their changes are described by TEXT_POKE
// records (of boards; no kernel writes them), or by samples of the jump label code and a catalogue of sites,
// or by only one of these, or by nothing; some are lost; there are copies of kcore at the start and at the
// end.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/arch/arm64/high_confidence.h"
#include "tests/decoder/patch_sites/arm64_test_util.h"
#include "tests/support/captures_of.h"

namespace asof::test {
namespace {

constexpr uint64_t kCaptures = 2'400, kShards = 4;
constexpr Addr kLabels = 0xffff800009000000;  // __start___jump_table
constexpr uint64_t kPageSize = 4096;

struct Sources {
  bool pokes = false, samples = false, catalogue = false, end_copy = false, loses = false;
};

class Recorded {
 public:
  Recorded(const EtmSimulation& run, const Sources& sources, unsigned cpus, uint64_t seed)
      : run_(run), sources_(sources), cpus_(cpus), random_(seed * 31 + 5), recording_(1, blocks()) {
    PerfDataWriter& w = recording_.writer;
    for (const uint32_t id : {kEntryId, kReturnId})
      w.add_attr({.type = 2, .config = id, .sample_type = 0x10486, .ids = {id}});
    w.add_attr({.flags = attr_flag::kSampleIdAll | (sources.pokes ? attr_flag::kTextPoke : 0),
                .ids = {91, 92, 93, 94}});
    w.nr_cpus(kRings);
    w.feature(1, tracing_data());
    w.time_conv({.shift = 0, .mult = 1, .zero = 0});
    text_ = run.program().bytes();
    code_end_ = run.program().text() + text_.size();
    text_.resize((text_.size() / kPageSize + 2) * kPageSize);  // includes the function that changes labels
    w.mmap({.addr = run.program().text(),
            .len = text_.size(),
            .pgoff = run.program().text(),
            .filename = "[kernel.kallsyms]_text",
            .kernel = true});
    records();
  }

  Result<Capture> open() {
    for (unsigned i = 0; i < cpus_; ++i) {
      const EtmCpu& cpu = run_.cpu(i);
      recording_.start(static_cast<int32_t>(i), run_.config().start);
      recording_.aux(static_cast<int32_t>(i), cpu.now(), cpu.unit().writer().bytes(), kRawFlag);
    }
    const std::filesystem::path data = dir_ / "x.data";
    DirectoryParts start{.kcore = make_core(segments(text_), 183), .kallsyms = symbols()};
    recording_.writer.write_directory(data, start);
    if (sources_.end_copy) {
      write_bytes(data / "kcore.end", make_core(segments(at_end()), 183));
      write_text(data / "kallsyms.end", symbols());
    }
    CaptureOptions options = closed_options();
    options.catalogue = sources_.catalogue;
    return open_capture(data.string(), options);
  }

 private:
  static constexpr unsigned kRings = 4;  // CPUs; the last ones have no trace
  struct Item {
    uint64_t time = 0;
    unsigned cpu = 0;
    std::function<void(PerfDataWriter&, const Trailer&)> emit;
  };

  std::vector<CsBlock> blocks() const {
    std::vector<CsBlock> out;
    for (unsigned i = 0; i < cpus_; ++i) {
      const arm64::Source& s = run_.source(i);
      constexpr uint64_t kAuthStatus = 0xcc, kVirtualCounter = 1;
      out.push_back({kEtm4Magic,
                     i,
                     {s.configr, s.trace_id, s.idr0, s.idr1, s.idr2, s.idr8, kAuthStatus, kVirtualCounter}});
    }
    return out;
  }
  // Entries of the jump table: those of the program's sites that are not calls.
  std::vector<const EtmProgram::Site*> labels() const {
    std::vector<const EtmProgram::Site*> out;
    for (const EtmProgram::Site& s : run_.program().sites())
      if (!s.call) out.push_back(&s);
    return out;
  }
  Bytes table() const {
    ByteSink s(false);
    for (const EtmProgram::Site* label : labels()) {
      const Addr at = kLabels + s.bytes().size();
      s.u32(static_cast<uint32_t>(label->at - at));
      s.u32(static_cast<uint32_t>(label->target - (at + 4)));
      s.u64(kPageSize);
    }
    Bytes out = std::move(s).take();
    out.resize((out.size() / kPageSize + 1) * kPageSize);
    return out;
  }
  Addr label_code() const { return code_end_ + 64; }
  std::vector<CoreSegment> segments(const Bytes& text) const {
    return {{run_.program().text(), text}, {kLabels, table()}};
  }
  Bytes at_end() const {
    Bytes out = text_;
    for (const auto& [addr, changes] : run_.changes()) {
      const auto word = bytes_of(changes.back().new_word);
      std::copy(word.begin(), word.end(),
                out.begin() + static_cast<std::ptrdiff_t>(addr - run_.program().text()));
    }
    return out;
  }
  std::string symbols() const {
    const Addr begin = run_.program().text();
    std::string out = Recording::line(begin, 'T', "_text") + Recording::line(begin, 'T', "_stext");
    for (const auto& [at, name] : run_.program().functions())
      out += Recording::line(at, 't', name == "tracer" ? "ftrace_caller" : name);
    return out + Recording::line(code_end_, 't', "after") +
           Recording::line(label_code(), 't', "arch_jump_label_transform_queue") +
           Recording::line(label_code() + 64, 't', "next") +
           Recording::line(begin + text_.size(), 'T', "_etext") +
           Recording::line(kLabels, 'D', "__start___jump_table") +
           Recording::line(kLabels + labels().size() * 16, 'D', "__stop___jump_table");
  }

  void records() {
    std::vector<Item> items;
    for (const auto& [addr, changes] : run_.changes()) {
      for (const EtmChange& c : changes) {
        const unsigned cpu = c.writer < 0 ? kRings - 1 : static_cast<unsigned>(c.writer);
        if (sources_.pokes) {
          items.push_back(
              {random_.between(c.written, c.complete), cpu, [c](PerfDataWriter& w, const Trailer& t) {
                 w.text_poke(c.addr, bytes_of(c.old_word), bytes_of(c.new_word), t);
               }});
        } else if (sources_.samples) {
          sample_change(c, cpu, items);
        }
      }
    }
    std::ranges::stable_sort(items, {}, &Item::time);
    for (unsigned cpu = 0; cpu < kRings; ++cpu) {
      std::vector<Item> ring;
      std::ranges::copy_if(items, std::back_inserter(ring), [cpu](const Item& i) { return i.cpu == cpu; });
      write(ring, cpu);
    }
  }
  void sample_change(const EtmChange& c, unsigned cpu, std::vector<Item>& items) {
    const auto all = labels();
    const auto label = std::ranges::find_if(all, [&](const EtmProgram::Site* s) { return s->at == c.addr; });
    if (label == all.end()) return;  // a function's entry: not sampled
    const Addr entry = kLabels + static_cast<Addr>(label - all.begin()) * 16;
    ByteSink in(false);
    in.zeros(8);
    in.u64(label_code());
    in.u32(static_cast<uint32_t>((*label)->at - entry));
    in.u32(static_cast<uint32_t>((*label)->target - entry - 4));
    in.u64(entry);
    in.u32(c.new_word == a64::kNop ? 0 : 1);
    ByteSink out(false);
    out.zeros(8);
    out.u64(label_code());
    out.u64(run_.program().text());
    items.push_back({c.written, cpu, sample(kEntryId, cpu, std::move(in).take())});
    items.push_back({c.complete, cpu, sample(kReturnId, cpu, std::move(out).take())});
  }
  static std::function<void(PerfDataWriter&, const Trailer&)> sample(uint64_t id, unsigned cpu, Bytes raw) {
    return [id, cpu, raw = std::move(raw)](PerfDataWriter& w, const Trailer& t) {
      ByteSink s(false);
      s.u64(id);
      s.u32(7);
      s.u32(7);
      s.u64(t.time);
      s.u32(cpu);
      s.u32(0);
      s.u32(static_cast<uint32_t>(raw.size()));
      s.raw(raw);
      s.align(8);
      w.record(9, 1, s.bytes());
    };
  }
  // LOST before the next record of the ring, or at its end.
  void write(const std::vector<Item>& ring, unsigned cpu) {
    uint64_t lost = 0;
    bool losing = false;
    const auto trailer = [cpu](uint64_t time) {
      return Trailer{.time = time, .cpu = cpu, .pid = 7, .tid = 7, .attr = 3, .has_id = true};
    };
    const auto tell = [&](uint64_t time) {
      if (lost != 0) recording_.writer.lost(91 + cpu, lost, trailer(time));
      lost = 0;
    };
    for (const Item& i : ring) {
      losing = sources_.loses && random_.chance(losing ? 60 : 15);
      lost += losing ? 1 : 0;
      if (losing) continue;
      tell(i.time);
      i.emit(recording_.writer, trailer(i.time));
    }
    tell(run_.cpu(0).now() + 1'000'000);
  }

  const EtmSimulation& run_;
  Sources sources_;
  unsigned cpus_;
  SimRandom random_;
  CsRecording recording_;
  TempDir dir_;
  Bytes text_;
  Addr code_end_ = 0;
};

class RecordedArm64 : public testing::TestWithParam<uint64_t> {};

void check(uint64_t seed, Score& score) {
  SimRandom random(seed * 90'001 + 3);
  EtmSettings s;
  s.seed = seed + 500'000;
  s.cpus = random.chance(50) ? 2 : 1;
  s.ns = random.between(3'000, 20'000);
  s.changes = static_cast<unsigned>(random.between(1, 8));
  s.clock = random.chance(60) ? EtmClock::kFine : random.chance(60) ? EtmClock::kCoarse : EtmClock::kNone;
  s.pauses = random.chance(20);
  if (random.chance(20)) s.slow = 20'000;
  Sources sources;
  sources.pokes = random.chance(40);
  sources.samples = !sources.pokes && random.chance(70);
  sources.catalogue = !sources.pokes && random.chance(80);
  sources.end_copy = random.chance(40);
  sources.loses = random.chance(40);
  SCOPED_TRACE(fmt::format("seed {}:{}{}{}{}{} clock {} slow {}", seed, sources.pokes ? " pokes" : "",
                           sources.samples ? " samples" : "", sources.catalogue ? " catalogue" : "",
                           sources.end_copy ? " end-copy" : "", sources.loses ? " losses" : "",
                           static_cast<int>(s.clock), s.slow));
  const EtmSimulation run(s);
  const auto capture = Recorded(run, sources, s.cpus, seed).open();
  ASSERT_TRUE(capture.has_value()) << capture.error().reason;
  ASSERT_EQ(capture->streams.size(), s.cpus);
  const auto arch = capture->arch();
  ASSERT_TRUE(arch.has_value());
  const auto decoder = (*arch)->decoder(capture->streams, *capture->text, {});
  for (unsigned cpu = 0; cpu < s.cpus; ++cpu) {
    SCOPED_TRACE(fmt::format("cpu {}", cpu));
    for (const Segment& segment : (*arch)->split(capture->streams[cpu], cpu)) {
      SCOPED_TRACE(fmt::format("segment {} at {}", segment.index, segment.begin));
      EtmDecoded d;
      decoder->decode(segment, d);
      score.gaps += d.gaps.size();
      expect_high_confidence_ran(d.ran, run.truth(cpu, segment), s.clock == EtmClock::kFine, score);
      if (testing::Test::HasFatalFailure()) return;
    }
  }
  ++score.captures;
}

TEST_P(RecordedArm64, NothingSureIsWrong) {
  Score score;
  const uint64_t captures = captures_of(kCaptures);
  for (uint64_t seed = GetParam() + 1; seed <= captures; seed += kShards) {
    check(seed, score);
    if (HasFatalFailure() && first_failure_ends()) return;
  }
  EXPECT_EQ(score.captures, (captures - GetParam() + kShards - 1) / kShards);
  EXPECT_GT(score.high_confidence * 100, score.ran * 30) << score.high_confidence << " of " << score.ran;
  RecordProperty("ran", std::to_string(score.ran));
  RecordProperty("high_confidence", std::to_string(score.high_confidence));
  RecordProperty("proved", std::to_string(score.proved));
}

INSTANTIATE_TEST_SUITE_P(Captures, RecordedArm64, testing::Range(uint64_t{0}, kShards));

}  // namespace
}  // namespace asof::test
