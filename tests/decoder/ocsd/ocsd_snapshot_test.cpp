// OpenCSD snapshots: a directory written here with every buffer format, ones with false values or truncated,
// and those of the corpus with the streams and sizes known of them.
#include "decoder/ocsd/ocsd_snapshot.h"

#include <gtest/gtest.h>

#include <ostream>
#include <random>

#include "tests/decoder/capture_test_util.h"
#include "tests/decoder/coresight/cs_test_util.h"
#include "tests/support/skip_without.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

// Files of a snapshot by name.
using Files = std::map<std::string, std::string>;

std::string text_of(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

Files small_snapshot() {
  Files f;
  f["snapshot.ini"] =
      "; made by hand\n[snapshot]\nversion=1.0\n\n[device_list]\ndevice0=cpu_0.ini\ndevice1=cpu_1.ini\n"
      "device2=etm_0.ini\ndevice3=etm_1.ini\ndevice4=stm.ini\n[trace]\nmetadata=trace.ini\n";
  f["trace.ini"] =
      "[trace_buffers]\nbuffers=b0, b1\n[b0]\nname=ETB_0\nfile=frames.bin\nformat=coresight\n"
      "[b1]\nname=ETB_1\nfile=raw.bin\nformat=source_data\n"
      "[source_buffers]\nETM_0=ETB_0\nETM_1=ETB_0,ETB_1\nSTM_0=ETB_0\n"
      "[core_trace_sources]\ncpu_0=ETM_0\ncpu_1=ETM_1\n";
  f["cpu_0.ini"] =
      "[device]\nname=cpu_0\nclass=core\ntype=Cortex-A57\n[regs]\nPC(size:64)=0x1000\n"
      "[dump1]\nfile=mem.bin\naddress=0x1000\nlength=0x20\noffset=0x10\n"
      "[dump2]\nfile=mem.bin\naddress=0xFFFF000000001000\n"
      "[dump3]\nfile=mem.bin\naddress=0x1010\nlength=0x20\n";
  f["cpu_1.ini"] = "[device]\nname=cpu_1\nclass=core\ntype=Cortex-A53\n";
  f["etm_0.ini"] =
      "[device]\nname=ETM_0\nclass=trace_source\ntype=ETM4\n[regs]\nTRCCONFIGR(0x004)=0xC1\n"
      "TRCTRACEIDR(0x010)=0x10\nTRCIDR0(0x078)=0x28000EA1\nTRCIDR1=0x4100F403\nTRCIDR2(0x07A)=0x488\n";
  f["etm_1.ini"] =
      "[device]\nname=ETM_1\nclass=trace_source\ntype=ETE\n[regs]\nTRCTRACEIDR=0x11\nTRCDEVARCH=0x47705a13\n";
  f["stm.ini"] = "[device]\nname=STM_0\nclass=trace_source\ntype=STM\n[regs]\nSTMTCSR(0x3A0)=0x00A00005\n";
  f["frames.bin"] = text_of(framed({{0x10, noise(1, 300)}, {0x11, noise(2, 200)}, {0x20, noise(3, 50)}}));
  f["raw.bin"] = text_of(noise(4, 99));
  Bytes memory(0x40);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<uint8_t>(i);
  f["mem.bin"] = text_of(memory);
  return f;
}

void write(const TempDir& dir, const Files& files) {
  for (const auto& [name, content] : files) write_text(dir.path() / name, content);
}

const Stream* stream_named(const Capture& capture, const std::string& name) {
  for (const Stream& stream : capture.streams) {
    if (stream.name == name) return &stream;
  }
  return nullptr;
}

Bytes first_content(const TextStore& text, Space space, Addr a, size_t n) {
  const auto all = contents(text, space, a, n, 0);
  return all.size() == 1 ? all[0] : Bytes{};
}

TEST(OcsdSnapshot, SourcesBuffersAndMemory) {
  const TempDir dir;
  write(dir, small_snapshot());
  const auto capture = open_capture(dir.path().string(), closed_options());
  ASSERT_TRUE(capture.has_value()) << capture.error().reason;
  EXPECT_EQ(capture->kind, "snapshot");
  EXPECT_EQ(capture->machine, "aarch64");
  ASSERT_EQ(capture->streams.size(), 3U);
  const Stream* zero = stream_named(*capture, "cpu_0");
  ASSERT_NE(zero, nullptr);
  EXPECT_EQ(stream_bytes(*zero), noise(1, 300));
  EXPECT_EQ(zero->cpu, 0);
  const Stream* framed_one = stream_named(*capture, "cpu_1:ETB_0");
  const Stream* raw_one = stream_named(*capture, "cpu_1:ETB_1");
  ASSERT_TRUE(framed_one != nullptr && raw_one != nullptr);
  EXPECT_EQ(stream_bytes(*framed_one), noise(2, 200));
  EXPECT_EQ(stream_bytes(*raw_one), noise(4, 99));
  EXPECT_EQ(capture->arm64.sources[0].configr, 0xc1U);
  EXPECT_EQ(capture->arm64.sources[0].trace_id, 0x10);
  EXPECT_EQ(capture->arm64.sources[1].protocol, arm64::Protocol::kEte);
  EXPECT_EQ(capture->arm64.sources[1].devarch, 0x47705a13U);
  EXPECT_NE(find_notice(*capture, Code::kNotInstructionTrace), nullptr);  // STM
  // Offset and length are honoured; of overlapping dumps with other bytes each is a candidate.
  const Space user = zero->contexts.at(0).space;
  EXPECT_EQ(first_content(*capture->text, user, 0x1000, 4), (Bytes{0x10, 0x11, 0x12, 0x13}));
  EXPECT_EQ(contents(*capture->text, user, 0x100c, 4, 0), (std::vector<Bytes>{{0x1c, 0x1d, 0x1e, 0x1f}}));
  EXPECT_EQ(contents(*capture->text, user, 0x101c, 4, 0),
            (std::vector<Bytes>{{0x0c, 0x0d, 0x0e, 0x0f}, {0x2c, 0x2d, 0x2e, 0x2f}}));
  const Notice* differ = find_notice(*capture, Code::kDumpNotUsed);
  ASSERT_NE(differ, nullptr);
  EXPECT_NE(differ->reason.find("0x1010-0x1020"), std::string::npos) << differ->reason;
  EXPECT_EQ(first_content(*capture->text, user, 0x1020, 4), (Bytes{0x10, 0x11, 0x12, 0x13}));
  EXPECT_EQ(first_content(*capture->text, kKernelSpace, 0xFFFF000000001000, 4), (Bytes{0, 1, 2, 3}));
  // Kernels change their text, and a dump has no time.
  EXPECT_TRUE(capture->text->cell(kKernelSpace, 0xFFFF000000001000).versions[0].unsure);
  EXPECT_FALSE(capture->text->cell(user, 0x1000).versions[0].unsure);
  EXPECT_NE(find_notice(*capture, Code::kChangesNotRecorded), nullptr);
}

TEST(OcsdSnapshot, SourceOfNoKnownTypeIsAnErrorWithTheSizeOfItsTrace) {
  for (const std::string type : {"", "type=EMT4\n"}) {
    const TempDir dir;
    Files files = small_snapshot();
    std::string& source = files.at("etm_0.ini");
    const size_t at = source.find("type=");
    ASSERT_NE(at, std::string::npos);
    source.replace(at, source.find('\n', at) + 1 - at, type);
    write(dir, files);
    const auto capture = open_capture(dir.path().string(), closed_options());
    ASSERT_TRUE(capture.has_value());
    const Notice* left_out = find_notice(*capture, Code::kTraceWithoutOwner);
    ASSERT_NE(left_out, nullptr);
    EXPECT_EQ(left_out->severity, Notice::Severity::kError);
    EXPECT_NE(left_out->reason.find("300 bytes"), std::string::npos) << left_out->reason;
  }
}

// Memory of different spaces at one address: it is not known which one a core saw.
TEST(OcsdSnapshot, MemorySpaces) {
  const TempDir dir;
  Files files = small_snapshot();
  files["cpu_0.ini"] =
      "[device]\nname=cpu_0\nclass=core\ntype=Cortex-A57\n[dump1]\nfile=mem.bin\naddress=0x1000\nspace=S\n"
      "[dump2]\nfile=mem.bin\naddress=0x1000\noffset=0x20\nspace=N\n";
  write(dir, files);
  const auto capture = open_capture((dir.path() / "snapshot.ini").string(), closed_options());
  ASSERT_TRUE(capture.has_value());
  EXPECT_EQ(contents(*capture->text, capture->streams[0].contexts[0].space, 0x1000, 4, 0).size(), 2U);
}

TEST(OcsdSnapshot, TracePortBlocks) {
  const TempDir dir;
  Files files = small_snapshot();
  EtmFrames frames(true);
  const Bytes trace = noise(5, 3000);
  frames.write(0x10, trace);
  frames.flush();
  std::string blocks;
  for (size_t at = 0; at < frames.bytes().size(); at += 504) {
    const size_t end = std::min(at + 504, frames.bytes().size());
    blocks += text_of(Bytes(frames.bytes().begin() + static_cast<ptrdiff_t>(at),
                            frames.bytes().begin() + static_cast<ptrdiff_t>(end)));
    if (end - at == 504) blocks += "probe123";
  }
  files["frames.bin"] = blocks;
  files["trace.ini"] =
      "[trace_buffers]\nbuffers=b0\n[b0]\nname=D\nfile=frames.bin\nformat=dstream_coresight\n"
      "[source_buffers]\nETM_0=D\n[core_trace_sources]\ncpu_0=ETM_0\n";
  write(dir, files);
  const auto capture = open_capture(dir.path().string(), closed_options());
  ASSERT_TRUE(capture.has_value());
  ASSERT_EQ(capture->streams.size(), 1U);
  EXPECT_EQ(stream_bytes(capture->streams[0]), trace);
  const auto position = capture->streams[0].file_offset(2500);
  ASSERT_TRUE(position.has_value());
  EXPECT_EQ(static_cast<uint8_t>(blocks[*position]) | 1U, trace[2500] | 1U);
}

TEST(OcsdSnapshot, MissingPartsAreReported) {
  const TempDir dir;
  Files files = small_snapshot();
  files["cpu_0.ini"] += "[dump4]\nfile=none.bin\naddress=0x9000\n[dump5]\nfile=mem.bin\naddress=here\n";
  files["cpu_0.ini"] += "[dump6]\nfile=mem.bin\naddress=0x8000\noffset=0x999\n";
  files["snapshot.ini"] += "[device_list2]\n";
  files["trace.ini"] += "ETM_9=ETB_0\n[b2]\nx=y\n";
  files.erase("raw.bin");
  write(dir, files);
  const auto capture = open_capture(dir.path().string(), closed_options());
  ASSERT_TRUE(capture.has_value());
  EXPECT_EQ(capture->streams.size(), 2U);
  EXPECT_NE(find_notice(*capture, Code::kBadSnapshot), nullptr);
  EXPECT_NE(find_notice(*capture, Code::kDumpNotUsed), nullptr);
  for (const char* name : {"trace.ini", "snapshot.ini"}) {
    Files without = small_snapshot();
    const TempDir other;
    without.erase(name);
    write(other, without);
    EXPECT_FALSE(open_ocsd_snapshot(other.path().string(), closed_options()).has_value()) << name;
  }
}

TEST(OcsdSnapshot, Mutations) {
  const Files whole = small_snapshot();
  std::mt19937 random(6);
  const TempDir dir;
  for (int round = 0; round < 400; ++round) {
    Files files = whole;
    auto victim = files.begin();
    std::advance(victim, static_cast<ptrdiff_t>(random() % files.size()));
    std::string& content = victim->second;
    for (auto i = 1 + random() % 8; i != 0; --i) {
      const size_t at = random() % content.size();
      if (random() % 4 == 0) {
        content.erase(at, random() % 20);
        if (content.empty()) content = "x";
      } else {
        content[at] = static_cast<char>(random() % 3 == 0 ? "[]=,\n;x0"[random() % 8] : random());
      }
    }
    write(dir, files);
    const auto capture = open_capture(dir.path().string(), closed_options());
    if (!capture) continue;
    ASSERT_EQ(capture->streams.size(), capture->arm64.sources.size());
    for (const Stream& stream : capture->streams) EXPECT_EQ(stream_bytes(stream).size(), stream.end());
  }
}

struct Known {
  const char* folder;
  std::map<unsigned, uint64_t> bytes;  // by trace ID
};
void PrintTo(const Known& k, std::ostream* out) { *out << k.folder; }
class OcsdCorpus : public ::testing::TestWithParam<Known> {};

TEST_P(OcsdCorpus, BytesOfEachSource) {
  const auto folder = fs::path(ASOF_SHARED_DIR) / GetParam().folder;
  SKIP_WITHOUT(folder);
  const auto capture = open_capture(folder.string(), closed_options());
  ASSERT_TRUE(capture.has_value()) << capture.error().reason;
  std::map<unsigned, uint64_t> bytes;
  for (size_t i = 0; i < capture->streams.size(); ++i)
    bytes[capture->arm64.sources[i].trace_id] += capture->streams[i].end();
  EXPECT_EQ(bytes, GetParam().bytes);
}

// Unformatted buffers: their size. Frames: the output of OpenCSD's deformatter for each ID
// (cs_frames_test.cpp compares the bytes themselves).
INSTANTIATE_TEST_SUITE_P(
    Snapshots, OcsdCorpus,
    ::testing::Values(
        Known{"corpus/ocsd-001-ack_test", {{0x02, 16168}}}, Known{"corpus/ocsd-ete_ip", {{0x02, 578}}},
        Known{"corpus/ocsd-rme_test", {{0x01, 422 + 193 + 422}}}, Known{"corpus/ocsd-s_9001", {{0x01, 290}}},
        Known{"corpus/ocsd-ete-wfet", {{0x01, 155}}}, Known{"corpus/ocsd-armv8_1m_branches", {{0x00, 33}}},
        Known{"corpus/ocsd-trace_cov_a15", {{0x02, 36}}}, Known{"corpus/ocsd-stm_only", {}},
        Known{"corpus/ocsd-itm_only_raw", {}}, Known{"corpus/ocsd-a57_single_step", {{0x10, 63}}},
        Known{"corpus/ocsd-juno_r1_1", {{0x10, 55273}, {0x11, 672}, {0x12, 672}, {0x13, 698}, {0x15, 2783}}},
        Known{"corpus/ocsd-juno-uname-002", {{0x16, 95730}}},
        Known{"corpus/ocsd-TC2", {{0x10, 10873}, {0x11, 10619}, {0x12, 3153}, {0x13, 4533}}},
        Known{"corpus/ocsd-Snowball", {{0x10, 4340}, {0x11, 3104}}},
        Known{"corpus/ocsd-a55-test-tpiu", {{0x01, 34371}}},
        Known{"corpus/ricsec-branches/trace1", {{0x10, 12993}}},
        Known{"captures/arm64-board-tiny/snapshot", {{0x10, 25032}, {0x12, 7938}}}));

}  // namespace
}  // namespace asof::test
