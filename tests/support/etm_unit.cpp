#include "tests/support/etm_unit.h"

#include <algorithm>

namespace asof::test {
namespace {

constexpr uint64_t kMostCycles = 4095;  // the counter has 12 bits

}  // namespace

EtmUnit::EtmUnit(const EtmUnitConfig& config, uint64_t seed)
    : config_(config), random_(seed), writer_({.max_spec_depth = config.spec_depth}) {}

void EtmUnit::timestamp(uint64_t time) {
  const uint64_t value = config_.zero_timestamps ? 0 : time + config_.timestamp_offset;
  if (!config_.cycle_counts) {
    writer_.timestamp(value);
    return;
  }
  writer_.timestamp(value, static_cast<uint32_t>(std::min(time - last_count_, kMostCycles)));
  last_count_ = time;
}

// A point where a decoder may begin; address and context must follow.
void EtmUnit::sync(uint64_t time) {
  commit_all();
  write_pending();
  writer_.flush();
  sync_at_ = writer_.offset();
  writer_.async();
  EtmTraceInfo info{.info = config_.cycle_counts ? 1 : 0};
  if (config_.spec_depth != 0) info.spec = 0;
  if (config_.cycle_counts) info.cycle_threshold = 0;
  writer_.trace_info(info);
  stack_.clear();
  if (config_.timestamp_at_sync && config_.timestamp_every != 0) timestamp(time);
  last_sync_ = writer_.offset();
  synced_ = true;
}

void EtmUnit::start(Addr ip, uint64_t time, EtmContext context) {
  context_ = context;
  pending_.reset();
  stack_.clear();
  if (overflowed_) writer_.overflow();
  if (!synced_ || overflowed_ || writer_.offset() - last_sync_ >= config_.sync_bytes) {
    uncommitted_ = 0;
    sync(time);
  }
  writer_.trace_on();
  if (config_.timestamp_every != 0 && random_.chance(50)) timestamp(time);
  writer_.address_with_context(ip, context_);
  on_ = true;
  overflowed_ = false;
  since_timestamp_ = 0;
  last_count_ = time;
}

void EtmUnit::stop() {
  commit_all();
  write_pending();
  writer_.flush();
  on_ = false;
}

void EtmUnit::overflow() {
  commit_all();
  writer_.flush();
  pending_.reset();
  on_ = false;
  overflowed_ = true;
}

void EtmUnit::element() {
  if (config_.spec_depth == 0) return;
  // Anything beyond the depth would be committed implicitly.
  if (++uncommitted_ >= config_.spec_depth || random_.chance(20)) {
    const auto n = static_cast<unsigned>(random_.between(1, uncommitted_));
    writer_.commit(n);
    uncommitted_ -= n;
  }
}

void EtmUnit::commit_all() {
  if (uncommitted_ == 0) return;
  writer_.commit(uncommitted_);
  uncommitted_ = 0;
}

// The branch was first speculated in the other direction: the elements that followed are cancelled, and the
// atom is inverted.
void EtmUnit::wrong_path(bool e) {
  writer_.atom(!e);
  const uint64_t room = config_.spec_depth - uncommitted_ - 1;
  const auto wrong = static_cast<unsigned>(random_.below(std::min<uint64_t>(room, 4) + 1));
  for (unsigned i = 0; i < wrong; ++i) writer_.atom(random_.chance(50));
  if (wrong == 0) {
    writer_.mispredict("");
  } else if (wrong == 1 && random_.chance(50)) {
    writer_.cancel_f2("");
  } else if (wrong >= 2 && random_.chance(50)) {
    writer_.cancel_f3(wrong, false);
  } else {
    writer_.cancel_f1(wrong, true);
  }
}

void EtmUnit::atom(bool e) {
  write_pending();
  if (config_.spec_depth > uncommitted_ + 1 && random_.chance(10))
    wrong_path(e);
  else
    writer_.atom(e);
  element();
}

void EtmUnit::write_pending() {
  if (!pending_) return;
  const Pending p = *pending_;
  pending_.reset();
  if (p.context) {
    context_ = *p.context;
    writer_.address_with_context(p.address, context_);
  } else {
    writer_.address(p.address);
  }
}

// Timestamps and synchronisation come after a P0 element, before anything from the code that follows.
void EtmUnit::after_element(Addr next, uint64_t time) {
  if (config_.timestamp_every != 0 && ++since_timestamp_ >= config_.timestamp_every) {
    since_timestamp_ = 0;
    write_pending();
    timestamp(time);
  } else if (config_.cycle_counts && random_.chance(25)) {
    write_pending();
    writer_.cycle_count_f1(static_cast<uint32_t>(std::min(time - last_count_, kMostCycles)));
    last_count_ = time;
  }
  if (writer_.offset() - last_sync_ < config_.sync_bytes) return;
  sync(time);
  writer_.address_with_context(next, context_);
}

void EtmUnit::direct(Addr next, bool taken, bool link, Addr return_address, uint64_t time) {
  if (!on_) return;
  atom(taken);
  if (config_.return_stack && taken && link) {
    stack_.push_back(return_address);
    if (stack_.size() > config_.return_depth) stack_.erase(stack_.begin());
  }
  after_element(next, time);
}

// `returns`: the top of the return stack may replace the target.
void EtmUnit::indirect(Addr target, bool link, bool returns, Addr return_address, uint64_t time) {
  if (!on_) return;
  atom(true);
  if (config_.return_stack && returns && !stack_.empty() && stack_.back() == target) {
    stack_.pop_back();
  } else {
    pending_ = Pending{target, {}, false};
  }
  if (config_.return_stack && link) {
    stack_.push_back(return_address);
    if (stack_.size() > config_.return_depth) stack_.erase(stack_.begin());
  }
  after_element(target, time);
}

void EtmUnit::isb(Addr next, uint64_t time) {
  if (!on_) return;
  atom(true);
  after_element(next, time);
}

void EtmUnit::exception(uint16_t type, Addr from, Addr vector, uint64_t time,
                        std::optional<EtmContext> context) {
  if (!on_) return;
  const bool same = pending_ && !pending_->context && !pending_->after_eret && pending_->address == from &&
                    config_.merge_exceptions;
  if (same)
    pending_.reset();
  else
    write_pending();
  writer_.exception(type, from, same ? EtmExceptionAddress::kTarget : EtmExceptionAddress::kReturn);
  element();
  pending_ = Pending{vector, context, false};
  after_element(vector, time);
}

void EtmUnit::exception_return(Addr target, uint64_t time, std::optional<EtmContext> context) {
  if (!on_) return;
  atom(true);
  pending_ = Pending{target, context, true};
  after_element(target, time);
}

void EtmUnit::leave() {
  if (!on_) return;
  atom(true);
  stop();
}

void EtmUnit::event(unsigned bits) {
  if (on_) writer_.event(bits);
}

void EtmUnit::finish() {
  if (on_) stop();
  writer_.flush();
}

}  // namespace asof::test
