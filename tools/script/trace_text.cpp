#include "tools/script/trace_text.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

#include "decoder/perf/trace_texts.h"
#include "textstore/plain_text.h"

namespace asof {
namespace {

constexpr const char* kTraceLibrary = "libtraceevent.so.1";
constexpr unsigned kSecondsOfText = 10;  // of CPU time, for a text
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

// Names of functions that formats ask for.
char* kernel_symbol(void* with, unsigned long long* address, char** module) {
  const auto* const capture = static_cast<const Capture*>(with);
  const auto found = capture->symbols.find(kKernelSpace, *address, kTimeMax);
  *module = nullptr;
  if (!found) return nullptr;
  *address -= found->offset;
  return const_cast<char*>(found->symbol->name.c_str());
}

// In the child, until nobody asks any more.
void answer_all(const TepCalls& tep, const Capture& capture, int from, int to) {
  allow_cpu_time(kSecondsOfText);
  const rlimit memory{kMostMemory, kMostMemory};
  setrlimit(RLIMIT_DATA, &memory);
  ::close(STDERR_FILENO);  // what the library says of formats that it does not know
  constexpr int kTracingData = 1;
  const TraceTexts texts = read_trace_texts(capture.perf->feature(kTracingData));
  void* const handle = tep.alloc();
  if (handle == nullptr) return;
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
  for (;;) {
    read_question(from, &q, sizeof q);
    // The library looks at lengths in the bytes, not always at theirs.
    constexpr size_t kBehind = 4096;
    raw.assign(q.size + kBehind, '\0');
    read_question(from, raw.data(), q.size);
    allow_cpu_time(kSecondsOfText);
    TepRecord record{};
    record.size = record.record_size = static_cast<int>(q.size);
    record.data = raw.data();
    record.cpu = q.cpu;
    tep.seq_reset(&seq);
    tep.print_event(handle, &seq, &record, "%s", "INFO");
    const uint32_t length = std::min(seq.length, kLongestText);
    write_answer(to, &length, sizeof length);
    write_answer(to, seq.buffer, length);
  }
}

}  // namespace

void TraceText::fault(std::string reason, std::string hint) {
  if (!failure_) failure_ = Error{Code::kBadOption, "", Error::kNoOffset, std::move(reason), std::move(hint)};
}

bool TraceText::start() {
  if (child_) return true;
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
  child_ = std::make_unique<Child>([&, calls](int from, int to) { answer_all(calls, capture_, from, to); });
  return true;
}

std::optional<std::string> TraceText::answer(int32_t cpu, std::span<const uint8_t> raw) {
  const Question q{cpu, static_cast<uint32_t>(raw.size())};
  uint32_t length = 0;
  if (!child_->ask(&q, sizeof q) || !child_->ask(raw.data(), raw.size()) ||
      !child_->read(&length, sizeof length) || length > kLongestText) {
    return std::nullopt;
  }
  std::string text(length, '\0');
  if (!child_->read(text.data(), length)) return std::nullopt;
  return text;
}

std::string TraceText::text(int32_t cpu, std::span<const uint8_t> raw) {
  constexpr size_t kMostRaw = UINT16_MAX;  // of a record
  if (raw.empty() || raw.size() > kMostRaw || !start()) return {};
  if (const auto text = answer(cpu, raw)) return plain_text(*text);
  const std::string why = child_->what_happened();
  child_.reset();
  given_up_ = ++deaths_ == kMostDeaths;
  fault(fmt::format("libtraceevent {} on samples of tracepoints, whose text is missing", why),
        "'asof events --type SAMPLE' lists them; the formats in the recording may be damaged");
  return {};
}

}  // namespace asof
