// Tables kept from one query for the next: the same answer with and without, and nothing is believed that is
// not what it was.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "decoder/io/content_hash.h"
#include "tests/support/temp_dir.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

class QueryCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::copy(fs::path(ASOF_TEST_DATA) / "demo", demo_, fs::copy_options::recursive);
    // Older than a file that may still be changing.
    ::usleep(200'000);
  }
  std::string arguments(const std::string& sql, const std::string& more = {}) const {
    return "query -v \"" + sql + "\" -i " + (demo_ / "perf.data").string() + " --symfs " +
           (demo_ / "symfs").string() + " " + more;
  }
  Ran ask(const std::string& sql, const std::string& more = {}) const {
    return run_asof(arguments(sql, "--cache always --cache-dir " + cache_.string() + " " + more));
  }
  static bool from_cache(const Ran& r) { return r.err.find("I-FILE-504") != std::string::npos; }
  static bool kept(const Ran& r) { return r.err.find("tables kept") != std::string::npos; }
  // Standard error without what it says of the cache.
  static std::string told(const Ran& r) {
    std::string out;
    for (const std::string& line : lines_of(r.err))
      if (line.find("I-FILE-504") == std::string::npos && line.find("tables kept") == std::string::npos)
        out += line + '\n';
    return out;
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    if (fs::exists(cache_))
      for (const auto& e : fs::directory_iterator(cache_)) out.push_back(e.path());
    return out;
  }

  const TempDir dir_;
  const fs::path demo_ = fs::path(dir_.path()) / "demo", cache_ = fs::path(dir_.path()) / "x/cache";
  const std::string calls_ = "SELECT count(*), sum(end) FROM calls";
};

TEST_F(QueryCacheTest, AnswersAreTheSame) {
  for (const char* sql :
       {"SELECT * FROM call", "SELECT count(*) FROM instructions", "SELECT * FROM gaps",
        "SELECT * FROM calls JOIN gaps ON calls.cpu = gaps.cpu", "SELECT sum(depth) FROM calls",
        "SELECT * FROM branches LIMIT 100", "SELECT source, count(*) FROM calls GROUP BY 1",
        "CREATE TEMP TABLE t AS SELECT end FROM gaps; SELECT * FROM t",
        "SELECT * FROM runs; SELECT * "
        "FROM counters"}) {
    const Ran without = run_asof(arguments(sql, "--no-cache"));
    const Ran fresh = ask(sql), again = ask(sql);
    EXPECT_FALSE(from_cache(without) || kept(without));
    EXPECT_TRUE(from_cache(again)) << sql << again.err;
    for (const Ran* r : {&fresh, &again}) {
      EXPECT_TRUE(r->out == without.out) << sql;
      EXPECT_EQ(r->status, without.status) << sql;
      EXPECT_EQ(told(*r), without.err) << sql;
    }
  }
}

TEST_F(QueryCacheTest, OtherTablesAreAdded) {
  EXPECT_TRUE(kept(ask(calls_)));
  EXPECT_EQ(files().size(), 1U);
  EXPECT_TRUE(kept(ask("SELECT count(*) FROM gaps")));
  EXPECT_EQ(files().size(), 1U);
  EXPECT_TRUE(from_cache(ask(calls_)));
  EXPECT_TRUE(from_cache(ask("SELECT count(*) FROM gaps JOIN calls")));
  EXPECT_FALSE(from_cache(ask("SELECT max(depth) FROM calls")));
  EXPECT_EQ(ask("SELECT max(depth) FROM calls").out, run_asof(arguments("SELECT max(depth) FROM calls")).out);
  EXPECT_FALSE(from_cache(ask("SELECT count(*) FROM blocks"))) << "detail has other tables";
  for (const fs::path& file : files()) {
    struct stat s {};
    ASSERT_EQ(::stat(file.c_str(), &s), 0);
    EXPECT_EQ(s.st_mode & 0777U, 0600U);
  }
  struct stat s {};
  ASSERT_EQ(::stat(cache_.c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777U, 0700U);
}

// A change of any file that was read, with the size and time as they were.
TEST_F(QueryCacheTest, ChangesOfFilesAreSeen) {
  std::vector<fs::path> read;
  for (const auto& e : fs::recursive_directory_iterator(demo_))
    if (e.is_regular_file() && e.path().string().find("truth") == std::string::npos) read.push_back(e.path());
  EXPECT_GE(read.size(), 5U);
  for (const fs::path& file : read) {
    ask(calls_);
    ASSERT_TRUE(from_cache(ask(calls_)));
    const auto time = fs::last_write_time(file);
    const std::string before = read_file(file);
    std::string content = before;
    content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 1);
    std::ofstream(file, std::ios::binary) << content;
    fs::last_write_time(file, time);
    ::usleep(200'000);
    const Ran r = ask(calls_);
    EXPECT_FALSE(from_cache(r)) << file;
    EXPECT_EQ(r.out, run_asof(arguments(calls_)).out);
    std::ofstream(file, std::ios::binary) << before;
    ::usleep(200'000);
  }
  ask(calls_);
  fs::remove(demo_ / "symfs/opt/demo/worker");
  EXPECT_FALSE(from_cache(ask(calls_))) << "a file that is gone";
}

TEST_F(QueryCacheTest, OptionsCount) {
  EXPECT_TRUE(kept(ask(calls_)));
  for (const char* option :
       {"-C 0", "--time 10%-50%", "--time 10%-51%", "--text-at first", "--force", "--catalogue"}) {
    const Ran r = ask(calls_, option);
    EXPECT_FALSE(from_cache(r)) << option;
    EXPECT_EQ(r.out, run_asof(arguments(calls_, option)).out) << option;
    EXPECT_TRUE(from_cache(ask(calls_, std::string(option) + " -j1"))) << option;
  }
}

TEST_F(QueryCacheTest, DamagedFilesAreReplaced) {
  const std::string right = ask(calls_).out;
  ASSERT_EQ(files().size(), 1U);
  const fs::path file = files()[0];
  const std::string good = read_file(file);
  std::vector<std::string> wrong = {"", "x", good.substr(0, good.size() / 2), good.substr(0, good.size() - 1),
                                    good + "x"};
  for (const size_t at : {size_t{0}, size_t{70}, good.size() / 2, good.size() - 200, good.size() - 12}) {
    wrong.push_back(good);
    wrong.back()[at] = static_cast<char>(wrong.back()[at] ^ 0x10);
  }
  for (const std::string& content : wrong) {
    std::ofstream(file, std::ios::binary | std::ios::trunc) << content;
    const Ran r = ask(calls_);
    EXPECT_FALSE(from_cache(r)) << content.size();
    EXPECT_EQ(r.out, right);
    EXPECT_EQ(r.status, 0);
    EXPECT_EQ(files().size(), 1U);
    EXPECT_TRUE(from_cache(ask(calls_)));
  }
}

// A file of another key under this one's name, with a right hash of its content.
TEST_F(QueryCacheTest, FilesOfOtherKeysAreNotBelieved) {
  const std::string right = ask(calls_).out;
  ASSERT_EQ(files().size(), 1U);
  const fs::path mine = files()[0];
  const std::string key = mine.filename().string().substr(0, 33);
  ask(calls_, "-C 0");
  for (const fs::path& file : files()) {
    if (file == mine) continue;
    fs::remove(mine);
    fs::rename(file, cache_ / (key + file.filename().string().substr(33)));
  }
  const Ran r = ask(calls_);
  EXPECT_FALSE(from_cache(r));
  EXPECT_EQ(r.out, right);
}

TEST_F(QueryCacheTest, FoldersThatCannotBeUsedAreNoProblem) {
  const std::string right = run_asof(arguments(calls_)).out;
  const auto check = [&](const std::string& options, const std::string& environment = {}) {
    const TempDir dir;
    const fs::path out = fs::path(dir.path()) / "out", err = fs::path(dir.path()) / "err";
    const std::string sql = arguments(calls_, options);
    EXPECT_EQ(
        std::system(
            (environment + " " ASOF_BINARY " " + sql + " >" + out.string() + " 2>" + err.string()).c_str()),
        0)
        << options;
    EXPECT_EQ(read_file(out), right) << options;
    Ran r;
    r.err = read_file(err);
    EXPECT_FALSE(from_cache(r) || kept(r)) << r.err;
    int lines = 0;
    for (const std::string& line : lines_of(r.err)) lines += line.starts_with("E-FILE-096") ? 1 : 0;
    return lines;
  };
  fs::create_directories(cache_);
  const fs::path link = fs::path(dir_.path()) / "link", file = fs::path(dir_.path()) / "file",
                 open = fs::path(dir_.path()) / "open";
  fs::create_directory_symlink(cache_, link);
  std::ofstream(file) << "x";
  fs::create_directory(open);
  fs::permissions(open, fs::perms::all);
  EXPECT_EQ(check("--cache always --cache-dir " + link.string()), 1);
  EXPECT_EQ(check("--cache always --cache-dir " + file.string()), 1);
  EXPECT_EQ(check("--cache always --cache-dir " + file.string() + "/below"), 1);
  EXPECT_EQ(check("--cache always --cache-dir " + open.string()), 1) << "others can write to it";
  EXPECT_EQ(check("--cache always --cache-dir /proc/nowhere/asof"), 1);
  EXPECT_EQ(check("--cache always", "env -u HOME -u XDG_CACHE_HOME"), 0);
  EXPECT_EQ(check("--cache always", "env HOME=relative XDG_CACHE_HOME=relative"), 0);
  EXPECT_EQ(check("--cache always --cache-size 0 --cache-dir " + cache_.string()), 0);
  EXPECT_EQ(check("--cache always --cache-size 4k --cache-dir " + cache_.string()), 0) << "too large";
  EXPECT_EQ(check("--cache-dir " + cache_.string()), 0) << "done in less than a second";
  EXPECT_EQ(check("--cache-dir " + cache_.string(), "env ASOF_CACHE=never"), 0);
  EXPECT_EQ(check("--cache always --no-cache --cache-dir " + cache_.string()), 0);
  EXPECT_TRUE(files().empty());
  EXPECT_TRUE(fs::is_empty(open));
}

// A link in the folder is not followed, and what is not the cache's stays.
TEST_F(QueryCacheTest, OtherFilesInTheFolderStay) {
  ask(calls_);
  const fs::path mine = files().at(0), victim = fs::path(dir_.path()) / "victim";
  fs::rename(mine, victim);
  fs::create_symlink(victim, mine);
  std::ofstream(cache_ / "notes.txt") << "x";
  EXPECT_FALSE(from_cache(ask(calls_)));
  EXPECT_TRUE(fs::exists(victim));
  EXPECT_TRUE(fs::exists(cache_ / "notes.txt"));
}

TEST_F(QueryCacheTest, LeastRecentlyUsedGoes) {
  ask(calls_);
  const uint64_t one = fs::file_size(files().at(0));
  const std::string size = " --cache-size " + std::to_string(one * 5 / 2);
  ask(calls_, "--time 0%-99%" + size);
  EXPECT_EQ(files().size(), 2U);
  EXPECT_TRUE(from_cache(ask(calls_, size)));  // now the other one is the oldest
  ask(calls_, "--time 0%-98%" + size);
  EXPECT_EQ(files().size(), 2U);
  EXPECT_TRUE(from_cache(ask(calls_, size)));
  EXPECT_FALSE(from_cache(ask(calls_, "--time 0%-99%" + size)));
}

TEST_F(QueryCacheTest, WhatDependsOnMoreThanRowsIsNotKept) {
  for (const char* sql :
       {"SELECT rootpage FROM sqlite_master, calls LIMIT 1", "SELECT total_changes() FROM calls LIMIT 1",
        "PRAGMA page_count; SELECT 1 FROM gaps", "SELECT count(*) FROM text_versions",
        "SELECT 1 FROM gaps, pragma_table_info('calls')"}) {
    ask(sql);
    EXPECT_TRUE(files().empty()) << sql;
  }
  EXPECT_EQ(run_asof("query -q --cache always --cache-dir " + cache_.string() +
                     " 'SELECT count(*) FROM gaps' -i - <" + (demo_ / "perf.data/data").string())
                .out,
            "");  // standard input is not read twice, whatever it is
  EXPECT_TRUE(files().empty());
}

TEST_F(QueryCacheTest, TwoAtOnce) {
  const std::string right = run_asof(arguments(calls_)).out;
  const std::string options = "--cache always --cache-dir " + cache_.string();
  std::string all;
  const std::string out = (fs::path(dir_.path()) / "out").string();
  for (int i = 0; i < 6; ++i)
    all += ASOF_BINARY " " + arguments(i % 2 == 0 ? calls_ : "SELECT count(*) FROM gaps", options) + " >" +
           out + std::to_string(i) + " 2>/dev/null & ";
  EXPECT_EQ(std::system((all + "wait").c_str()), 0);
  for (int i = 0; i < 6; i += 2) EXPECT_EQ(read_file(out + std::to_string(i)), right);
  for (const fs::path& file : files()) EXPECT_FALSE(file.filename().string().starts_with("part-"));
  EXPECT_LE(files().size(), 2U);
}

// Of xxHash's documentation and of its own program (xxhsum -H64).
TEST(ContentHash, IsXxh64) {
  EXPECT_EQ(hash_text("", 0), 0xEF46DB3751D8E999U);
  EXPECT_EQ(hash_text("a", 0), 0xD24EC4F1A98C6E5BU);
  EXPECT_EQ(hash_text("abc", 0), 0x44BC2CF5AD770999U);
  EXPECT_EQ(hash_text("Nobody inspects the spammish repetition", 0), 0xFBCEA83C8A378BF1U);
  const std::string text(1000, 'x');
  for (size_t cut = 0; cut <= 100; ++cut) {
    ContentHash parts;
    const auto* at = reinterpret_cast<const uint8_t*>(text.data());
    parts.add({at, cut});
    parts.add({at + cut, 7});
    parts.add({at + cut + 7, text.size() - cut - 7});
    EXPECT_EQ(parts.value(), hash_text(text, 0)) << cut;
  }
}

}  // namespace
}  // namespace asof::test
