// `asof validate` must pass sound captures and fail damaged ones, and say what is wrong and where: with and
// without a truth, on the demo captures and on those of boards (skipped where the captures beside the project
// are absent).
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>

#include "tests/support/damage.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/skip_without.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

struct Subject {
  const char* name;
  const char* data;   // perf.data directory
  const char* truth;  // beside it
  bool here;          // below tests/data
  bool bpf;
};
void PrintTo(const Subject& s, std::ostream* out) { *out << s.name; }

fs::path root(const Subject& s) {
  return s.here ? fs::path(ASOF_TEST_DATA) : fs::path(ASOF_SHARED_DIR) / "captures";
}

struct Verdict {
  int status = -1;
  nlohmann::json json;
  // Whether a check of this topic failed.
  bool failed(const std::string& topic) const {
    for (const auto& c : json["checks"]) {
      if (c["topic"] == topic && c["result"] == "fail") return true;
    }
    return false;
  }
  // Whether an answer or a location of a failed topic contains the text.
  bool names(const std::string& text) const {
    for (const auto& c : json["checks"]) {
      if (c["result"] == "fail" && c.dump().find(text) != std::string::npos) return true;
    }
    return false;
  }
  std::string all() const { return json.dump(1); }
};

class ValidateDamage : public ::testing::TestWithParam<Subject> {
 protected:
  void SetUp() override { SKIP_WITHOUT(data()); }
  fs::path data() const { return root(GetParam()) / GetParam().data; }
  std::string truth() const { return (root(GetParam()) / GetParam().truth).string(); }

  Verdict validate(const fs::path& capture, bool with_truth, const std::string& more = "") const {
    std::string command = "validate " + capture.string() + " --format json -q " + more;
    const fs::path beside = data().parent_path();
    for (const auto& [option, name] : std::map<std::string, std::string>{
             {"--symfs", "symfs"}, {"--kcore-end", "kcore.end"}, {"--ksym-text", "ksym_text.bin"}}) {
      if (fs::exists(beside / name)) command += " " + option + " " + (beside / name).string();
    }
    if (with_truth) command += " --truth " + truth();
    const Ran ran = run_asof(command);
    Verdict v{ran.status, nlohmann::json::parse(ran.out, nullptr, false)};
    EXPECT_FALSE(v.json.is_discarded()) << command << '\n' << ran.out << ran.err;
    if (v.json.is_discarded()) v.json = {{"checks", nlohmann::json::array()}};
    return v;
  }
};

std::string hex(Addr a) {
  std::ostringstream out;
  out << std::hex << a;
  return out.str();
}

TEST_P(ValidateDamage, SoundCapturePasses) {
  for (const bool with_truth : {false, true}) {
    const Verdict v = validate(data(), with_truth);
    EXPECT_EQ(v.status, 0) << v.all();
    EXPECT_TRUE(v.json["pass"].get<bool>());
    EXPECT_TRUE(v.json["reasons"].empty());
    EXPECT_EQ(v.json.contains("cpus"), with_truth);
  }
}

// The first and the last change of a site, and one in the middle of the recording.
TEST_P(ValidateDamage, DroppedPoke) {
  const size_t count = DamagedCapture(data(), TempDir().path()).pokes();
  ASSERT_GT(count, 4U);
  std::vector<size_t> dropped{0, count / 3, count / 2};
  // Without an end copy nothing shows the last change of a site that does not run again.
  if (GetParam().here) dropped = {0, count / 3, count / 2 + 2};
  for (const size_t index : dropped) {
    const TempDir dir;
    DamagedCapture damaged(data(), dir.path());
    const std::string address = hex(damaged.poke_address(index));
    damaged.drop_poke(index);
    const Verdict v = validate(damaged.path(), false);
    EXPECT_EQ(v.status, 3) << "poke " << index << " at " << address << '\n' << v.all();
    EXPECT_TRUE(v.failed("chain") || v.failed("start") || v.failed("batches")) << v.all();
    EXPECT_TRUE(v.names(address)) << "poke " << index << " at " << address << '\n' << v.all();
    const Verdict t = validate(damaged.path(), true);
    EXPECT_EQ(t.status, 3) << t.all();
    EXPECT_TRUE(t.names(address)) << t.all();
  }
}

TEST_P(ValidateDamage, SwappedBpfImages) {
  if (!GetParam().bpf) GTEST_SKIP() << "this capture has no images of BPF programs";
  const TempDir dir;
  DamagedCapture damaged(data(), dir.path());
  const auto ids = damaged.swap_bpf_images();
  ASSERT_EQ(ids.size(), 2U);
  for (const bool with_truth : {false, true}) {
    const Verdict v = validate(damaged.path(), with_truth);
    EXPECT_EQ(v.status, 3) << v.all();
    EXPECT_TRUE(v.failed("images") || v.failed("flow")) << v.all();
    const bool first =
        v.names("bpf prog id " + std::to_string(ids[0])) || v.names("program id " + std::to_string(ids[0]));
    const bool second =
        v.names("bpf prog id " + std::to_string(ids[1])) || v.names("program id " + std::to_string(ids[1]));
    EXPECT_TRUE(first || second) << v.all();
    if (with_truth) {
      EXPECT_TRUE(v.failed("truth") || v.failed("images")) << v.all();
    }
  }
}

TEST_P(ValidateDamage, ShiftedClock) {
  const bool derived = std::string(GetParam().name) == "arm64_board";  // no TIME_CONV record to be wrong
  for (const int64_t by : {int64_t{-20'000}, int64_t{40'000}, int64_t{-3'000'000}, int64_t{1'000'000'000}}) {
    // A demo is 0.1 ms long, and every call shows its clock; a derived clock is known to 1 us.
    if (!GetParam().here && std::abs(by) < 100'000) continue;
    const TempDir dir;
    DamagedCapture damaged(data(), dir.path());
    std::string option;
    if (derived) {
      const auto summary = nlohmann::json::parse(read_file(truth() + "/summary.json"));
      const auto& clock = summary["clock"];
      option = "--time-conv " + std::to_string(clock["time_shift"].get<unsigned>()) + "," +
               std::to_string(clock["time_mult"].get<uint64_t>()) + "," +
               std::to_string(clock["time_zero"].get<uint64_t>() + static_cast<uint64_t>(by));
    } else {
      damaged.shift_clock(by);
    }
    for (const bool with_truth : {false, true}) {
      const Verdict v = validate(damaged.path(), with_truth, option);
      EXPECT_EQ(v.status, 3) << by << '\n' << v.all();
      const bool said = v.names(by > 0 ? "ahead" : "behind");
      EXPECT_TRUE(said) << by << '\n' << v.all();
    }
  }
}

// Kernel instructions that ran, each once: address and bytes.
std::map<Addr, std::vector<uint8_t>> executed_kernel_code(const std::string& capture) {
  std::map<Addr, std::vector<uint8_t>> out;
  std::istringstream lines(run_asof("decode -q -F ip,insn " + capture).out);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string ip, tag, byte;
    words >> ip >> tag;
    if (ip.size() != 16 || ip[0] != 'f' || tag != "insn:") continue;
    auto [at, fresh] = out.try_emplace(std::stoull(ip, nullptr, 16));
    while (fresh && words >> byte && byte.size() == 2)
      at->second.push_back(static_cast<uint8_t>(std::stoul(byte, nullptr, 16)));
  }
  return out;
}

// The bit of a conditional branch that makes it another instruction; 0 if the instruction is no such branch.
struct Flip {
  size_t byte = 0;
  uint8_t bit = 0;
};
Flip flip_of(const std::vector<uint8_t>& insn, bool arm64) {
  if (!arm64) return !insn.empty() && insn[0] >= 0x70 && insn[0] < 0x80 ? Flip{0, 0x40} : Flip{};
  return insn.size() == 4 && insn[3] == 0x54 && (insn[0] & 0xfU) < 0xe ? Flip{3, 0x40} : Flip{};
}

TEST_P(ValidateDamage, FlippedByteInKcore) {
  if (!GetParam().here) GTEST_SKIP() << "the board's trace is not listed instruction by instruction here";
  const bool arm64 = std::string(GetParam().name) == "arm64_demo";
  const auto code =
      executed_kernel_code(data().string() + (arm64 ? "" : " --symfs " ASOF_TEST_DATA "/demo/symfs"));
  unsigned flipped = 0;
  for (const auto& [address, insn] : code) {
    const Flip f = flip_of(insn, arm64);
    const TempDir dir;
    if (f.bit == 0) continue;
    DamagedCapture damaged(data(), dir.path());
    if (!damaged.flip_kcore(address + f.byte, f.bit)) continue;
    ++flipped;
    const Verdict v = validate(damaged.path(), false);
    EXPECT_EQ(v.status, 3) << hex(address) << '\n' << v.all();
    EXPECT_TRUE(v.failed("flow") || v.failed("sync") || v.failed("text")) << v.all();
    const Verdict t = validate(damaged.path(), true);
    EXPECT_EQ(t.status, 3) << hex(address);
    EXPECT_TRUE(t.failed("truth")) << t.all();
    // The first difference is right after it: in the same function, or where its branch would have gone.
    EXPECT_TRUE(t.names(hex(address >> 8U))) << hex(address) << '\n' << t.all();
  }
  EXPECT_GE(flipped, 6U);
}

// The text of the copy is not where its first header says (Elf64_Phdr::p_offset).
TEST_P(ValidateDamage, MovedKcore) {
  if (!GetParam().here) GTEST_SKIP() << "takes minutes: the wrong text of a whole kernel has long loops";
  const TempDir dir;
  DamagedCapture damaged(data(), dir.path());
  const fs::path kcore = fs::path(damaged.path()) / "kcore_dir/kcore";
  auto bytes = read_bytes(kcore);
  uint64_t headers = 0;
  std::memcpy(&headers, &bytes.at(32), sizeof headers);
  bytes.at(headers + 8) = static_cast<uint8_t>(bytes.at(headers + 8) + 0x40);
  fs::remove(kcore);
  write_bytes(kcore, bytes);
  const Verdict v = validate(damaged.path(), false);
  EXPECT_EQ(v.status, 3) << v.all();
  EXPECT_TRUE(v.failed("copies")) << v.all();
  EXPECT_TRUE(v.names("kcore")) << v.all();
}

// With a second copy the two contradict each other, wherever the byte is and whether or not it ran.
TEST_P(ValidateDamage, FlippedByteAgainstTheEndCopy) {
  if (GetParam().here) GTEST_SKIP() << "this capture has no copy of kcore at its end";
  const std::string first = run_asof("text vfs_read -i " + data().string()).out;
  const Addr address = std::stoull(first.substr(0, 16), nullptr, 16) + 0x20;
  const TempDir dir;
  DamagedCapture damaged(data(), dir.path());
  ASSERT_TRUE(damaged.flip_kcore(address, 0x10));
  const Verdict v = validate(damaged.path(), false);
  EXPECT_EQ(v.status, 3) << v.all();
  EXPECT_TRUE(v.failed("chain")) << v.all();
  EXPECT_TRUE(v.names(hex(address))) << v.all();
  EXPECT_TRUE(v.names("vfs_read+0x20")) << v.all();
}

INSTANTIATE_TEST_SUITE_P(
    Capture, ValidateDamage,
    ::testing::Values(Subject{"demo", "demo/perf.data", "demo/truth", true, true},
                      Subject{"arm64_demo", "demo-arm64/perf.data", "demo-arm64/truth", true, false},
                      Subject{"x86_board", "x86-board-small/perf.data", "x86-board-small/truth", false, true},
                      Subject{"arm64_board", "arm64-board-tiny/poke.data", "arm64-board-tiny/truth", false,
                              false}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace asof::test
