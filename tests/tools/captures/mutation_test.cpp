// Damaged files: the demo capture is changed in thousands of deterministic ways, and each is opened and
// decoded in this process. The result may be an error or a flow with gaps, never a crash, an endless run or
// high memory use.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>

#include "decoder/model/capture.h"
#include "decoder/perf/record_types.h"
#include "decoder/pipeline/pipeline.h"
#include "tests/support/captures_of.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/sim_random.h"
#include "tests/support/temp_dir.h"
#include "textstore/sanitized.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

// Decodes and counts; keeps nothing, and stops at far more than the whole undamaged trace holds.
class Counter : public ChunkConsumer {
 public:
  void deliver(Chunk& chunk, const Stream&, Prepared*) override {
    for (const Step& s : chunk.steps) instructions += s.count;
    gaps += chunk.gaps.size();
    steps += chunk.steps.size();
  }
  bool stopped() const override { return steps > kMostSteps; }

  static constexpr uint64_t kMostSteps = 20'000'000;
  uint64_t instructions = 0, gaps = 0, steps = 0;
};

struct Outcome {
  bool opened = false;
  uint64_t instructions = 0, gaps = 0;
  bool runaway = false;
};

Outcome run(const fs::path& path, const fs::path& symfs) {
  Outcome out;
  CaptureOptions options;
  options.symfs = symfs.string();
  options.host_files = false;
  const auto capture = open_capture(path.string(), options);
  if (!capture) {
    EXPECT_NE(capture.error().code, Code::kNone);
    EXPECT_FALSE(capture.error().reason.empty());
  } else {
    out.opened = true;
    Counter counter;
    PipelineOptions pipeline;
    pipeline.jobs = 1;
    const auto done = run_pipeline(*capture, pipeline, ChunkOrder::kByStream, counter);
    if (!done) {
      EXPECT_FALSE(done.error().reason.empty());
    }
    out.instructions = counter.instructions, out.gaps = counter.gaps, out.runaway = counter.stopped();
  }
  return out;
}

uint64_t resident_bytes() {
  FILE* f = std::fopen("/proc/self/statm", "r");
  if (f == nullptr) return 0;
  unsigned long total = 0, resident = 0;
  const int n = std::fscanf(f, "%lu %lu", &total, &resident);
  std::fclose(f);
  return n == 2 ? static_cast<uint64_t>(resident) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) : 0;
}

using Bytes = std::vector<uint8_t>;

uint16_t u16_at(const Bytes& b, size_t at) { return static_cast<uint16_t>(b[at] | b[at + 1] << 8); }

uint64_t u64_at(const Bytes& b, size_t at) {
  uint64_t v = 0;
  std::memcpy(&v, b.data() + at, sizeof v);
  return v;
}

// Offsets of the records in the data section of an undamaged file.
std::vector<size_t> record_offsets(const Bytes& data) {
  std::vector<size_t> out;
  size_t at = u64_at(data, 40);
  const size_t end = at + u64_at(data, 48);
  while (at + 8 <= end) {
    out.push_back(at);
    uint32_t type = 0;
    std::memcpy(&type, data.data() + at, sizeof type);
    const size_t payload = type == perf::kAuxtrace ? u64_at(data, at + 8) : 0;
    at += u16_at(data, at + 6) + payload;
  }
  return out;
}

constexpr uint64_t kNasty[] = {
    0, 1, 7, 8, 0x7f, 0xff, 0xffff, 0x7fffffff, 0xffffffff, 0x7fffffffffffffff, ~0ULL, 1ULL << 40};

void set_bytes(Bytes& b, size_t at, uint64_t value, size_t width) {
  for (size_t i = 0; i < width && at + i < b.size(); ++i)
    b[at + i] = static_cast<uint8_t>(i < 8 ? value >> (8 * i) : 0);
}

// Mutation number n of a file, whatever its format.
void mutate_any(Bytes& b, SimRandom& r) {
  if (b.empty()) return;
  const size_t at = r.below(b.size());
  switch (r.below(7)) {
    case 0:
      b.resize(at);
      return;
    case 1:
      b[at] ^= static_cast<uint8_t>(1U << r.below(8));
      return;
    case 2:
      b[at] = static_cast<uint8_t>(r.next());
      return;
    case 3: {  // several bits in one place
      for (int i = 0; i < 8; ++i)
        b[std::min(b.size() - 1, at + r.below(32))] ^= static_cast<uint8_t>(1U << r.below(8));
      return;
    }
    case 4: {  // bytes inserted
      const Bytes more(1 + r.below(40), static_cast<uint8_t>(r.next()));
      b.insert(b.begin() + static_cast<std::ptrdiff_t>(at), more.begin(), more.end());
      return;
    }
    case 5: {  // bytes removed
      const size_t n = std::min<size_t>(b.size() - at, 1 + r.below(64));
      b.erase(b.begin() + static_cast<std::ptrdiff_t>(at), b.begin() + static_cast<std::ptrdiff_t>(at + n));
      return;
    }
    default: {  // two blocks swapped
      const size_t size = std::min<size_t>(8 + r.below(256), b.size() / 4);
      const size_t other = r.below(b.size() - size);
      const size_t one = std::min(at, b.size() - size);
      for (size_t i = 0; i < size; ++i) std::swap(b[one + i], b[other + i]);
    }
  }
}

// A wrong number somewhere in a record or in the file header.
void mutate_field(Bytes& b, const std::vector<size_t>& records, SimRandom& r) {
  const uint64_t value = kNasty[r.below(std::size(kNasty))];
  if (r.chance(20)) {  // file header and attributes
    set_bytes(b, r.below(52) * 8, value, 8);
    return;
  }
  const size_t record = records[r.below(records.size())];
  const size_t size = std::max<size_t>(8, u16_at(b, record + 6));
  switch (r.below(4)) {
    case 0:
      set_bytes(b, record + 6, r.chance(50) ? value : size + r.below(17) - 8, 2);
      return;  // its size
    case 1:
      set_bytes(b, record, r.below(90), 4);
      return;  // its type
    case 2:
      set_bytes(b, record + r.below(size / 8) * 8, value, 8);
      return;
    default:
      set_bytes(b, record + r.below(size / 4) * 4, value, 4);
      return;
  }
}

// Something in the feature bodies at the end of the file (BPF images, index).
void mutate_feature(Bytes& b, SimRandom& r) {
  const size_t begin = u64_at(b, 40) + u64_at(b, 48);
  if (begin >= b.size()) return;
  const size_t at = begin + r.below((b.size() - begin) / 4) * 4;
  set_bytes(b, at, kNasty[r.below(std::size(kNasty))], r.chance(50) ? 4 : 8);
}

// Packets: within the payload of an AUXTRACE record.
void mutate_trace(Bytes& b, const std::vector<size_t>& records, SimRandom& r) {
  std::vector<size_t> buffers;
  for (const size_t at : records) {
    if (b[at] == perf::kAuxtrace && b[at + 1] == 0) buffers.push_back(at);
  }
  const size_t at = buffers[r.below(buffers.size())];
  const size_t size = u64_at(b, at + 8), payload = at + 48;
  const uint64_t hits = 1 + r.below(6);
  for (uint64_t i = 0; i < hits; ++i) {
    const size_t where = payload + r.below(size);
    switch (r.below(4)) {
      case 0:
        b[where] ^= static_cast<uint8_t>(1U << r.below(8));
        break;
      case 1:
        b[where] = static_cast<uint8_t>(r.next());
        break;
      case 2:
        set_bytes(b, where, 0, std::min<size_t>(16, payload + size - where));
        break;
      default: {  // a piece of the trace repeated at another offset
        const size_t n = std::min<size_t>(32, payload + size - where);
        const size_t from = payload + r.below(size - n + 1);
        std::memmove(b.data() + where, b.data() + from, n);
      }
    }
  }
}

class Mutation : public testing::Test {
 protected:
  void SetUp() override { set_up("demo", 50'000); }
  void set_up(const char* demo, uint64_t least) {
    fs::copy(fs::path(ASOF_TEST_DATA) / demo / "perf.data", path_, fs::copy_options::recursive);
    data_ = read_bytes(path_ / "data");
    records_ = record_offsets(data_);
    const Outcome whole = run(path_, symfs_);
    ASSERT_TRUE(whole.opened);
    ASSERT_GT(whole.instructions, least);
  }

  // Runs `count` mutations of `file` made by `change`.
  void run_all(const std::string& file, unsigned count, uint64_t seed,
               const std::function<void(Bytes&, SimRandom&)>& change) {
    const Bytes original = read_bytes(path_ / file);
    run(path_, symfs_);  // fills the caches of the process
    const uint64_t before = resident_bytes();
    uint64_t most = 0, opened = 0, with_gaps = 0;
    count = static_cast<unsigned>(captures_of(count));
    for (unsigned n = 0; n < count; ++n) {
      SimRandom r(seed * 1'000'000 + n);
      Bytes b = original;
      change(b, r);
      write_bytes(path_ / file, b);
      SCOPED_TRACE("mutation " + std::to_string(n) + " of " + file + ", seed " + std::to_string(seed));
      const Outcome o = run(path_, symfs_);
      opened += o.opened, with_gaps += o.gaps > 0;
      EXPECT_FALSE(o.runaway);
      most = std::max(most, resident_bytes());
      if (HasFailure()) break;
    }
    write_bytes(path_ / file, original);
    // A damaged length must not size an allocation: the capture itself needs a few MiB.
    EXPECT_LT(most, before + kMostGrowth);
    EXPECT_GT(opened, 0U);
    std::printf("  %u mutations of %s: %llu opened, %llu with gaps, memory grew by %.1f MiB\n", count,
                file.c_str(), static_cast<unsigned long long>(opened),
                static_cast<unsigned long long>(with_gaps),
                static_cast<double>(most > before ? most - before : 0) / (1 << 20));
  }

#if defined(ASOF_ADDRESS_SANITIZER)
  static constexpr uint64_t kMostGrowth = 1ULL << 30;  // the sanitizer keeps freed memory for a while
#else
  static constexpr uint64_t kMostGrowth = 256ULL << 20;
#endif
  TempDir dir_;
  const fs::path path_ = dir_.path() / "perf.data";
  const fs::path symfs_ = fs::path(ASOF_TEST_DATA) / "demo/symfs";
  Bytes data_;
  std::vector<size_t> records_;
};

TEST_F(Mutation, AnyBytesOfTheFile) { run_all("data", 700, 1, mutate_any); }

TEST_F(Mutation, NumbersInRecordsAndHeader) {
  run_all("data", 700, 2, [this](Bytes& b, SimRandom& r) { mutate_field(b, records_, r); });
}

TEST_F(Mutation, NumbersInFeatures) { run_all("data", 300, 3, mutate_feature); }

TEST_F(Mutation, PacketsOfTheTrace) {
  run_all("data", 700, 4, [this](Bytes& b, SimRandom& r) { mutate_trace(b, records_, r); });
}

TEST_F(Mutation, KcoreAndKallsyms) {
  run_all("kcore_dir/kcore", 150, 5, mutate_any);
  run_all("kcore_dir/kallsyms", 100, 6, mutate_any);
  run_all("kcore_dir/modules", 50, 7, mutate_any);
}

TEST_F(Mutation, ThroughAPipeAndCompressed) {
  // The same content in the two other containers.
  for (const Compression c : {Compression::kRecord81, Compression::kRecord83}) {
    PerfDataWriter::Options options;
    options.compression = c;
    options.compressed_block = 512;
    PerfDataWriter w(options);
    w.add_attr({.sample_type = 0x10086, .ids = {1, 2}});
    for (uint64_t i = 0; i < 200; ++i) {
      w.comm(static_cast<int32_t>(i), static_cast<int32_t>(i), "task" + std::to_string(i), false,
             {.time = i, .has_id = true});
    }
    w.arch("x86_64");
    const fs::path file = dir_.path() / "compressed.data";
    for (const Bytes& original : {w.file_bytes(), w.pipe_bytes()}) {
      for (unsigned n = 0; n < 75; ++n) {
        SimRandom r(8'000'000 + n);
        Bytes b = original;
        mutate_any(b, r);
        write_bytes(file, b);
        const Outcome o = run(file, symfs_);
        EXPECT_FALSE(o.runaway);
      }
    }
  }
}

// CoreSight: registers in AUXTRACE_INFO, frames, ETM packets.
class MutationArm64 : public Mutation {
 protected:
  void SetUp() override { set_up("demo-arm64", 20'000); }
};

TEST_F(MutationArm64, AnyBytesOfTheFile) { run_all("data", 400, 11, mutate_any); }

TEST_F(MutationArm64, NumbersInRecordsAndHeader) {
  run_all("data", 400, 12, [this](Bytes& b, SimRandom& r) { mutate_field(b, records_, r); });
}

TEST_F(MutationArm64, FramesAndPackets) {
  run_all("data", 700, 14, [this](Bytes& b, SimRandom& r) { mutate_trace(b, records_, r); });
}

}  // namespace
}  // namespace asof::test
