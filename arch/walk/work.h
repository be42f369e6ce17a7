// The budget of work for what the trace leaves open. Which version of changing text runs is found by trying,
// and how much has to be tried depends on the text and its changes, which a damaged or forged capture chooses
// freely. So every segment has a budget that depends on its size and the capture's alone, and the work of a run
// is bounded by the size of its input. Where it is used up, what would need more is a gap (E-FLOW-007).
//
// What counts depends on the segment alone, never on what a worker decoded before: the same bytes give the
// same gaps with any number of workers.
#pragma once
#include <cstdint>

namespace asof::walk {

// In units of about one block of a hypothesis; some 50 to 100 ns.
inline constexpr uint64_t kWorkPerByte = 1024;
inline constexpr uint64_t kWorkPerSegment = uint64_t{1} << 14;
// Divided among all segments by their size: a short trace may be as hard as a long one's worst part.
inline constexpr uint64_t kWorkPerCapture = uint64_t{1} << 24;

class Work {
 public:
  // `capture_bytes`: of trace, of all streams.
  Work(uint64_t capture_bytes, uint32_t divisor) : capture_bytes_(capture_bytes), divisor_(divisor) {}

  // A segment of so many bytes begins.
  void start(uint64_t bytes) {
    const double share =
        capture_bytes_ <= bytes ? 1 : static_cast<double>(bytes) / static_cast<double>(capture_bytes_);
    limit_ = kWorkPerSegment + bytes * kWorkPerByte +
             static_cast<uint64_t>(share * static_cast<double>(kWorkPerCapture));
    limit_ /= divisor_;
    used_ = 0;
  }
  void take(uint64_t units) { used_ += units; }
  bool spent() const { return used_ > limit_; }

 private:
  uint64_t capture_bytes_, divisor_, used_ = 0, limit_ = 1;
};

}  // namespace asof::walk
