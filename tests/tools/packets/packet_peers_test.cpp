// `asof packets` beside `perf script -D`, libipt's ptdump and OpenCSD's trc_pkt_lister, line by line (tests/peers/packets.py).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <regex>

#include "tests/support/skip_without.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/peer_perf.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

bool is_installed(const char* program) {
  return std::system(fmt::format("command -v {} >/dev/null", program).c_str()) == 0;
}

// How many packets were compared; nothing may differ.
size_t compared(const std::string& captures) {
  const TempDir dir;
  const std::string out = dir.path() / "out";
  const int status = std::system(
      fmt::format("python3 {}/../peers/packets.py {} {} >{} 2>&1", ASOF_TEST_DATA, ASOF_BINARY, captures, out)
          .c_str());
  const std::string text = read_file(out);
  EXPECT_EQ(status, 0) << text;
  size_t packets = 0;
  std::smatch found;
  for (const std::string& line : lines_of(text)) {
    if (std::regex_search(line, found, std::regex(": ([0-9]+) packets, 0 different")))
      packets += std::stoul(found[1]);
  }
  return packets;
}

TEST(PacketPeers, PerfPrintsTheSame) {
  ASOF_SKIP_WITHOUT_PERF();
  if (!is_installed("python3")) GTEST_SKIP() << "python3 is not installed";
  EXPECT_EQ(compared(ASOF_TEST_DATA "/demo/perf.data"), 9753U);
}

TEST(PacketPeers, PtdumpPrintsTheSame) {
  const std::string bundle = shared("corpus/griffin-hello/bundle.json");
  SKIP_WITHOUT(bundle);
  if (!is_installed("ptdump")) GTEST_SKIP() << "ptdump is not installed (of libipt's sources)";
  if (!is_installed("python3")) GTEST_SKIP() << "python3 is not installed";
  EXPECT_EQ(compared(bundle), 5343U);
}

// ETMv3, PTM, ETMv4 and ETE; frames, sources alone, frames of DSTREAM; bytes that are no packet.
TEST(PacketPeers, OpenCsdPrintsTheSame) {
  SKIP_WITHOUT(shared("corpus/ocsd-juno_r1_1"));
  if (!is_installed("trc_pkt_lister"))
    GTEST_SKIP() << "trc_pkt_lister is not installed (Debian package libopencsd-bin)";
  if (!is_installed("python3")) GTEST_SKIP() << "python3 is not installed";
  std::string all;
  for (const char* name :
       {"001-ack_test", "Snowball", "TC2", "a55-test-tpiu", "ete_mem", "infrastructure", "juno_r1_1",
        "maxspec0_commopt1", "rme_test", "tme_simple", "trace_file_cid_vmid", "ts_marker"})
    all += shared(fmt::format("corpus/ocsd-{} ", name));
  EXPECT_GT(compared(all), 110'000U);
}

}  // namespace
}  // namespace asof::test
