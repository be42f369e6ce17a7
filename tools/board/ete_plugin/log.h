// Writes the log of the validation machines (tools/board/machine/log_format.h).
#pragma once
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <span>
#include <string>

#include "tools/board/machine/log_format.h"

namespace asof::ete {

struct CloseFile {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

File create_file(const std::string& path);  // throws std::runtime_error

// The text of translated blocks.
class CodeLog {
 public:
  explicit CodeLog(const std::string& path) : file_(create_file(path)) {}
  uint32_t add(uint64_t address, std::span<const uint32_t> words);
  void flush() { std::fflush(file_.get()); }

 private:
  File file_;
  uint32_t next_ = 0;
};

// What one CPU executed and traced. Records wait until the packets that tell of them are written.
class CpuLog {
 public:
  explicit CpuLog(const std::string& path) : file_(create_file(path)) {}

  // One more retired instruction; continues the open record if it follows in the same block.
  void instruction(uint64_t address, uint32_t code, uint16_t index, uint32_t flags, uint64_t clock);
  // The open record ends. `element`: number of the P0 element that tells of it.
  void end(uint64_t element, uint32_t flags);
  void release(uint64_t written_elements, uint64_t output,
               bool lost);          // elements up to this number are written
  void lose_rest(uint64_t output);  // tracing ended: no packet will tell of what waits
  void mark(machine::Mark kind, uint64_t address, uint64_t output, uint64_t clock);
  void flush() { std::fflush(file_.get()); }

 private:
  struct Waiting {
    machine::LogRecord record;
    uint64_t element;
  };
  void put(const machine::LogRecord& r);

  File file_;
  std::deque<Waiting> waiting_;
  machine::LogRecord open_{};
  bool is_open_ = false;
};

}  // namespace asof::ete
