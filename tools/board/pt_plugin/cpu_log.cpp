#include "tools/board/pt_plugin/cpu_log.h"

#include <cstdlib>

namespace asof::machine {

CpuLog::CpuLog(const std::string& path) : file_(std::fopen(path.c_str(), "wb")) {
  if (file_ == nullptr) {
    std::fprintf(stderr, "pt plugin: cannot create %s\n", path.c_str());
    std::exit(3);
  }
  std::setvbuf(file_.get(), nullptr, _IOFBF, 1 << 20);
}

void CpuLog::write(const LogRecord& record) {
  ++records_;
  if (std::fwrite(&record, sizeof record, 1, file_.get()) == 1) return;
  std::fprintf(stderr, "pt plugin: cannot write the log\n");
  std::exit(3);
}

void CpuLog::settle(const TraceUnit::Told& told) {
  known_at_ = told.at;
  for (; !held_.empty() && held_.front().needs <= told.count; held_.pop_front()) {
    LogRecord& r = held_.front().record;
    if (r.code != kLogMark) r.output = static_cast<uint32_t>(known_at_);
    write(r);
  }
}

void CpuLog::lose(const TraceUnit::Told& told) {
  for (; !held_.empty(); held_.pop_front()) {
    LogRecord& r = held_.front().record;
    if (r.code != kLogMark) {
      r.output = static_cast<uint32_t>(told.at);
      r.flags |= kLogLost;
    }
    write(r);
  }
  expected_ = told.count;
}

// A mark keeps its place between the blocks.
void CpuLog::mark(Mark kind, uint64_t address, uint64_t output, uint64_t clock) {
  const LogRecord r{address, kLogMark, static_cast<uint16_t>(kind), 0, static_cast<uint32_t>(output),
                    0,       clock};
  if (held_.empty()) return write(r);
  held_.push_back({r, held_.back().needs});
}

}  // namespace asof::machine
