// The side-band of a running kernel: perf rings without samples, one per CPU, whose records report code that
// comes and goes. Source: include/uapi/linux/perf_event.h, tools/lib/perf/mmap.c. Needs only libc, so that
// the watcher can be linked statically and copied to the machine that is recorded.
#pragma once
#include <linux/perf_event.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace asof::record {

// One record that matters here. Times are perf's clock, in ns.
struct SideRecord {
  enum class Kind : uint8_t { kKsymbol, kTextPoke, kLost, kOther };
  Kind kind = Kind::kOther;
  uint64_t time = 0;
  uint64_t addr = 0;
  uint32_t len = 0;         // kKsymbol: of the code
  uint16_t type = 0;        // kKsymbol: PERF_RECORD_KSYMBOL_TYPE_*
  bool unregister = false;  // kKsymbol
  uint64_t lost = 0;        // kLost: records
  std::string name;         // kKsymbol
};

// A record with its sample_id of TID, TIME, CPU, as the rings here are opened. Nothing if it is too short for
// its fields.
std::optional<SideRecord> parse_record(const uint8_t* bytes, size_t size);

// What is in one ring. `data_size` is a power of two.
class RingReader {
 public:
  RingReader(perf_event_mmap_page* page, const uint8_t* data, uint64_t data_size)
      : page_(page), data_(data), size_(data_size) {}

  // Appends all records present and releases their room. False: the ring is inconsistent (a size of 0, or
  // more than the ring), and all of it was discarded.
  bool drain(std::vector<SideRecord>& out);

 private:
  perf_event_mmap_page* page_;
  const uint8_t* data_;
  uint64_t size_;
};

// The current value of the counter that perf's clock is made of, in perf's ns; nothing where the kernel does
// not say how they relate (cap_user_time_zero).
std::optional<uint64_t> perf_time_now(const perf_event_mmap_page* page);

// The rings of all CPUs that are online.
class Rings {
 public:
  Rings() = default;
  ~Rings();
  Rings(const Rings&) = delete;
  Rings& operator=(const Rings&) = delete;

  // Empty when at least one ring could be opened; else why not, for people. Events are requested with
  // text_poke where the kernel knows it.
  std::string open(unsigned data_pages);
  bool text_poke() const { return text_poke_; }
  size_t size() const { return rings_.size(); }
  unsigned failed() const { return failed_; }  // CPUs without a ring

  // All records of all rings, by time. Returns false when a ring was inconsistent.
  bool drain(std::vector<SideRecord>& out);
  // Waits until there is a record, or the time is over.
  void wait(int milliseconds) const;
  std::optional<uint64_t> now() const;

 private:
  struct Ring {
    int fd = -1;
    void* memory = nullptr;
    size_t length = 0;
    uint64_t data_size = 0;
  };
  std::vector<Ring> rings_;
  bool text_poke_ = true;
  unsigned failed_ = 0;
};

}  // namespace asof::record
