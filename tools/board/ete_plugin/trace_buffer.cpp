#include "tools/board/ete_plugin/trace_buffer.h"

#include <algorithm>
#include <cstring>

namespace asof::ete {
namespace {

// TRBSR_EL1
constexpr uint64_t kIrq = 1 << 22, kWrap = 1 << 20, kStopped = 1 << 17;
constexpr uint64_t kFilled = 1;                   // EC 0, BSC 1: buffer filled
constexpr uint64_t kStage1Abort = 0x24ull << 26;  // EC: stage 1 Data Abort on a write
constexpr uint64_t kTranslationFault = 7;         // FSC: level 3
// TRBLIMITR_EL1
constexpr uint64_t kEnable = 1;
enum : uint64_t { kFillMode = 0, kWrapMode = 1, kCircularMode = 3 };

}  // namespace

// D6.3.1 "Behavior when address translation is enabled": the pointers are virtual addresses of the owning translation
// regime (TRBLIMITR_EL1.nVM is 0).
bool TraceBuffer::map() {
  pages_.clear();
  for (uint64_t at = base_; at < limit_; at += kPage) pages_.push_back(translate_(at));
  return !pages_.empty();
}

bool TraceBuffer::update() {
  const uint64_t limit = registers_[Register::kBufferLimit], status = registers_[Register::kBufferStatus];
  const bool was = running_;
  running_ = (limit & kEnable) && !(status & kStopped);
  if (!running_ || was) return false;
  base_ = registers_[Register::kBufferBase];
  limit_ = limit & ~(kPage - 1);
  pointer_ = registers_[Register::kBufferPointer];
  // D6.2.2 "Restrictions on programming the Trace Buffer Unit" (R_MSPSD): base <= pointer < limit.
  if (base_ >= limit_ || pointer_ < base_ || pointer_ >= limit_ || !map()) stop(0);
  return running_;
}

// DDI 0601, TRBSR_EL1: a management event stops collection (S) and asks for the interrupt (IRQ).
void TraceBuffer::stop(uint64_t status) {
  uint64_t& s = registers_[Register::kBufferStatus];
  s = (s & ~(0x3full << 26 | 0x3f)) | status | kStopped | kIrq;
  running_ = false;
  interrupt_();
}

// "Trace buffer management"; DDI 0601, TRBLIMITR_EL1.FM: the pointer reached the limit.
void TraceBuffer::wrap() {
  pointer_ = base_;
  registers_[Register::kBufferPointer] = pointer_;
  const uint64_t mode = registers_[Register::kBufferLimit] >> 1 & 3;
  if (mode == kFillMode) return stop(kWrap | kFilled);
  registers_[Register::kBufferStatus] |= kWrap;
  if (mode == kCircularMode) return;
  registers_[Register::kBufferStatus] |= kIrq;
  interrupt_();
}

bool TraceBuffer::write(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    if (!running_) return false;
    uint8_t* page = pages_[(pointer_ - base_) / kPage];
    if (page == nullptr) {
      stop(kStage1Abort | kTranslationFault);
      return false;
    }
    const uint64_t offset = pointer_ % kPage;
    const size_t n = std::min<size_t>(bytes.size(), kPage - offset);
    std::memcpy(page + offset, bytes.data(), n);
    bytes = bytes.subspan(n);
    pointer_ += n;
    accepted_ += n;
    registers_[Register::kBufferPointer] = pointer_;
    if (pointer_ == limit_) wrap();
  }
  return true;
}

}  // namespace asof::ete
