// Validation of a CoreSight buffer that wrapped: it begins in the middle of the trace.
#include <array>
#include <nlohmann/json.hpp>

#include "tests/support/etm_asm.h"
#include "tests/support/etm_writer.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

constexpr uint64_t kMain = 0xffff800008010000;

class ValidateWrapped : public testing::Test {
 protected:
  ValidateWrapped() {
    trace_.atoms("EENEENEE");  // of a flow whose sync point was overwritten
    for (int n = 0; n < 3; ++n) {
      trace_.async();
      trace_.trace_info({});
      if (n != 0) trace_.atoms("E");
      trace_.address_with_context(kMain, {});
      trace_.atoms("EEEEEEEE");
    }
    trace_.flush();
  }
  // The loop: a NOP, and `last`, which branches back to it.
  nlohmann::json validate(uint32_t last) {
    write(dir_.path() / "trace.bin", trace_.bytes());
    write(dir_.path() / "text.img", a64::bytes_of(std::array{a64::kNop, last, a64::kNop, a64::kNop}));
    std::ofstream(dir_.path() / "bundle.json")
        << R"({"format": "asof-bundle", "version": 1, "arch": "arm64", "etm": {"configr": 1, "idr0": "0x28000ea1"},
               "streams": [{"file": "trace.bin", "cpu": 0, "etm": {"trace_id": 16}}],
               "text": [{"file": "text.img", "address": "0xffff800008010000", "size": 16}]})";
    ran_ = run_asof("validate --format json -q " + (dir_.path() / "bundle.json").string());
    return nlohmann::json::parse(ran_.out, nullptr, false);
  }
  static nlohmann::json answer(const nlohmann::json& all, const char* topic) {
    for (const auto& check : all["checks"]) {
      if (check["topic"] == topic) return check;
    }
    return {};
  }

  Ran ran_;

 private:
  static void write(const std::filesystem::path& path, const std::vector<uint8_t>& bytes) {
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  EtmWriter trace_;
  TempDir dir_;
};

TEST_F(ValidateWrapped, WhatIsBeforeTheFirstSyncPointDisagreesWithNothing) {
  const auto all = validate(a64::b_cond(kMain + 4, kMain, 0));
  ASSERT_FALSE(all.is_discarded()) << ran_.out << ran_.err;
  EXPECT_EQ(answer(all, "flow")["result"], "pass") << all;
  EXPECT_EQ(answer(all, "losses")["result"], "note") << all;
  EXPECT_NE(answer(all, "losses")["places"].dump().find("E-DATA-002"), std::string::npos) << all;
  EXPECT_EQ(answer(all, "reference")["result"], "pass") << all;
  EXPECT_EQ(answer(all, "reference")["answer"],
            "OpenCSD finds the same 52 instructions in 3 segments, of which 2 without changing text");
  EXPECT_EQ(ran_.status, 0);
}

TEST_F(ValidateWrapped, OtherTextStillDisagrees) {
  const auto all = validate(a64::br(1));
  ASSERT_FALSE(all.is_discarded()) << ran_.out << ran_.err;
  EXPECT_EQ(ran_.status, 3);
}

}  // namespace
}  // namespace asof::test
