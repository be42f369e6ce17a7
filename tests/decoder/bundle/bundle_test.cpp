#include <gtest/gtest.h>

#include "decoder/pipeline/pipeline.h"
#include "tests/decoder/capture_test_util.h"
#include "tests/support/pt_writer.h"

namespace asof {
namespace {

using namespace test;

class Bundle : public ::testing::Test {
 protected:
  Result<Capture> open(const std::string& manifest,
                       const std::vector<std::pair<std::string, Bytes>>& files = {}) {
    for (const auto& [name, bytes] : files) write_bytes(dir_ / name, bytes);
    write_text(dir_ / "bundle.json", manifest);
    write_bytes(dir_ / "trace.pt", Bytes(32, 0x02));
    Bytes text(256);
    for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<uint8_t>(i);
    write_bytes(dir_ / "text.img", text);
    return open_capture((dir_ / "bundle.json").string(), closed_options());
  }
  std::string reason(const std::string& manifest) {
    auto capture = open(manifest);
    EXPECT_FALSE(capture.has_value()) << manifest;
    if (capture) return "";
    EXPECT_EQ(family_of(capture.error().code), CodeFamily::kFile) << capture.error().code;
    EXPECT_TRUE(capture.error().where.starts_with(dir_.path().string()));
    return capture.error().reason;
  }
  static std::string with(const std::string& streams, const std::string& text, const std::string& more = "") {
    return R"({"format": "asof-bundle", "version": 1, "arch": "x86-64", "streams": [)" + streams +
           R"(], "text": [)" + text + "]" + more + "}";
  }
  static constexpr const char* kStream = R"({"file": "trace.pt", "cpu": 0})";
  TempDir dir_;
};

TEST_F(Bundle, ReadsEveryKey) {
  auto capture = open(
      with(R"({"file": "trace.pt", "cpu": 0}, {"file": "trace.pt", "tid": "0x10"})",
           R"({"file": "text.img", "address": "0x401000", "size": "0x10", "offset": 16})",
           R"(, "cpu": {"family": 6, "model": 94, "stepping": 3}, "pt": {"mtc_freq": 3, "tsc_ctc": [312, 2],
                                "max_nonturbo": 36, "has_cyc": true, "ret_compression": false, "cr3_filter": true, "ip_filter": true, "time_shift": 31, "time_mult": 827188715, "time_zero": "0xfffffffd4e5c1e19"})"));
  ASSERT_TRUE(capture.has_value()) << capture.error().reason;
  EXPECT_EQ(capture->kind, "bundle");
  EXPECT_EQ(capture->machine, "x86_64");
  const x86::Config& config = capture->x86;
  EXPECT_TRUE(config.cpu.intel);
  EXPECT_EQ(config.cpu.family, 6);
  EXPECT_EQ(config.cpu.model, 94);
  EXPECT_EQ(config.cpu.stepping, 3);
  EXPECT_EQ(config.mtc_freq, 3);
  EXPECT_EQ(config.tsc_ctc_n, 312U);
  EXPECT_EQ(config.tsc_ctc_d, 2U);
  EXPECT_EQ(config.max_nonturbo, 36);
  EXPECT_TRUE(config.has_cyc);
  EXPECT_FALSE(config.guest_text);
  EXPECT_TRUE(config.no_ret_compression);
  EXPECT_TRUE(config.cr3_filter);
  EXPECT_EQ(config.filter, std::vector<AddrRange>{{}});
  ASSERT_TRUE(config.time.has_value());
  EXPECT_EQ(config.time->zero, 0xfffffffd4e5c1e19U);
  ASSERT_EQ(capture->streams.size(), 2U);
  EXPECT_EQ(capture->streams[0].name, "cpu0");
  EXPECT_EQ(capture->streams[1].name, "tid16");
  EXPECT_EQ(capture->streams[1].tid, 16);
  EXPECT_EQ(capture->streams[0].pieces.at(0).bytes.size(), 32U);
  const Space user = capture->streams[0].context_at(0)->space;
  EXPECT_EQ(bytes_at(*capture->text, user, 0x401000, 4, 0), (Bytes{16, 17, 18, 19}));
  EXPECT_EQ(contents(*capture->text, user, 0x401010, 1, 0), (std::vector<Bytes>{{}}));
  EXPECT_TRUE(capture->arch().has_value());
}

// A recording of one virtual machine, with its text, has NR=1 in every PIP; a recording of a host also has
// others.
TEST_F(Bundle, TextOfAGuest) {
  const auto is_guest_text = [&](std::vector<bool> pips, const std::string& pt) {
    PtWriter w;
    for (const bool non_root : pips) {
      PsbPlus g;
      g.cr3 = 0x1000;
      g.non_root = non_root;
      w.psb_plus(g);
    }
    auto capture = open(with(R"({"file": "pips.pt", "cpu": 0})", "", pt), {{"pips.pt", w.bytes()}});
    EXPECT_TRUE(capture.has_value()) << capture.error().reason;
    return capture && capture->x86.guest_text;
  };
  EXPECT_FALSE(is_guest_text({}, ""));
  EXPECT_FALSE(is_guest_text({false}, ""));
  EXPECT_TRUE(is_guest_text({true, true}, ""));
  EXPECT_FALSE(is_guest_text({true, false, true}, ""));
  EXPECT_FALSE(is_guest_text({true, true}, R"(, "pt": {"guest": false})"));
  EXPECT_TRUE(is_guest_text({true, false}, R"(, "pt": {"guest": true})"));
}

// The kernel's way to user mode, with page-table isolation: the trace ends at the MOV to CR3 if that leaves the address
// space that is traced, and else at the SYSRET.
TEST_F(Bundle, MovToCr3LeavesTheTraceUnderACr3Filter) {
  constexpr Addr kCode = 0xffffffff81000000;
  PtWriter w;
  PsbPlus start;
  start.ip = kCode;
  w.psb_plus(start);
  w.tip_pgd();
  const Bytes code = {0x90, 0x0f, 0x22, 0xd8, 0x90, 0x48, 0x0f, 0x07};
  const auto executed = [&](const std::string& pt) {
    auto capture = open(with(R"({"file": "way.pt", "cpu": 0})",
                             R"({"file": "way.img", "address": "0xffffffff81000000"})", pt),
                        {{"way.pt", w.bytes()}, {"way.img", code}});
    EXPECT_TRUE(capture.has_value()) << capture.error().reason;
    struct : ChunkConsumer {
      void deliver(Chunk& chunk, const Stream&, Prepared*) override {
        for (const Step& step : chunk.steps) {
          Addr ip = step.block->ip;
          for (uint32_t i = 0; i < step.count; ip += step.block->lengths[i++]) ips.push_back(ip);
        }
      }
      std::vector<Addr> ips;
    } seen;
    EXPECT_TRUE(run_pipeline(*capture, {}, ChunkOrder::kByStream, seen).has_value());
    return seen.ips;
  };
  const std::vector<Addr> all = {kCode, kCode + 1, kCode + 4, kCode + 5}, filtered = {kCode, kCode + 1};
  EXPECT_EQ(executed(""), all);
  EXPECT_EQ(executed(R"(, "pt": {"cr3_filter": false})"), all);
  EXPECT_EQ(executed(R"(, "pt": {"cr3_filter": true})"), filtered);
}

TEST_F(Bundle, LaterPieceWinsWhereAndWhenItIsThere) {
  auto capture = open(with(kStream, R"({"file": "text.img", "address": "0xffffffff81000000"},
                                       {"file": "text.img", "address": "0xffffffff81000010", "size": 4, "offset": 64, "from": 100, "until": 200})"));
  ASSERT_TRUE(capture.has_value()) << capture.error().reason;
  const TextStore& text = *capture->text;
  const Addr a = 0xffffffff81000010;
  EXPECT_EQ(bytes_at(text, kKernelSpace, a, 4, 99), (Bytes{16, 17, 18, 19}));
  EXPECT_EQ(bytes_at(text, kKernelSpace, a, 4, 100), (Bytes{64, 65, 66, 67}));
  EXPECT_EQ(bytes_at(text, kKernelSpace, a, 4, 199), (Bytes{64, 65, 66, 67}));
  EXPECT_EQ(bytes_at(text, kKernelSpace, a, 4, 200), (Bytes{16, 17, 18, 19}));
  EXPECT_EQ(bytes_at(text, kKernelSpace, a + 4, 1, 150), (Bytes{20}));
}

TEST_F(Bundle, ArmHasItsOwnDecoder) {
  auto capture =
      open(R"({"format": "asof-bundle", "version": 1, "arch": "arm64", "streams": [], "text": []})");
  ASSERT_TRUE(capture.has_value());
  auto arch = capture->arch();
  ASSERT_TRUE(arch.has_value()) << arch.error().reason;
  EXPECT_EQ((*arch)->name(), "arm64");
}

TEST_F(Bundle, MistakesAreNamed) {
  EXPECT_NE(reason(with(kStream, "", R"(, "colour": 1)")).find("unknown key \"colour\""), std::string::npos);
  EXPECT_EQ(reason(with(R"({"file": "trace.pt", "cpu": 0, "core": 1})", "")),
            "streams[0]: unknown key \"core\"");
  EXPECT_EQ(reason(with(kStream, R"({"file": "text.img"})")), "text[0].address: missing");
  EXPECT_NE(reason(with(kStream, R"({"file": "text.img", "address": "401000"})"))
                .find("text[0].address: expected a number"),
            std::string::npos);
  EXPECT_NE(reason(with(kStream, R"({"file": "text.img", "address": 1.5})")).find("expected a number"),
            std::string::npos);
  EXPECT_NE(reason(with(kStream, R"({"file": "text.img", "address": -1})")).find("expected a number"),
            std::string::npos);
  EXPECT_NE(
      reason(with(kStream, R"({"file": "text.img", "address": 0, "size": 257})")).find("go beyond the file"),
      std::string::npos);
  EXPECT_NE(reason(with(kStream, R"({"file": "text.img", "address": 0, "offset": "0xffffffffffffffff"})"))
                .find("beyond"),
            std::string::npos);
  EXPECT_NE(reason(with(kStream, R"({"file": "text.img", "address": "0xfffffffffffffff0"})"))
                .find("end of the address space"),
            std::string::npos);
  EXPECT_NE(reason(with(kStream, R"({"file": "text.img", "address": "0x7ffffffffffffff0"})")).find("border"),
            std::string::npos);
  EXPECT_NE(
      reason(with(kStream, R"({"file": "text.img", "address": 0, "from": 5, "until": 5})")).find("not after"),
      std::string::npos);
  EXPECT_NE(reason(with(R"({"file": "trace.pt"})", "")).find("either \"cpu\" or \"tid\""), std::string::npos);
  EXPECT_NE(reason(with(R"({"file": "trace.pt", "cpu": 0, "tid": 1})", "")).find("either"),
            std::string::npos);
  EXPECT_NE(reason(with(R"({"file": "trace.pt", "cpu": 0}, {"file": "trace.pt", "cpu": 0})", ""))
                .find("second stream cpu0"),
            std::string::npos);
  EXPECT_NE(reason(with(R"({"file": "trace.pt", "cpu": 4294967296})", "")).find("too big"),
            std::string::npos);
  EXPECT_NE(reason(with(kStream, "", R"(, "pt": {"time_mult": 1})")).find("pt.time_shift: missing"),
            std::string::npos);
  EXPECT_NE(reason(with(kStream, "", R"(, "pt": {"tsc_ctc": [1, 0]})")).find("divisor"), std::string::npos);
  EXPECT_NE(reason(R"({"format": "asof-bundle", "version": 2, "arch": "x86-64", "streams": [], "text": []})")
                .find("version 2"),
            std::string::npos);
  EXPECT_NE(reason(R"({"format": "other"})").find("other"), std::string::npos);
  EXPECT_NE(reason(R"({"format": "asof-bundle", "format": "asof-bundle"})").find("appears twice"),
            std::string::npos);
  EXPECT_NE(reason(R"({"format": "asof-bundle")").find("not JSON"), std::string::npos);
  EXPECT_NE(reason(R"({"a": 1})").find("neither"), std::string::npos);
}

TEST_F(Bundle, MissingFileIsAnErrorWithItsPath) {
  auto capture = open(with(R"({"file": "none.pt", "cpu": 0})", ""));
  ASSERT_FALSE(capture.has_value());
  EXPECT_NE(capture.error().where.find("none.pt"), std::string::npos);
}

// 12 MB of brackets took 932 MB.
TEST_F(Bundle, JsonThatWouldFillTheMemoryIsRefused) {
  const auto expect = [&](const std::string& manifest, const char* why) {
    const std::string said = reason(R"({"format": )" + manifest + "}");
    EXPECT_NE(said.find(why), std::string::npos) << said;
  };
  expect(std::string(1'000'000, '['), "nested deeper than 64");
  std::string many = "[";
  for (int i = 0; i < 1'100'000; ++i) many += "0,";
  expect(many + "0]", "more than 1048576 values");
  EXPECT_TRUE(open(with(kStream, "")).has_value());
}

TEST_F(Bundle, DeeplyNestedJsonIsNoCrash) {
  const std::string deep = "{\"format\":" + std::string(200'000, '[') + std::string(200'000, ']') + "}";
  EXPECT_NE(reason(deep).find("nested deeper than 64"), std::string::npos);
}

}  // namespace
}  // namespace asof
