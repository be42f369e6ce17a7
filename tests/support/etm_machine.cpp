#include "tests/support/etm_machine.h"

#include <algorithm>
#include <stdexcept>

namespace asof::test {

void EtmMachine::load(Addr base, std::vector<uint32_t> words) { text_[base] = std::move(words); }

uint32_t EtmMachine::word_at(Addr a) const {
  auto it = text_.upper_bound(a);
  if (it == text_.begin()) throw std::out_of_range("no text at this address");
  --it;
  return it->second.at((a - it->first) / 4);
}

void EtmMachine::loop_at(Addr ip, unsigned rounds) {
  branches_[ip] = [ip, rounds](EtmCpu& c) {
    unsigned& n = c.rounds()[ip];
    n = (n + 1) % rounds;
    return n != 0;
  };
}

EtmCpu::EtmCpu(EtmMachine& machine, int id)
    : machine_(machine),
      id_(id),
      random_(machine.config().seed * 31 + static_cast<uint64_t>(id)),
      unit_(machine.config().unit, machine.config().seed * 37 + static_cast<uint64_t>(id)),
      now_(machine.config().start),
      last_sync_(now_) {
  for (const auto& [addr, changes] : machine.changes_) {
    for (const EtmChange& c : changes) {
      if (c.writer == id) own_.emplace(c.written, &c);
    }
  }
}

void EtmCpu::start(Addr ip) {
  ip_ = ip;
  unit_.start(ip, now_);
  note_sync();
}

void EtmCpu::note_sync() {
  if (sync_points_.empty() || sync_points_.back().offset != unit_.sync_offset())
    sync_points_.push_back({unit_.sync_offset(), executed_.size()});
}

void EtmCpu::pause(uint64_t from, uint64_t until, Todo what) {
  todo_.emplace(from, what);
  todo_.emplace(until, Todo::kStart);
}

// This element shows everything since the last element.
void EtmCpu::shown() {
  if (!unit_.on()) return;
  for (; shown_ < executed_.size(); ++shown_) executed_[shown_].shown = true;
}

void EtmCpu::enter(uint16_t type, Addr from, Addr return_to, Addr vector) {
  unit_.exception(type, from, vector, now_);
  shown();
  async_ = true;
  traps_.push_back(return_to);
  ip_ = vector;
  synchronised();
}

// The CPU that writes does so in the kernel, seen by the traced code as an interrupt, and synchronises
// itself.
void EtmCpu::writers_due() {
  bool any = false;
  while (!own_.empty() && own_.begin()->first <= now_) {
    own_.erase(own_.begin());
    any = true;
  }
  if (any) enter(etm_exception::kIrq, ip_, ip_);
}

// Interrupts are off from the call to the return. True: this CPU is in the stop.
bool EtmCpu::stop_due() {
  if (stopped_ && traps_.size() == stopped_from_) stopped_ = false;
  if (stopped_) return true;
  if (stops_ == machine_.stops_.size() || machine_.stops_[stops_].called > now_) return false;
  ++stops_;
  stopped_ = true;
  stopped_from_ = traps_.size();
  enter(etm_exception::kIrq, ip_, ip_, machine_.config_.stopper);
  return true;
}

void EtmCpu::handle_due() {
  if (stop_due()) return;
  writers_due();
  while (!todo_.empty() && todo_.begin()->first <= now_) {
    const Todo kind = todo_.begin()->second;
    todo_.erase(todo_.begin());
    if (kind == Todo::kInterrupt) {
      if (traps_.size() < 3) enter(etm_exception::kIrq, ip_, ip_);
    } else if (kind == Todo::kStart) {
      if (!unit_.on()) {
        unit_.start(ip_, now_);
        restart_ = true;
        shown_ = executed_.size();
      }
    } else if (unit_.on()) {
      kind == Todo::kStop ? unit_.stop() : unit_.overflow();
    }
  }
}

// Any version that was in memory since this CPU last synchronised.
uint32_t EtmCpu::fetch(Addr a) {
  uint32_t stopped_word = 0;
  bool was_stopped = false;
  for (const EtmStop& s : machine_.stops_) {
    if (s.addr != a) continue;
    stopped_word = s.written <= now_ ? s.new_word : was_stopped ? stopped_word : s.old_word;
    was_stopped = true;
  }
  if (was_stopped) return stopped_word;
  const auto it = machine_.changes_.find(a);
  if (it == machine_.changes_.end()) return machine_.word_at(a);
  const std::vector<EtmChange>& changes = it->second;
  size_t least = 0, most = 0;
  for (size_t i = 0; i < changes.size(); ++i) {
    const EtmChange& c = changes[i];
    if (c.written <= now_) most = i + 1;
    if (c.writer == id_ ? c.written <= now_ : c.complete <= last_sync_) least = i + 1;
  }
  const size_t version = random_.between(least, std::max(least, most));
  return version == 0 ? changes.front().old_word : changes[version - 1].new_word;
}

void EtmCpu::step() {
  if (stopped_ && ip_ == machine_.config_.stop_isb)
    now_ = std::max(now_, machine_.stops_[stops_ - 1].written + 1);
  const uint32_t word = fetch(ip_);
  const A64Insn insn = a64_decode(ip_, word);
  if (insn.kind == A64Kind::kBrk) {
    // Never executed: the exception's return address is the BRK's own.
    const auto rule = machine_.traps_.find(ip_);
    if (rule == machine_.traps_.end()) throw std::logic_error("a BRK without a rule");
    enter(etm_exception::kInstDebug, ip_, rule->second(*this));
    return;
  }
  if (machine_.config_.keep_executed) executed_.push_back({ip_, word, now_, false, async_, restart_});
  async_ = restart_ = false;
  if (!unit_.on()) shown_ = executed_.size();
  execute(insn, ip_ + 4);
}

void EtmCpu::execute(const A64Insn& insn, Addr next) {
  const Addr at = ip_;
  ip_ = next;
  switch (insn.kind) {
    case A64Kind::kStraight:
    case A64Kind::kBrk:
      return;
    case A64Kind::kCond: {
      const auto rule = machine_.branches_.find(at);
      const bool taken = rule == machine_.branches_.end() ? random_.chance(50) : rule->second(*this);
      if (taken) ip_ = insn.target;
      unit_.direct(ip_, taken, false, 0, now_);
      break;
    }
    case A64Kind::kB:
    case A64Kind::kBl:
      ip_ = insn.target;
      if (insn.kind == A64Kind::kBl) calls_.push_back(next);
      unit_.direct(ip_, true, insn.kind == A64Kind::kBl, next, now_);
      break;
    case A64Kind::kBr:
    case A64Kind::kBlr:
      ip_ = machine_.targets_.at(at)(*this);
      if (insn.kind == A64Kind::kBlr) calls_.push_back(next);
      unit_.indirect(ip_, insn.kind == A64Kind::kBlr, false, next, now_);
      break;
    case A64Kind::kRet:
      if (calls_.empty()) throw std::logic_error("a return without a call");
      ip_ = calls_.back();
      calls_.pop_back();
      unit_.indirect(ip_, false, true, next, now_);
      break;
    case A64Kind::kEret:
      if (traps_.empty()) throw std::logic_error("an exception return without an exception");
      ip_ = traps_.back();
      traps_.pop_back();
      synchronised();
      unit_.exception_return(ip_, now_);
      break;
    case A64Kind::kIsb:
      synchronised();
      unit_.isb(next, now_);
      break;
    case A64Kind::kSvc:
      enter(etm_exception::kCall, next, next);
      break;
  }
  shown();
}

void EtmCpu::run_until(uint64_t time) {
  while (now_ < time) {
    handle_due();
    note_sync();
    step();
    note_sync();
    now_ += random_.between(machine_.config_.min_cost, machine_.config_.max_cost);
  }
}

}  // namespace asof::test
