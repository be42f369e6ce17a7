#include "arch/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

namespace asof {
namespace {

constexpr int kPatience = 60'000;  // ms without an answer, of a child that waits for something itself
constexpr size_t kBuffer = size_t{1} << 16U;

bool write_all(int fd, const void* bytes, size_t size) {
  for (const auto* at = static_cast<const char*>(bytes); size > 0;) {
    const ssize_t n = ::write(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n, size -= static_cast<size_t>(n);
  }
  return true;
}

// Its ends of another child's pipes would keep them open.
void close_all_but(int a, int b) {
  unsigned from = 3;
  for (const int kept : {std::min(a, b), std::max(a, b)}) {
    const auto fd = static_cast<unsigned>(kept);
    if (fd > from) ::close_range(from, fd - 1, 0);
    from = std::max(from, fd + 1);
  }
  ::close_range(from, ~0U, 0);
}

[[noreturn]] void run(const std::function<void(int, int)>& work, int questions, int answers) {
  for (const int s : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGPIPE, SIGXCPU}) ::signal(s, SIG_DFL);
  const rlimit none{0, 0};  // a crash is expected here: no core file
  ::setrlimit(RLIMIT_CORE, &none);
  close_all_but(questions, answers);
  work(questions, answers);
  ::_exit(0);
}

}  // namespace

struct Child::Pipe {
  Pipe() { error = ::pipe2(ends.data(), O_CLOEXEC) == 0 ? 0 : errno; }
  ~Pipe() {
    for (const int fd : ends) {
      if (fd >= 0) ::close(fd);
    }
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  std::array<int, 2> ends{-1, -1};
  int error = 0;
};

Child::Child(const std::function<void(int fd)>& work) {
  Pipe answers;
  start([&](int, int out) { work(out); }, nullptr, answers);
}

Child::Child(const std::function<void(int questions, int answers)>& work) {
  Pipe questions, answers;
  start(work, &questions, answers);
}

// Where its parent is gone, it ends by SIGPIPE when it writes. PR_SET_PDEATHSIG would end it with the thread that made it.
void Child::start(const std::function<void(int, int)>& work, Pipe* questions, Pipe& answers) {
  error_ = answers.error != 0 || questions == nullptr ? answers.error : questions->error;
  if (error_ != 0) return;
  pid_ = ::fork();
  if (pid_ == 0) run(work, questions == nullptr ? answers.ends[1] : questions->ends[0], answers.ends[1]);
  error_ = pid_ < 0 ? errno : 0;
  fd_ = std::exchange(answers.ends[0], -1);
  if (questions != nullptr) questions_ = std::exchange(questions->ends[1], -1);
}

bool Child::ask(const void* bytes, size_t size) {
  if (pid_ <= 0) return false;
  over_ = over_ || !write_all(questions_, bytes, size);
  return !over_;
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
  for (int* fd : {&fd_, &questions_}) {
    if (*fd >= 0) ::close(std::exchange(*fd, -1));
  }
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
  if (!write_all(fd, bytes, size)) ::_exit(1);
}

void read_question(int fd, void* to, size_t size) {
  for (auto* at = static_cast<char*>(to); size > 0;) {
    const ssize_t n = ::read(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) ::_exit(0);
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
