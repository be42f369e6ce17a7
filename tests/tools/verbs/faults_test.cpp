// One call of the system fails: whatever it is, the verb says so with a code or does without, and no file that is not whole
// has its final name. The calls that fail are spread over all that a verb makes; ASOF_TEST_CAPTURES=n tests n times as
// many.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <regex>
#include <set>
#include <string_view>

#include "tests/support/captures_of.h"
#include "tests/support/demo_capture.h"
#include "tests/support/jit_capture.h"
#include "tests/support/live_pipe.h"
#include "tests/support/pt_writer.h"
#include "tests/tools/run_asof.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

struct Fault {
  const char* kind;
  int error;
  uint64_t most;  // times that it is tried in each verb
};
constexpr Fault kFaults[] = {{"alloc", ENOMEM, 12}, {"large", ENOMEM, 24}, {"open", EMFILE, 8},
                             {"read", EIO, 6},      {"write", ENOSPC, 8},  {"mmap", ENOMEM, 6},
                             {"rename", EXDEV, 3},  {"sync", EIO, 4},      {"mkdir", EACCES, 3},
                             {"thread", EAGAIN, 5}};

struct Verb {
  const char* name;
  std::string arguments;  // OUT: a folder for what is written; IN: one with what Inputs made
  const char* pipe = "";  // a file in IN that comes through a pipe
  bool blocks = false;    // what is written to a pipe depends on when what was there: its content does not
};

void PrintTo(const Verb& verb, std::ostream* out) { *out << verb.name; }

// What is not in tests/data: made once.
class Inputs {
 public:
  static std::string path() {
    static const Inputs all;
    return all.dir_.path();
  }

 private:
  Inputs() {
    const std::string in = dir_.path();
    must("plan -o " + in + "/plan " + kDemo);
    for (const char* shard : {"0/2", "1/2"})
      must("decode --plan " + in + "/plan --shard " + shard + " -o " + in + "/parts");
    must("pack -o " + in + "/demo.tar.zst " + kDemo);
    must("pack -o " + in + "/demo.tar.xz " + kDemo);
    JitCapture(true, false).write(dir_ / "jit");
    // Lines that say nothing, a NUL, names of C++ and Rust.
    write_text(dir_ / "jit/symfs/tmp/perf-4242.map",
               std::string("7f0000001c00 40 _ZN4core3ptr13drop_in_place17h0123456789abcdefE\n\n7f0000001d00\n"
                           "7f0000001e00 20 a") +
                   '\0' + "b\n7f0000001f00 20 _ZNSt6vectorIiSaIiEE9push_backERKi\n");
    names();
    bundle();
    CaptureOptions options;
    options.symfs = ASOF_TEST_DATA "/demo/symfs";
    write_bytes(dir_ / "demo.pipe", as_live_pipe(ASOF_TEST_DATA "/demo/perf.data", 4, options).bytes);
  }
  static void must(const std::string& arguments) {
    const Ran ran = run_asof(arguments);
    EXPECT_EQ(ran.status, 0) << arguments << ran.err;
  }
  void names() const {
    DemoCapture demo = make_demo();
    const std::vector<std::string> names{
        std::string("a") + '\0' + "b",        "_ZN4core3ptr13drop_in_place17h0123456789abcdefE",
        "_RNvNtCs1234_7mycrate3foo3bar",      "_ZN" + std::string(5'000, '1') + "E",
        "_ZNSt6vectorIiSaIiEE9push_backERKi", "_Z1fIXadL_Z1gIXadL_Z1hvEEEvvEEEvv"};
    for (size_t i = 0; i < demo.spec.symbols.size(); ++i) {
      std::string& name = demo.spec.symbols[i].name;
      if (i % 4 == 1 && !name.starts_with("_")) name = names[i / 4 % names.size()] + std::to_string(i);
    }
    for (size_t i = 0; i < demo.spec.programs[0].elf.symbols.size(); ++i)
      demo.spec.programs[0].elf.symbols[i].name = names[(i + 1) % names.size()];
    write_capture(*demo.machine, demo.spec, dir_ / "names", "names");
  }
  void bundle() const {
    constexpr Addr kText = 0x401000;
    PtWriter w;
    w.psb_plus({});
    w.tip_pge(kText);
    for (int i = 0; i < 40; ++i) w.tip(kText);
    w.tip_pgd();
    fs::create_directory(dir_ / "bundle");
    write_bytes(dir_ / "bundle/trace.pt", w.bytes());
    write_bytes(dir_ / "bundle/text.img", std::vector<uint8_t>{0x90, 0x90, 0xff, 0xe0});  // jmp *%rax
    write_text(dir_ / "bundle/bundle.json",
               R"({"format": "asof-bundle", "version": 1, "arch": "x86-64",
                   "streams": [{"file": "trace.pt", "cpu": 0}], "text": [{"file": "text.img", "address": "0x401000"}]})");
  }

  TempDir dir_;
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
    arguments = std::regex_replace(arguments, std::regex("IN/"), Inputs::path() + "/");
    const std::string pipe = GetParam().pipe;
    const std::string from = pipe.empty() ? "</dev/null" : "",
                      feed = pipe.empty() ? "" : fmt::format("cat {}/{} |", Inputs::path(), pipe);
    const std::string saved_err = dir / "err", status = dir / "status";
    const std::string command = fmt::format(
        "{} TMPDIR={} SQLITE_TMPDIR={} ASOF_CACHE=never ASOF_FAULT={}:{}:{} ASOF_FAULT_COUNT=9 LD_PRELOAD={} "
        "{} "
        "--no-sandbox {} "
        ">{} 2>{} 9>{} {}; echo $? >{}",
        feed, temporary.string(), temporary.string(), kind, at, error, ASOF_FAULT_LIBRARY, ASOF_BINARY,
        arguments, (dir / "stdout").string(), saved_err, count.string(), from, status);
    EXPECT_EQ(std::system(command.c_str()), 0);
    Outcome o;
    o.ran.status = std::atoi(read_file(status).c_str());
    o.ran.out = GetParam().blocks && o.ran.status == 0
                    ? run_asof("decode -q -i " + (dir / "stdout").string()).out
                    : read_file(dir / "stdout");
    o.ran.err = read_file(saved_err);
    o.files = files_below(out);
    o.temporary = static_cast<size_t>(std::distance(fs::recursive_directory_iterator(temporary), {}));
    o.calls = std::strtoull(read_file(count).c_str(), nullptr, 10);
    return o;
  }

 private:
  TempDir dir_;
};

// The code that ends with the number behind this dash: "E-DATA-001". Outputs are megabytes, and std::regex is slow.
std::string_view code_at(std::string_view text, size_t dash) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto is_letter = [](char c) { return c >= 'A' && c <= 'Z'; };
  if (text.size() < dash + 4 || !std::all_of(&text[dash + 1], &text[dash] + 4, is_digit)) return {};
  size_t begin = dash;
  while (begin > 0 && is_letter(text[begin - 1])) --begin;
  if (begin == dash || begin < 2 || text[begin - 1] != '-' || !std::strchr("EIW", text[begin - 2])) return {};
  return text.substr(begin - 2, dash + 4 - (begin - 2));
}

std::set<std::string> codes_of(const Outcome& o) {
  std::set<std::string> codes;
  for (const std::string* text : {&o.ran.out, &o.ran.err}) {
    for (size_t dash = text->find('-'); dash != std::string::npos; dash = text->find('-', dash + 1)) {
      if (const std::string_view code = code_at(*text, dash); !code.empty()) codes.emplace(code);
    }
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
  EXPECT_GE(tried, std::min<uint64_t>(captures_of(11), 11));
}

// What libarchive asks for memory for comes at the end.
class ArchiveFaults : public Faults {};
TEST_P(ArchiveFaults, OfMemoryAreNotToldAsDamage) {
  const Outcome whole = run("none", 0, 0);
  const uint64_t calls = run("alloc", 0, 0).calls;
  size_t told = 0;
  for (uint64_t at = calls - std::min<uint64_t>(calls, 240); at <= calls; at += 2) {
    const Outcome got = run("alloc", at, ENOMEM);
    // Without memory for what unpacks, libarchive itself dies.
    if (got.ran.status < 128) {
      EXPECT_EQ(wrong_with(got, whole), "") << at << " of " << calls << ": " << got.ran.err;
    }
    EXPECT_FALSE(codes_of(got).contains("E-FILE-131")) << at << " of " << calls << ": " << got.ran.err;
    told += codes_of(got).contains("E-FILE-093") ? 1 : 0;
  }
  EXPECT_GT(told, 50U);
}

// What is written last, and removed at the end: each of the last calls fails.
class EndFaults : public Faults {};
TEST_P(EndFaults, AreTakenAsOthers) {
  const Outcome whole = run("none", 0, 0);
  ASSERT_TRUE(whole.ran.status == 0 || whole.ran.status == 3) << whole.ran.err.substr(0, 500);
  for (const Fault& fault : {Fault{"alloc", ENOMEM, 40}, Fault{"open", EMFILE, 6}}) {
    const uint64_t calls = run(fault.kind, 0, 0).calls;
    for (uint64_t at = calls - std::min(calls - 1, fault.most); at <= calls; ++at) {
      const Outcome got = run(fault.kind, at, fault.error);
      EXPECT_EQ(wrong_with(got, whole), "")
          << fault.kind << " " << at << " of " << calls << ": " << got.ran.err;
    }
  }
}

// Folders that options name are read shortly before the capture is opened, which fails here: each of the last calls.
class FolderFaults : public Faults {};
TEST_P(FolderFaults, OfMemoryEndNothing) {
  const uint64_t calls = run("alloc", 0, 0).calls;
  for (uint64_t at = calls - std::min<uint64_t>(calls - 1, 80); at <= calls; ++at) {
    const Outcome got = run("alloc", at, ENOMEM);
    EXPECT_EQ(got.ran.status, 2) << at << " of " << calls << ": " << got.ran.err;
    EXPECT_FALSE(codes_of(got).empty()) << at << " of " << calls << ": " << got.ran.err;
  }
}

const std::string kKcore =
    ASOF_TEST_DATA "/demo/perf.data/kcore_dir/kcore --symfs " ASOF_TEST_DATA "/demo/symfs";

std::vector<Verb> verbs() {
  return {
      {"decode", "decode -o OUT/o.txt -F +disasm " + kDemo},
      {"blocks", "decode --format blocks -o OUT/o.blocks " + kDemo},
      {"report", "report " + kDemo},
      {"digest", "digest -j2 " + kDemo},
      {"script", "script --itrace b " + kDemo},
      {"quick", "script --itrace iqe " + kDemo},
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
      {"packets", "packets -o OUT/o.txt " + kDemo},
      {"live", "decode - -F +disasm --kcore " + kKcore, "demo.pipe"},
      {"live_blocks", "decode - --format blocks --kcore " + kKcore, "demo.pipe", true},
      {"shard", "decode --plan IN/plan --shard 0/2 -o OUT/parts"},
      {"of_plan", "decode --plan IN/plan -o OUT/o.txt"},
      {"merge", "merge IN/plan IN/parts -o OUT/o.blocks"},
      {"large_tables", "tables --table calls,blocks,agg_edge -o OUT/lake IN/plan"},
      {"archive", "digest IN/demo.tar.zst"},
      {"archive_xz", "digest IN/demo.tar.xz"},
      {"unpack", "unpack IN/demo.tar.zst -o OUT/demo"},
      {"bundle", "decode -o OUT/o.txt IN/bundle/bundle.json"},
      {"bundle_pack", "pack -o OUT/o.tar.gz IN/bundle/bundle.json"},
      {"jit", "stacks -o OUT/o.folded IN/jit/perf.data --symfs IN/jit/symfs"},
      {"jit_pack", "pack -o OUT/o.tar.zst IN/jit/perf.data --symfs IN/jit/symfs"},
      {"names", "report IN/names/perf.data --symfs IN/names/symfs"},
      {"names_in_tables", "tables --table functions -o OUT/lake IN/names/perf.data --symfs IN/names/symfs"}};
}

INSTANTIATE_TEST_SUITE_P(Verbs, Faults, ::testing::ValuesIn(verbs()),
                         [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(Verbs, EndFaults,
                         ::testing::Values(Verb{"unpacked", "digest IN/demo.tar.xz"},
                                           Verb{"html", "timeline --html OUT/o.html " + kDemo},
                                           Verb{"tables", "tables -o OUT/lake " + kDemo},
                                           Verb{"merge", "merge IN/plan IN/parts -o OUT/o.blocks"},
                                           Verb{"validate", "validate --format json " + kDemo}),
                         [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(Options, FolderFaults,
                         ::testing::Values(Verb{"symfs", "report IN/nothing --symfs IN/jit"},
                                           Verb{"modules", "report IN/nothing --modules IN/jit"}),
                         [](const auto& info) { return std::string(info.param.name); });

INSTANTIATE_TEST_SUITE_P(Unpack, ArchiveFaults,
                         ::testing::Values(Verb{"zstd", "unpack IN/demo.tar.zst -o OUT/demo"},
                                           Verb{"xz", "unpack IN/demo.tar.xz -o OUT/demo"}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace asof::test
