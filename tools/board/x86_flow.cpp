#include "tools/board/x86_flow.h"

#include <fmt/format.h>

#include <optional>
#include <stdexcept>
#include <unordered_map>

namespace asof::board {
namespace {

using test::SimInsn;
using test::SimKind;

constexpr uint64_t kKernelCs = 0x10, kUserCs = 0x33;
constexpr Addr kPage = 4096;
constexpr bool kUser = true, kKernel = false;

struct Frame {
  Addr ip = 0;
  bool user = false;
};

struct Decoded {
  std::vector<SimInsn> insns;
  std::vector<bool> late;
};

class X86Flow {
 public:
  X86Flow(const Log& log, const X86Options& options) : log_(log), options_(options), tracer_(options.trace) {}
  X86Cpu run(std::span<const Event> events);

 private:
  [[noreturn]] void fail(const Event& e, const std::string& what) const {
    throw std::runtime_error(fmt::format("block at {:#x}, instruction {}: {}", address(e), e.count, what));
  }
  Addr address(const Event& e) const { return log_.blocks[e.block].address; }
  const Decoded& decoded(uint32_t block);
  Frame frame_of(size_t index) const;
  bool enters(const Event& e) const { return e.kind == Event::Kind::kBlock && options_.is_entry(address(e)); }
  void block(size_t index, size_t next);
  void leave(const Event& e, const SimInsn& last, bool late, Addr at, size_t next);
  void retire(Addr ip, const SimInsn& insn, bool late);
  void branch(const Event& e, const SimInsn& insn, Addr end, Addr target);
  void interrupted(Addr at, const Event& next);
  uint64_t tsc(uint64_t count) const { return log_.clock.ns(count); }
  void away_until(uint64_t now);

  const Log& log_;
  const X86Options& options_;
  std::span<const Event> events_;
  test::PtTracer tracer_;
  X86Cpu out_;
  test::SimMemory scratch_;
  std::unordered_map<uint32_t, Decoded> decoded_;
  uint64_t away_ = 0;  // until when the CPU was seen in user code
  Time run_time_ = 0;  // of the block whose instructions are retired
};

const Decoded& X86Flow::decoded(uint32_t number) {
  const auto [it, fresh] = decoded_.try_emplace(number);
  if (!fresh) return it->second;
  const Block& b = log_.blocks[number];
  Addr at = b.address;
  size_t offset = 0;
  scratch_.load(kKernelSpace, at, b.bytes);
  for (size_t i = 0; i < b.sizes.size(); ++i) {
    const uint8_t size = b.sizes[i];
    const SimInsn insn = scratch_.fetch(kKernelSpace, at);
    if (insn.length != size) {
      // An instruction across pages is removed from the emulator's block again, but the plugin sees its first
      // bytes.
      const bool crosses = at / kPage != (at + insn.length - 1) / kPage;
      if (i != 0 && i + 1 == b.sizes.size() && crosses && insn.length > size) break;
      throw std::runtime_error(fmt::format("another instruction length at {:#x}", at));
    }
    it->second.insns.push_back(insn);
    it->second.late.push_back(!options_.known(at, std::span(b.bytes).subspan(offset, size)));
    at += size, offset += size;
  }
  return it->second;
}

// The entry pushes an error code or -1 if the CPU did not, or calls first: the frame is one or two words
// higher. The first store may be in a block after that of the entry (CLAC ends one).
Frame X86Flow::frame_of(size_t index) const {
  for (size_t i = index; i < events_.size() && i < index + 4; ++i) {
    if (events_[i].stores.empty()) continue;
    const auto& w = events_[i].stores.front();
    const auto is_cs = [](uint64_t v) { return v == kKernelCs || v == kUserCs; };
    if (is_cs(w[1])) return {w[0], w[1] == kUserCs};
    if (is_cs(w[2])) return {w[1], w[2] == kUserCs};
    break;
  }
  fail(events_[index], "an entry whose frame is not known");
}

void X86Flow::retire(Addr ip, const SimInsn& insn, bool late) {
  out_.truth.instruction(ip, insn, kKernelSpace, false, run_time_);
  if (late) {
    out_.truth.late_text();
    ++out_.late_instructions;
  }
}

void X86Flow::branch(const Event& e, const SimInsn& insn, Addr end, Addr target) {
  const auto must_be = [&](Addr a) {
    if (target != a) fail(e, fmt::format("goes to {:#x} and not to {:#x}", target, a));
  };
  switch (insn.kind) {
    case SimKind::kCond:
      if (target != end) must_be(insn.target);
      return tracer_.cond(target != end);
    case SimKind::kJump:
      return must_be(insn.target);
    case SimKind::kCall:
      must_be(insn.target);
      return tracer_.call(end, target);
    case SimKind::kJumpIndirect:
      return tracer_.jump_indirect(target);
    case SimKind::kCallIndirect:
      return tracer_.call_indirect(end, target);
    case SimKind::kRet:
      return tracer_.ret(target);
    case SimKind::kIret:
      return tracer_.transfer(target, kKernel, false);
    default:
      must_be(end);
  }
}

// Long stretches of user code are cut, so that no MTC is left out: their eight bits would not show how many.
void X86Flow::away_until(uint64_t now) {
  const test::TracerConfig& c = options_.trace;
  const uint64_t step = (100ULL << c.mtc_freq) * c.tsc_ctc_n / c.tsc_ctc_d;
  if (tracer_.running()) {
    while (away_ + step < now) tracer_.at(away_ += step, 0, kUser, 0);
  }
  tracer_.at(away_ = now, 0, kUser, 0);
}

void X86Flow::interrupted(Addr at, const Event& next) {
  out_.truth.async();
  ++out_.exceptions;
  tracer_.at(tsc(next.count), at, kKernel, 0);
  tracer_.transfer(address(next), kKernel, true);
}

// What followed the last instruction that began.
void X86Flow::leave(const Event& e, const SimInsn& last, bool late, Addr at, size_t next) {
  const Addr end = at + last.length;
  const bool straight = last.kind == SimKind::kStraight || last.kind == SimKind::kMovCr3;
  const bool to_user = last.kind == SimKind::kIret || last.kind == SimKind::kSysret;
  const bool is_entry = next < events_.size() && enters(events_[next]);
  const std::optional<Frame> frame = is_entry ? std::optional(frame_of(next)) : std::nullopt;
  const bool away =
      next == events_.size() || events_[next].kind != Event::Kind::kBlock || (frame && frame->user);
  if (away) {
    if (!to_user) fail(e, "user code follows no return to it");
    retire(at, last, late);
    tracer_.transfer(0, kUser, false);
    out_.truth.interrupted();
    return;
  }
  const Addr target = frame ? frame->ip : address(events_[next]);
  if (frame && last.kind == SimKind::kInt3 && target == end) {
    ++out_.int3_hits;
    return interrupted(at, events_[next]);
  }
  if (straight && target == at) {  // an iteration of a string instruction, a fault, or a restart
    if (frame) return interrupted(at, events_[next]);
    ++out_.string_iterations;
    return;
  }
  if (frame && target == at) return interrupted(at, events_[next]);  // a branch that faulted
  retire(at, last, late);
  branch(e, last, end, target);
  if (frame) interrupted(target, events_[next]);
}

void X86Flow::block(size_t index, size_t next) {
  const Event& e = events_[index];
  const Decoded& d = decoded(e.block);
  const size_t n = std::min<size_t>(e.executed, d.insns.size());
  Addr at = address(e);
  run_time_ = static_cast<Time>(options_.perf_time(tsc(e.count)));
  for (size_t i = 0; i + 1 < n; ++i) {
    const SimKind kind = d.insns[i].kind;
    if (kind != SimKind::kStraight && kind != SimKind::kMovCr3) fail(e, "a branch in the middle");
    tracer_.at(tsc(e.count + i), at, kKernel, 0);
    retire(at, d.insns[i], d.late[i]);
    at += d.insns[i].length;
  }
  tracer_.at(tsc(e.count + n - 1), at, kKernel, 0);
  leave(e, d.insns[n - 1], d.late[n - 1], at, next);
  out_.last_tsc = away_ = tsc(e.count + n - 1);
}

X86Cpu X86Flow::run(std::span<const Event> events) {
  // Blocks that were entered and left before their first instruction show nothing.
  std::vector<Event> useful;
  for (const Event& e : events) {
    if (e.kind != Event::Kind::kBlock || e.executed != 0) useful.push_back(e);
  }
  events_ = useful;
  size_t end = events_.size();
  while (end != 0 && events_[end - 1].kind == Event::Kind::kBlock) --end;  // cut by the end of the log
  bool paused = false, traced = false, inside = false;
  for (size_t i = 0; i < end; ++i) {
    const Event& e = events_[i];
    if (e.kind != Event::Kind::kBlock) {
      inside = false;
      if (e.kind == Event::Kind::kPause || e.kind == Event::Kind::kResume)
        paused = e.kind == Event::Kind::kPause;
      // Begins and ends in user code, so that no piece of kernel code is cut.
      away_until(tsc(e.count));
      if (paused && traced) tracer_.stop();
      if (!paused && !traced) tracer_.start();
      traced = !paused;
      if (traced && out_.first_tsc == 0) out_.first_tsc = tsc(e.count);
      continue;
    }
    if (!traced) continue;
    if (enters(e) && frame_of(i).user) inside = false;
    if (!inside) {
      if (enters(e)) out_.truth.async();
      away_until(tsc(e.count));
      tracer_.transfer(address(e), kKernel, false);
    }
    inside = true;
    block(i, i + 1);
  }
  tracer_.stop();
  tracer_.writer().flush();
  out_.trace = tracer_.writer().bytes();
  return std::move(out_);
}

}  // namespace

X86Cpu encode_x86(const Log& log, size_t cpu, const X86Options& options) {
  return X86Flow(log, options).run(log.cpus.at(cpu));
}

}  // namespace asof::board
