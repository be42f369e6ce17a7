// A process for code that may crash: a copy of this one that runs a function and answers through a pipe. The function must need
// no lock that another thread may hold, and no open file.
#pragma once
#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>

namespace asof {

class Child {
 public:
  // `work` gets what it is to write its answer to; when it returns, the child ends. It may allocate.
  explicit Child(const std::function<void(int fd)>& work);
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // The next `size` bytes of its answer. False: they do not come; `what_happened` says why.
  bool read(void* to, size_t size);
  // It is killed if it still runs. "crashed (signal 11)", "ended without an answer", ...
  std::string what_happened();

 private:
  bool fill();
  void end();

  pid_t pid_ = -1;
  int fd_ = -1, status_ = 0, error_ = 0;
  bool over_ = false, silent_ = false;  // nothing comes any more; it may still run
  std::string buffer_;
  size_t at_ = 0;
};

// In a child: all is written, or it ends.
void write_answer(int fd, const void* bytes, size_t size);
// In a child: from now on so many seconds of CPU time, then it ends by SIGXCPU.
void allow_cpu_time(unsigned seconds);

}  // namespace asof
