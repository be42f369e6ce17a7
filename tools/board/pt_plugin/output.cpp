#include "tools/board/pt_plugin/output.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace asof::pt {

namespace {

// SDM vol. 3, "ToPA Table Entry"
constexpr uint64_t kEnd = 1 << 0, kInt = 1 << 2, kStop = 1 << 4;
constexpr uint64_t kReserved = 1 << 1 | 1 << 3 | 1 << 5 | 3 << 10;
constexpr uint64_t kAddress = 0xffffffffff000;

}  // namespace

Output::State Output::use(uint64_t address, uint64_t size) {
  // "ToPA Errors", "Single-Range Output": a base that is not aligned to the region's size is an operational error.
  if (size > ram_.size() || address > ram_.size() - size || address % size != 0) return State::kError;
  region_ = ram_.subspan(address, size);
  return State::kRunning;
}

std::optional<uint64_t> Output::entry(unsigned index) const {
  uint64_t e = 0;
  const uint64_t at = base + uint64_t{index} * sizeof e;
  if (at > ram_.size() - sizeof e) return {};
  std::memcpy(&e, ram_.data() + at, sizeof e);
  return e;
}

// "Table of Physical Addresses (ToPA)"
Output::State Output::load_entry() {
  const auto fetch = [&] {
    const auto e = entry(static_cast<unsigned>((mask & 0xffffffff) >> 7));
    entry_ = e.value_or(0);
    return e.has_value();
  };
  if (!fetch()) return State::kError;
  if (entry_ & kEnd) {  // the address of the next table
    base = entry_ & kAddress;
    mask = 0x7f;
    if (!fetch() || (entry_ & kEnd)) return State::kError;  // END in the first entry
  }
  if (entry_ & kReserved) return State::kError;
  return use(entry_ & kAddress, uint64_t{4096} << (entry_ >> 6 & 15));
}

Output::State Output::begin(bool topa) {
  topa_ = topa;
  if (topa) {
    mask |= 0x7f;
    state_ = load_entry();
  } else {
    // "Single-Range Output": the lower 32 bits are the size minus 1; the lowest seven read as ones.
    const uint64_t last = (mask & 0xffffffff) | 0x7f;
    mask = (mask & ~uint64_t{0xffffffff}) | last;
    state_ = (last & (last + 1)) != 0 ? State::kError : use(base, last + 1);
  }
  if (state_ == State::kRunning && mask >> 32 > region_.size()) state_ = State::kError;
  return state_;
}

Output::State Output::next_region() {
  if (!topa_) {  // a ring
    mask &= 0xffffffff;
    return State::kRunning;
  }
  if (entry_ & kInt) interrupt_ = true;        // "ToPA PMI"
  if (entry_ & kStop) return State::kStopped;  // "STOP": the offset stays at the end of the region
  mask = ((mask & 0xffffffff) + 0x80) | 0x7f;
  return load_entry();
}

void Output::copy(std::span<const uint8_t> bytes) const {
  if (copy_ == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), copy_) == bytes.size()) return;
  std::fprintf(stderr, "pt plugin: cannot write the trace\n");
  std::exit(3);
}

bool Output::write(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    if (state_ != State::kRunning) {
      lost_ += bytes.size();
      return false;
    }
    const uint64_t offset = mask >> 32;
    const size_t n = std::min<size_t>(bytes.size(), region_.size() - offset);
    std::memcpy(region_.data() + offset, bytes.data(), n);
    copy(bytes.first(n));
    bytes = bytes.subspan(n);
    written_ += n;
    mask = (mask & 0xffffffff) | (offset + n) << 32;
    if (offset + n == region_.size()) state_ = next_region();
  }
  return true;
}

bool Output::take_interrupt() { return std::exchange(interrupt_, false); }

}  // namespace asof::pt
