#include "tests/fuzz/damage.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <iterator>
#include <regex>
#include <string_view>

#include "tests/support/perf_data_writer.h"

namespace asof::fuzz {
namespace {

namespace fs = std::filesystem;
using Buffer = std::vector<uint8_t>;

constexpr std::array<uint64_t, 12> kNumbers = {0,          1,           0x7f,       0x80,
                                               0xffff,     0x7fffffff,  0x80000000, 0xffffffff,
                                               1ULL << 40, 1ULL << 62U, INT64_MAX,  UINT64_MAX};

std::ptrdiff_t at(size_t n) { return static_cast<std::ptrdiff_t>(n); }

std::string flip_bits(Buffer& b, test::SimRandom& random) {
  const uint64_t count = 1 + random.below(8);
  for (uint64_t i = 0; i < count; ++i)
    b[random.below(b.size())] ^= static_cast<uint8_t>(1U << random.below(8));
  return fmt::format("{} bits flipped", count);
}

std::string write_number(Buffer& b, test::SimRandom& random) {
  const size_t size = size_t{1} << random.below(4), where = random.below(b.size()) & ~(size - 1);
  const uint64_t number = kNumbers[random.below(kNumbers.size())];
  std::memcpy(b.data() + where, &number, std::min(size, b.size() - where));
  return fmt::format("{:#x} at {:#x}", number, where);
}

std::string overwrite(Buffer& b, test::SimRandom& random) {
  const size_t where = random.below(b.size()),
               count = std::min<size_t>(1 + random.below(64), b.size() - where);
  const uint64_t how = random.below(3);
  for (size_t i = 0; i < count; ++i)
    b[where + i] = how == 0 ? 0 : how == 1 ? 0xff : static_cast<uint8_t>(random.next());
  return fmt::format("{} bytes overwritten at {:#x}", count, where);
}

std::string cut(Buffer& b, test::SimRandom& random) {
  b.resize(random.below(b.size()));
  return fmt::format("cut to {} bytes", b.size());
}

// perf.data (not a pipe, whose header is 16 bytes long), ELF, what asof wrote: a checksum is last.
bool states_its_size(const Buffer& b) {
  const auto begins = [&](std::string_view magic) {
    return b.size() > magic.size() && std::equal(magic.begin(), magic.end(), b.begin());
  };
  return (begins("PERFILE2") && b[8] != 16) ||
         begins(
             "\x7f"
             "ELF") ||
         begins("\x28\xb5\x2f\xfd") || begins("asofblk\n");
}

size_t part_of(size_t whole, test::SimRandom& random) {
  return std::min<size_t>(whole, 1 + random.below(random.chance(50) ? 64 : 4096));
}

std::string remove(Buffer& b, test::SimRandom& random) {
  const size_t where = random.below(b.size()), count = part_of(b.size() - where, random);
  b.erase(b.begin() + at(where), b.begin() + at(where + count));
  return fmt::format("{} bytes removed at {:#x}", count, where);
}

std::string repeat(Buffer& b, test::SimRandom& random) {
  const size_t from = random.below(b.size()), count = part_of(b.size() - from, random);
  const Buffer copy(b.begin() + at(from), b.begin() + at(from + count));
  const size_t to = random.below(b.size());
  b.insert(b.begin() + at(to), copy.begin(), copy.end());
  return fmt::format("{} bytes of {:#x} repeated at {:#x}", count, from, to);
}

// Only in the child: makes no allocation.
[[noreturn]] void become(const std::vector<char*>& argv, const char* folder, int out, int err,
                         const Limits& limits) {
  const int null = ::open("/dev/null", O_RDONLY);
  ::dup2(null, 0);
  ::dup2(out, 1);
  ::dup2(err, 2);
  const rlimit cpu{limits.cpu, limits.cpu + 5}, memory{limits.memory, limits.memory}, core{0, 0};
  ::setrlimit(RLIMIT_CPU, &cpu);
  ::setrlimit(RLIMIT_CORE, &core);
  if (limits.memory != 0) ::setrlimit(RLIMIT_AS, &memory);
  if (::chdir(folder) != 0) ::_exit(126);
  ::execv(argv[0], argv.data());
  ::_exit(126);
}

std::string text_of(const fs::path& path) {
  const auto bytes = test::read_bytes(path);
  return {bytes.begin(), bytes.end()};
}

// By every verb that is given `argument`. Programs and modules are read where the flow, or a line, needs them; one that lost its
// build-id is another; and beside a capture may be others.
bool is_always_read(const std::string& name, const std::string& argument) {
  if (!argument.empty() && name != argument && !name.starts_with(argument + "/")) return false;
  constexpr std::array<std::string_view, 5> kNames = {"perf.data", "data", "kcore", "made", "made.tar.zst"};
  return std::ranges::find(kNames, fs::path(name).filename().string()) != kNames.end();
}

}  // namespace

Damage damage(std::map<std::string, Buffer>& files, const std::string& argument, test::SimRandom& random) {
  constexpr std::array kWays = {flip_bits, write_number, write_number, overwrite, cut, remove, repeat};
  std::string done;
  bool told = true;
  const uint64_t places = random.chance(60) ? 1 : 2 + random.below(3);
  for (uint64_t i = 0; i < places; ++i) {
    const auto file = std::next(files.begin(), at(random.below(files.size())));
    if (file->second.empty()) continue;
    const auto way = kWays[random.below(kWays.size())];
    told = told && way == cut && states_its_size(file->second) && is_always_read(file->first, argument);
    const std::string what = way(file->second, random);
    done += fmt::format("{}{}: {}", done.empty() ? "" : "; ", file->first, what);
  }
  return {.done = done, .must_be_told = told && !done.empty()};
}

Usage run_program(const std::vector<std::string>& arguments, const fs::path& folder, const Limits& limits) {
  std::vector<std::string> own = arguments;
  std::vector<char*> argv;
  for (std::string& a : own) argv.push_back(a.data());
  argv.push_back(nullptr);
  const auto create = [&](const char* name) {
    return ::open((folder / name).c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  };
  const int out = create("stdout"), err = create("stderr");
  const pid_t child = ::fork();
  if (child == 0) become(argv, folder.c_str(), out, err, limits);
  Usage usage;
  int status = 0;
  rusage used{};
  ::wait4(child, &status, 0, &used);
  ::close(out);
  ::close(err);
  usage.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  usage.cpu = seconds(used.ru_utime) + seconds(used.ru_stime);
  usage.peak = static_cast<uint64_t>(used.ru_maxrss) * 1024;
  usage.out = text_of(folder / "stdout");
  usage.err = text_of(folder / "stderr");
  return usage;
}

std::string fault_of(const Usage& usage, const Damage& damage, const fs::path& folder) {
  if (usage.status < 0) return fmt::format("ended by signal {}", -usage.status);
  // OpenCSD's crashes on damaged trace are those of a process of its own.
  const bool reported = usage.err.find("Sanitizer") != std::string::npos ||
                        usage.err.find("runtime error:") != std::string::npos;
  if (reported && usage.err.find("libopencsd") == std::string::npos) return "a sanitizer's finding";
  constexpr std::array kDocumented = {0, 1, 2, 3, 5};
  if (std::ranges::find(kDocumented, usage.status) == kDocumented.end())
    return fmt::format("exit status {}", usage.status);
  // 3 is a verdict: doctor and validate.
  const bool told = tells_of_something(usage);
  if (usage.status != 0 && usage.status != 3 && !told)
    return fmt::format("exit status {} without a code", usage.status);
  if (damage.must_be_told && !told) return "not a word of what was cut off";
  for (const char c : usage.err) {
    if (static_cast<uint8_t>(c) < 0x20 && c != '\n')
      return fmt::format("control byte {:#x} on standard error", static_cast<uint8_t>(c));
  }
  constexpr std::array kWritten = {"in", "out", "stdout", "stderr", "lake", "plan", "parts", "tmp"};
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (std::ranges::find(kWritten, entry.path().filename().string()) == kWritten.end())
      return fmt::format("{} is left behind", entry.path().filename().string());
  }
  return fs::is_empty(folder / "tmp") ? "" : "temporary files are left behind";
}

bool tells_of_something(const Usage& usage) {
  // Of trace that cannot be decoded at all, decode's last line counts the errors, and other verbs name report. Doctor's
  // verdict has no code.
  static const std::regex code(
      "[EWI]-[A-Z]+-[0-9]{3}|errors? in [0-9]+ cause|asof report|\\bbad +[a-z]|\"bad\"");
  return std::regex_search(usage.err, code) || std::regex_search(usage.out, code);
}

bool prints_figures(const std::string& command) {
  constexpr std::array kVerbs = {"digest -i IN", "stacks -i IN", "branches -i IN", "query -i IN",
                                 "coverage -i IN --format lcov"};
  return std::ranges::any_of(kVerbs, [&](const std::string& verb) {
    return command.starts_with(verb) && command.find("OUT") == std::string::npos;
  });
}

const std::vector<std::string>& damage_commands() {
  static const std::vector<std::string> commands = {
      "decode -i IN",
      "decode -i IN --format jsonl -F +sym,dso,srcline",
      "decode -i IN --source --inline --itrace=ibxewp",
      "decode -i IN --format blocks -o OUT",
      "script -i IN --insn-trace",
      "digest -i IN",
      "digest -i IN -j1",
      "report -i IN --cycles",
      "report -i IN --format jsonl --inline",
      "events -i IN",
      "doctor -i IN",
      "doctor -i IN --format jsonl",
      "packets -i IN",
      "packets -i IN --flow --format jsonl",
      "stacks -i IN",
      "stacks -i IN --format firefox -o OUT",
      "branches -i IN",
      "branches -i IN --format perf-script",
      "coverage -i IN --format lcov",
      "coverage -i IN --format cobertura -o OUT",
      "coverage -i IN --format drcov -o OUT",
      "script -i IN",
      "script -i IN --itrace=i1000ilg -F +brstack",
      "script -i IN --itrace=ibxwpeq",
      "inject -i IN -o OUT",
      "timeline -i IN --format perfetto -o OUT",
      "timeline -i IN --format chrome -o OUT",
      "timeline -i IN --format html -o OUT",
      "timeline -i IN --format csv -o -",
      "timeline -i IN --format sqlite -o OUT",
      "query -i IN 'select count(*) from calls'",
      "query -i IN --named irq-latency",
      "tables IN -o DIR/lake",
      "text -i IN --history 0xffffffff81000000",
      "validate -i IN",
      "pack -i IN -o OUT",
      "plan IN -o DIR/plan",
      "diff IN IN",
  };
  return commands;
}

}  // namespace asof::fuzz
