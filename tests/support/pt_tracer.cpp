#include "tests/support/pt_tracer.h"

#include <utility>

namespace asof::test {

namespace {

constexpr size_t kReturnStackDepth = 64;

PtWriter::Options writer_options(const TracerConfig& c) {
  // The tracer flushes TNT bits itself, so that a CYC can precede the packet it dates.
  return {.long_tnt = c.long_tnt, .timing_flushes_tnt = false, .keep_packets = c.keep_packets};
}

}  // namespace

PtTracer::PtTracer(const TracerConfig& config)
    : config_(config), writer_(writer_options(config)), cbr_(config.cbr) {}

void PtTracer::stamp() {
  if (!config_.cyc || tsc_ <= cyc_at_) return;
  const uint64_t cycles = (tsc_ - cyc_at_) * cbr_ / config_.cbr;
  if (cycles == 0) return;
  writer_.cyc(cycles);
  cyc_at_ += cycles * config_.cbr / cbr_;
}

void PtTracer::flush_tnt() {
  if (writer_.pending_tnt() == 0) return;
  stamp();
  writer_.flush();
}

void PtTracer::psb(bool with_ip) {
  flush_tnt();
  PsbPlus group;
  if (config_.tsc) group.tsc = tsc_;
  if (config_.mtc) {
    if (config_.tma) group.tma = tma();
    mtc_done_ = ctc(tsc_) >> config_.mtc_freq;
  }
  group.cbr = cbr_;
  if (config_.kernel) group.cr3 = cr3_;
  if (with_ip) group.ip = ip_;
  psb_at_ = writer_.offset();
  psb_tsc_ = tsc_;
  psb_wanted_ = false;
  cyc_at_ = tsc_;
  writer_.psb_plus(group);
  returns_.clear();
}

// The fast counter: TSC ticks since the CTC tick, modulo 2^9.
PsbPlus::Tma PtTracer::tma() const {
  const uint64_t tick = ctc(tsc_);
  const uint64_t fast = tsc_ - tick * config_.tsc_ctc_n / config_.tsc_ctc_d;
  return {static_cast<uint16_t>(tick), static_cast<uint16_t>(fast & 0x1ff)};
}

void PtTracer::due_mtc() {
  const uint64_t period = ctc(tsc_) >> config_.mtc_freq;
  // After a long silence the hardware still sends one MTC per period; 256 of them convey no more than the
  // last.
  if (period - mtc_done_ > 255) mtc_done_ = period - 255;
  while (mtc_done_ < period) {
    ++mtc_done_;
    const uint64_t now = tsc_;
    const uint64_t tick = mtc_done_ << config_.mtc_freq;
    const uint64_t at = (tick * config_.tsc_ctc_n + config_.tsc_ctc_d - 1) / config_.tsc_ctc_d;
    tsc_ = std::max(cyc_at_, std::min(at, now));  // the instant of the tick, for CYC
    flush_tnt();
    stamp();
    writer_.mtc(static_cast<uint8_t>(mtc_done_));
    tsc_ = now;
  }
}

void PtTracer::at(uint64_t tsc, Addr ip, bool user, uint64_t cr3) {
  tsc_ = tsc, ip_ = ip, user_ = user, cr3_ = cr3;
  if (!running_ || overflow_) return;
  if (config_.mtc) due_mtc();
  const bool far_enough = writer_.offset() - psb_at_ >= config_.psb_bytes;
  const bool late = config_.psb_ticks != 0 && tsc_ - psb_tsc_ >= config_.psb_ticks;
  if (far_enough || late || psb_wanted_) psb(in_context(user));
}

void PtTracer::enable(Addr target) {
  stamp();
  writer_.mode_exec(ExecMode::k64);
  writer_.tip_pge(target);
}

void PtTracer::start() {
  running_ = true;
  overflow_ = false;
  psb(false);
  if (in_context(user_)) enable(ip_);
}

void PtTracer::stop() {
  if (traced()) {
    flush_tnt();
    stamp();
    writer_.fup(ip_);
    writer_.tip_pgd();
  }
  running_ = false;
  returns_.clear();
}

void PtTracer::lose() {
  flush_tnt();
  running_ = false;
  returns_.clear();
}

void PtTracer::begin_overflow() {
  if (!running_) return;
  flush_tnt();
  overflow_ = true;
  returns_.clear();
}

void PtTracer::end_overflow() {
  if (!overflow_) return;
  overflow_ = false;
  writer_.ovf();
  if (in_context(user_)) writer_.fup(ip_);
  psb_wanted_ = true;  // the clock must be found again
}

void PtTracer::timestamp(uint64_t tsc) {
  if (!running_ || overflow_) return;
  tsc_ = tsc;
  flush_tnt();
  cyc_at_ = tsc;
  writer_.tsc(tsc);
}

void PtTracer::sleep(uint64_t until, bool deep, uint8_t cbr) {
  const bool writes = running_ && !overflow_;
  if (writes) flush_tnt();
  if (writes) stamp();
  tsc_ = until;
  const bool changed = std::exchange(cbr_, cbr) != cbr;
  if (writes && deep) {
    writer_.tsc(until);
    if (config_.mtc && config_.tma) writer_.tma(tma().ctc, tma().fc);
    if (config_.mtc) mtc_done_ = ctc(until) >> config_.mtc_freq;
  }
  if (writes && (deep || changed)) writer_.cbr(cbr);
  cyc_at_ = until;
}

void PtTracer::guest(uint64_t until, Addr host, std::span<const Addr> addresses, SimRandom& random) {
  constexpr uint64_t kGuestCr3 = 0x7654000;
  const bool writes = traced() && config_.kernel;
  const uint64_t cr3 = cr3_, offset = random.between(1'000, 1'000'000);  // of the guest's TSC
  const auto address = [&] { return addresses[random.below(addresses.size())]; };
  if (writes) {
    flush_tnt();
    stamp();
    writer_.pip(kGuestCr3, true);
    writer_.tip(address());
  }
  while (tsc_ < until) {
    tsc_ += random.between(5, 200);
    if (!writes) continue;
    if (config_.mtc) due_mtc();
    switch (random.below(6)) {
      case 0:
        flush_tnt();
        stamp();
        writer_.tip(address());
        break;
      case 1: {
        flush_tnt();
        stamp();
        writer_.fup(address());
        writer_.tip(address());
        break;
      }
      case 2:
        flush_tnt();
        writer_.tsc(tsc_ - offset);
        cyc_at_ = tsc_;
        break;
      default:
        for (uint64_t n = random.between(1, 9); n != 0; --n) cond(random.chance(50));
    }
  }
  if (writes) {
    flush_tnt();
    stamp();
    writer_.fup(address());
    writer_.pip(cr3);
    writer_.tip(host);
  }
  returns_.clear();
}

void PtTracer::push(Addr return_address) {
  if (returns_.size() == kReturnStackDepth) returns_.erase(returns_.begin());
  returns_.push_back(return_address);
}

void PtTracer::tip(Addr target) {
  flush_tnt();
  stamp();
  writer_.tip(target);
}

void PtTracer::cond(bool taken) {
  if (!traced()) return;
  const unsigned full = config_.long_tnt ? 47 : 6;
  // CYC goes before the packet that this bit completes.
  if (writer_.pending_tnt() + 1 == full) stamp();
  writer_.tnt(taken);
}

void PtTracer::call(Addr return_address, Addr target) {
  // A call to the next instruction only reads the program counter; the processor does not count it as a call.
  if (traced() && target != return_address) push(return_address);
}

void PtTracer::call_indirect(Addr return_address, Addr target) {
  if (!traced()) return;
  push(return_address);
  tip(target);
}

void PtTracer::ret(Addr target) {
  if (!traced()) return;
  if (config_.return_compression && !returns_.empty() && returns_.back() == target) {
    returns_.pop_back();
    cond(true);
    return;
  }
  switch (config_.mismatch) {
    case TracerConfig::Mismatch::kClears:
      returns_.clear();
      break;
    case TracerConfig::Mismatch::kKeeps:
      break;
    case TracerConfig::Mismatch::kTakes:
      if (!returns_.empty()) returns_.pop_back();
  }
  tip(target);
}

void PtTracer::jump_indirect(Addr target) {
  if (traced()) tip(target);
}

void PtTracer::ptwrite(uint64_t payload) {
  if (!traced()) return;
  flush_tnt();
  stamp();
  writer_.ptw(payload, true, true);
  writer_.fup(ip_);
}

void PtTracer::mov_cr3(uint64_t cr3) {
  cr3_ = cr3;
  if (!running_ || overflow_ || !config_.kernel) return;
  flush_tnt();
  stamp();
  writer_.pip(cr3);
}

void PtTracer::transfer(Addr target, bool to_user, bool async) {
  const bool from = traced();
  const bool to = running_ && !overflow_ && in_context(to_user);
  if (!from && !to) return;
  flush_tnt();
  stamp();
  if (!from) {
    enable(target);
    return;
  }
  if (async) writer_.fup(ip_);
  if (to) {
    writer_.tip(target);
  } else {
    writer_.tip_pgd();
    returns_.clear();
  }
}

}  // namespace asof::test
