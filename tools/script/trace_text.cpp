#include "tools/script/trace_text.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "decoder/perf/trace_texts.h"
#include "textstore/plain_text.h"

namespace asof {
namespace {

constexpr const char* kTraceLibrary = "libtraceevent.so.1";
constexpr int kPatienceWithTraceText = 10'000;  // ms without an answer
constexpr unsigned kMostDeaths = 8;
constexpr uint32_t kLongestText = 1U << 16U;
constexpr rlim_t kMostMemory = rlim_t{1} << 30U;

// As in the library's headers (event-parse.h, trace-seq.h), which do not change under one number of its name.
struct TraceSeq {
  char* buffer;
  unsigned size, length, read;
  int state;
};
struct TepRecord {
  unsigned long long ts, offset;
  long long missed;
  int record_size, size;
  void* data;
  int cpu, references, locked;
  void* own;
};
using Resolver = char*(void* with, unsigned long long* address, char** module);

struct TepCalls {
  void* (*alloc)() = nullptr;
  int (*parse_event)(void*, const char*, unsigned long, const char*) = nullptr;
  void (*print_event)(void*, TraceSeq*, TepRecord*, const char*, ...) = nullptr;
  void (*set_long_size)(void*, int) = nullptr;
  void (*set_page_size)(void*, int) = nullptr;
  void (*set_file_bigendian)(void*, int) = nullptr;
  void (*set_local_bigendian)(void*, int) = nullptr;
  int (*set_function_resolver)(void*, Resolver*, void*) = nullptr;
  void (*seq_init)(TraceSeq*) = nullptr;
  void (*seq_reset)(TraceSeq*) = nullptr;

  bool load(void* library) {
    bool all = true;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      all = all && function != nullptr;
    };
    find(alloc, "tep_alloc");
    find(parse_event, "tep_parse_event");
    find(print_event, "tep_print_event");
    find(set_long_size, "tep_set_long_size");
    find(set_page_size, "tep_set_page_size");
    find(set_file_bigendian, "tep_set_file_bigendian");
    find(set_local_bigendian, "tep_set_local_bigendian");
    find(set_function_resolver, "tep_set_function_resolver");
    find(seq_init, "trace_seq_init");
    find(seq_reset, "trace_seq_reset");
    return all;
  }
};

struct Question {
  int32_t cpu;
  uint32_t size;
};

bool read_all(int fd, void* to, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::read(fd, static_cast<char*>(to) + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

bool write_all(int fd, const void* from, size_t size) {
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::write(fd, static_cast<const char*>(from) + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

// Names of functions that formats ask for.
char* kernel_symbol(void* with, unsigned long long* address, char** module) {
  const auto* const capture = static_cast<const Capture*>(with);
  const auto found = capture->symbols.find(kKernelSpace, *address, kTimeMax);
  *module = nullptr;
  if (!found) return nullptr;
  *address -= found->offset;
  return const_cast<char*>(found->symbol->name.c_str());
}

[[noreturn]] void answer_all(const TepCalls& tep, const Capture& capture, int from, int to) {
  for (const int s : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGPIPE, SIGINT}) signal(s, SIG_DFL);
  const rlimit none{0, 0}, memory{kMostMemory, kMostMemory};
  setrlimit(RLIMIT_CORE, &none);
  setrlimit(RLIMIT_DATA, &memory);
  ::close(STDERR_FILENO);  // what the library says of formats that it does not know
  constexpr int kTracingData = 1;
  const TraceTexts texts = read_trace_texts(capture.perf->feature(kTracingData));
  void* const handle = tep.alloc();
  if (handle == nullptr) _exit(1);
  tep.set_long_size(handle, texts.long_size);
  tep.set_page_size(handle, static_cast<int>(texts.page_size & INT32_MAX));
  tep.set_file_bigendian(handle, texts.big_endian ? 1 : 0);
  tep.set_local_bigendian(handle, std::endian::native == std::endian::big ? 1 : 0);
  tep.set_function_resolver(handle, kernel_symbol, const_cast<Capture*>(&capture));
  for (const auto& [system, text] : texts.formats)
    tep.parse_event(handle, text.data(), text.size(), std::string(system).c_str());
  TraceSeq seq{};
  tep.seq_init(&seq);
  Question q{};
  std::string raw;
  while (read_all(from, &q, sizeof q)) {
    // The library looks at lengths in the bytes, not always at theirs.
    constexpr size_t kBehind = 4096;
    raw.assign(q.size + kBehind, '\0');
    if (!read_all(from, raw.data(), q.size)) break;
    TepRecord record{};
    record.size = record.record_size = static_cast<int>(q.size);
    record.data = raw.data();
    record.cpu = q.cpu;
    tep.seq_reset(&seq);
    tep.print_event(handle, &seq, &record, "%s", "INFO");
    const uint32_t length = std::min(seq.length, kLongestText);
    if (!write_all(to, &length, sizeof length) || !write_all(to, seq.buffer, length)) break;
  }
  _exit(0);
}

}  // namespace

void TraceText::fault(std::string reason, std::string hint) {
  if (!failure_) failure_ = Error{Code::kBadOption, "", Error::kNoOffset, std::move(reason), std::move(hint)};
}

bool TraceText::start() {
  if (child_ > 0) return true;
  if (given_up_) return false;
  // It stays loaded, for the next child.
  if (library_ == nullptr) library_ = ::dlopen(kTraceLibrary, RTLD_NOW | RTLD_LOCAL);
  TepCalls calls;
  if (library_ == nullptr || !calls.load(library_)) {
    given_up_ = true;
    fault(fmt::format("{} cannot be loaded: what tracepoints say is not printed", kTraceLibrary),
          "install the package libtraceevent1, or leave the field out with -F -trace");
    return false;
  }
  std::array<int, 2> down{}, up{};
  if (::pipe2(down.data(), O_CLOEXEC) != 0) return false;
  if (::pipe2(up.data(), O_CLOEXEC) != 0) {
    ::close(down[0]), ::close(down[1]);
    return false;
  }
  child_ = ::fork();
  if (child_ == 0) {
    ::close(down[1]), ::close(up[0]);
    answer_all(calls, capture_, down[0], up[1]);
  }
  ::close(down[0]), ::close(up[1]);
  to_ = down[1];
  from_ = up[0];
  if (child_ < 0) end();
  return child_ > 0;
}

void TraceText::end() {
  for (int* fd : {&to_, &from_}) {
    if (*fd >= 0) ::close(std::exchange(*fd, -1));
  }
  if (child_ <= 0) return;
  ::kill(child_, SIGKILL);
  while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
}

bool TraceText::ask(int32_t cpu, std::span<const uint8_t> raw) {
  const Question q{cpu, static_cast<uint32_t>(raw.size())};
  return write_all(to_, &q, sizeof q) && write_all(to_, raw.data(), raw.size());
}

std::optional<std::string> TraceText::answer() {
  pollfd ready{from_, POLLIN, 0};
  int come = 0;
  do {
    come = ::poll(&ready, 1, kPatienceWithTraceText);
  } while (come < 0 && errno == EINTR);
  uint32_t length = 0;
  if (come <= 0 || !read_all(from_, &length, sizeof length) || length > kLongestText) return std::nullopt;
  std::string text(length, '\0');
  if (!read_all(from_, text.data(), length)) return std::nullopt;
  return text;
}

std::string TraceText::text(int32_t cpu, std::span<const uint8_t> raw) {
  constexpr size_t kMostRaw = UINT16_MAX;  // of a record
  if (raw.empty() || raw.size() > kMostRaw || !start()) return {};
  if (ask(cpu, raw)) {
    if (const auto text = answer()) return plain_text(*text);
  }
  end();
  given_up_ = ++deaths_ == kMostDeaths;
  fault("libtraceevent failed on samples of tracepoints, whose text is missing",
        "'asof events --type SAMPLE' lists them; the formats in the recording may be damaged");
  return {};
}

}  // namespace asof
