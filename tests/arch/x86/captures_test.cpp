// Captures with known content: recorded by others, or from programs of which every instruction is known. They
// are not part of the project; without them these tests are skipped.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>

#include "arch/x86/packet.h"
#include "arch/x86/patch_rules.h"
#include "arch/x86/x86.h"
#include "decoder/model/image.h"
#include "tests/support/skip_without.h"
#include "textstore/builder.h"

namespace asof::x86 {
namespace {

namespace fs = std::filesystem;

// Counts and hashes a decoder's output; keeps addresses on request.
struct Tally final : ChunkSink {
  bool keep = false, fnv = false;
  uint64_t count = 0, starts = 0, stops = 0;
  uint64_t hash = 0;
  uint64_t fnv_hash = 0xcbf29ce484222325ULL;
  std::vector<Addr> ips;
  std::vector<Gap> gaps;

  void take(Chunk&& c) override {
    for (const Step& s : c.steps) add(s);
    for (const Event& e : c.events) {
      starts += e.kind == EventKind::kTraceStart;
      stops += e.kind == EventKind::kTraceStop;
    }
    for (Gap& g : c.gaps) gaps.push_back(std::move(g));
  }
  void add(const Step& s) {
    const Block& b = *s.block;
    count += s.count;
    if (s.count == b.count && !keep && !fnv) {
      hash = hash * b.power + b.hash;
      return;
    }
    Addr ip = b.ip;
    for (uint32_t i = 0; i < s.count; ++i) {
      hash = hash * kHashFactor + ip;
      if (keep) ips.push_back(ip);
      if (fnv) add_fnv(ip);
      ip += b.lengths[i];
    }
  }
  void add_fnv(Addr ip) {
    for (int i = 0; i < 8; ++i) fnv_hash = (fnv_hash ^ ((ip >> (8 * i)) & 0xff)) * 0x100000001b3ULL;
  }
};

struct Capture {
  Config config;
  Stream stream;
  std::optional<TextStore> text;
  std::vector<std::shared_ptr<const MappedFile>> files;
};

fs::path shared_capture(const char* group, const std::string& name) {
  return fs::path(ASOF_SHARED_DIR) / group / name;
}

std::span<const uint8_t> open_file(Capture& c, const fs::path& path) {
  auto f = MappedFile::open(path);
  if (!f) throw std::runtime_error(f.error().reason);
  c.files.push_back(*f);
  return (*f)->bytes();
}

// `regions` lines: address, [file,] offset and size in `size_first` order; all hexadecimal.
struct Region {
  Addr address = 0;
  std::string file;
  uint64_t offset = 0, size = 0;
};

Capture make_capture(const fs::path& trace, const fs::path& dir, const std::vector<Region>& regions) {
  Capture c;
  Builder b;
  b.set_patch_rules(x86::kPatchRules);
  const Space space = b.add_space();
  for (const Region& r : regions) {
    Layer l;
    l.space = is_kernel_address(r.address) ? kKernelSpace : space;
    l.range = range_of(r.address, r.size);
    l.bytes = open_file(c, dir / r.file).subspan(r.offset, r.size);
    b.add_layer(l);
  }
  c.text.emplace(std::move(b).build());
  StreamPiece p;
  p.bytes = open_file(c, trace);
  c.stream.pieces = {p};
  c.config.guest_text = is_guest_trace(c.stream);
  c.stream.contexts = {{kTimeMin, 1, 1, space}};
  return c;
}

std::vector<Region> read_regions(const fs::path& file) {
  std::vector<Region> out;
  std::ifstream in(file);
  Region r;
  while (in >> std::hex >> r.address >> r.file >> r.offset >> r.size) out.push_back(r);
  return out;
}

// text.map: address, length, offset in text.img.
std::vector<Region> read_text_map(const fs::path& file) {
  std::vector<Region> out;
  std::ifstream in(file);
  Region r;
  r.file = "text.img";
  while (in >> std::hex >> r.address >> r.size >> r.offset) out.push_back(r);
  return out;
}

void decode(const Capture& c, Tally& t, const DecodeOptions& o = {}) {
  const auto arch = make_arch(c.config);
  const std::span<const Stream> streams(&c.stream, 1);
  const auto decoder = arch->decoder(streams, *c.text, o);
  for (const Segment& s : arch->split(c.stream, 0)) decoder->decode(s, t);
}

// ---- programs run under emulation: every segment independently ----

struct SegmentTruth {
  uint64_t offset, ip, count, hash;
};

void check_emulated(const char* name) {
  const fs::path dir = shared_capture("captures", name);
  SKIP_WITHOUT(dir);
  Capture c = make_capture(dir / "trace.pt", dir, read_text_map(dir / "text.map"));
  const auto raw = open_file(c, dir / "segments.bin");
  std::vector<SegmentTruth> truth(raw.size() / sizeof(SegmentTruth));
  std::memcpy(truth.data(), raw.data(), truth.size() * sizeof(SegmentTruth));
  ASSERT_GE(truth.size(), 2U);

  const auto arch = make_arch(c.config);
  const std::vector<Segment> segments = arch->split(c.stream, 0);
  ASSERT_EQ(segments.size() + 1, truth.size());
  const auto decoder = arch->decoder(std::span<const Stream>(&c.stream, 1), *c.text, {});
  size_t wrong = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    Tally t;
    decoder->decode(segments[i], t);
    // Hashes compose: after = before * K^n + segment's own.
    uint64_t power = 1;
    for (uint64_t n = t.count, k = kHashFactor; n != 0; n >>= 1, k *= k)
      if ((n & 1) != 0) power *= k;
    const SegmentTruth& next = truth[i + 1];
    const bool right = segments[i].begin == truth[i].offset && t.gaps.empty() &&
                       t.count == next.count - truth[i].count && truth[i].hash * power + t.hash == next.hash;
    if (right) continue;
    ADD_FAILURE() << fmt::format(
        "segment {} at {}: {} instructions, {} expected; gap: {}", i, segments[i].begin, t.count,
        next.count - truth[i].count,
        t.gaps.empty() ? "none" : std::string(code_text(t.gaps[0].code)) + ": " + t.gaps[0].reason);
    if (++wrong == 10) break;
  }
  std::ifstream in(dir / "truth.txt");
  std::string key, value, count, hash;
  while (in >> key >> value) {
    if (key == "insns") count = value;
    if (key == "hash") hash = value;
  }
  EXPECT_EQ(std::to_string(truth.back().count), count);
  EXPECT_EQ(fmt::format("{:x}", truth.back().hash), hash);
}

TEST(Captures, Work1RoundEverySegmentAlone) { check_emulated("pt-work-1round"); }
TEST(Captures, Cc1EverySegmentAlone) { check_emulated("pt-cc1"); }

// ---- recorded on hardware ----

struct Known {
  const char* folder;
  const char* trace;
  uint64_t count;
  uint64_t fnv;
  uint8_t model;             // family 6; 0: unknown
  std::vector<Code> gaps{};  // that it contains
};
void PrintTo(const Known& k, std::ostream* out) { *out << k.folder; }

class HardwareCapture : public testing::TestWithParam<Known> {};

TEST_P(HardwareCapture, CountAndHash) {
  const Known& k = GetParam();
  const fs::path dir = shared_capture("corpus", k.folder);
  SKIP_WITHOUT(dir);
  Capture c = make_capture(dir / k.trace, dir, read_regions(dir / "regions.txt"));
  if (k.model != 0) c.config.cpu = {true, 6, k.model, 3};
  Tally t;
  t.fnv = true;
  decode(c, t);
  EXPECT_EQ(t.count, k.count);
  EXPECT_EQ(fmt::format("{:016x}", t.fnv_hash), fmt::format("{:016x}", k.fnv));
  std::vector<Code> codes;
  for (const Gap& g : t.gaps) codes.emplace_back(g.code);
  EXPECT_EQ(codes, k.gaps);
}

INSTANTIATE_TEST_SUITE_P(
    Known, HardwareCapture,
    testing::Values(
        Known{"griffin-hello", "pt.bin", 147458, 0xb59bbe3902eec968, 0},
        Known{"libxdc-Unzip", "trace", 149576, 0x23a39ee2459f8f7f, 0},
        Known{"libxdc-Unzip", "trace", 149576, 0x23a39ee2459f8f7f, 94},
        Known{"libxdc-foo", "trace", 117967, 0x7c12ade026b6753f, 0},
        Known{"libxdc-foo", "trace", 117967, 0x7c12ade026b6753f, 94},
        Known{"libxdc-mruby", "trace", 6334131, 0x818b1abb61993db5, 0, {Code::kTraceOverflow}},
        Known{"libxdc-mruby", "trace", 6334131, 0x818b1abb61993db5, 94, {Code::kTraceOverflow}},
        Known{"lldb-intelpt-trace", "3842849.trace", 21, 0xc641aab252dbd17c, 79, {Code::kNoSyncPoint}}),
    [](const auto& info) {
      std::string n = fmt::format("{}_{}", info.param.folder, info.param.model);
      std::ranges::replace(n, '-', '_');
      return n;
    });

std::vector<Addr> read_ips(const fs::path& file) {
  std::vector<Addr> out;
  std::ifstream in(file);
  Addr a = 0;
  while (in >> std::hex >> a) out.push_back(a);
  return out;
}

// The dynamic loader's code is not part of the capture: all other instructions, and a gap where the loader is
// entered.
TEST(Captures, LldbMultiFile) {
  const fs::path dir = shared_capture("corpus", "lldb-intelpt-trace-multi-file");
  SKIP_WITHOUT(dir);
  Capture c = make_capture(dir / "multi-file.trace", dir, read_regions(dir / "regions.txt"));
  c.config.cpu = {true, 6, 79, 1};
  Tally t;
  t.keep = true;
  decode(c, t);
  // libipt stops at the loader twice and continues at the next sync point; the flow resumes where the loader
  // exits.
  const std::vector<Addr> libipt = read_ips(dir / "ips.txt");
  ASSERT_EQ(libipt.size(), 45U);
  ASSERT_GT(t.ips.size(), libipt.size());
  EXPECT_TRUE(std::equal(libipt.begin(), libipt.begin() + 6, t.ips.begin()));
  EXPECT_TRUE(std::equal(libipt.begin() + 6, libipt.end(), t.ips.end() - 39));
  EXPECT_EQ(t.ips.at(6), 0x7ffff7bd96e0U);
  ASSERT_EQ(t.gaps.size(), 3U);
  EXPECT_EQ(t.gaps[0].code, Code::kNoSyncPoint);
  for (size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(t.gaps[i].code, Code::kNoBytes);
    EXPECT_EQ(t.gaps[i].ip, 0x7ffff7df1950U);
  }
  EXPECT_EQ(t.gaps[1].resume_ip, 0x7ffff7bd96e0U);
  EXPECT_EQ(t.gaps[2].resume_ip, 0x7ffff79d7690U);
}

// libipt gives up at a TIP.PGE directly followed by a TIP.PGD; there is only one PSB, so it loses the rest.
// The flow gives what libipt gives before that and continues: every start and stop of the trace is present.
void check_overflow(const char* name, uint64_t before, uint64_t fnv) {
  const fs::path dir = shared_capture("corpus", name);
  SKIP_WITHOUT(dir);
  Capture c = make_capture(dir / "pt.bin", dir, read_regions(dir / "regions.txt"));
  Tally t;
  t.keep = true;
  decode(c, t);
  ASSERT_GE(t.count, before);
  Tally prefix;
  for (size_t i = 0; i < before; ++i) prefix.add_fnv(t.ips[i]);
  EXPECT_EQ(fmt::format("{:016x}", prefix.fnv_hash), fmt::format("{:016x}", fnv));
  EXPECT_TRUE(t.gaps.empty()) << t.gaps[0].reason;
  const auto trace = c.stream.pieces[0].bytes;
  uint64_t starts = 0, stops = 0;
  for (size_t at = find_psb(trace, 0); at < trace.size();) {
    const Packet k = read_packet(trace.data() + at, trace.data() + trace.size());
    ASSERT_NE(k.type, Pk::kBad) << at;
    if (k.type == Pk::kEnd) break;
    starts += k.type == Pk::kPge;
    stops += k.type == Pk::kPgd;
    at += k.size;
  }
  EXPECT_EQ(t.starts, starts);
  EXPECT_EQ(t.stops, stops);
}

TEST(Captures, GriffinOvfBen) { check_overflow("griffin-ovf-01-ben", 105566, 0xe3266c67f0238083); }
TEST(Captures, GriffinOvfPoc) { check_overflow("griffin-ovf-01-poc", 105570, 0xa320457fc7ea1df7); }

// The page cache of this capture is incomplete, so libipt stops at 12 of its sync points (counts as above).
// Every instruction that libipt gives is also given here, in the same segment.
TEST(Captures, LibxdcDynTest) {
  const fs::path dir = shared_capture("corpus", "libxdc-dyn_test");
  SKIP_WITHOUT(dir);
  Capture c = make_capture(dir / "sample_raw_0", dir, read_regions(dir / "regions.txt"));
  c.config.cpu = {true, 6, 94, 3};
  const auto arch = make_arch(c.config);
  const std::span<const Stream> streams(&c.stream, 1);
  DecodeOptions by_libipt;
  by_libipt.reference_engine = true;
  const auto own = arch->decoder(streams, *c.text, {});
  const auto reference = arch->decoder(streams, *c.text, by_libipt);
  uint64_t total = 0;
  for (const Segment& s : arch->split(c.stream, 0)) {
    Tally a, b;
    a.keep = b.keep = true;
    own->decode(s, a);
    reference->decode(s, b);
    ASSERT_GE(a.count, b.count) << "segment " << s.index;
    a.ips.resize(b.ips.size());
    EXPECT_EQ(a.ips, b.ips) << "segment " << s.index;
    total += a.count;
  }
  EXPECT_GE(total, 870U);
}

}  // namespace
}  // namespace asof::x86
