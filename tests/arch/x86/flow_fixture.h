// FlowFixture: code bytes, changes of them and a written trace, decoded by the flow and by the reference
// engine. The base of the tests of the x86 backend.
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "arch/x86/patch_rules.h"
#include "arch/x86/x86.h"
#include "tests/support/assembler.h"
#include "tests/support/pt_writer.h"
#include "tests/support/sim_random.h"
#include "textstore/builder.h"

namespace asof::x86::test {

using asof::test::Assembler;
using asof::test::Cond;
using asof::test::ExecMode;
using asof::test::IpForm;
using asof::test::PsbPlus;
using asof::test::PtWriter;
using Bytes = std::vector<uint8_t>;

// One instruction as a decoder returned it.
struct Ran {
  Addr ip = 0;
  Time time = kTimeMin;
  Space space = kKernelSpace;
  Confidence confidence = Confidence::kCertain;
  uint8_t flags = 0;  // of its step; kAfterGap and kAsyncEntry only on its first instruction
  uint8_t length = 0;
  uint8_t mode = 64;
  BranchKind kind = BranchKind::kNone;  // of its block, on the last instruction of it
  std::array<uint8_t, 15> bytes{};
};

// Everything a decoder returned for some segments, in order. `at`: instructions before an event or a gap.
struct Decoded final : ChunkSink {
  struct EventAt : Event {
    size_t at = 0;
  };
  struct GapAt : Gap {
    size_t at = 0;
  };
  std::vector<Ran> ran;
  std::vector<EventAt> events;
  std::vector<GapAt> gaps;
  std::vector<std::pair<uint64_t, uint64_t>> per_segment;  // instructions, hash of the segment alone
  uint64_t chunks = 0;
  uint64_t in_runs = 0;  // instructions that the fast walk found
  bool open = false;     // inside a segment

  void take(Chunk&& c) override {
    ++chunks;
    in_runs += c.steps.instructions_in_runs();
    if (!open) per_segment.emplace_back(0, 0);
    open = !c.last;
    std::vector<size_t> before;  // instructions before each entry
    for (auto s = c.steps.begin(); s != c.steps.end(); ++s) {
      if (s.position() == before.size()) before.push_back(ran.size());
      add(*s);
    }
    before.push_back(ran.size());
    for (const Event& e : c.events) events.push_back({e, before.at(e.step)});
    for (const Gap& g : c.gaps) gaps.push_back({g, before.at(g.step)});
  }

  std::vector<Addr> ips() const {
    std::vector<Addr> out;
    for (const Ran& r : ran) out.push_back(r.ip);
    return out;
  }
  std::vector<EventAt> of(EventKind kind) const {
    std::vector<EventAt> out;
    for (const EventAt& e : events)
      if (e.kind == kind) out.push_back(e);
    return out;
  }
  std::vector<Code> gap_codes() const {
    std::vector<Code> out;
    for (const GapAt& g : gaps) out.emplace_back(g.code);
    return out;
  }

 private:
  void add(const Step& s) {
    const Block& b = *s.block;
    ASSERT_GE(s.count, 1U);
    ASSERT_LE(s.count, b.count);
    Addr ip = b.ip;
    const uint8_t* p = b.bytes;
    for (uint32_t i = 0; i < s.count; ++i) {
      Ran r{ip, s.time, b.space, s.confidence, s.flags, b.lengths[i], b.mode, BranchKind::kNone, {}};
      if (i + 1 == b.count) r.kind = b.kind;
      if (i != 0) r.flags &= static_cast<uint8_t>(~(Step::kAfterGap | Step::kAsyncEntry));
      if (i + 1 != b.count) r.flags &= static_cast<uint8_t>(~Step::kTaken);
      std::copy(p, p + r.length, r.bytes.begin());
      ran.push_back(r);
      auto& [count, hash] = per_segment.back();
      ++count;
      hash = hash * kHashFactor + ip;
      p += r.length;
      ip += r.length;
    }
  }
};

inline std::string hex(const std::vector<Addr>& v) { return fmt::format("[{:#x}]", fmt::join(v, " ")); }

class FlowFixture {
 public:
  static constexpr Addr kCode = 0xffffffff81000000;
  static constexpr Addr kUserCode = 0x401000;

  FlowFixture() {
    user_ = builder_.add_space();
    options.clock_error = 0;
    stream.name = "cpu0";
    stream.cpu = 0;
    stream.contexts = {{kTimeMin, 1, 1, user_}};
  }

  // Bytes present at all times, or in [from, until].
  FlowFixture& code(Addr at, const Bytes& bytes, Time from = kTimeMin, Time until = kTimeMax,
                    bool soft = false, int rank = kRankSnapshot) {
    Layer l;
    l.space = is_kernel_address(at) ? kKernelSpace : user_;
    l.range = range_of(at, bytes.size());
    l.bytes = keep(bytes);
    l.from = from;
    l.until = until;
    l.soft_until = soft;
    l.rank = rank;
    builder_.add_layer(l);
    return *this;
  }
  // Bytes that may have changed unrecorded (Layer::unsure).
  FlowFixture& unsure_code(Addr at, const Bytes& bytes) {
    builder_.add_layer({.range = range_of(at, bytes.size()), .bytes = keep(bytes), .unsure = true});
    return *this;
  }
  // A BPF program with its image.
  FlowFixture& program(Addr at, const Bytes& bytes, uint64_t id, Time from, Time until) {
    const OriginRef origin =
        builder_.add_origin({.kind = OriginKind::kBpfImage, .name = "program", .id = id, .build_id = {}});
    builder_.add_layer({.range = range_of(at, bytes.size()),
                        .bytes = keep(bytes),
                        .from = from,
                        .until = until,
                        .soft_until = true,
                        .rank = kRankEpoch,
                        .origin = origin});
    return *this;
  }
  FlowFixture& code(Assembler& a) { return code(a.base(), a.finish()); }
  // Known to have other, unknown bytes then.
  FlowFixture& unknown(Addr at, uint64_t size, Time from, Time until) {
    Layer l;
    l.space = is_kernel_address(at) ? kKernelSpace : user_;
    l.range = range_of(at, size);
    l.from = from;
    l.until = until;
    builder_.add_layer(l);
    return *this;
  }
  FlowFixture& poke(Addr at, const Bytes& old_bytes, const Bytes& new_bytes, Time time) {
    Poke p;
    p.addr = at;
    p.time = time;
    p.old_bytes = keep(old_bytes);
    p.new_bytes = keep(new_bytes);
    builder_.add_poke(p);
    return *this;
  }
  // TSC ticks are nanoseconds, so that tests can use one unit.
  FlowFixture& with_clock() {
    config.time = TimeConversion{};
    return *this;
  }
  // PSB+ with tracing on at `ip`.
  FlowFixture& start(Addr ip, std::optional<uint64_t> tsc = {}) {
    PsbPlus g;
    g.ip = ip;
    g.tsc = tsc;
    pt.psb_plus(g);
    return *this;
  }

  const TextStore& text() {
    if (!store_) {
      builder_.set_patch_rules(x86::kPatchRules);
      store_.emplace(std::move(builder_).build());
    }
    return *store_;
  }
  Space user() const { return user_; }
  // Another process, whose text is unknown.
  Space add_space() { return builder_.add_space(); }

  // Cuts the trace into pieces at these offsets (default: one piece).
  std::vector<uint64_t> cuts;

  Decoded run(const DecodeOptions& o) {
    pt.flush();
    trace_ = pt.bytes();
    stream.pieces.clear();
    uint64_t from = 0;
    std::vector<uint64_t> ends = cuts;
    ends.push_back(trace_.size());
    for (const uint64_t to : ends) {
      StreamPiece p;
      p.offset = from;
      p.bytes = std::span(trace_).subspan(from, to - from);
      p.reference = reference;
      stream.pieces.push_back(p);
      from = to;
    }
    return run_stream(o);
  }
  // As run(), with stream.pieces as the test made them.
  Decoded run_stream(const DecodeOptions& o) {
    const auto arch = make_arch(config);
    segments = arch->split(stream, 0);
    const std::span<const Stream> streams(&stream, 1);
    const auto decoder = arch->decoder(streams, text(), o);
    Decoded d;
    for (const Segment& s : segments) decoder->decode(s, d);
    return d;
  }
  Decoded decode() { return run(options); }
  Decoded decode_by_reference() {
    DecodeOptions o = options;
    o.reference_engine = true;
    return run(o);
  }
  // Decodes in four variants that must not differ (chunk size, block cache, segments independently); returns
  // the plain one.
  Decoded decode_all_ways() {
    Decoded d = decode();
    DecodeOptions small = options;
    small.chunk_steps = 1;
    expect_same(d, run(small), "chunks of one step");
    DecodeOptions uncached = options;
    uncached.block_cache = false;
    expect_same(d, run(uncached), "without block cache");
    const auto arch = make_arch(config);
    Decoded alone;
    for (const Segment& s : segments) {
      arch->decoder(std::span<const Stream>(&stream, 1), text(), options)->decode(s, alone);
    }
    expect_same(d, alone, "each segment by a decoder of its own");
    return d;
  }
  // The flow gives these instructions, and so does libipt. Returns the flow's result.
  Decoded expect(const std::vector<Addr>& ips) {
    Decoded d = expect_flow(ips);
    EXPECT_EQ(hex(decode_by_reference().ips()), hex(ips)) << "libipt";
    return d;
  }
  // The same for the flow alone; the test says why libipt differs.
  Decoded expect_flow(const std::vector<Addr>& ips) {
    Decoded d = decode_all_ways();
    EXPECT_EQ(hex(d.ips()), hex(ips));
    return d;
  }

  Config config;
  DecodeOptions options;
  PtWriter pt;
  Stream stream;
  std::vector<Segment> segments;  // of the last run
  uint64_t reference = 0;

 private:
  static void expect_same(const Decoded& a, const Decoded& b, const char* what) {
    EXPECT_EQ(hex(a.ips()), hex(b.ips())) << what;
    ASSERT_EQ(a.ran.size(), b.ran.size()) << what;
    for (size_t i = 0; i < a.ran.size(); ++i) {
      ASSERT_EQ(a.ran[i].confidence, b.ran[i].confidence) << what << " at " << i;
      ASSERT_EQ(a.ran[i].bytes, b.ran[i].bytes) << what << " at " << i;
      ASSERT_EQ(a.ran[i].flags, b.ran[i].flags) << what << " at " << i;
      ASSERT_EQ(a.ran[i].time, b.ran[i].time) << what << " at " << i;
    }
    EXPECT_EQ(a.gap_codes(), b.gap_codes()) << what;
    ASSERT_EQ(a.events.size(), b.events.size()) << what;
    for (size_t i = 0; i < a.events.size(); ++i) {
      EXPECT_EQ(a.events[i].kind, b.events[i].kind) << what << " event " << i;
      EXPECT_EQ(a.events[i].at, b.events[i].at) << what << " event " << i;
      EXPECT_EQ(a.events[i].ip, b.events[i].ip) << what << " event " << i;
    }
  }
  std::span<const uint8_t> keep(const Bytes& b) { return kept_.emplace_back(b); }

  std::deque<Bytes> kept_;
  Bytes trace_;
  Builder builder_;
  Space user_ = kNoSpace;
  std::optional<TextStore> store_;
};

// Where the tests of the fixture put their code: offsets are added to it.
inline constexpr Addr A = FlowFixture::kCode;

// Addresses FlowFixture::kCode + each.
inline std::vector<Addr> at(std::initializer_list<Addr> offsets) {
  std::vector<Addr> out;
  for (const Addr o : offsets) out.push_back(FlowFixture::kCode + o);
  return out;
}

// Tracing is switched off by an asynchronous event at `ip`, which does not run: an end of a scenario that
// leaves nothing open.
inline void stop_at(FlowFixture& s, Addr ip) {
  s.pt.fup(ip);
  s.pt.tip_pgd();
}

inline void bits(FlowFixture& s, std::initializer_list<int> b) {
  for (const int i : b) s.pt.tnt(i != 0);
}

}  // namespace asof::x86::test
