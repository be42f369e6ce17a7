// asof tables: which files there are, the same for any number of threads, and what it refuses. What is in them:
// tests/lake.
#include <algorithm>
#include <filesystem>

#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_in(const fs::path& folder) {
  std::vector<std::string> out;
  for (const auto& e : fs::recursive_directory_iterator(folder)) {
    if (e.is_regular_file()) out.push_back(fs::relative(e.path(), folder).string());
  }
  std::ranges::sort(out);
  return out;
}

TEST(TablesCli, UsualTablesByCpu) {
  const TempDir dir;
  const std::string lake = dir / "lake";
  const Ran r = run_asof("tables -o " + lake + " " + kDemo);
  ASSERT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(r.out.empty());
  EXPECT_EQ(
      files_in(lake),
      (std::vector<std::string>{
          "agg_edge/cpu=0/data.parquet", "agg_edge/cpu=1/data.parquet", "agg_function/cpu=0/data.parquet",
          "agg_function/cpu=1/data.parquet", "functions/data.parquet", "gaps/cpu=1/data.parquet",
          "poke_visits/cpu=0/data.parquet", "poke_visits/cpu=1/data.parquet", "pokes/data.parquet",
          "runs/cpu=0/data.parquet", "runs/cpu=1/data.parquet", "text_lives/data.parquet",
          "text_versions/data.parquet", "tracks/data.parquet"}));
  for (const std::string& file : files_in(lake)) {
    const std::string bytes = read_file(lake + "/" + file);
    EXPECT_TRUE(bytes.starts_with("PAR1") && bytes.ends_with("PAR1")) << file;
  }
}

TEST(TablesCli, TheSameBytesForAnyNumberOfThreads) {
  const TempDir dir;
  const std::string options = " --table calls,blocks,coverage,events " + kDemo;
  ASSERT_EQ(run_asof("tables -q -j1 -o " + std::string(dir / "a") + options).status, 0);
  ASSERT_EQ(run_asof("tables -q -j3 -o " + std::string(dir / "b") + options).status, 0);
  const auto files = files_in(dir / "a");
  EXPECT_EQ(files, files_in(dir / "b"));
  // A table without rows has a file, too.
  EXPECT_NE(std::ranges::find(files, "events/cpu=-1/data.parquet"), files.end());
  for (const std::string& file : files)
    EXPECT_TRUE(read_file(dir / ("a/" + file)) == read_file(dir / ("b/" + file))) << file;
}

// Sums that shards made, and a second pass for the rest.
TEST(TablesCli, OfShardsWithCalls) {
  const TempDir dir;
  const std::string plan = dir / "plan", parts = dir / "parts", blocks = dir / "whole.blocks";
  ASSERT_EQ(run_asof("plan -q -o " + plan + " " + kDemo).status, 0);
  for (const char* shard : {"0/3", "2/3", "1/3"})
    ASSERT_EQ(run_asof("decode -q --calls --plan " + plan + " -o " + parts + " --shard " + shard).status, 0);
  ASSERT_EQ(run_asof("merge -q " + plan + " " + parts + " -o " + blocks).status, 0);
  const std::string sums = "agg_function,agg_edge,functions,tracks";
  const std::string rest = ",runs,gaps,pokes,poke_visits,text_lives";
  for (const std::string& tables : {sums, sums + rest, sums + rest + ",calls"}) {
    const std::string one = dir / ("one," + tables), other = dir / ("other," + tables);
    ASSERT_EQ(run_asof("tables -q --table " + tables + " -o " + one + " " + kDemo).status, 0);
    const Ran r = run_asof("tables -q -j3 --table " + tables + " -o " + other + " " + blocks);
    ASSERT_EQ(r.status, 0) << r.err;
    const auto files = files_in(one);
    EXPECT_GT(files.size(), 5U);
    EXPECT_EQ(files, files_in(other));
    for (const std::string& file : files)
      EXPECT_TRUE(read_file(one + "/" + file) == read_file(other + "/" + file)) << file;
  }
}

TEST(TablesCli, FunctionsKeepTheirIds) {
  const auto functions = [](const std::string& options) {
    const std::string sql = " 'SELECT id, name, begin FROM functions' --format csv";
    return lines_of(run_asof("query -q " + options + kDemo + sql).out);
  };
  const auto whole = functions(""), part = functions("-C 1 ");
  ASSERT_GT(part.size(), 10U);
  EXPECT_LT(part.size(), whole.size());
  for (const std::string& function : part)
    EXPECT_NE(std::ranges::find(whole, function), whole.end()) << function;
}

TEST(TablesCli, WhatItRefuses) {
  const TempDir dir;
  const std::string lake = dir / "lake";
  Ran r = run_asof("tables " + kDemo);
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.err.find("-o DIR"), std::string::npos) << r.err;
  r = run_asof("tables --table calls,cals -o " + lake + " " + kDemo);
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.err.find("cals"), std::string::npos) << r.err;
  EXPECT_FALSE(fs::exists(lake));
  std::ofstream(dir / "file") << "x";
  r = run_asof("tables -o " + std::string(dir / "file/lake") + " " + kDemo);
  EXPECT_EQ(r.status, 2);
  EXPECT_NE(r.err.find("E-FILE-090"), std::string::npos) << r.err;
  const std::string list = run_asof("tables --list").out;
  for (const char* name : {"agg_function", "agg_edge", "coverage", "calls", "blocks", "text_versions"})
    EXPECT_NE(list.find(name), std::string::npos) << name;
}

}  // namespace
}  // namespace asof::test
