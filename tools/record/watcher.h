// Watcher: copies code as soon as the kernel announces it, because nothing else does in time: BPF trampolines
// and dispatchers are in no record with bytes, and a program that is unloaded at once is gone before perf
// asks for its image. Also modules, which no record announces: /proc/modules is compared with its earlier
// state.
//
// Trampolines and dispatchers are rewritten in place without a symbol's record, but with a change of text
// that leads to them: after one they are read again, and written if they have changed.
//
// A copy is only kept when it is of the code that was announced: after the bytes were read the rings are read
// once more, and if the symbol was removed, or replaced by another one, the copy is discarded. The kernel
// writes the record of the end before it frees the memory.
#pragma once
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/record/ring.h"

namespace asof::record {

// Memory of the kernel by its ELF core file (/proc/kcore; fs/proc/kcore.c).
class KernelMemory {
 public:
  KernelMemory() = default;
  ~KernelMemory();
  KernelMemory(const KernelMemory&) = delete;
  KernelMemory& operator=(const KernelMemory&) = delete;
  // Empty when it can be read; else why not.
  std::string open(const std::string& path);
  // All `size` bytes, or nothing.
  bool read(uint64_t addr, uint8_t* out, size_t size) const;

 private:
  struct Segment {
    uint64_t addr = 0, size = 0, offset = 0;
  };
  std::string load_segments();
  int fd_ = -1;
  std::vector<Segment> segments_;
};

struct ModuleRange {
  std::string name;
  uint64_t addr = 0;
  uint64_t size = 0;
  auto operator<=>(const ModuleRange&) const = default;
};
// Live modules of a /proc/modules; those whose address is hidden are left out.
std::vector<ModuleRange> read_modules(const std::string& path);

class Watcher {
 public:
  static constexpr uint32_t kModule = 100;             // type in the file (docs/bundle.md, "ksym_text.bin")
  static constexpr uint32_t kPerfTime = 0x80000000U;   // added to the type: the time is perf's, in ns
  static constexpr uint32_t kLongest = 1U << 20U;      // of one symbol
  static constexpr uint64_t kMostBytes = 1ULL << 30U;  // of the file

  struct Counts {
    uint64_t symbols = 0, copied = 0, gone = 0, unreadable = 0, modules = 0, lost = 0;
  };
  using Drain = std::function<bool(std::vector<SideRecord>&)>;
  using Now = std::function<std::optional<uint64_t>()>;

  Watcher(const KernelMemory& memory, Drain drain, Now now, std::FILE* out)
      : memory_(memory), drain_(std::move(drain)), now_(std::move(now)), out_(out) {}

  // Reads the rings, and copies new code. False: the file cannot be written.
  bool step();
  // Modules that are present now and were not before are copied; the first call only remembers them.
  bool look_at_modules(const std::string& path);
  const Counts& counts() const { return counts_; }

 private:
  // Code that is rewritten without a record of its bytes, and its bytes at the last reading.
  struct Rewritten {
    SideRecord symbol;
    std::vector<uint8_t> bytes;
  };
  void take(const std::vector<SideRecord>& records);
  void end_of(uint64_t addr, uint64_t len);
  bool copy(const SideRecord& symbol);
  bool write(uint64_t time, uint64_t addr, uint32_t type, const std::vector<uint8_t>& bytes);

  const KernelMemory& memory_;
  Drain drain_;
  Now now_;
  std::FILE* out_;
  std::map<uint64_t, SideRecord> pending_;   // by address
  std::map<uint64_t, Rewritten> rewritten_;  // trampolines and dispatchers, by address
  bool poked_ = false;
  std::optional<std::set<ModuleRange>> modules_;
  uint64_t written_ = 0;
  uint64_t last_time_ = 0;
  Counts counts_;
};

}  // namespace asof::record
