// asof plan, decode --shard, merge: whatever the shards and their order, what comes out is what one run gives.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "decoder/model/capture.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

const std::string kArm64Demo = ASOF_TEST_DATA "/demo-arm64/perf.data --symfs " ASOF_TEST_DATA "/demo/symfs";

class PlanCli : public testing::Test {
 protected:
  void make_plan(const std::string& input) {
    const Ran r = run_asof("plan -o " + plan_ + " " + input);
    ASSERT_EQ(r.status, 0) << r.err;
  }
  Ran shard(int k, int n, const std::string& folder) {
    return run_asof("decode -q --plan " + plan_ + " --shard " + std::to_string(k) + "/" + std::to_string(n) +
                    " -o " + folder);
  }
  void all_shards(int n, const std::string& folder, const std::string& options = "") {
    for (int k = n; k-- > 0;) ASSERT_EQ(shard(k, n, folder + options).status, 0) << k;
  }
  Ran merge(const std::string& parts, const std::string& output, const std::string& options = "") {
    return run_asof("merge " + options + " " + plan_ + " " + parts + " -o " + output);
  }
  std::vector<std::string> parts_in(const std::string& folder) {
    std::vector<std::string> out;
    for (const auto& e : fs::directory_iterator(folder)) out.push_back(e.path().string());
    std::ranges::sort(out);
    return out;
  }
  TempDir dir_;
  std::string plan_ = dir_.path() / "plan", parts_ = dir_.path() / "parts",
              whole_ = dir_.path() / "whole.blocks";
};

// The first line names the input.
std::string body_of(const std::string& report) { return report.substr(report.find('\n') + 1); }

TEST_F(PlanCli, MergedShardsAreTheWhole) {
  for (const std::string& input : {kDemo, kArm64Demo}) {
    make_plan(input);
    for (const int n : {1, 2, 3, 7}) {
      fs::remove_all(parts_);
      all_shards(n, parts_);
      EXPECT_EQ(parts_in(parts_).size(), static_cast<size_t>(n));
      const Ran merged = merge(parts_, whole_);
      ASSERT_EQ(merged.status, 0) << merged.err;
      for (const std::string verb :
           {"digest --fnv", "decode --itrace=ibcrexwp -F +conf,textver", "stacks --weight ns",
            "query \"SELECT * FROM call\" -i", "query \"SELECT * FROM runs\" -i"})
        EXPECT_TRUE(run_asof(verb + " " + whole_).out == run_asof(verb + " " + input).out)
            << verb << " " << n;
      EXPECT_EQ(body_of(run_asof("report " + whole_).out), body_of(run_asof("report " + input).out)) << n;
    }
  }
}

// The parts that one process makes of several shards are those that each one of its own makes.
TEST_F(PlanCli, SeveralShardsInOneProcess) {
  for (const std::string& input : {kDemo, kArm64Demo}) {
    make_plan(input);
    for (const std::string options : {"", " --calls", " -j1", " --text-at first"}) {
      const std::string several = dir_.path() / "several";
      fs::remove_all(parts_);
      fs::remove_all(several);
      all_shards(7, parts_, options);
      const std::string decode = "decode -q --plan " + plan_ + options + " -o " + several + " --shard ";
      ASSERT_EQ(run_asof(decode + "2-4/7").status, 0);
      EXPECT_EQ(parts_in(several).size(), 3U);
      ASSERT_EQ(run_asof(decode + "0-6/7").status, 0);
      const auto want = parts_in(parts_), got = parts_in(several);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_TRUE(read_file(got[i]) == read_file(want[i])) << got[i] << options;
    }
  }
}

// Calls that begin in one shard and end in another, and what they call in between.
TEST_F(PlanCli, CallsAcrossShards) {
  for (const std::string& input : {kDemo, kArm64Demo}) {
    make_plan(input);
    for (const int n : {1, 2, 3, 7, 16}) {
      fs::remove_all(parts_);
      all_shards(n, parts_, " --calls");
      const Ran merged = merge(parts_, whole_);
      ASSERT_EQ(merged.status, 0) << merged.err;
      for (const std::string options :
           {"--weight ns --by cpu", "--weight instructions --by thread", "--weight calls --versions"})
        EXPECT_TRUE(run_asof("stacks " + options + " " + whole_).out ==
                    run_asof("stacks " + options + " " + input).out)
            << options << " " << n;
      for (const std::string verb : {"digest --fnv", "query \"SELECT * FROM call\" -i"})
        EXPECT_TRUE(run_asof(verb + " " + whole_).out == run_asof(verb + " " + input).out)
            << verb << " " << n;
    }
    // The same bytes whoever makes them, and another file than without.
    const std::string part = parts_in(parts_)[4], again = dir_.path() / "again",
                      without = dir_.path() / "without";
    ASSERT_EQ(run_asof("decode -q -j1 --calls --plan " + plan_ + " --shard 4/16 -o " + again).status, 0);
    EXPECT_TRUE(read_file(parts_in(again)[0]) == read_file(part));
    ASSERT_EQ(shard(5, 16, without).status, 0);
    const Ran refused = merge(part + " " + parts_in(without)[0], whole_);
    EXPECT_EQ(refused.status, 2);
    EXPECT_NE(refused.err.find("--calls"), std::string::npos) << refused.err;
  }
}

// Single calls of what was merged, in parts.
TEST_F(PlanCli, SingleCallsByShard) {
  make_plan(kDemo);
  all_shards(5, parts_, " --calls");
  ASSERT_EQ(merge(parts_, whole_).status, 0);
  for (const std::string suffix : {".csv", ".jsonl"}) {
    const std::string one = dir_.path() / ("one" + suffix), part = dir_.path() / ("part" + suffix);
    ASSERT_EQ(run_asof("timeline -q -o " + one + " " + whole_).status, 0);
    std::string joined;
    for (int k = 0; k < 3; ++k) {
      const Ran r = run_asof("timeline -q --shard " + std::to_string(k) + "/3 -o " + part + " " + whole_);
      ASSERT_EQ(r.status, 0) << r.err;
      joined += read_file(part);
    }
    EXPECT_TRUE(joined == read_file(one)) << suffix;
  }
  const std::string lake = dir_.path() / "lake", table = " --table calls -o " + lake + " " + whole_;
  for (int k = 0; k < 2; ++k) {
    const Ran r = run_asof("tables -q --shard " + std::to_string(k) + "/2" + table);
    ASSERT_EQ(r.status, 0) << r.err;
  }
  EXPECT_TRUE(fs::exists(lake + "/calls/cpu=0/shard-0-of-2.parquet"));
  EXPECT_TRUE(fs::exists(lake + "/calls/cpu=1/shard-1-of-2.parquet"));
  // Again is the same; what would be there twice is refused.
  EXPECT_EQ(run_asof("tables -q --shard 1/2" + table).status, 0);
  for (const std::string other : {"--shard 0/3", ""}) {
    const Ran r = run_asof("tables -q " + other + table);
    EXPECT_EQ(r.status, 2) << other;
    EXPECT_NE(r.err.find("E-FILE-090"), std::string::npos) << r.err;
  }
}

TEST_F(PlanCli, SingleCallsByShardAreRefused) {
  ASSERT_EQ(run_asof("decode -q --format blocks -o " + whole_ + " " + kDemo).status, 0);
  const std::string csv = " -o " + std::string(dir_.path() / "x.csv") + " ";
  for (const std::string& command :
       {"timeline --shard 0/2" + csv + kDemo, "timeline --shard 2/2" + csv + whole_,
        "timeline --shard 0-1/2" + csv + whole_, "timeline --shard 0/2 --time 1%-2%" + csv + whole_,
        "timeline --shard 0/2 -o " + std::string(dir_.path() / "x.pftrace") + " " + whole_,
        "timeline --shard 0/2 --html " + std::string(dir_.path() / "x.html") + " " + whole_,
        "timeline --shard 0/2 -o " + std::string(dir_.path() / "x.db") + " " + whole_,
        "tables --shard 0/2 --table calls,gaps -o " + parts_ + " " + whole_,
        "tables --shard 0/2 -o " + parts_ + " " + whole_}) {
    const Ran r = run_asof(command);
    EXPECT_EQ(r.status, 1) << command;
    EXPECT_NE(r.err.find("E-FILE-091"), std::string::npos) << r.err;
  }
}

TEST_F(PlanCli, CallsWithoutABlockStream) {
  const Ran r = run_asof("decode --calls " + kDemo);
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.err.find("--format blocks"), std::string::npos) << r.err;
}

TEST_F(PlanCli, APlanIsReadLikeItsCapture) {
  make_plan(kDemo);
  for (const std::string verb : {"digest", "decode -F +disasm", "text --history", "stacks"})
    EXPECT_EQ(run_asof(verb + " " + plan_).out, run_asof(verb + " " + kDemo).out) << verb;
  EXPECT_NE(read_file(plan_ + "/plan.json").find("\"shards\":1"), std::string::npos);
}

TEST_F(PlanCli, OrderRepetitionAndTreesMakeNoDifference) {
  make_plan(kDemo);
  all_shards(6, parts_);
  const auto parts = parts_in(parts_);
  ASSERT_EQ(merge(parts_, whole_).status, 0);
  const std::string want = read_file(whole_);
  std::mt19937 random(5);
  auto shuffled = parts;
  std::ranges::shuffle(shuffled, random);
  std::string list;
  for (const std::string& p : shuffled) list += p + " " + (p == shuffled[2] ? p + " " : "");
  const std::string other = dir_.path() / "other.blocks";
  Ran r = merge(list, other);
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.err.find("1 more given again"), std::string::npos) << r.err;
  EXPECT_TRUE(read_file(other) == want);
  const std::string left = dir_.path() / "left.blocks", right = dir_.path() / "right.blocks";
  ASSERT_EQ(merge(parts[1] + " " + parts[4] + " " + parts[0], left).status, 0);
  ASSERT_EQ(merge(parts[5] + " " + parts[2] + " " + parts[3], right).status, 0);
  ASSERT_EQ(merge(right + " " + left, other).status, 0);
  EXPECT_TRUE(read_file(other) == want);
  // Decoded again with another number of threads.
  fs::remove(parts[3]);
  ASSERT_EQ(run_asof("decode -q -j1 --plan " + plan_ + " --shard 3/6 -o " + parts_).status, 0);
  ASSERT_EQ(merge(parts_, other).status, 0);
  EXPECT_TRUE(read_file(other) == want);
}

TEST_F(PlanCli, PartsOfOtherCutsGoTogether) {
  make_plan(kDemo);
  const std::string other = dir_.path() / "other";
  all_shards(5, parts_);
  all_shards(3, other);
  fs::remove(parts_in(parts_)[1]);
  const Ran r = merge(parts_ + " " + other, whole_);
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(run_asof("digest " + whole_).out, run_asof("digest " + kDemo).out);
}

TEST_F(PlanCli, AMissingPartIsAGap) {
  make_plan(kDemo);
  all_shards(4, parts_);
  const std::string lost = parts_in(parts_)[2];
  fs::rename(lost, dir_.path() / "lost.blocks");
  Ran r = merge(parts_, whole_);
  EXPECT_EQ(r.status, 0);
  EXPECT_NE(r.err.find("E-LOST-108"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("--shard 2/4"), std::string::npos) << r.err;
  EXPECT_EQ(merge(parts_, whole_, "--strict").status, 3);
  r = run_asof("report " + whole_);
  EXPECT_NE(r.out.find("E-LOST-108"), std::string::npos) << r.out;
  EXPECT_NE(run_asof("decode --itrace=e " + whole_).out.find("E-LOST-108"), std::string::npos);
  EXPECT_NE(run_asof("digest " + whole_).out, run_asof("digest " + kDemo).out);
  // The part comes later.
  const std::string other = dir_.path() / "other.blocks";
  ASSERT_EQ(merge(whole_ + " " + std::string(dir_.path() / "lost.blocks"), other).status, 0);
  EXPECT_EQ(run_asof("digest " + other).out, run_asof("digest " + kDemo).out);
  EXPECT_EQ(run_asof("report " + other).out.find("E-LOST-108"), std::string::npos);
}

// Nothing comes after it: it lasts until the last AUX record of its CPU.
TEST_F(PlanCli, AMissingPartAtTheEnd) {
  make_plan(kDemo);
  all_shards(4, parts_);
  fs::remove(parts_in(parts_)[3]);
  ASSERT_EQ(merge(parts_, whole_).status, 0);
  CaptureOptions options;
  options.symfs = ASOF_TEST_DATA "/demo/symfs";
  const auto capture = open_capture(ASOF_TEST_DATA "/demo/perf.data", options);
  ASSERT_TRUE(capture);
  const Time end = capture->streams.back().bounds.hi;
  ASSERT_NE(end, kTimeMax);
  const Ran r = run_asof(
      "query --format csv \"SELECT cpu, end > begin, end FROM gaps WHERE code = 'E-LOST-108'\" -i " + whole_);
  EXPECT_NE(r.out.find("1,1," + std::to_string(end) + "\n"), std::string::npos) << r.out << end;
}

TEST_F(PlanCli, ForeignAndDamagedPartsAreRefusedByName) {
  make_plan(kDemo);
  all_shards(3, parts_);
  const std::string part = parts_in(parts_)[1];
  const std::string good = read_file(part);
  const auto refused = [&](const std::string& why) {
    const Ran r = merge(parts_, whole_);
    EXPECT_EQ(r.status, 2) << why;
    EXPECT_NE(r.err.find("E-FILE-154"), std::string::npos) << why << r.err;
    EXPECT_NE(r.err.find(part), std::string::npos) << why << r.err;
    EXPECT_FALSE(fs::exists(whole_)) << why;
  };
  const auto put = [&](const std::string& bytes) {
    std::ofstream(part, std::ios::binary | std::ios::trunc) << bytes;
  };
  for (const double at : {0.0, 0.3, 0.9, 0.999}) {
    put(good.substr(0, static_cast<size_t>(static_cast<double>(good.size()) * at)));
    refused("cut");
  }
  for (size_t at = 0; at < good.size(); at += 1 + good.size() / 60) {
    std::string bad = good;
    bad[at] ^= 0x21;
    put(bad);
    // Not every bit of a header counts; what is accepted decodes alike.
    const Ran r = merge(parts_, whole_);
    if (r.status == 0) {
      EXPECT_EQ(run_asof("digest " + whole_).out, run_asof("digest " + kDemo).out) << at;
    } else {
      EXPECT_NE(r.err.find("E-FILE-154"), std::string::npos) << at << r.err;
    }
    fs::remove(whole_);
  }
  put(good);
  // Another text.
  ASSERT_EQ(run_asof("decode -q --text-at first --plan " + plan_ + " --shard 1/3 -o " + parts_).status, 0);
  refused("--text-at");
  // Another recording.
  const std::string other = dir_.path() / "other-plan";
  ASSERT_EQ(run_asof("plan -q -o " + other + " " + kArm64Demo).status, 0);
  ASSERT_EQ(run_asof("decode -q --plan " + other + " --shard 1/3 -o " + parts_).status, 0);
  refused("recording");
  // No part at all.
  ASSERT_EQ(run_asof("decode -q --format blocks -o " + part + " " + kDemo).status, 0);
  refused("whole");
}

TEST_F(PlanCli, WhatCannotBePlannedOrDecodedIsRefused) {
  make_plan(kDemo);
  EXPECT_EQ(shard(4, 4, parts_).status, 1);
  for (const std::string bad : {"--shard 1", "--shard x/2", "--shard 0/0", "--shard -1/2", "--shard 1-0/2",
                                "--shard 0-2/2", "--shard 0-/2", "--shard 0-1", "--shard 0-1-1/2",
                                "--shard 0/2 --time 1%-2%", "--shard 0/2 -C 0", "--shard 0/2 -S f"}) {
    const Ran r = run_asof("decode --plan " + plan_ + " " + bad + " -o " + parts_);
    EXPECT_EQ(r.status, 1) << bad << r.err;
    EXPECT_NE(r.err.find("E-FILE-091"), std::string::npos) << bad << r.err;
  }
  EXPECT_EQ(run_asof("decode --shard 0/2 -o " + parts_ + " " + kDemo).status, 1);
  EXPECT_FALSE(fs::exists(parts_));
  // A plan has no records and no files of its own, and was opened with its own options.
  for (const std::string& verb : {std::string("events"), std::string("doctor"), "pack -o " + parts_})
    EXPECT_EQ(run_asof(verb + " " + plan_).status, 1) << verb;
  EXPECT_EQ(run_asof("digest --symfs " ASOF_TEST_DATA "/demo/symfs " + plan_).status, 2);
  EXPECT_FALSE(fs::exists(parts_));
  // A pipe is in no file, a block stream has no trace.
  Ran r = run_asof("plan -o " + plan_ + "2 - < " ASOF_TEST_DATA "/demo/perf.data/data");
  EXPECT_EQ(r.status, 2) << r.err;
  const std::string archive = dir_.path() / "a.tar";
  ASSERT_EQ(run_asof("pack -q -o " + archive + " " + kDemo).status, 0);
  r = run_asof("plan -o " + plan_ + "2 " + archive);
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("E-FILE-153"), std::string::npos) << r.err;
  ASSERT_EQ(run_asof("decode -q --format blocks -o " + whole_ + " " + kDemo).status, 0);
  r = run_asof("plan -o " + plan_ + "2 " + whole_);
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("E-FILE-153"), std::string::npos) << r.err;
  EXPECT_FALSE(fs::exists(plan_ + "2/core.asof"));
  r = run_asof("merge " ASOF_TEST_DATA "/demo/perf.data " + parts_ + " -o " + whole_);
  EXPECT_EQ(r.status, 2);
}

}  // namespace
}  // namespace asof::test
