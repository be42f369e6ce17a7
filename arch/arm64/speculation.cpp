// Speculation: elements are traced before it is known that they ran. Commits say that the oldest did, cancels
// that the youngest did not, and a mispredict turns the youngest atom round (Arm IHI 0064, "Speculation
// resolution").
#include <algorithm>

#include "arch/arm64/elements.h"

namespace asof::arm64 {
namespace {

// Elements that commits and cancels count.
uint32_t executed_count(const Element& e) {
  if (e.kind == El::kAtoms) return e.count;
  switch (e.kind) {
    case El::kException:
    case El::kExceptionNoAddress:
    case El::kSourceAddress:
    case El::kQ:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

// Packets of the next segment, as far as they decide what is left of this one.
void ElementParser::drain(const Packet& k, uint32_t at) {
  switch (k.type) {
    case Pk::kAtoms:
      foreign_ += k.atom_count;
      return executed(k.atom_count);
    case Pk::kException:
    case Pk::kSourceAddress:
    case Pk::kQ:
      ++foreign_;
      return executed(1);
    case Pk::kCommit:
      return commit(k.count);
    case Pk::kCycleCount:
      return commit(k.commit);
    case Pk::kMispredict:
    case Pk::kCancel:
      foreign_ += k.atom_count;
      executed(k.atom_count);
      if (k.type == Pk::kCancel) cancel(k.count);
      if (k.type == Pk::kMispredict || k.mispredict) mispredict();
      return;
    case Pk::kOverflow:
    case Pk::kDiscard:
    case Pk::kBad:
      return end_with(El::kEos, at);
    default:
      return;
  }
}

void ElementParser::executed(uint32_t count) {
  if (format_.max_spec == 0) return;
  depth_ += count;
  if (depth_ > format_.max_spec) commit(depth_ - format_.max_spec);
}

// The oldest `count` executed elements did run.
void ElementParser::commit(uint32_t count) {
  if (format_.max_spec == 0) return;
  const uint32_t unseen = std::min(count, unseen_);
  unseen_ -= unseen;
  depth_ -= unseen;
  count -= unseen;
  while (count > 0 && ready_ < std::min(list_.size(), exception_)) {
    Element& e = list_[ready_];
    const uint32_t n = executed_count(e);
    if (n > count) {  // a part of the packet's atoms
      Element first = e;
      first.count = static_cast<uint8_t>(count);
      first.value &= (1ULL << count) - 1;
      e.count = static_cast<uint8_t>(n - count);
      e.value >>= count;
      list_.insert(list_.begin() + static_cast<ptrdiff_t>(ready_), first);
      ++ready_;
      depth_ -= count;
      return;
    }
    count -= n;
    depth_ -= n;
    ++ready_;
  }
  const bool all = depth_ == unseen_ + foreign_;
  if (all && exception_ == SIZE_MAX) ready_ = list_.size();
  if (draining_ && ready_ == list_.size()) done_ = true;
}

// The youngest `count` executed elements did not run; neither did what came with them but time and counts.
void ElementParser::cancel(uint32_t count) {
  const uint32_t foreign = std::min(count, foreign_);
  foreign_ -= foreign;
  depth_ -= foreign;
  count -= foreign;
  for (size_t i = list_.size(); count > 0 && i > ready_;) {
    Element& e = list_[--i];
    const uint32_t n = i == exception_ ? 0 : executed_count(e);
    if (n > count) {
      e.count = static_cast<uint8_t>(n - count);
      e.value &= (1ULL << e.count) - 1;
      depth_ -= count;
      return;
    }
    count -= n;
    depth_ -= n;
    const bool stays = e.kind == El::kTime || e.kind == El::kCycles || e.kind == El::kEvent ||
                       e.kind == El::kTraceInfo || e.kind == El::kInstrumentation;
    if (!stays) list_.erase(list_.begin() + static_cast<ptrdiff_t>(i));
  }
  exception_ = SIZE_MAX;
  const uint32_t unseen = std::min(count, unseen_);
  unseen_ -= unseen;
  depth_ -= unseen;
}

// The youngest atom went the other way; the target given in between does not count.
void ElementParser::mispredict() {
  if (foreign_ != 0) return;
  for (size_t i = list_.size(); i > ready_;) {
    Element& e = list_[--i];
    if (e.kind == El::kAtoms) {
      e.value ^= 1ULL << (e.count - 1);
      return;
    }
    if (e.kind == El::kAddress) list_.erase(list_.begin() + static_cast<ptrdiff_t>(i));
  }
}

}  // namespace asof::arm64
