#include <algorithm>

#include "tools/board/machine/machine_truth.h"
#include "tools/board/machine/truth_writer.h"

namespace asof::machine {
namespace {

// Whether the next record is in the recording: from a sync point in a window on, up to what that window's end
// lets a decoder know.
class InWindow {
 public:
  explicit InWindow(const std::vector<Window>& windows) : windows_(windows) {}

  void sync(uint64_t position) {
    while (next_ < windows_.size() && windows_[next_].end <= position) ++next_;
    if (next_ < windows_.size() && windows_[next_].begin <= position) open_until_ = windows_[next_].end;
  }
  bool has(uint64_t position) {
    if (position > open_until_) open_until_ = 0;
    return open_until_ != 0;
  }

 private:
  const std::vector<Window>& windows_;
  size_t next_ = 0;
  uint64_t open_until_ = 0;
};

// perf pads what it copies to eight bytes.
bool ends_at(const std::vector<uint64_t>& offs, uint64_t end) {
  const auto it = std::ranges::upper_bound(offs, end);
  return it != offs.begin() && end - *std::prev(it) < 8;
}

}  // namespace

CpuTruth write_cpu_truth(const std::filesystem::path& log, int cpu, const CodeTable& code,
                         const std::vector<Window>& windows, const TimeConversion& clock,
                         const std::filesystem::path& file,
                         const std::function<bool(Addr, std::span<const uint8_t>)>& known) {
  TruthWriter writer(file, code, clock, known);
  CpuLog records(log_file(log, cpu));
  InWindow window(windows);
  LogRecord r;
  uint64_t position = 0;
  std::vector<uint64_t> offs;
  while (records.next(r, position)) {
    if (r.code == kLogMark) {
      if (is_mark(r, Mark::kSync)) window.sync(position);
      if (is_mark(r, Mark::kOff)) offs.push_back(position);
    } else if ((r.flags & kLogLost) != 0 || !window.has(position)) {
      writer.leave_out(r);
    } else {
      writer.add(r);
    }
  }
  CpuTruth truth = writer.finish();
  truth.windows = windows;
  for (const Window& w : windows) truth.ends += ends_at(offs, w.end) ? 1 : 0;
  return truth;
}

}  // namespace asof::machine
