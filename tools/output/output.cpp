#include "tools/output/output.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "tools/output/file_fault.h"
#include "tools/output/interrupt.h"
#include "tools/output/unfinished_file.h"

namespace asof {
namespace {

constexpr size_t kBufferSize = size_t{256} * 1024;
volatile std::sig_atomic_t interrupt_seen = 0;
std::optional<Error> failure;  // of writing

void on_interrupt(int signal) {
  // A second one ends the program at once, should the first not be noticed.
  if (interrupt_seen != 0) _exit(130);
  interrupt_seen = signal;
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
  action.sa_handler = on_interrupt;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before = {};
    // nohup: goes on.
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler == SIG_IGN && signal != SIGINT)
      continue;
    sigaction(signal, &action, nullptr);
  }
  install_fault_handler();
}

bool interrupted() { return interrupt_seen != 0; }

void forget_sigint() {
  if (interrupt_seen == SIGINT) interrupt_seen = 0;
}

Result<Output> Output::open(const std::string& path, Named named) {
  if (path.empty() || path == "-") return Output(STDOUT_FILENO, false, "standard output");
  Output out(-1, true, path);
  struct stat old = {};
  const bool there = ::stat(path.c_str(), &old) == 0;
  // A device or a pipe has no other name.
  if (auto refused = refuse_input(path)) return std::unexpected(std::move(*refused));
  if (named == Named::kWhenWhole && (!there || S_ISREG(old.st_mode))) {
    out.fd_ = make_unfinished(out.path_, out.unfinished_).value_or(-1);
    if (out.fd_ >= 0 && there) ::fchmod(out.fd_, old.st_mode & 07777);
  }
  if (out.fd_ < 0) {  // perhaps the file may be written, and its folder not
    out.path_ = path;
    out.fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  }
  if (out.fd_ >= 0) return out;
  return fail(Code::kCannotWrite, path, Error::kNoOffset,
              std::string("cannot write: ") + std::strerror(errno), "choose another file with -o");
}

Output::Output(Output&& other) noexcept { *this = std::move(other); }

Output& Output::operator=(Output&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(owned_, other.owned_);
  std::swap(closed_, other.closed_);
  std::swap(path_, other.path_);
  std::swap(unfinished_, other.unfinished_);
  std::swap(buffer_, other.buffer_);
  std::swap(error_, other.error_);
  return *this;
}

Output::~Output() {
  if (fd_ < 0) return;
  if (unfinished_.empty()) flush();
  // Some file systems tell only now that the disk is full.
  if (owned_ && ::close(fd_) != 0 && errno != EINTR) set_error(errno);
  if (!unfinished_.empty()) ::unlink(unfinished_.c_str());
}

bool Output::finish() {
  flush();
  if (!error_.empty()) return false;
  if (unfinished_.empty()) return true;
  if (::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) {
    set_error(errno);
  } else if (const auto done = name_unfinished(unfinished_, path_); !done) {
    error_ = done.error().reason;
    if (!failure) failure = done.error();
  }
  if (error_.empty()) return true;
  ::unlink(unfinished_.c_str());
  return false;
}

std::optional<Error> Output::take_failure() { return std::exchange(failure, std::nullopt); }

void Output::set_error(int number) {
  error_ = std::strerror(number);
  if (!failure) {
    failure =
        Error{Code::kCannotWrite, path_, Error::kNoOffset, "cannot write: " + error_, "is the disk full?"};
  }
}

bool Output::is_terminal() const { return ::isatty(fd_) == 1; }

size_t Output::columns() const {
  winsize size{};
  return ::ioctl(fd_, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void Output::write(std::string_view text) {
  if (text.size() >= kBufferSize) {
    flush();
    put(text);
    return;
  }
  buffer_ += text;
  if (buffer_.size() >= kBufferSize) flush();
}

bool Output::flush() {
  put(buffer_);
  buffer_.clear();
  return !closed_;
}

void Output::put(std::string_view text) {
  while (!text.empty() && !closed_) {
    const ssize_t n = ::write(fd_, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno != EINTR) {
      closed_ = true;
      if (errno != EPIPE) set_error(errno);
    }
  }
}

}  // namespace asof
