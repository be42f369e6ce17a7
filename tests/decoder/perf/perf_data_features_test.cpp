// Header features: what is read of each, and bodies with false contents.
#include "decoder/perf/records.h"
#include "tests/decoder/perf/perf_bytes.h"

namespace asof::test {
namespace {

// struct bpf_prog_info with what the reader looks at; `data` begins with the code.
struct BpfSpec {
  uint32_t id = 7;
  std::vector<std::pair<uint64_t, uint32_t>> functions;  // address, length
  uint32_t code = 0;                                     // jited_prog_len
  uint64_t arrays = 1 << 0 | 1 << 3 | 1 << 4;
  uint32_t info_len = 232;
  uint64_t ksyms_offset_error = 0;
};

void put_program(ByteSink& s, const BpfSpec& spec) {
  ByteSink data(s.big_endian());
  for (uint32_t i = 0; i < spec.code; ++i) data.u8(static_cast<uint8_t>(i));
  data.align(8);
  const uint64_t ksyms = data.size();
  for (const auto& [address, length] : spec.functions) data.u64(address);
  const uint64_t lens = data.size();
  for (const auto& [address, length] : spec.functions) data.u32(length);
  data.align(8);
  ByteSink info(s.big_endian());
  info.u32(1);
  info.u32(spec.id);
  for (uint8_t i = 0; i < 8; ++i) info.u8(static_cast<uint8_t>(0xa0 + i));
  info.u32(spec.code);
  info.u32(0);
  info.u64(0);  // jited_prog_insns: offset 0
  info.zeros(32);
  info.c_string("probe", 16);
  info.zeros(24);
  info.u32(static_cast<uint32_t>(spec.functions.size()));
  info.u32(static_cast<uint32_t>(spec.functions.size()));
  info.u64(ksyms + spec.ksyms_offset_error);
  info.u64(lens);
  Bytes info_bytes = std::move(info).take();
  info_bytes.resize(spec.info_len);
  s.u32(spec.info_len);
  s.u32(static_cast<uint32_t>(data.size()));
  s.u64(spec.arrays);
  s.raw(info_bytes);
  s.raw(data.bytes());
}

PerfDataPtr with_programs(const std::vector<BpfSpec>& programs, bool big = false, uint32_t count_error = 0) {
  PerfBytes file(big);
  file.attr().feature(25, [&](ByteSink& s) {
    s.u32(static_cast<uint32_t>(programs.size()) + count_error);
    for (const BpfSpec& program : programs) put_program(s, program);
  });
  return open_bytes(file.file());
}

TEST(PerfFeatures, BpfSubProgramsGetTheirOwnBytes) {
  for (const bool big : {false, true}) {
    const auto data = with_programs(
        {{.id = 7, .functions = {{0xffffffffc0001000, 10}, {0xffffffffc0002000, 3}}, .code = 13},
         {.id = 8, .functions = {{0xffffffffc0003000, 5}}, .code = 5, .info_len = 136}},
        big);
    ASSERT_TRUE(data);
    EXPECT_TRUE(data->notices().empty());
    ASSERT_EQ(data->bpf_images().size(), 2U);
    const BpfImage& image = data->bpf_images()[0];
    EXPECT_EQ(image.id, 7U);
    EXPECT_EQ(image.name, "probe");
    EXPECT_EQ(hex(image.tag), "a0a1a2a3a4a5a6a7");
    ASSERT_EQ(image.functions.size(), 2U);
    EXPECT_EQ(image.functions[0].address, 0xffffffffc0001000U);
    EXPECT_EQ(image.functions[0].bytes.size(), 10U);
    EXPECT_EQ(image.functions[1].address, 0xffffffffc0002000U);
    EXPECT_EQ(Bytes(image.functions[1].bytes.begin(), image.functions[1].bytes.end()), (Bytes{10, 11, 12}));
    EXPECT_EQ(data->bpf_images()[1].functions.at(0).bytes.size(), 5U);
  }
}

TEST(PerfFeatures, BpfProgramWithoutCodeIsKept) {
  const auto data = with_programs({{.functions = {{0xffffffffc0001000, 10}}, .code = 10, .arrays = 0}});
  EXPECT_TRUE(data->notices().empty());
  ASSERT_EQ(data->bpf_images().size(), 1U);
  EXPECT_TRUE(data->bpf_images()[0].functions.empty());
}

TEST(PerfFeatures, BpfLiesAreReportedAndBounded) {
  const auto too_long = with_programs({{.functions = {{0x1000, 10}, {0x2000, 4}}, .code = 13}});
  EXPECT_TRUE(notice_of(too_long->notices(), Code::kBadFeature));
  EXPECT_EQ(too_long->bpf_images()[0].functions.size(), 1U);
  const auto outside =
      with_programs({{.functions = {{0x1000, 10}}, .code = 10, .ksyms_offset_error = 1U << 20},
                     {.id = 9, .functions = {{0x2000, 4}}, .code = 4}});
  EXPECT_TRUE(notice_of(outside->notices(), Code::kBadFeature));
  ASSERT_EQ(outside->bpf_images().size(), 2U);  // the next block is found nevertheless
  EXPECT_EQ(outside->bpf_images()[1].functions.size(), 1U);
  const auto count = with_programs({{.functions = {{0x1000, 4}}, .code = 4}}, false, 1000000);
  EXPECT_TRUE(notice_of(count->notices(), Code::kBadFeature));
  EXPECT_EQ(count->bpf_images().size(), 1U);
}

TEST(PerfFeatures, BpfBtf) {
  PerfBytes file;
  file.attr().feature(26, [](ByteSink& s) {
    s.u32(2);
    s.u32(3);
    s.u32(4);
    s.u32(0x01020304);
    s.u32(5);
    s.u32(1000);  // more than are present
  });
  const auto data = open_bytes(file.file());
  ASSERT_EQ(data->bpf_btf().size(), 1U);
  EXPECT_EQ(data->bpf_btf()[0].first, 3U);
  EXPECT_EQ(data->bpf_btf()[0].second.size(), 4U);
  EXPECT_TRUE(notice_of(data->notices(), Code::kBadFeature));
}

TEST(PerfFeatures, BuildIdsWithAndWithoutSize) {
  for (const bool big : {false, true}) {
    PerfBytes file(big);
    file.attr().feature(2, [&](ByteSink& s) {
      s.raw(file.record_bytes(67, 1, [](ByteSink& e) {
        e.u32(UINT32_MAX);
        for (int i = 0; i < 20; ++i) e.u8(0xbb);
        e.zeros(4);
        e.c_string("[kernel.kallsyms]", 64);
      }));
      s.raw(file.record_bytes(67, 2 | 1 << 15, [](ByteSink& e) {
        e.u32(5);
        for (int i = 0; i < 20; ++i) e.u8(0xcc);
        e.u8(16);
        e.zeros(3);
        e.c_string("/lib/x", 64);
      }));
    });
    const auto data = open_bytes(file.file());
    ASSERT_EQ(data->build_ids().size(), 2U);
    EXPECT_EQ(data->build_ids()[0].pid, -1);
    EXPECT_EQ(data->build_ids()[0].build_id.size(), 40U);
    EXPECT_EQ(data->build_ids()[0].filename, "[kernel.kallsyms]");
    EXPECT_EQ(data->build_ids()[1].build_id, std::string(32, 'c'));
  }
}

TEST(PerfFeatures, BuildIdEntryThatRunsOut) {
  PerfBytes file;
  file.attr().feature(2, [](ByteSink& s) {
    s.u32(67);
    s.u16(1);
    s.u16(4);  // smaller than a header: would never advance
    s.zeros(100);
  });
  const auto data = open_bytes(file.file());
  EXPECT_TRUE(notice_of(data->notices(), Code::kBadFeature));
  EXPECT_TRUE(data->build_ids().empty());
}

TEST(PerfFeatures, StringsCommandLineNamesAndClock) {
  for (const bool big : {false, true}) {
    PerfBytes file(big);
    file.attr({.type = 8, .ids = {31, 32}}).attr({.ids = {41}});
    file.feature(4, [](ByteSink& s) { PerfBytes::put_string(s, "6.1.0"); });
    file.feature(9, [](ByteSink& s) { PerfBytes::put_string(s, "GenuineIntel,6,94,3"); });
    file.feature(11, [](ByteSink& s) {
      s.u32(2);
      PerfBytes::put_string(s, "perf");
      PerfBytes::put_string(s, "record");
    });
    file.feature(12, [](ByteSink& s) {
      s.u32(2);
      s.u32(128);
      s.zeros(128);
      s.u32(1);
      PerfBytes::put_string(s, "dummy:u");
      s.u64(41);  // the second attribute's
      s.zeros(128);
      s.u32(2);
      PerfBytes::put_string(s, "intel_pt//");
      s.u64(31);
      s.u64(32);
    });
    file.feature(16, [](ByteSink& s) {
      s.u32(2);
      s.u32(8);
      PerfBytes::put_string(s, "intel_pt");
      s.u32(4);
      PerfBytes::put_string(s, "cpu");
    });
    file.feature(29, [](ByteSink& s) {
      s.u32(1);
      s.u32(1);
      s.u64(1700000000000000000);
      s.u64(5000);
    });
    file.feature(200, [](ByteSink& s) { s.u64(1); });  // of a later perf
    const auto data = open_bytes(file.file());
    EXPECT_TRUE(data->notices().empty());
    EXPECT_EQ(data->feature_string(4), "6.1.0");
    EXPECT_EQ(data->feature_string(9), "GenuineIntel,6,94,3");
    EXPECT_EQ(data->feature_string(8), "");
    EXPECT_EQ(data->command_line(), (std::vector<std::string>{"perf", "record"}));
    EXPECT_EQ(data->attrs()[0].name, "intel_pt//");
    EXPECT_EQ(data->attrs()[1].name, "dummy:u");
    ASSERT_EQ(data->pmu_mappings().size(), 2U);
    EXPECT_EQ(data->pmu_mappings()[0], (std::pair<uint32_t, std::string>(8, "intel_pt")));
    ASSERT_TRUE(data->clock_data());
    EXPECT_EQ(data->clock_data()->clock_ns, 5000U);
    EXPECT_EQ(data->feature(200).size(), 8U);
  }
}

TEST(PerfFeatures, CountsThatLieEndQuickly) {
  PerfBytes file;
  file.attr({.ids = {1}});
  for (const int bit : {11, 12, 16, 25, 26}) file.feature(bit, [](ByteSink& s) { s.u32(UINT32_MAX); });
  const auto data = open_bytes(file.file());
  ASSERT_TRUE(data);
  EXPECT_TRUE(data->command_line().empty());
  EXPECT_GE(data->notices().size(), 4U);
}

TEST(PerfFeatures, BodyOutsideTheFileIsSkipped) {
  PerfBytes file;
  file.attr().comm("x", {.time = 4}).feature(3, [](ByteSink& s) { PerfBytes::put_string(s, "far"); });
  file.feature(4, [](ByteSink& s) { PerfBytes::put_string(s, "near"); });
  Bytes bytes = file.file();
  bytes[file.data_offset() + file.data_size() + 6] = 1;  // offset of the first body
  const auto data = open_bytes(bytes);
  EXPECT_TRUE(notice_of(data->notices(), Code::kFeaturesTruncated));
  EXPECT_EQ(data->feature_string(3), "");
  EXPECT_EQ(data->feature_string(4), "near");
}

}  // namespace
}  // namespace asof::test
