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
  // One that is asked: `work` gets what questions come from, too.
  explicit Child(const std::function<void(int questions, int answers)>& work);
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // False: it takes no more; `what_happened` says why. SIGPIPE must be ignored.
  bool ask(const void* bytes, size_t size);
  // The next `size` bytes of its answer. False: they do not come; `what_happened` says why.
  bool read(void* to, size_t size);
  // It is killed if it still runs. "crashed (signal 11)", "ended without an answer", ...
  std::string what_happened();

 private:
  struct Pipe;
  void start(const std::function<void(int, int)>& work, Pipe* questions, Pipe& answers);
  bool fill();
  void end();

  pid_t pid_ = -1;
  int fd_ = -1, questions_ = -1, status_ = 0, error_ = 0;
  bool over_ = false, silent_ = false;  // nothing comes any more; it may still run
  std::string buffer_;
  size_t at_ = 0;
};

// In a child: all is written, or it ends.
void write_answer(int fd, const void* bytes, size_t size);
// In a child: all is read, or it ends: nobody asks any more.
void read_question(int fd, void* to, size_t size);
// In a child: from now on so many seconds of CPU time, then it ends by SIGXCPU.
void allow_cpu_time(unsigned seconds);

}  // namespace asof
