// One call of the system fails: whatever it is, the verb says so with a code or does without, and no file that is not whole
// has its final name. The calls that fail are spread over all that a verb makes; ASOF_TEST_CAPTURES=n tests n times as
// many.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <regex>
#include <set>

#include "tests/support/captures_of.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

struct Fault {
  const char* kind;
  int error;
  uint64_t most;  // times that it is tried in each verb
};
constexpr Fault kFaults[] = {{"alloc", ENOMEM, 12}, {"open", EMFILE, 8},  {"read", EIO, 6},
                             {"write", ENOSPC, 8},  {"mmap", ENOMEM, 6},  {"rename", EXDEV, 3},
                             {"sync", EIO, 4},      {"mkdir", EACCES, 3}, {"thread", EAGAIN, 5}};

struct Verb {
  const char* name;
  std::string arguments;  // OUT: a folder for what is written
};

using Files = std::map<std::string, std::string>;

Files files_below(const fs::path& folder) {
  Files out;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) out[fs::relative(entry.path(), folder)] = read_file(entry.path());
  }
  return out;
}

struct Outcome {
  Ran ran;
  Files files;
  size_t temporary = 0;  // files left in $TMPDIR
  uint64_t calls = 0;    // of the kind
};

class Faults : public ::testing::TestWithParam<Verb> {
 protected:
  Outcome run(const char* kind, uint64_t at, int error) const {
    // One path for all runs: outputs name the command that made them.
    const fs::path dir = dir_ / "run", out = dir / "out", temporary = dir / "tmp", count = dir / "count";
    fs::remove_all(dir);
    fs::create_directory(dir);
    fs::create_directory(out);
    fs::create_directory(temporary);
    std::string arguments = std::regex_replace(GetParam().arguments, std::regex("OUT"), out.string());
    const std::string saved_err = dir / "err", status = dir / "status";
    const std::string command = fmt::format(
        "TMPDIR={} SQLITE_TMPDIR={} ASOF_CACHE=never ASOF_FAULT={}:{}:{} ASOF_FAULT_COUNT=9 LD_PRELOAD={} {} "
        "--no-sandbox {} "
        ">{} 2>{} 9>{} </dev/null; echo $? >{}",
        temporary.string(), temporary.string(), kind, at, error, ASOF_FAULT_LIBRARY, ASOF_BINARY, arguments,
        (dir / "stdout").string(), saved_err, count.string(), status);
    EXPECT_EQ(std::system(command.c_str()), 0);
    Outcome o;
    o.ran.status = std::atoi(read_file(status).c_str());
    o.ran.out = read_file(dir / "stdout");
    o.ran.err = read_file(saved_err);
    o.files = files_below(out);
    o.temporary = static_cast<size_t>(std::distance(fs::recursive_directory_iterator(temporary), {}));
    o.calls = std::strtoull(read_file(count).c_str(), nullptr, 10);
    return o;
  }

 private:
  TempDir dir_;
};

std::set<std::string> codes_of(const Outcome& o) {
  static const std::regex kCode("[EIW]-[A-Z]+-[0-9]{3}");
  std::set<std::string> codes;
  for (const std::string* text : {&o.ran.out, &o.ran.err}) {
    for (std::sregex_iterator it(text->begin(), text->end(), kCode), end; it != end; ++it)
      codes.insert(it->str());
  }
  return codes;
}

// One that the verb does not tell anyway.
bool tells_a_code(const Outcome& got, const Outcome& whole) {
  const auto all = codes_of(got), usual = codes_of(whole);
  return !std::ranges::includes(usual, all);
}

// What is wrong with how this fault was taken; nothing: all is well.
std::string wrong_with(const Outcome& got, const Outcome& whole) {
  if (got.ran.status >= 128) return fmt::format("ended by signal {}", got.ran.status - 128);
  if (got.ran.status == 4) return "an internal error";
  if (got.temporary != 0) return "temporary files are left";
  for (const auto& [name, bytes] : got.files) {
    const auto it = whole.files.find(name);
    if (it == whole.files.end()) {
      if (got.ran.status != 0) return "a file that is none of the verb's: " + name;
      continue;  // a table that had no rows
    }
    if (got.ran.status == 2 && bytes != it->second && !bytes.empty()) return "a part of a file: " + name;
  }
  const bool same = got.ran.out == whole.ran.out && got.files == whole.files;
  if (got.ran.status == 0 && !same && !tells_a_code(got, whole)) return "data are lost, and nothing says so";
  if (got.ran.status != whole.ran.status && !tells_a_code(got, whole)) return "an error without a code";
  return {};
}

TEST_P(Faults, AreToldAndLeaveNoPartOfAFile) {
  const Outcome whole = run("none", 0, 0);
  ASSERT_EQ(whole.ran.status, 0) << whole.ran.err.substr(0, 500);
  uint64_t tried = 0;
  for (const Fault& fault : kFaults) {
    const uint64_t calls = run(fault.kind, 0, 0).calls, most = std::min(captures_of(fault.most), calls);
    for (uint64_t i = 0; i < most; ++i) {
      // The first ones and then ever further apart: what comes late is done often.
      const uint64_t at = 1 + i * i * (calls - 1) / std::max<uint64_t>((most - 1) * (most - 1), 1);
      const Outcome got = run(fault.kind, at, fault.error);
      const std::string wrong = wrong_with(got, whole);
      EXPECT_EQ(wrong, "") << fault.kind << " " << at << " of " << calls << ", status " << got.ran.status
                           << ": " << got.ran.err.substr(0, 400);
      ++tried;
    }
  }
  EXPECT_GT(tried, 10U);
}

std::vector<Verb> verbs() {
  return {{"decode", "decode -o OUT/o.txt -F +disasm " + kDemo},
          {"blocks", "decode --format blocks -o OUT/o.blocks " + kDemo},
          {"report", "report " + kDemo},
          {"digest", "digest -j2 " + kDemo},
          {"script", "script --itrace b " + kDemo},
          {"stacks", "stacks -o OUT/o.folded " + kDemo},
          {"branches", "branches -o OUT/o.txt " + kDemo},
          {"html", "timeline --html OUT/o.html " + kDemo},
          {"perfetto", "timeline -o OUT/o.pftrace " + kDemo},
          {"database", "timeline -o OUT/o.db " + kDemo},
          {"query", "query 'select count(*) from calls' -i " + kDemo},
          {"tables", "tables -o OUT/lake " + kDemo},
          {"plan", "plan -o OUT/plan " + kDemo},
          {"pack", "pack -o OUT/o.tar.zst " + kDemo},
          {"text", "text do_syscall_64 " + kDemo},
          {"events", "events " + kDemo},
          {"packets", "packets -o OUT/o.txt " + kDemo}};
}

INSTANTIATE_TEST_SUITE_P(Verbs, Faults, ::testing::ValuesIn(verbs()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace asof::test
