// watch: the watcher as a program (watcher.h), and the self-test of text_poke: a kernel may accept the
// request and write nothing, so a known static key is flipped and its record is awaited.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "tools/record/undo.h"
#include "tools/record/watcher.h"

namespace {

using namespace asof::record;
using Clock = std::chrono::steady_clock;

// Exit statuses, as the scripts beside it use them.
enum : int { kOk = 0, kUsage = 1, kCannotWatch = 2, kCannotCopy = 3, kNoTextPoke = 4, kNoKey = 5 };
constexpr unsigned kPages = 128;

volatile sig_atomic_t ended = 0;
void on_signal(int) { ended = 1; }

struct Options {
  std::string out, root, kcore, key;
  double seconds = 0;  // 0: until a signal, or the command's end
  int modules_every = 20;
  bool self_test = false;
  char** command = nullptr;
};

int usage() {
  std::fputs(
      "usage: watch -o ksym_text.bin [--seconds S] [--kcore FILE] [--root DIR] [--modules MS] [-- "
      "COMMAND...]\n"
      "       watch --self-test [--key FILE] [--root DIR]\n"
      "Copies code from /proc/kcore as soon as the kernel announces it, until COMMAND ends, the time is over "
      "or a\n"
      "signal comes. Exit status: 0 done (or: text_poke works), 1 usage, 2 events cannot be opened, 3 kcore "
      "cannot be\n"
      "read or the file not written, 4 the kernel writes no TEXT_POKE records, 5 there is no key to flip.\n",
      stderr);
  return kUsage;
}

bool parse(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--self-test") {
      o.self_test = true;
      continue;
    }
    if (name == "--" && i + 1 < argc) {
      o.command = argv + i + 1;
      break;
    }
    if (i + 1 == argc) return false;
    const char* value = argv[++i];
    char* end = nullptr;
    if (name == "-o") {
      o.out = value;
    } else if (name == "--root") {
      o.root = value;
    } else if (name == "--kcore") {
      o.kcore = value;
    } else if (name == "--key") {
      o.key = value;
    } else if (name == "--seconds") {
      o.seconds = std::strtod(value, &end);
    } else if (name == "--modules") {
      o.modules_every = static_cast<int>(std::strtol(value, &end, 10));
    } else {
      return false;
    }
    if (end != nullptr && (*end != '\0' || end == value)) return false;
  }
  if (o.kcore.empty()) o.kcore = o.root + "/proc/kcore";
  if (o.key.empty()) {  // each is a static key; not every kernel has all of them
    for (const char* name : {"sched_schedstats", "task_delayacct", "bpf_stats_enabled"}) {
      o.key = o.root + "/proc/sys/kernel/" + name;
      if (access(o.key.c_str(), W_OK) == 0) break;
    }
  }
  return o.self_test || !o.out.empty();
}

bool put(const std::string& path, char value) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool done = write(fd, &value, 1) == 1;
  close(fd);
  return done;
}

int self_test(const Options& o) {
  Rings rings;
  if (const std::string reason = rings.open(kPages); !reason.empty()) {
    std::fprintf(stderr, "watch: %s\n", reason.c_str());
    return kCannotWatch;
  }
  if (!rings.text_poke()) {
    std::fputs("watch: this kernel does not know text_poke records (Linux 5.9 and later do)\n", stderr);
    return kNoTextPoke;
  }
  char was = '0';
  const int fd = open(o.key.c_str(), O_RDONLY | O_CLOEXEC);
  const bool known = fd >= 0 && read(fd, &was, 1) == 1 && (was == '0' || was == '1');
  if (fd >= 0) close(fd);
  const char before[] = {was, '\0'}, after[] = {was == '0' ? '1' : '0', '\0'};
  undo_open(o.root.c_str(), "watch");
  if (!known || undo_note("write", o.key.c_str(), before, after, nullptr) != 0 || !put(o.key, after[0])) {
    undo_done();
    std::fprintf(stderr, "watch: %s: there is no static key to flip there, or no permission\n",
                 o.key.c_str());
    return kNoKey;
  }
  if (put(o.key, was)) undo_done();
  uint64_t pokes = 0;
  for (int i = 0; i < 10 && pokes == 0; ++i) {
    std::vector<SideRecord> records;
    rings.wait(100);
    rings.drain(records);
    for (const SideRecord& r : records) pokes += r.kind == SideRecord::Kind::kTextPoke ? 1 : 0;
  }
  std::printf("%llu TEXT_POKE records after %s was flipped and put back\n",
              static_cast<unsigned long long>(pokes), o.key.c_str());
  return pokes != 0 ? kOk : kNoTextPoke;
}

pid_t start(char** command) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  execvp(command[0], command);
  std::fprintf(stderr, "watch: %s: %s\n", command[0], std::strerror(errno));
  _exit(127);
}

// Whether COMMAND has ended; its exit status.
bool over(pid_t pid, int& status) {
  int raw = 0;
  if (pid <= 0 || waitpid(pid, &raw, WNOHANG) != pid) return false;
  status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
  return true;
}

int watch(const Options& o) {
  KernelMemory memory;
  if (const std::string reason = memory.open(o.kcore); !reason.empty()) {
    std::fprintf(stderr, "watch: %s\n", reason.c_str());
    return kCannotCopy;
  }
  Rings rings;
  if (const std::string reason = rings.open(kPages); !reason.empty()) {
    std::fprintf(stderr, "watch: %s\n", reason.c_str());
    return kCannotWatch;
  }
  std::FILE* const out = std::fopen(o.out.c_str(), "wb");
  if (out == nullptr) {
    std::fprintf(stderr, "watch: %s: %s\n", o.out.c_str(), std::strerror(errno));
    return kCannotCopy;
  }
  Watcher watcher(
      memory, [&](std::vector<SideRecord>& r) { return rings.drain(r); }, [&] { return rings.now(); }, out);
  const std::string modules = o.root + "/proc/modules";
  bool written = watcher.look_at_modules(modules);
  std::fprintf(stderr, "watch: %zu rings%s\n", rings.size(), rings.text_poke() ? "" : " (no text_poke)");
  const pid_t pid = o.command != nullptr ? start(o.command) : 0;
  const auto begin = Clock::now();
  auto looked = begin;
  int status = kOk;
  bool done = false;
  while (written && !done && ended == 0) {
    done = over(pid, status) ||
           (o.seconds > 0 && Clock::now() - begin > std::chrono::duration<double>(o.seconds));
    rings.wait(o.modules_every);
    written = watcher.step();
    if (Clock::now() - looked < std::chrono::milliseconds(o.modules_every)) continue;
    looked = Clock::now();
    written = watcher.look_at_modules(modules) && written;
  }
  if (pid > 0 && !done) {
    kill(pid, SIGTERM);
    waitpid(pid, nullptr, 0);
  }
  written = std::fclose(out) == 0 && written;
  const Watcher::Counts& c = watcher.counts();
  std::fprintf(
      stderr,
      "watch: %llu symbols came, %llu copied, %llu gone before they could be, %llu unreadable, %llu modules, "
      "%llu records lost\n",
      static_cast<unsigned long long>(c.symbols), static_cast<unsigned long long>(c.copied),
      static_cast<unsigned long long>(c.gone), static_cast<unsigned long long>(c.unreadable),
      static_cast<unsigned long long>(c.modules), static_cast<unsigned long long>(c.lost));
  if (!written) std::fprintf(stderr, "watch: %s cannot be written, or is too big\n", o.out.c_str());
  return written ? status : kCannotCopy;
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  if (!parse(argc, argv, o)) return usage();
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGHUP, &action, nullptr);
  return o.self_test ? self_test(o) : watch(o);
}
