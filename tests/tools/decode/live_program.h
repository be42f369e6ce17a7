// asof reading a pipe that the test writes piece by piece.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/tools/run_asof.h"

namespace asof::test {

class LiveProgram {
 public:
  explicit LiveProgram(std::vector<std::string> arguments) {
    int in[2], out[2];
    EXPECT_EQ(::pipe2(in, O_CLOEXEC), 0);
    EXPECT_EQ(::pipe2(out, O_CLOEXEC), 0);
    const std::string err = dir_.path() / "err";
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in[0], 0);
      ::dup2(out[1], 1);
      ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT, 0600), 2);
      arguments.insert(arguments.begin(), ASOF_BINARY);
      std::vector<char*> argv;
      for (std::string& a : arguments) argv.push_back(a.data());
      argv.push_back(nullptr);
      ::execv(ASOF_BINARY, argv.data());
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    to_ = in[1];
    from_ = out[0];
  }
  ~LiveProgram() {
    if (pid_ > 0) end();
  }

  pid_t pid() const { return pid_; }
  void write(std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {
      take_output(0);
      const ssize_t n = ::write(to_, bytes.data(), std::min<size_t>(bytes.size(), 4096));
      ASSERT_GT(n, 0);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
  }
  // False: the program ended before so much came. One that neither writes nor ends meets the limit of all tests.
  bool wait_for_output(size_t bytes) {
    while (out_.size() < bytes && take_output(-1)) {
    }
    return out_.size() >= bytes;
  }
  // Until it has the file open, or has ended.
  void wait_until_open(const std::filesystem::path& file) const {
    const auto wanted = std::filesystem::canonical(file);
    const std::filesystem::path own = "/proc/" + std::to_string(pid_) + "/fd";
    for (std::error_code error;; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
      bool any = false;
      for (const auto& entry : std::filesystem::directory_iterator(own, error)) {
        any = true;
        if (std::filesystem::read_symlink(entry.path(), error) == wanted) return;
      }
      if (!any) return;
    }
  }
  // Of the output what is there already.
  void take() { take_output(0); }
  // What came so far.
  const std::string& output() const { return out_; }
  // Closes the pipe and takes the rest.
  Ran end() {
    ::close(to_);
    while (take_output(-1)) {
    }
    ::close(from_);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out_,
            read_file(dir_.path() / "err")};
  }

 private:
  // False: there is no more.
  bool take_output(int wait_ms) {
    pollfd wanted{from_, POLLIN, 0};
    if (::poll(&wanted, 1, wait_ms) <= 0) return true;
    char buffer[1 << 16];
    const ssize_t n = ::read(from_, buffer, sizeof buffer);
    if (n > 0) out_.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }

  TempDir dir_;
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string out_;
};

}  // namespace asof::test
