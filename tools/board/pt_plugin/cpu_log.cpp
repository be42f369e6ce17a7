#include "tools/board/pt_plugin/cpu_log.h"

#include <cstdlib>

namespace asof::pt {

CpuLog::CpuLog(const std::string& path) : file_(std::fopen(path.c_str(), "wb")) {
  if (file_ == nullptr) {
    std::fprintf(stderr, "pt plugin: cannot create %s\n", path.c_str());
    std::exit(3);
  }
  std::setvbuf(file_.get(), nullptr, _IOFBF, 1 << 20);
}

void CpuLog::write(const machine::LogRecord& record) {
  ++records_;
  if (std::fwrite(&record, sizeof record, 1, file_.get()) == 1) return;
  std::fprintf(stderr, "pt plugin: cannot write the log\n");
  std::exit(3);
}

void CpuLog::settle(const TraceUnit::Shown& shown) {
  for (; known_ < held_.size() && held_[known_].needs <= shown.count; ++known_) {
    machine::LogRecord& r = held_[known_].record;
    if (r.code != machine::kLogMark) r.output = static_cast<uint32_t>(shown.at);
  }
  for (; known_ != 0 && held_.front().needs < shown.count; --known_, held_.pop_front())
    write(held_.front().record);
}

void CpuLog::lose(const TraceUnit::Shown& shown, bool keep) {
  for (size_t i = 0; !held_.empty(); ++i, held_.pop_front()) {
    machine::LogRecord& r = held_.front().record;
    if (r.code != machine::kLogMark && (i >= known_ || !keep)) {
      r.output = static_cast<uint32_t>(shown.at);
      r.flags |= machine::kLogLost;
    }
    write(r);
  }
  known_ = 0;
  expected_ = shown.count;
}

// A mark keeps its place between the blocks.
void CpuLog::mark(machine::Mark kind, uint64_t address, uint64_t output, uint64_t clock) {
  const machine::LogRecord r{
      address, machine::kLogMark, static_cast<uint16_t>(kind), 0, static_cast<uint32_t>(output), 0, clock};
  if (held_.empty()) return write(r);
  held_.push_back({r, held_.back().needs});
}

}  // namespace asof::pt
