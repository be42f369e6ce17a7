// Containers: files of every header and attribute size, recordings of a killed perf, the other byte order,
// directories, pipes.
#include "decoder/perf/perf_data.h"

#include <sys/stat.h>

#include <thread>

#include "decoder/perf/records.h"
#include "tests/decoder/perf/perf_bytes.h"

namespace asof::test {
namespace {

constexpr uint64_t kPtType = kUsualSampleType | 1;  // and IP

// Two events, two tasks, one AUX buffer.
PerfBytes small_file(bool big_endian = false) {
  PerfBytes file(big_endian);
  file.attr({.type = 8, .config = 0x300e601, .sample_type = kPtType, .flags = kIdAll | 1, .ids = {11, 12}});
  file.attr({.sample_type = kUsualSampleType, .flags = kIdAll | 1ULL << 33 | 1ULL << 29, .ids = {21, 22}});
  file.intel_pt_info(0, 1);
  file.comm("made-up", {});
  file.comm("first", {.time = 1000, .cpu = 1, .pid = 40, .tid = 41, .id = 21});
  file.aux(0, 16, 0, {.time = 2000, .cpu = 1, .pid = 40, .tid = 41, .id = 12});
  file.auxtrace(1, 1, -1, 0, Bytes(16, 0x5a), 77);
  file.record(9, 2, [](ByteSink& s) {  // SAMPLE of the first event
    s.u64(11);
    s.u64(0x401000);
    s.u32(40);
    s.u32(42);
    s.u64(3000);
    s.u32(3);
    s.u32(0);
  });
  file.finished_round();
  file.feature(3, [](ByteSink& s) { PerfBytes::put_string(s, "board"); });
  file.feature(6, [](ByteSink& s) { PerfBytes::put_string(s, "x86_64"); });
  file.feature(7, [](ByteSink& s) {
    s.u32(8);
    s.u32(2);
  });
  return file;
}

void expect_small(const PerfData& data, bool pipe = false) {
  EXPECT_TRUE(data.notices().empty()) << data.notices()[0].reason;
  ASSERT_EQ(data.attrs().size(), 2U);
  const PerfAttr& pt = data.attrs()[0];
  EXPECT_EQ(pt.type, 8U);
  EXPECT_EQ(pt.config, 0x300e601U);
  EXPECT_EQ(pt.sample_type, kPtType);
  EXPECT_EQ(pt.flags, kIdAll | 1);
  EXPECT_EQ(pt.config2, 0x22U);
  EXPECT_EQ(pt.ids, (std::vector<uint64_t>{11, 12}));
  EXPECT_EQ(data.attrs()[1].flags, kIdAll | 1ULL << 33 | 1ULL << 29);
  EXPECT_EQ(data.feature_string(3), "board");
  EXPECT_EQ(data.feature_string(6), "x86_64");
  EXPECT_EQ(data.nr_cpus(), 2U);

  auto records = records_of(data);
  if (pipe) std::erase_if(records, [](const Record& r) { return r.type == 64 || r.type == 80; });
  ASSERT_EQ(records.size(), 7U);
  EXPECT_EQ(records[0].type, 70U);
  const SampleId& made_up = records[1].id;
  EXPECT_EQ(made_up.time, kTimeMin);
  EXPECT_EQ(made_up.cpu, -1);
  EXPECT_EQ(made_up.attr, &data.attrs()[0]);
  const SampleId& first = records[2].id;
  EXPECT_EQ(first.time, 1000);
  EXPECT_EQ(first.cpu, 1);
  EXPECT_EQ(first.pid, 40);
  EXPECT_EQ(first.tid, 41);
  EXPECT_EQ(first.id, 21U);
  EXPECT_EQ(first.attr, &data.attrs()[1]);
  EXPECT_EQ(parse_comm(records[2])->comm, "first");
  EXPECT_EQ(records[3].id.attr, &data.attrs()[0]);
  const SampleId& sample = records[5].id;
  EXPECT_EQ(sample.tid, 42);
  EXPECT_EQ(sample.time, 3000);
  EXPECT_EQ(sample.cpu, 3);
  EXPECT_EQ(sample.attr, &data.attrs()[0]);
  EXPECT_EQ(*parse_sample(records[5])->ip, 0x401000U);
  EXPECT_EQ(records[6].type, 68U);

  ASSERT_EQ(data.aux_buffers().size(), 1U);
  const AuxBuffer& buffer = data.aux_buffers()[0];
  EXPECT_EQ(buffer.idx, 1U);
  EXPECT_EQ(buffer.cpu, 1);
  EXPECT_EQ(buffer.tid, -1);
  EXPECT_EQ(buffer.reference, 77U);
  EXPECT_EQ(Bytes(buffer.bytes.begin(), buffer.bytes.end()), Bytes(16, 0x5a));
  ASSERT_EQ(data.aux_records().size(), 1U);
  EXPECT_EQ(data.aux_records()[0].size, 16U);
  EXPECT_EQ(data.aux_records()[0].id.time, 2000);
  ASSERT_TRUE(data.auxtrace_info());
  EXPECT_EQ(data.auxtrace_info()->priv.size(), 10U);
}

TEST(PerfDataFile, EverythingOfASmallOne) {
  const auto data = open_bytes(small_file().file());
  ASSERT_TRUE(data);
  EXPECT_FALSE(data->swapped());
  expect_small(*data);
}

TEST(PerfDataFile, RecordedInTheOtherByteOrder) {
  const auto data = open_bytes(small_file(true).file());
  ASSERT_TRUE(data);
  EXPECT_TRUE(data->swapped());
  expect_small(*data);
}

TEST(PerfDataFile, HeaderOf72BytesHasNoFeatures) {
  const auto data = open_bytes(small_file().file({.header_size = 72}));
  ASSERT_TRUE(data);
  EXPECT_EQ(data->attrs().size(), 2U);
  EXPECT_EQ(records_of(*data).size(), 7U);
  EXPECT_EQ(data->feature_string(3), "");
}

TEST(PerfDataFile, EveryAttributeSize) {
  for (const uint32_t size : {64U, 72U, 80U, 96U, 104U, 112U, 120U, 128U, 136U, 144U, 200U}) {
    PerfBytes file;
    file.attr({.ids = {5}, .size = size});
    file.attr({.type = 8, .ids = {6}, .size = size});
    file.comm("x", {.time = 9, .cpu = 2, .id = 6});
    const auto data = open_bytes(file.file());
    ASSERT_TRUE(data) << size;
    EXPECT_TRUE(data->notices().empty()) << size;
    ASSERT_EQ(data->attrs().size(), 2U) << size;
    EXPECT_EQ(data->attrs()[1].type, 8U);
    EXPECT_EQ(data->attrs()[1].config2, size >= 72 ? 0x22U : 0U);
    EXPECT_EQ(data->attrs()[1].aux_sample_size, size >= 120 ? 4096U : 0U) << size;
    EXPECT_EQ(records_of(*data).at(0).id.attr, &data->attrs()[1]);
  }
}

TEST(PerfDataFile, TrailingBytesAreNotLookedAt) {
  const auto data = open_bytes(small_file().file({.trailing = Bytes(1000, 0xff)}));
  ASSERT_TRUE(data);
  expect_small(*data);
}

TEST(PerfDataFile, KilledRecorderIsReadToTheEnd) {
  PerfBytes file;
  file.attr({.ids = {5}});
  file.comm("a", {.time = 1}).comm("b", {.time = 2});
  const auto data = open_bytes(file.file({.data_size_zero = true}));
  ASSERT_TRUE(data);
  EXPECT_EQ(records_of(*data).size(), 2U);
  ASSERT_TRUE(notice_of(data->notices(), Code::kUnfinishedRecording));
  EXPECT_EQ(notice_of(data->notices(), Code::kUnfinishedRecording)->severity, Notice::Severity::kLoss);
}

TEST(PerfDataFile, EmptyRecordingWithFeaturesIsNoKilledRecorder) {
  PerfBytes file;
  file.attr().feature(3, [](ByteSink& s) { PerfBytes::put_string(s, "quiet"); });
  const auto data = open_bytes(file.file());
  ASSERT_TRUE(data);
  EXPECT_TRUE(data->notices().empty());
  EXPECT_TRUE(records_of(*data).empty());
  EXPECT_EQ(data->feature_string(3), "quiet");
}

TEST(PerfDataFile, RefusedWithReasons) {
  const auto open_error = [](const Bytes& bytes) {
    const TempFile file(bytes);
    const auto opened = PerfData::open(file.path());
    EXPECT_FALSE(opened.has_value());
    if (opened) return Code::kNone;
    EXPECT_EQ(opened.error().where, file.path());
    return opened.error().code;
  };
  Bytes v1 = small_file().file();
  std::copy_n("PERFFILE", 8, v1.begin());
  EXPECT_EQ(open_error(v1), Code::kUnsupportedPerfData);
  EXPECT_EQ(open_error(Bytes(200, 'x')), Code::kNotPerfData);
  EXPECT_EQ(open_error({}), Code::kNotPerfData);
  Bytes odd_header = small_file().file();
  odd_header[8] = 90;
  EXPECT_EQ(open_error(odd_header), Code::kBadPerfHeader);
  Bytes no_attr_size = small_file().file();
  std::fill_n(no_attr_size.begin() + 16, 8, uint8_t{0});
  EXPECT_EQ(open_error(no_attr_size), Code::kBadPerfHeader);
  Bytes far_data = small_file().file();
  far_data[46] = 1;
  EXPECT_EQ(open_error(far_data), Code::kBadPerfHeader);
  const auto missing = PerfData::open("/nonexistent/perf.data");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, Code::kCannotReadInput);
}

TEST(PerfDataFile, AttributeIdsOutsideTheFileAreReported) {
  PerfBytes file;
  file.attr({.ids = {5}});
  file.comm("a", {.time = 1, .id = 5});
  Bytes bytes = file.file();
  bytes[104 + 8 + 128 + 7] = 0x7f;  // high byte of ids offset
  const auto data = open_bytes(bytes);
  ASSERT_TRUE(data);
  EXPECT_TRUE(notice_of(data->notices(), Code::kBadAttributes));
  EXPECT_EQ(data->attrs().size(), 1U);
  EXPECT_EQ(records_of(*data).size(), 1U);
}

// Many attributes that all state the same bytes as their ids must not multiply them.
TEST(PerfDataFile, IdsOfAllAttributesAreNotMoreThanTheFileHolds) {
  PerfBytes file;
  for (int i = 0; i < 50; ++i) file.attr();
  Bytes bytes = file.file();
  const uint64_t claimed = bytes.size() / 16 * 8;
  for (size_t i = 0; i < 50; ++i) {
    const size_t section = 104 + i * 144 + 128;
    for (size_t b = 0; b < 8; ++b) {
      bytes[section + b] = 0;
      bytes[section + 8 + b] = static_cast<uint8_t>(claimed >> (8 * b));
    }
  }
  const auto data = open_bytes(bytes);
  ASSERT_TRUE(data);
  ASSERT_EQ(data->attrs().size(), 50U);
  size_t ids = 0;
  for (const PerfAttr& attr : data->attrs()) ids += attr.ids.size();
  EXPECT_GT(ids, 0U);
  EXPECT_LE(ids, bytes.size() / 8);
  EXPECT_TRUE(notice_of(data->notices(), Code::kBadAttributes));
}

TEST(PerfDataPipe, FromAFile) {
  const auto data = open_bytes(small_file().pipe());
  ASSERT_TRUE(data);
  expect_small(*data, true);
  const auto swapped = open_bytes(small_file(true).pipe());
  ASSERT_TRUE(swapped);
  expect_small(*swapped, true);
}

TEST(PerfDataPipe, TracingDataAndNamesArriveAsRecords) {
  PerfBytes file;
  file.attr({.ids = {5}});
  file.record(66, 0, [](ByteSink& s) { s.u32(5); });
  file.raw(Bytes(8, 0xee));  // 5 bytes, padded
  file.record(78, 0, [](ByteSink& s) {
    s.u64(2);
    s.u64(5);
    s.c_string("intel_pt//u", 8);
  });
  file.record(67, 1 << 15 | 2, [](ByteSink& s) {
    s.u32(77);
    for (uint8_t i = 0; i < 20; ++i) s.u8(i);
    s.u8(4);
    s.zeros(3);
    s.c_string("/bin/true", 8);
  });
  const auto data = open_bytes(file.pipe());
  ASSERT_TRUE(data);
  EXPECT_TRUE(data->notices().empty());
  EXPECT_EQ(data->attrs()[0].name, "intel_pt//u");
  ASSERT_EQ(data->build_ids().size(), 1U);
  EXPECT_EQ(data->build_ids()[0].build_id, "00010203");
  EXPECT_EQ(data->build_ids()[0].filename, "/bin/true");
  EXPECT_EQ(data->build_ids()[0].pid, 77);
}

TEST(PerfDataPipe, FromARealPipe) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Bytes bytes = small_file().pipe();
  std::thread writer([&] {
    for (size_t at = 0; at < bytes.size(); at += 100) {  // in pieces, as a recorder writes
      const size_t n = std::min<size_t>(100, bytes.size() - at);
      EXPECT_EQ(::write(ends[1], bytes.data() + at, n), static_cast<ssize_t>(n));
    }
    ::close(ends[1]);
  });
  const int saved = ::dup(STDIN_FILENO);
  ::dup2(ends[0], STDIN_FILENO);
  const auto data = PerfData::open("-");
  writer.join();
  ::dup2(saved, STDIN_FILENO);
  ::close(saved);
  ::close(ends[0]);
  ASSERT_TRUE(data.has_value()) << data.error().reason;
  expect_small(**data, true);
}

class PerfDataDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::path(::testing::TempDir()) / ("asof-dir-" + std::to_string(::getpid()));
    std::filesystem::create_directory(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void put(const std::string& name, const Bytes& bytes) const {
    std::ofstream(path_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  std::filesystem::path path_;
};

TEST_F(PerfDataDirectory, DataAlone) {
  put("data", small_file().file());
  const auto data = PerfData::open(path_.string());
  ASSERT_TRUE(data.has_value());
  expect_small(**data);
  EXPECT_EQ((*data)->directory(), path_.string());
}

TEST_F(PerfDataDirectory, ThreadFilesInNumericOrder) {
  PerfBytes main;
  main.attr({.ids = {5}});
  main.comm("main", {.time = 1}).feature(24, [](ByteSink& s) { s.u64(1); });
  put("data", main.file());
  for (const int n : {10, 2, 0}) {
    PerfBytes part;
    part.comm("part" + std::to_string(n), {.time = 5, .cpu = static_cast<uint32_t>(n)});
    part.auxtrace(static_cast<uint32_t>(n), n, -1, 0, Bytes(8, static_cast<uint8_t>(n)));
    put("data." + std::to_string(n), part.data());
  }
  put("data.old", Bytes(10, 1));
  const auto data = PerfData::open(path_.string());
  ASSERT_TRUE(data.has_value());
  EXPECT_TRUE((*data)->notices().empty());
  std::vector<std::string> comms;
  std::vector<uint32_t> files;
  for (const Record& record : records_of(**data)) {
    if (record.type != 3) continue;
    comms.emplace_back(parse_comm(record)->comm);
    files.push_back(record.file);
  }
  EXPECT_EQ(comms, (std::vector<std::string>{"main", "part0", "part2", "part10"}));
  EXPECT_EQ(files, (std::vector<uint32_t>{0, 1, 2, 3}));
  ASSERT_EQ((*data)->aux_buffers().size(), 3U);
  EXPECT_EQ((*data)->aux_buffers()[2].cpu, 10);
}

TEST_F(PerfDataDirectory, MissingThreadFilesAreReported) {
  PerfBytes main;
  main.attr().feature(24, [](ByteSink& s) { s.u64(1); });
  put("data", main.file());
  const auto data = PerfData::open(path_.string());
  ASSERT_TRUE(data.has_value());
  EXPECT_TRUE(notice_of((*data)->notices(), Code::kBadDirectory));
}

// Whoever opened one would wait for somebody who writes.
TEST_F(PerfDataDirectory, FifosAreRefused) {
  ASSERT_EQ(::mkfifo((path_ / "data").c_str(), 0600), 0);
  const auto data = PerfData::open(path_.string());
  ASSERT_FALSE(data.has_value());
  EXPECT_EQ(data.error().code, Code::kNotRegularFile);

  std::filesystem::remove(path_ / "data");
  put("data", small_file().file());
  ASSERT_EQ(::mkfifo((path_ / "data.0").c_str(), 0600), 0);
  const auto rest = PerfData::open(path_.string());
  ASSERT_TRUE(rest.has_value());
  EXPECT_TRUE(notice_of((*rest)->notices(), Code::kNotRegularFile));
}

TEST_F(PerfDataDirectory, WithoutDataIsAnError) {
  const auto data = PerfData::open(path_.string());
  ASSERT_FALSE(data.has_value());
  EXPECT_EQ(data.error().code, Code::kCannotReadInput);
}

}  // namespace
}  // namespace asof::test
