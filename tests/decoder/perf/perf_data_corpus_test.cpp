// Recordings of real machines and of the boards: their contents are known from other parsers.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "decoder/perf/records.h"
#include "tests/decoder/perf/perf_bytes.h"
#include "tests/support/skip_without.h"

namespace asof::test {
namespace {

std::filesystem::path shared(const std::string& name) {
  return std::filesystem::path(ASOF_SHARED_DIR) / name;
}

std::string our_name(const std::string& name) {
  if (name == "H_ATTR") return "HEADER_ATTR";
  if (name == "H_FEATURE") return "HEADER_FEATURE";
  return name;
}

// Records as in the file, without those that were packed.
std::map<std::string, uint64_t> outer_counts(const PerfData& data) {
  std::map<std::string, uint64_t> counts;
  data.for_each([&](const Record& record) {
    if (record.unpacked_offset == Error::kNoOffset) ++counts[record_type_name(record.type)];
    return true;
  });
  for (const uint32_t type : {81U, 83U}) {
    const auto found = data.record_counts().find(type);
    if (found != data.record_counts().end()) counts[record_type_name(type)] = found->second;
  }
  return counts;
}

void check_folder(const std::string& folder) {
  const auto path = shared("corpus/" + folder);
  SKIP_WITHOUT(path);
  std::ifstream in(path / "expected.json");
  const auto expected = nlohmann::json::parse(in, nullptr, false);
  ASSERT_TRUE(expected.is_object());
  size_t files = 0;
  for (const auto& [name, file] : expected.items()) {
    SCOPED_TRACE(name);
    const auto data = PerfData::open((path / name).string());
    ASSERT_TRUE(data.has_value()) << data.error().reason;
    std::map<std::string, uint64_t> counts;
    bool text_after = false;
    for (const auto& [type, count] : file.at("records").items()) {
      // "[ perf record: ..." from a terminal's output, which the other scanner read as a record.
      if (type == "T1701847131") {
        text_after = true;
      } else {
        counts[our_name(type)] = count.get<uint64_t>();
      }
    }
    EXPECT_EQ(outer_counts(**data), counts);
    const bool tells_attrs = file.contains("attrs");
    EXPECT_EQ((*data)->attrs().size(), tells_attrs ? file.at("attrs").get<uint64_t>() : 1U);
    uint64_t aux_bytes = 0;
    for (const AuxBuffer& buffer : (*data)->aux_buffers()) aux_bytes += buffer.bytes.size();
    EXPECT_EQ(aux_bytes, file.at("aux_bytes").get<uint64_t>());
    EXPECT_EQ((*data)->notices().size(), text_after ? 1U : 0U);
    ++files;
  }
  EXPECT_GT(files, 0U);
}

TEST(PerfCorpus, IntelPtOfQuipper) { check_folder("perfdata-intel_pt-quipper"); }
TEST(PerfCorpus, SideBand) { check_folder("perfdata-sideband"); }

// The same load recorded packed and plain, on two machines each: the contents of the packed records.
TEST(PerfCorpus, PackedRecordsAreTheRecordsOfAShortSleep) {
  const auto folder = shared("corpus/perfdata-sideband");
  SKIP_WITHOUT(folder);
  for (const char* name : {"lpd-sleep.compressed.data", "lpd-sleep.compressed.pipe.data",
                           "lpd-sleep.compressed2.data", "lpd-sleep.compressed2.pipe.data"}) {
    SCOPED_TRACE(name);
    const auto data = PerfData::open((folder / name).string());
    ASSERT_TRUE(data.has_value());
    std::map<uint32_t, uint64_t> inner;
    std::vector<std::string> comms;
    (*data)->for_each([&](const Record& record) {
      if (record.unpacked_offset == Error::kNoOffset) return true;
      ++inner[record.type];
      if (record.type == 3) comms.emplace_back(parse_comm(record)->comm);
      EXPECT_GT(record.time(), 0);
      EXPECT_NE(record.id.attr, nullptr);
      return true;
    });
    EXPECT_EQ(comms, std::vector<std::string>{"sleep"});
    EXPECT_EQ(inner.at(10), 4U);  // sleep, ld.so, libc, vdso
    EXPECT_EQ(inner.at(4), 1U);
    EXPECT_GE(inner.at(9), 7U);
  }
}

TEST(PerfCorpus, ProgramsOfARealKernelHaveTheirFunctions) {
  const auto path = shared("captures/perf-faults/live-bpf.perf.data");
  SKIP_WITHOUT(path);
  const auto data = PerfData::open(path.string());
  ASSERT_TRUE(data.has_value());
  EXPECT_TRUE((*data)->notices().empty());
  std::map<uint64_t, uint32_t> symbols;
  (*data)->for_each([&](const Record& record) {
    if (record.type != 17) return true;
    const auto symbol = parse_ksymbol(record);
    if (symbol && !symbol->unregister) symbols[symbol->addr] = symbol->len;
    return true;
  });
  ASSERT_EQ((*data)->bpf_images().size(), 2U);
  for (const BpfImage& image : (*data)->bpf_images()) {
    ASSERT_EQ(image.functions.size(), 2U);
    for (const auto& function : image.functions) {
      EXPECT_EQ(symbols.count(function.address), 1U) << fmt::format("{:#x}", function.address);
      EXPECT_FALSE(function.bytes.empty());
    }
  }
}

TEST(PerfCorpus, BoardCapturesOpenWithoutDamage) {
  const auto root = shared("captures");
  SKIP_WITHOUT(root);
  size_t captures = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const auto directory = entry.path();
    if (!entry.is_directory() || !std::filesystem::exists(directory / "data")) continue;
    if (directory.string().find("-board-") == std::string::npos) continue;
    SCOPED_TRACE(directory.string());
    const auto data = PerfData::open(directory.string());
    ASSERT_TRUE(data.has_value()) << data.error().reason;
    std::vector<Notice> notices((*data)->notices().begin(), (*data)->notices().end());
    const auto streams = make_streams(**data, notices);
    EXPECT_TRUE(notices.empty()) << notices[0].reason;
    EXPECT_FALSE(streams.empty());
    for (const Stream& stream : streams) {
      EXPECT_TRUE(stream.losses.empty());
      EXPECT_EQ(stream.begin(), 0U);
      for (const StreamPiece& piece : stream.pieces) EXPECT_FALSE(piece.discontinuity);
      // The true length is given by the AUX records; payloads are padded.
      uint64_t end = 0;
      for (const AuxRecord& record : (*data)->aux_records()) {
        if (record.id.cpu == stream.cpu) end = std::max(end, record.offset + record.size);
      }
      EXPECT_EQ(stream.end(), end);
    }
    (*data)->for_each([&](const Record& record) {
      EXPECT_EQ(describe_record(record).find("too short"), std::string::npos)
          << record_type_name(record.type);
      return true;
    });
    ++captures;
  }
  EXPECT_GE(captures, 14U);
}

}  // namespace
}  // namespace asof::test
