#include "arch/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

namespace asof {
namespace {

constexpr int kPatience = 60'000;  // ms without an answer, of a child that waits for something itself
constexpr size_t kBuffer = size_t{1} << 16U;

// Its end of another child's pipe would keep that one open.
void close_all_but(int fd) {
  const auto last = static_cast<unsigned>(fd);
  if (last > 3) ::close_range(3, last - 1, 0);
  ::close_range(last + 1, ~0U, 0);
}

[[noreturn]] void run(const std::function<void(int fd)>& work, int fd) {
  for (const int s : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGPIPE, SIGXCPU}) ::signal(s, SIG_DFL);
  const rlimit none{0, 0};  // a crash is expected here: no core file
  ::setrlimit(RLIMIT_CORE, &none);
  close_all_but(fd);
  work(fd);
  ::_exit(0);
}

}  // namespace

// Where its parent is gone, it ends by SIGPIPE when it writes. PR_SET_PDEATHSIG would end it with the thread that made it.
Child::Child(const std::function<void(int fd)>& work) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    error_ = errno;
    return;
  }
  pid_ = ::fork();
  if (pid_ == 0) run(work, ends[1]);
  error_ = pid_ < 0 ? errno : 0;
  ::close(ends[1]);
  fd_ = ends[0];
}

bool Child::read(void* to, size_t size) {
  for (auto* out = static_cast<char*>(to); size > 0;) {
    if (at_ == buffer_.size() && !fill()) return false;
    const size_t n = std::min(size, buffer_.size() - at_);
    std::memcpy(out, buffer_.data() + at_, n);
    at_ += n, out += n, size -= n;
  }
  return true;
}

bool Child::fill() {
  if (pid_ <= 0 || over_) return false;
  buffer_.resize(kBuffer);
  at_ = 0;
  ssize_t n = -1;
  do {
    pollfd ready{fd_, POLLIN, 0};
    const int come = ::poll(&ready, 1, kPatience);
    silent_ = come == 0;
    n = come > 0 ? ::read(fd_, buffer_.data(), buffer_.size()) : -1;
  } while (n < 0 && !silent_ && errno == EINTR);
  buffer_.resize(n > 0 ? static_cast<size_t>(n) : 0);
  over_ = n <= 0;
  return n > 0;
}

void Child::end() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
}

std::string Child::what_happened() {
  if (error_ != 0) return std::string("could not be started: ") + std::strerror(error_);
  if (over_ && !silent_) {  // killed here, it would seem not to have crashed
    while (::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
  }
  end();
  if (silent_) return "does not answer";
  if (!over_) return "gave a false answer";
  if (!WIFSIGNALED(status_)) return "ended without an answer";
  return WTERMSIG(status_) == SIGXCPU ? "does not come to an end"
                                      : fmt::format("crashed (signal {})", WTERMSIG(status_));
}

void write_answer(int fd, const void* bytes, size_t size) {
  for (const auto* at = static_cast<const char*>(bytes); size > 0;) {
    const ssize_t n = ::write(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) ::_exit(1);
    at += n, size -= static_cast<size_t>(n);
  }
}

void allow_cpu_time(unsigned seconds) {
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  rlimit limit{};
  ::getrlimit(RLIMIT_CPU, &limit);
  limit.rlim_cur = std::min<rlim_t>(static_cast<rlim_t>(used.tv_sec) + seconds + 1, limit.rlim_max);
  ::setrlimit(RLIMIT_CPU, &limit);
}

}  // namespace asof
