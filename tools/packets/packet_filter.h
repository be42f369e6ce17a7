// What `asof packets` lists: types, times, offsets, tasks.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arch/packets.h"
#include "arch/stream.h"
#include "textstore/result.h"
#include "textstore/time.h"
#include "tools/output/task_choice.h"

namespace asof {

// Types by their names, in any case and without punctuation, families ("TNT") and patterns of the shell ("TIP*").
// "^PAD" leaves out; where that is all, everything else is in.
class TypeFilter {
 public:
  static Result<TypeFilter> read(const std::string& list, std::span<const std::string_view> names);
  bool passes(uint8_t type) const { return passes_[type]; }
  // Those of the list, as given, that none of the types seen is of.
  std::vector<std::string> unseen(std::span<const uint64_t> seen) const;

 private:
  struct Word {
    std::string text;
    std::vector<uint8_t> types;
  };
  std::array<bool, 256> passes_{};
  std::vector<Word> words_;
};

// "A,B": bytes from A on, before B; either may be missing. Decimal, or hexadecimal with 0x.
struct OffsetRange {
  uint64_t begin = 0, end = UINT64_MAX;
};
Result<OffsetRange> parse_offset_range(const std::string& text);

// The task that ran on the stream at the packet's time.
class TaskFilter {
 public:
  // Both must outlive it.
  TaskFilter(const TaskTable& tasks, const TaskChoice& choice) : tasks_(tasks), choice_(choice) {}
  bool passes(const Stream& stream, Time time);

 private:
  bool wanted(const Stream& stream, const ContextChange* task, Time time) const;

  const TaskTable& tasks_;
  const TaskChoice& choice_;
  const Stream* stream_ = nullptr;
  Time from_ = kTimeMax, until_ = kTimeMin;  // of the last answer
  bool answer_ = true;
};

}  // namespace asof
