#include "tools/board/ete_plugin/follower.h"

namespace asof::ete {

using machine::Mark;

Follower::Follower(CpuLog log, File trace, TraceBuffer::Translate translate, std::function<void()> interrupt)
    : log_(std::move(log)),
      buffer_(registers_, std::move(translate), std::move(interrupt)),
      unit_(
          registers_, [this](std::span<const uint8_t> bytes) { return write_trace(bytes); },
          [this](uint64_t elements, bool lost) {
            given_.push_back({elements, buffer_.accepted(), lost, false});
          },
          [this] {
            given_.push_back({0, buffer_.accepted(), false, true});
          }),
      trace_(std::move(trace)) {}

bool Follower::write_trace(std::span<const uint8_t> bytes) {
  const uint64_t before = buffer_.accepted();
  const bool all = buffer_.write(bytes);
  std::fwrite(bytes.data(), 1, buffer_.accepted() - before, trace_.get());
  return all;
}

uint16_t exception_type(uint64_t vector, unsigned exception_class) {
  namespace type = test::etm_exception;
  switch (vector >> 7 & 3) {  // synchronous, IRQ, FIQ, SError
    case 1:
      return type::kIrq;
    case 2:
      return type::kFiq;
    case 3:
      return type::kSystemError;
    default:
      break;
  }
  switch (exception_class) {  // DDI 0487, ESR_EL1.EC
    case 0x11:
    case 0x15:  // SVC
    case 0x16:
    case 0x17:  // HVC, SMC
      return type::kCall;
    case 0x20:
    case 0x21:
      return type::kInstFault;
    case 0x22:
    case 0x26:
      return type::kAlignment;
    case 0x24:
    case 0x25:
      return type::kDataFault;
    case 0x30:
    case 0x31:  // breakpoint
    case 0x32:
    case 0x33:  // software step
    case 0x3c:  // BRK
      return type::kInstDebug;
    case 0x34:
    case 0x35:
      return type::kDataDebug;
    default:
      return type::kTrap;
  }
}

// Records whose packets are written by now get their position.
void Follower::settle() {
  for (const Given& g : given_) {
    if (g.sync)
      log_.mark(Mark::kSync, 0, g.output, 0);
    else
      log_.release(g.elements, g.output, g.lost);
  }
  given_.clear();
}

// Tracing ended behind the last P0 element: nothing tells of the instructions since.
void Follower::after_filter(bool was_open) {
  if (was_open && !unit_.open()) {
    unit_.flush();
    settle();
    log_.lose_rest(buffer_.accepted());
  }
}

bool Follower::write(Register r, uint64_t value, Clock clock) {
  registers_.write(r, value);
  if (r == Register::kPrgCtl) {
    const bool enable = value & 1;
    if (enable == unit_.enabled()) return false;
    if (enable) {
      unit_.enable();
      log_.mark(Mark::kOn, registers_[Register::kConfig], buffer_.accepted(), clock.now);
      pending_ = nullptr;
      entry_flags_ = 0;
      return true;
    }
    unit_.disable();
    settle();
    log_.lose_rest(buffer_.accepted());
    log_.mark(Mark::kOff, 0, buffer_.accepted(), clock.now);
    log_.flush();
    std::fflush(trace_.get());
    pending_ = nullptr;
  } else if (r == Register::kBufferLimit || r == Register::kBufferStatus) {
    // Trace that a unit produced while nothing took it is lost: D6.2 "The trace buffer", R_YMVZL and R_HNTLG.
    if (buffer_.update()) {
      if (lossy_) {
        unit_.begin_after_loss();
        settle();
        log_.lose_rest(buffer_.accepted());
        log_.mark(Mark::kResume, 0, buffer_.accepted(), clock.now);
      } else {
        unit_.request_sync();
      }
      lossy_ = false;
    }
  }
  return false;
}

void Follower::flush() {
  unit_.flush();
  settle();
}

void Follower::complete(uint64_t next, Clock clock) {
  const Instruction& i = *pending_;
  const uint64_t at = pending_at_;
  pending_ = nullptr;
  ++cycles_;
  const bool on = unit_.tracing(), open = unit_.open();
  if (on) {
    log_.instruction(at, i.code, i.index, entry_flags_, pending_clock_);
    entry_flags_ = 0;
  }
  const uint64_t elements = unit_.made();
  unit_.retire(i.kind, at, next, cycles_, clock.certain ? std::optional(clock.now) : std::nullopt);
  if (on && unit_.made() != elements) {
    log_.end(unit_.made(),
             i.kind == Kind::kConditional || i.kind >= Kind::kIndirect ? uint32_t{machine::kLogAwaits} : 0);
  }
  if (unit_.lost() && !lossy_) {
    lossy_ = true;
    log_.mark(Mark::kStopped, 0, buffer_.accepted(), clock.now);
  }
  settle();
  after_filter(open);
}

void Follower::begin(const Instruction& i, uint64_t address, Clock clock) {
  if (pending_ != nullptr) {
    if (pending_at_ == address && !is_p0(i.kind)) return;  // begun again: a page of devices, an atomic
    complete(address, clock);
  }
  const bool on = unit_.tracing();
  unit_.stand(address, clock.certain ? std::optional(clock.now) : std::nullopt);
  settle();
  if (!on && unit_.tracing()) entry_flags_ |= machine::kLogStart;
  pending_ = &i;
  pending_at_ = address;
  pending_clock_ = clock.now;
}

void Follower::discontinuity(uint64_t from, uint64_t to, unsigned exception_class, Clock clock) {
  if (!unit_.enabled()) return;
  if (pending_ != nullptr && pending_at_ != from) complete(from, clock);
  pending_ = nullptr;
  const std::optional<uint64_t> time = clock.certain ? std::optional(clock.now) : std::nullopt;
  unit_.stand(from, time);  // it began where it was interrupted
  const bool open = unit_.open();
  const uint64_t elements = unit_.made();
  unit_.exception(exception_type(to, exception_class), from, to, cycles_, time);
  if (unit_.made() != elements) log_.end(unit_.made(), machine::kLogNoBranch);
  settle();
  after_filter(open);
  entry_flags_ = unit_.tracing() ? uint32_t{machine::kLogException} : 0;
}

void Follower::finish() {
  unit_.flush();
  settle();
  log_.lose_rest(buffer_.accepted());
  log_.flush();
  std::fflush(trace_.get());
}

}  // namespace asof::ete
