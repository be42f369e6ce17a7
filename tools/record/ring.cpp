#include "tools/record/ring.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace asof::record {
namespace {

constexpr size_t kSampleId = 24;  // TID, TIME, CPU: 8 bytes each

template <class T>
T load(const uint8_t* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

int open_event(int cpu, bool text_poke) {
  perf_event_attr attr{};
  attr.type = PERF_TYPE_SOFTWARE;
  attr.size = sizeof attr;
  attr.config = PERF_COUNT_SW_DUMMY;
  attr.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU;
  attr.sample_id_all = 1;
  attr.ksymbol = 1;
  attr.bpf_event = 1;
  attr.text_poke = text_poke ? 1 : 0;
  attr.watermark = 1;
  attr.wakeup_watermark = 1;
  return static_cast<int>(syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC));
}

std::string why(int error) {
  switch (error) {
    case EACCES:
    case EPERM:
      return "no permission for perf events of all CPUs (root, or kernel.perf_event_paranoid below 1; a "
             "locked down "
             "kernel refuses, too)";
    case ENOSYS:
      return "this kernel has no perf events";
    case EINVAL:
      return "this kernel does not know ksymbol or bpf_event records (Linux 5.1 and later do)";
    default:
      return std::string("perf_event_open: ") + std::strerror(error);
  }
}

#if defined(__x86_64__)
uint64_t counter() {
  uint32_t low = 0;
  uint32_t high = 0;
  asm volatile("lfence; rdtsc" : "=a"(low), "=d"(high)::"memory");
  return uint64_t{high} << 32U | low;
}
#elif defined(__aarch64__)
uint64_t counter() {
  uint64_t value = 0;
  asm volatile("isb; mrs %0, cntvct_el0" : "=r"(value)::"memory");
  return value;
}
#else
uint64_t counter() { return 0; }
#endif

// Bytes of a record's own fields, of `size` after the header. Its id fields are after them, not at its end:
// the kernel makes KSYMBOL and TEXT_POKE records longer for each event that listens to them
// (kernel/events/core.c, perf_event_ksymbol_output() does not set the size back).
size_t fields_of(uint32_t type, const uint8_t* body, size_t size) {
  const auto aligned = [](size_t n) { return (n + 7) / 8 * 8; };
  if (type == PERF_RECORD_KSYMBOL && size >= 16)
    return 16 + aligned(strnlen(reinterpret_cast<const char*>(body + 16), size - 16) + 1);
  if (type == PERF_RECORD_TEXT_POKE && size >= 12)
    return aligned(size_t{12} + load<uint16_t>(body + 8) + load<uint16_t>(body + 10));
  return size - kSampleId;
}

}  // namespace

std::optional<SideRecord> parse_record(const uint8_t* bytes, size_t size) {
  constexpr size_t kHeader = sizeof(perf_event_header);
  if (size < kHeader) return std::nullopt;
  const auto header = load<perf_event_header>(bytes);
  if (header.size != size) return std::nullopt;
  SideRecord r;
  if (header.type != PERF_RECORD_KSYMBOL && header.type != PERF_RECORD_TEXT_POKE &&
      header.type != PERF_RECORD_LOST)
    return r;
  if (size < kHeader + kSampleId) return std::nullopt;
  const uint8_t* const body = bytes + kHeader;
  const size_t body_size = fields_of(header.type, body, size - kHeader);
  if (kHeader + body_size + kSampleId > size) return std::nullopt;
  r.time = load<uint64_t>(body + body_size + 8);
  switch (header.type) {
    case PERF_RECORD_KSYMBOL: {
      if (body_size < 16) return std::nullopt;
      r.kind = SideRecord::Kind::kKsymbol;
      r.addr = load<uint64_t>(body);
      r.len = load<uint32_t>(body + 8);
      r.type = load<uint16_t>(body + 12);
      r.unregister = (load<uint16_t>(body + 14) & PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER) != 0;
      const char* const name = reinterpret_cast<const char*>(body + 16);
      r.name.assign(name, strnlen(name, body_size - 16));
      return r;
    }
    case PERF_RECORD_TEXT_POKE:
      if (body_size < 12) return std::nullopt;
      r.kind = SideRecord::Kind::kTextPoke;
      r.addr = load<uint64_t>(body);
      return r;
    default:
      if (body_size < 16) return std::nullopt;
      r.kind = SideRecord::Kind::kLost;
      r.lost = load<uint64_t>(body + 8);
      return r;
  }
}

bool RingReader::drain(std::vector<SideRecord>& out) {
  const uint64_t head = __atomic_load_n(&page_->data_head, __ATOMIC_ACQUIRE);
  uint64_t tail = page_->data_tail;
  bool sane = head - tail <= size_;
  std::vector<uint8_t> record;
  while (sane && tail != head) {
    perf_event_header header{};
    if (head - tail < sizeof header) {
      sane = false;
      break;
    }
    const auto copy = [&](void* to, size_t size) {  // a record may wrap
      const uint64_t at = tail & (size_ - 1);
      const size_t first = std::min<uint64_t>(size, size_ - at);
      std::memcpy(to, data_ + at, first);
      std::memcpy(static_cast<uint8_t*>(to) + first, data_, size - first);
    };
    copy(&header, sizeof header);
    if (header.size < sizeof header || header.size > head - tail) {
      sane = false;
      break;
    }
    record.resize(header.size);
    copy(record.data(), record.size());
    if (auto parsed = parse_record(record.data(), record.size())) out.push_back(std::move(*parsed));
    tail += header.size;
  }
  __atomic_store_n(&page_->data_tail, head, __ATOMIC_RELEASE);
  return sane;
}

std::optional<uint64_t> perf_time_now(const perf_event_mmap_page* page) {
  for (;;) {  // a sequence lock: odd, or changed afterwards, means that it was being written
    const uint32_t before = __atomic_load_n(&page->lock, __ATOMIC_ACQUIRE);
    if (page->cap_user_time_zero == 0) return std::nullopt;
    const uint64_t zero = page->time_zero;
    const uint32_t mult = page->time_mult;
    const uint16_t shift = page->time_shift;
    uint64_t cycles = counter();
    if (page->cap_user_time_short != 0)
      cycles = page->time_cycles + ((cycles - page->time_cycles) & page->time_mask);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if ((before & 1U) != 0 || __atomic_load_n(&page->lock, __ATOMIC_RELAXED) != before) continue;
    const uint64_t whole = cycles >> shift;
    const uint64_t rest = cycles & ((uint64_t{1} << shift) - 1);
    return zero + whole * mult + ((rest * mult) >> shift);
  }
}

Rings::~Rings() {
  for (const Ring& r : rings_) {
    munmap(r.memory, r.length);
    close(r.fd);
  }
}

std::string Rings::open(unsigned data_pages) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const long cpus = sysconf(_SC_NPROCESSORS_CONF);
  int error = 0;
  for (int cpu = 0; cpu < cpus; ++cpu) {
    int fd = open_event(cpu, text_poke_);
    if (fd < 0 && (errno == EINVAL || errno == E2BIG) && text_poke_) {
      text_poke_ = false;
      fd = open_event(cpu, false);
    }
    if (fd < 0) {
      if (errno != ENODEV) {  // a CPU that is not online
        error = errno;
        ++failed_;
      }
      continue;
    }
    Ring ring{fd, nullptr, (size_t{data_pages} + 1) * page, uint64_t{data_pages} * page};
    ring.memory = mmap(nullptr, ring.length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ring.memory == MAP_FAILED) {
      error = errno;
      ++failed_;
      close(fd);
      continue;
    }
    rings_.push_back(ring);
  }
  return rings_.empty() ? why(error) : std::string();
}

bool Rings::drain(std::vector<SideRecord>& out) {
  bool sane = true;
  const size_t before = out.size();
  for (const Ring& r : rings_) {
    auto* const page = static_cast<perf_event_mmap_page*>(r.memory);
    const auto* const data = static_cast<const uint8_t*>(r.memory) + (r.length - r.data_size);
    sane = RingReader(page, data, r.data_size).drain(out) && sane;
  }
  std::stable_sort(out.begin() + static_cast<long>(before), out.end(),
                   [](const SideRecord& a, const SideRecord& b) { return a.time < b.time; });
  return sane;
}

void Rings::wait(int milliseconds) const {
  std::vector<pollfd> fds;
  fds.reserve(rings_.size());
  for (const Ring& r : rings_) fds.push_back({r.fd, POLLIN, 0});
  poll(fds.data(), fds.size(), milliseconds);
}

std::optional<uint64_t> Rings::now() const {
  return rings_.empty() ? std::nullopt
                        : perf_time_now(static_cast<const perf_event_mmap_page*>(rings_[0].memory));
}

}  // namespace asof::record
