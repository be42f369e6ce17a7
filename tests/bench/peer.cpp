#include "tests/bench/peer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace asof::bench {
namespace {

double seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
}

// Redirects standard output to `out`; returns the exit status and the resources used.
std::pair<int, rusage> run_into(const std::vector<std::string>& words, int out) {
  std::vector<char*> argv;
  for (const std::string& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const int null = ::open("/dev/null", O_RDWR);
    ::dup2(null, STDIN_FILENO);
    ::dup2(out < 0 ? null : out, STDOUT_FILENO);
    ::dup2(null, STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  int status = -1;
  rusage usage{};
  if (child < 0 || ::wait4(child, &status, 0, &usage) != child)
    throw std::runtime_error("cannot run " + words[0]);
  return {status, usage};
}

// The contents of the file from its beginning.
std::string contents(int fd) {
  std::string all;
  std::array<char, 65536> part;
  ::lseek(fd, 0, SEEK_SET);
  for (ssize_t n; (n = ::read(fd, part.data(), part.size())) > 0;)
    all.append(part.data(), static_cast<size_t>(n));
  return all;
}

}  // namespace

double cpu_seconds_of(const std::function<void()>& work) {
  const auto now = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  };
  const double start = now();
  work();
  return now() - start;
}

double wall_seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v[v.size() / 2];
}

ProcessResult run_process(const std::vector<std::string>& words, bool count_lines) {
  const int fd = count_lines ? ::memfd_create("lines", MFD_CLOEXEC) : -1;
  const auto [status, usage] = run_into(words, fd);
  ProcessResult result{.seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime)};
  if (fd >= 0) {
    const std::string text = contents(fd);
    result.lines = static_cast<uint64_t>(std::ranges::count(text, '\n'));
    ::close(fd);
  }
  if (status != 0) throw std::runtime_error(fmt::format("{} ended with status {:#x}", words[0], status));
  return result;
}

std::string output_of(const std::vector<std::string>& words) {
  const int fd = ::memfd_create("output", MFD_CLOEXEC);
  const int status = run_into(words, fd).first;
  std::string text = status == 0 ? contents(fd) : "";
  ::close(fd);
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string machine_name() {
  std::string model = "unknown processor";
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.starts_with("model name")) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  }
  utsname names{};
  ::uname(&names);
  return fmt::format("{}, {} cores, {} {}", model, std::thread::hardware_concurrency(), names.sysname,
                     names.release);
}

void print_table(const std::string& title, const std::vector<Row>& rows, int rounds) {
  std::vector<Outcome> outcomes(rows.size());
  std::vector<std::vector<double>> times(rows.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < rows.size(); ++i) {
      outcomes[i] = rows[i].run();
      times[i].push_back(outcomes[i].seconds);
    }
  }
  fmt::print("{}\n  {:<36}{:>14}{:>12}{:>12}{:>10}{:>9}  {}\n", title, "", "instructions", "median ms",
             "best ms", "M insn/s", "slower", "losses");
  for (size_t i = 0; i < rows.size(); ++i) {
    const double s = median(times[i]);
    fmt::print("  {:<36}{:>14}{:>12.3f}{:>12.3f}{:>10.1f}{:>8.2f}x  {}", rows[i].name,
               outcomes[i].instructions, s * 1e3, std::ranges::min(times[i]) * 1e3,
               static_cast<double>(outcomes[i].instructions) / s * 1e-6, s / median(times[0]),
               outcomes[i].errors);
    if (outcomes[i].hash != 0) fmt::print(", hash {:016x}", outcomes[i].hash);
    fmt::print("\n");
  }
  std::fflush(stdout);
}

}  // namespace asof::bench
