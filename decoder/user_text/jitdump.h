// jitdump files: code that a JIT wrote into a process, as the JIT itself reports it. Layout and meaning:
// tools/perf/Documentation/jitdump-specification.txt; the readers of the kernel tree,
// tools/perf/util/jitdump.c.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decoder/io/sideband_notices.h"
#include "decoder/model/image.h"
#include "textstore/address.h"
#include "textstore/result.h"

namespace asof {

// One piece of code in memory: loaded, or moved from elsewhere.
struct JitCode {
  enum class Kind : uint8_t { kLoad, kMove };
  Kind kind = Kind::kLoad;
  uint64_t timestamp = 0;  // on the file's clock
  AddrRange range;
  Addr moved_from = 0;  // kMove
  uint64_t index = 0;   // code_index: the same over moves
  std::string_view name;
  std::span<const uint8_t> bytes;  // of a move, those of the load; empty: no load of this index exists
  uint64_t file_offset = 0;        // of the record
};

class JitDump {
 public:
  // Reads the whole file. Damage inside ends it with a notice (E-SIDE-61x) and keeps what came before.
  // Errors: E-FILE-013 (it cannot be read), E-FILE-311 (no jitdump).
  static Result<std::unique_ptr<const JitDump>> load(const std::string& path, NoticeBook& notices);

  const std::string& path() const { return file_->path(); }
  std::shared_ptr<const void> owner() const { return file_; }
  uint32_t pid() const { return pid_; }          // as the process saw it: in a container, another number
  uint32_t machine() const { return machine_; }  // EM_*
  // Timestamps are the CPU's counter (TSC); else CLOCK_MONOTONIC.
  bool counter_time() const { return (flags_ & kArchTimestamp) != 0; }
  std::span<const JitCode> code() const { return code_; }  // in file order

 private:
  static constexpr uint64_t kArchTimestamp = 1;

  JitDump() = default;
  void read_records(uint64_t begin, bool swap, NoticeBook& notices);

  std::shared_ptr<const MappedFile> file_;
  uint32_t pid_ = 0, machine_ = 0;
  uint64_t flags_ = 0;
  std::vector<JitCode> code_;
};

// The <pid> of ".../jit-<pid>.dump", the name under which a JIT maps its file so that perf sees it; -1:
// another name.
int64_t jitdump_pid(std::string_view path);

}  // namespace asof
