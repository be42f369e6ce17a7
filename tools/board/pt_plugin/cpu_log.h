// CpuLog: the truth of one CPU, in the format of log_format.h. A record is written when it is known how many bytes of
// trace show it, or that none do.
#pragma once
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>

#include "tools/board/machine/log_format.h"
#include "tools/board/pt_plugin/unit.h"

namespace asof::pt {

class CpuLog {
 public:
  explicit CpuLog(const std::string& path);  // ends the process if it cannot be created

  // Instructions that retired; `output` is filled in later. Known once as many outcomes as expect() counted are shown,
  // and certain once another one is: before an overflow an interruption may have been lost.
  void block(const machine::LogRecord& record) { held_.push_back({record, expected_}); }
  void expect() { ++expected_; }  // what follows needs one more outcome
  void settle(const TraceUnit::Shown& shown);
  // What is held was lost, but `keep` what is known. Outcomes are counted on from `shown`.
  void lose(const TraceUnit::Shown& shown, bool keep);
  size_t held() const { return held_.size(); }
  void mark(machine::Mark kind, uint64_t address, uint64_t output, uint64_t clock);
  uint64_t records() const { return records_; }
  void close() { file_.reset(); }

 private:
  struct Held {
    machine::LogRecord record;
    uint64_t needs;
  };
  struct Close {
    void operator()(FILE* f) const { std::fclose(f); }
  };
  void write(const machine::LogRecord& record);

  std::unique_ptr<FILE, Close> file_;
  std::deque<Held> held_;
  size_t known_ = 0;  // of those held, at the front
  uint64_t expected_ = 0, records_ = 0;
};

}  // namespace asof::pt
