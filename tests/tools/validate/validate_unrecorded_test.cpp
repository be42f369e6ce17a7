// Validation of trace whose packets of the flow were not recorded: without TNT packets, or without any branch.
#include <nlohmann/json.hpp>

#include "tests/support/perf_data_writer.h"
#include "tests/support/pt_writer.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

constexpr uint64_t kText = 0xffffffff81000000;
constexpr uint64_t kUsual = pt_config_bit::kPt | pt_config_bit::kTsc;
constexpr uint64_t kNoTnt = 1ULL << 55U;  // arch/x86/events/intel/pt.c

nlohmann::json validate(uint64_t config) {
  PtWriter pt;
  const bool branches = (config & pt_config_bit::kBranch) != 0;
  PsbPlus plus;
  plus.tsc = 1'000;
  if (branches) plus.ip = kText;
  pt.psb_plus(plus);
  if (branches) pt.tip(kText + 0x20);
  pt.flush();
  PerfDataWriter w;
  w.add_attr({.type = 8, .config = config, .ids = {1}, .name = "intel_pt//"});
  w.add_attr({.flags = attr_flag::kSampleIdAll | attr_flag::kTextPoke, .ids = {3}});
  w.arch("x86_64");
  w.nr_cpus(1);
  PtInfoSpec info;
  info.time.cap_zero = true;
  w.auxtrace_info(info);
  w.time_conv(info.time);
  w.auxtrace({.offset = 0, .reference = 1, .cpu = 0}, pt.bytes());
  const TempDir dir;
  w.write_file(dir / "perf.data");
  const Ran ran = run_asof("validate --format json -q " + (dir / "perf.data").string());
  return nlohmann::json::parse(ran.out, nullptr, false);
}

nlohmann::json answer(const nlohmann::json& all, const char* topic) {
  for (const auto& check : all["checks"]) {
    if (check["topic"] == topic) return check;
  }
  return {};
}

TEST(ValidateUnrecorded, DisagreesWithNothingAndSaysWhyNothingWasDecoded) {
  const std::pair<uint64_t, const char*> kinds[] = {{kUsual | pt_config_bit::kBranch | kNoTnt, "E-DATA-011"},
                                                    {kUsual, "E-DATA-012"}};
  for (const auto& [config, code] : kinds) {
    const auto all = validate(config);
    ASSERT_FALSE(all.is_discarded());
    EXPECT_EQ(answer(all, "flow")["result"], "pass") << all;
    const auto confidence = answer(all, "confidence");
    EXPECT_EQ(confidence["result"], "fail") << all;
    EXPECT_NE(confidence["answer"].get<std::string>().find(code), std::string::npos) << confidence;
  }
}

}  // namespace
}  // namespace asof::test
