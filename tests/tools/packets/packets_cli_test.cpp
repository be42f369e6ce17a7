// asof packets as a user runs it: lines, filters, formats, wrong options, damaged and hostile captures.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

const std::string kPt = ASOF_TEST_DATA "/demo/perf.data";
const std::string kEtm = ASOF_TEST_DATA "/demo-arm64/perf.data";

std::vector<std::string> packets(const std::string& arguments) {
  const Ran r = run_asof("packets -q " + arguments);
  EXPECT_EQ(r.status, 0) << r.err;
  return lines_of(r.out);
}

// Its symfs/bin is a link, as on the machine.
TEST(PacketsCli, ArchivesMayHaveLinksInThem) {
  const Ran r = run_asof("packets --count " ASOF_TEST_DATA "/machine-6.12-arm64/user-true.tar.xz");
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("Atom.F1"), std::string::npos) << r.out;
}

TEST(PacketsCli, LinesHaveStreamOffsetTimeNameAndMeaning) {
  const auto pt = packets(kPt);
  ASSERT_GT(pt.size(), 9'000U);
  EXPECT_EQ(pt[0], "cpu0 0x00000000      5.999999999 PSB");
  EXPECT_EQ(pt[1], "cpu0 0x00000010      5.999999999 TSC       0x8f0d1800");
  EXPECT_EQ(pt[8], "cpu0 0x00000031      5.999999999 TIP.PGE   0x401000 ip_bits 32 payload 0x401000");
  EXPECT_EQ(pt[10], "cpu0 0x00000039      5.999999999 TNT.8     TTT count 3");
  const std::regex line(R"(cpu\d+ 0x[0-9a-f]{8,} +(-|\d+\.\d{9}) [A-Z][A-Za-z.0-9]*( +[^ ].*)?)");
  for (const std::string& l : pt) EXPECT_TRUE(std::regex_match(l, line)) << l;
  const auto etm = packets(kEtm);
  ASSERT_GT(etm.size(), 7'000U);
  EXPECT_EQ(
      etm[4],
      "cpu0 0x00000016      6.000000000 Address.64.Context   0xffff800008010034 is 0 el 1 AArch64 ns 1");
}

// The list is the same however it is cut.
TEST(PacketsCli, PartsMakeTheWhole) {
  const auto all = packets(kPt + " -C 0");
  const auto in = [&](const std::string& more) { return packets(kPt + " -C 0 " + more); };
  auto joined = in("--offset ,0x1003");
  const auto rest = in("--offset 0x1003,");
  const bool cut = !joined.empty() && !rest.empty() && joined.back() == rest.front();
  joined.insert(joined.end(), rest.begin() + (cut ? 1 : 0), rest.end());
  EXPECT_EQ(joined, all) << "a packet over the border is in both";
  auto typed = in("--type TNT");
  const auto others = in("--type ^TNT");
  EXPECT_EQ(typed.size() + others.size(), all.size());
  for (const std::string& l : typed) EXPECT_NE(l.find(" TNT."), std::string::npos) << l;
  EXPECT_EQ(in("--time ,6.00001").size() + in("--time 6.000010001,").size(), all.size());
  EXPECT_EQ(packets(kPt).size(), all.size() + packets(kPt + " -C 1").size());
}

TEST(PacketsCli, TypesAreFoundByName) {
  const auto names = [&](const std::string& list) {
    std::set<std::string> out;
    for (const std::string& l : packets(kPt + " --type '" + list + "'")) {
      out.insert(l.substr(33, l.find(' ', 33) - 33));
    }
    return out;
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(names("tip"), Names{"TIP"});
  EXPECT_EQ(names("TIP*"), (Names{"TIP", "TIP.PGE", "TIP.PGD"}));
  EXPECT_EQ(names("tip_pge,psb"), (Names{"TIP.PGE", "PSB"}));
  EXPECT_EQ(names("mode"), Names{"MODE.Exec"});
  EXPECT_EQ(names("TIP*,^TIP.PGD"), (Names{"TIP", "TIP.PGE"}));
  const Ran near = run_asof("packets " + kPt + " --type TIPP");
  EXPECT_EQ(near.status, 1);
  EXPECT_NE(near.err.find("did you mean 'TIP'"), std::string::npos) << near.err;
  EXPECT_EQ(run_asof("packets -q --strict " + kPt + " --type BBP").status, 3) << "there is none";
  EXPECT_NE(run_asof("packets " + kPt + " --type BBP").err.find("no packet that was asked for is a BBP"),
            std::string::npos);
}

TEST(PacketsCli, JsonAndCsvSayTheSame) {
  for (const std::string& capture : {kPt, kEtm}) {
    const auto text = packets(capture + " --raw");
    const auto json = packets(capture + " --raw --format jsonl");
    const auto csv = packets(capture + " --raw --format csv");
    ASSERT_EQ(json.size(), text.size());
    ASSERT_EQ(csv.size(), text.size() + 1);
    uint64_t end = 0;
    std::string stream;
    for (size_t i = 0; i < json.size(); ++i) {
      const auto j = nlohmann::json::parse(json[i]);
      const std::string name = j["packet"];
      EXPECT_NE(text[i].find(" " + name), std::string::npos) << json[i];
      EXPECT_NE(csv[i + 1].find("," + name + ","), std::string::npos) << csv[i + 1];
      EXPECT_NE(text[i].find(fmt::format("0x{:08x} ", j["offset"].get<uint64_t>())), std::string::npos);
      if (j["type"] == "packet") {
        EXPECT_EQ(j["bytes"].get<std::string>().size(), 3 * j["size"].get<uint64_t>() - 1) << json[i];
      }
      if (j["stream"] == stream && j["type"] == "packet") {
        EXPECT_EQ(j["offset"].get<uint64_t>(), end) << json[i];
      }
      stream = j["stream"];
      end = j["offset"].get<uint64_t>() + (name == "LOST" ? 0 : j["size"].get<uint64_t>());
    }
  }
}

TEST(PacketsCli, CountsAreThoseOfTheList) {
  const auto list = packets(kPt + " --format jsonl");
  std::map<std::string, std::pair<uint64_t, uint64_t>> want;
  for (const std::string& l : list) {
    const auto j = nlohmann::json::parse(l);
    auto& [n, bytes] = want[j["packet"]];
    ++n;
    bytes += j["size"].get<uint64_t>();
  }
  std::map<std::string, std::pair<uint64_t, uint64_t>> got;
  for (const std::string& l : packets(kPt + " --count --format jsonl")) {
    const auto j = nlohmann::json::parse(l);
    got[j["packet"]] = {j["packets"], j["bytes"]};
  }
  EXPECT_EQ(got, want);
  EXPECT_TRUE(packets(kPt + " --count").back().starts_with("LOST "));
}

// The flow stands under its packets: all of it, and the list stays what it is without.
TEST(PacketsCli, FlowBesideThePackets) {
  const std::string boards[] = {ASOF_TEST_DATA "/board-x86/capture.tar.xz",
                                ASOF_TEST_DATA "/board-arm64/capture.tar.xz"};
  for (const std::string& capture : {kDemo, kEtm, boards[0], boards[1]}) {
    const Ran with = run_asof("packets --flow " + capture);
    ASSERT_EQ(with.status, 0) << with.err;
    EXPECT_EQ(with.err.find("could not be matched"), std::string::npos) << with.err;
    std::string list;
    uint64_t instructions = 0;
    for (const std::string& l : lines_of(with.out)) {
      if (!l.starts_with("    "))
        list += l + "\n";
      else if (l.starts_with("    0x"))
        instructions += std::stoull(l.substr(l.find(' ', 4)));
      EXPECT_EQ(l.find("which packet is not known"), std::string::npos) << l;
    }
    EXPECT_EQ(list, run_asof("packets -q " + capture).out);
    const std::string digest = run_asof("digest -q " + capture).out;
    EXPECT_NE(digest.find(fmt::format("total instructions {} ", instructions)), std::string::npos) << digest;
  }
}

// Where a packet has the address that the flow goes to, it is that of the first block under it.
TEST(PacketsCli, FlowIsUnderThePacketThatMadeItRun) {
  std::string tip;
  size_t tips = 0;
  for (const std::string& l : packets("--flow --type TNT,TIP,TIP.PGE,FUP,OVF,PSB,TIP.PGD " + kDemo)) {
    if (l.starts_with("    0x")) {
      if (!tip.empty()) {
        EXPECT_EQ(l.substr(4, tip.size()), tip) << l;
        ++tips;
      }
      tip.clear();
    } else {
      tip = l.find(" TIP ") != std::string::npos
                ? l.substr(l.find("0x", 33), l.find(" ip_bits") - l.find("0x", 33))
                : "";
    }
  }
  EXPECT_GT(tips, 4'000U);
  EXPECT_EQ(packets("--flow -j 1 " + kDemo), packets("--flow -j 2 " + kDemo));
  for (const std::string& l : packets("--flow --format jsonl " + kDemo))
    ASSERT_TRUE(nlohmann::json::accept(l)) << l;
  EXPECT_EQ(run_asof("packets --flow --count " + kPt).status, 1);
  EXPECT_EQ(run_asof("packets --flow --format csv " + kPt).status, 1);
}

TEST(PacketsCli, FlowIsUnderTheAddressWhereItIs) {
  std::string address;
  size_t seen = 0;
  for (const std::string& l : packets("--flow " + kEtm)) {
    if (l.starts_with("    0x")) {
      if (!address.empty()) {
        EXPECT_EQ(l.substr(4, address.size()), address) << l;
        ++seen;
      }
      address.clear();
    } else {
      const size_t at = l.find("0x", 33);
      address = l.find(" Address.") != std::string::npos ? l.substr(at, l.find(' ', at) - at) : "";
    }
  }
  EXPECT_GT(seen, 1'000U);
}

TEST(PacketsCli, ColoursOnlyWhereTheyAreWanted) {
  EXPECT_EQ(run_asof("packets " + kPt).out.find('\033'), std::string::npos);
  EXPECT_NE(run_asof("packets --color always " + kPt).out.find("\033[32mTNT.8\033[0m"), std::string::npos);
  EXPECT_EQ(run_asof("packets --color always --format jsonl " + kPt).out.find('\033'), std::string::npos);
}

TEST(PacketsCli, TasksByTheTimeOfThePackets) {
  // Three threads, and what ran them all.
  const auto all = packets(kPt);
  size_t sum = 0;
  for (const int tid : {1201, 1202, 1203}) {
    const auto some = packets(fmt::format("{} --tid {}", kPt, tid));
    EXPECT_FALSE(some.empty());
    EXPECT_EQ(packets(fmt::format("{} --pid {}", kPt, tid)), some);
    sum += some.size();
  }
  EXPECT_EQ(sum, all.size());
  const Ran none = run_asof("packets " + kPt + " --tid 99999");
  EXPECT_EQ(none.status, 0);
  EXPECT_EQ(none.out, "");
  EXPECT_NE(none.err.find("--tid 99999 matches nothing"), std::string::npos) << none.err;
}

TEST(PacketsCli, WrongOptionsAndInputs) {
  for (const char* wrong : {"--offset 5", "--offset 9,5", "--offset x,", "--format xml", "-C x", "--time 5,4",
                            "--type NOPE", "--tid x"}) {
    EXPECT_EQ(run_asof(fmt::format("packets {} {}", kPt, wrong)).status, 1) << wrong;
  }
  EXPECT_EQ(run_asof("packets /nonexistent").status, 2);
  const TempDir dir;
  const std::string blocks = dir.path() / "x.blocks";
  ASSERT_EQ(run_asof(fmt::format("decode -q {} --format blocks -o {}", kPt, blocks)).status, 0);
  const Ran r = run_asof("packets " + blocks);
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("I-FILE-501"), std::string::npos) << r.err;
  EXPECT_EQ(run_asof("packets " + kPt, "| head -1").out, "cpu0 0x00000000      5.999999999 PSB\n");
}

// A raw bundle of these bytes.
std::string bundle(const TempDir& dir, const std::string& bytes, std::string_view arch) {
  std::ofstream(dir.path() / "trace", std::ios::binary) << bytes;
  std::ofstream(dir.path() / "bundle.json") << fmt::format(
      R"({{"format":"asof-bundle","version":1,"arch":"{}","streams":[{{"file":"trace","cpu":0}}],"text":[]}})",
      arch);
  return dir.path() / "bundle.json";
}

TEST(PacketsCli, DamageIsShownWithItsCode) {
  const TempDir dir;
  std::string psb;
  for (int i = 0; i < 8; ++i) psb += "\x02\x82";
  const std::string bytes =
      "\xff\xff" + psb + "\x02\x23" + "\x04" + "\x02\xff\x05\x06" + psb + "\x02\x23" + "\x06" + "\x19\x01";
  const auto list = packets(bundle(dir, bytes, "x86-64") + " --raw");
  ASSERT_EQ(list.size(), 9U);
  EXPECT_NE(list[0].find("NOSYNC    E-DATA-002 2 bytes: "), std::string::npos) << list[0];
  EXPECT_NE(list[4].find("02 ff 05 06"), std::string::npos) << list[4];
  EXPECT_NE(list[4].find("BAD       E-DATA-001 4 bytes: not a packet"), std::string::npos) << list[4];
  EXPECT_NE(list[5].find(" PSB"), std::string::npos);
  EXPECT_NE(list[8].find("CUT       2 bytes: "), std::string::npos) << list[8];
  const Ran strict = run_asof(fmt::format("packets --strict {}/bundle.json", dir.path().string()));
  EXPECT_EQ(strict.status, 3);
  EXPECT_NE(strict.err.find("E-DATA-001"), std::string::npos) << strict.err;
}

}  // namespace
}  // namespace asof::test
