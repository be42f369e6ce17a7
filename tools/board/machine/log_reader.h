// Reads what a plugin wrote (log_format.h). A log is large, so its records are read as a stream.
#pragma once
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "textstore/address.h"
#include "tools/board/machine/log_format.h"

namespace asof::machine {

// A block of translated code: the lengths of its instructions, and their bytes.
struct CodeBlock {
  Addr address = 0;
  std::span<const uint8_t> lengths, bytes;
};

class CodeTable {
 public:
  // Throws std::runtime_error where the file is damaged.
  explicit CodeTable(std::vector<uint8_t> file);

  // nullptr: there is none of this number.
  const CodeBlock* find(uint32_t number) const {
    return number < blocks_.size() && !blocks_[number].lengths.empty() ? &blocks_[number] : nullptr;
  }
  uint32_t end() const { return static_cast<uint32_t>(blocks_.size()); }

 private:
  std::vector<uint8_t> file_;
  std::vector<CodeBlock> blocks_;  // by number
};

// The instructions that a record stands for.
struct Executed {
  Addr address = 0;
  std::span<const uint8_t> lengths, bytes;
};
// Throws std::runtime_error when the record names instructions that the table does not have.
Executed executed(const CodeTable& table, const LogRecord& record);

// The records of one CPU, in order. `position`: LogRecord::output without its limit of 32 bits.
class CpuLog {
 public:
  explicit CpuLog(const std::filesystem::path& file);
  bool next(LogRecord& record, uint64_t& position);

 private:
  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
  };
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<LogRecord> buffer_;
  size_t at_ = 0, filled_ = 0;
  uint64_t position_ = 0;
};

// CPU numbers of the logs in a folder.
std::vector<int> logged_cpus(const std::filesystem::path& folder);
std::filesystem::path log_file(const std::filesystem::path& folder, int cpu);
std::vector<uint8_t> read_file(const std::filesystem::path& path);

// read(cpu, record, position) for each record of these CPUs, one CPU after the other.
template <class Read>
void for_each_record(const std::filesystem::path& folder, const std::vector<int>& cpus, Read read) {
  for (const int cpu : cpus) {
    CpuLog log(log_file(folder, cpu));
    LogRecord record;
    uint64_t position = 0;
    while (log.next(record, position)) read(cpu, record, position);
  }
}

}  // namespace asof::machine
