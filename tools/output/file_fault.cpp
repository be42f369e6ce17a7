#include "tools/output/file_fault.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstring>

#include "textstore/code.h"
#include "tools/output/exit_code.h"

// Only what signal-safety(7) allows: no allocation, no locks.
namespace asof {
namespace {

constexpr size_t kLine = 8192;  // of /proc/self/maps: a path has at most PATH_MAX bytes

void put(const char* text, size_t size) {
  while (size > 0) {
    const ssize_t n = ::write(STDERR_FILENO, text, size);
    if (n <= 0) return;
    text += n;
    size -= static_cast<size_t>(n);
  }
}

void put(const char* text) { put(text, std::strlen(text)); }

const char* number(const char* p, uintptr_t& value) {
  for (value = 0;; ++p) {
    if (*p >= '0' && *p <= '9')
      value = value * 16 + static_cast<uintptr_t>(*p - '0');
    else if (*p >= 'a' && *p <= 'f')
      value = value * 16 + static_cast<uintptr_t>(*p - 'a' + 10);
    else
      return p;
  }
}

// The path in a line "begin-end perms offset dev inode path" that holds the address, or nullptr.
char* path_in(char* line, uintptr_t at) {
  uintptr_t begin = 0, end = 0;
  const char* p = number(line, begin);
  if (*p++ != '-') return nullptr;
  number(p, end);
  if (at < begin || at >= end) return nullptr;
  char* const path = std::strchr(line, '/');
  if (path == nullptr) return nullptr;
  for (char* c = path; *c != 0; ++c) {  // a name may hold what a terminal acts on
    if (static_cast<unsigned char>(*c) < ' ' || static_cast<unsigned char>(*c) >= 0x7f) *c = '?';
  }
  return path;
}

void put_path_at(uintptr_t at) {
  const int fd = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char line[kLine];
  size_t size = 0;
  char buffer[512];
  for (ssize_t n = 0; (n = ::read(fd, buffer, sizeof buffer)) > 0;) {
    for (ssize_t i = 0; i < n; ++i) {
      if (buffer[i] != '\n') {
        if (size + 1 < kLine) line[size++] = buffer[i];
        continue;
      }
      line[size] = 0;
      size = 0;
      if (const char* const path = path_in(line, at)) {
        put(path);
        put(": ");
        ::close(fd);
        return;
      }
    }
  }
  ::close(fd);
}

void on_bus_error(int, siginfo_t* info, void*) {
  if (info->si_code != BUS_ADRERR) {  // no matter of a file
    ::signal(SIGBUS, SIG_DFL);
    ::raise(SIGBUS);
    return;
  }
  put(code_text(Code::kCannotReadInput).data(), code_text(Code::kCannotReadInput).size());
  put(" ");
  put_path_at(reinterpret_cast<uintptr_t>(info->si_addr));
  put("the file became shorter, or could not be read, while asof was reading it\n"
      "  hint: wait until the file is complete, or work on a copy\n");
  ::_exit(kExitInput);
}

}  // namespace

void install_fault_handler() {
  struct sigaction action = {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_RESETHAND;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace asof
