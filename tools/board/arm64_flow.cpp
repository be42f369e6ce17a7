#include "tools/board/arm64_flow.h"

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>

#include "tests/support/sim_memory.h"

namespace asof::board {
namespace {

using test::SimKind;

enum class Kind : uint8_t {
  kStraight,
  kDirect,
  kConditional,
  kCall,
  kIndirect,
  kIndirectCall,
  kReturn,
  kEret,
  kIsb,
  kBrk
};

constexpr unsigned kWord = 4;
constexpr size_t kPcInFrame = 256;   // struct pt_regs: 31 registers, sp, pc
constexpr size_t kEntryBlocks = 12;  // in which kernel_entry stores the frame

// Arm ARM, C4.1 "A64 instruction set encoding", branches, exception generating and system instructions.
Kind kind_of(uint32_t w) {
  if ((w & 0xfc000000) == 0x14000000) return Kind::kDirect;
  if ((w & 0xfc000000) == 0x94000000) return Kind::kCall;
  if ((w & 0xff000000) == 0x54000000 || (w & 0x7e000000) == 0x34000000 || (w & 0x7e000000) == 0x36000000)
    return Kind::kConditional;
  if ((w & 0xfefff800) == 0xd61f0800 || (w & 0xfffffc1f) == 0xd61f0000) return Kind::kIndirect;
  if ((w & 0xfefff800) == 0xd63f0800 || (w & 0xfffffc1f) == 0xd63f0000) return Kind::kIndirectCall;
  if ((w & 0xfffffc1f) == 0xd65f0000 || (w & 0xfffffbff) == 0xd65f0bff) return Kind::kReturn;
  if (w == 0xd69f03e0) return Kind::kEret;
  if ((w & 0xfffff0ff) == 0xd50330df) return Kind::kIsb;
  if ((w & 0xffe0001f) == 0xd4200000) return Kind::kBrk;
  return Kind::kStraight;
}

class Arm64Flow {
 public:
  Arm64Flow(const Log& log, const Arm64Options& options)
      : log_(log), options_(options), unit_(options.unit, options.seed) {}
  Arm64Cpu run(std::span<const Event> events);

 private:
  [[noreturn]] void fail(const Event& e, const std::string& what) const {
    throw std::runtime_error(fmt::format("block at {:#x}, instruction {}: {}", address(e), e.count, what));
  }
  Addr address(const Event& e) const { return log_.blocks[e.block].address; }
  uint64_t ticks(uint64_t count) const { return log_.clock.ticks(count); }
  uint32_t word(const Event& e, size_t i) const {
    uint32_t w = 0;
    std::memcpy(&w, log_.blocks[e.block].bytes.data() + kWord * i, sizeof w);
    return w;
  }
  // If this block is an entry of the vectors, its offset: 0x200 and on from EL1, 0x400 and on from EL0.
  std::optional<unsigned> entry(const Event& e) const {
    const Addr at = e.kind == Event::Kind::kBlock ? address(e) - options_.vectors : 0;
    return at >= 0x200 && at < 0x800 && at % 0x80 == 0 ? std::optional(static_cast<unsigned>(at))
                                                       : std::nullopt;
  }
  Addr saved_pc(size_t index) const;
  void retire(const Event& e, Addr ip, Kind kind);
  void branch(const Event& e, Addr ip, Kind kind, Addr target, uint64_t time);
  void interrupted(Addr from, size_t next, bool by_brk);
  void leave(const Event& e, size_t i, Addr at, size_t next);
  void block(size_t index);

  const Log& log_;
  const Arm64Options& options_;
  test::EtmUnit unit_;
  std::vector<Event> events_;
  Arm64Cpu out_;
  Time run_time_ = 0;
  std::map<std::pair<uint32_t, Addr>, bool> late_;
};

// kernel_entry stores x0 and x1 first, at the bottom of the frame.
Addr Arm64Flow::saved_pc(size_t index) const {
  std::optional<Addr> base;
  for (size_t i = index; i < events_.size() && i < index + kEntryBlocks; ++i) {
    for (const auto& s : events_[i].stores) {
      if (!base) base = s[0];
      if (s[0] == *base + kPcInFrame) return s[1];
    }
  }
  fail(events_[index], "an entry whose frame is not known");
}

void Arm64Flow::retire(const Event& e, Addr ip, Kind kind) {
  const auto [it, fresh] = late_.try_emplace({e.block, ip}, false);
  if (fresh) {
    const Block& b = log_.blocks[e.block];
    it->second = !options_.known(ip, std::span(b.bytes).subspan(ip - b.address, kWord));
  }
  test::SimInsn insn;
  insn.length = kWord;
  insn.kind = kind == Kind::kStraight || kind == Kind::kBrk ? SimKind::kStraight : SimKind::kJump;
  out_.truth.instruction(ip, insn, kKernelSpace, false, run_time_);
  if (it->second) {
    out_.truth.late_text();
    ++out_.late_instructions;
  }
}

void Arm64Flow::branch(const Event& e, Addr ip, Kind kind, Addr target, uint64_t time) {
  const Addr end = ip + kWord;
  switch (kind) {
    case Kind::kConditional:
      return unit_.direct(target, target != end, false, 0, time);
    case Kind::kDirect:
      return unit_.direct(target, true, false, 0, time);
    case Kind::kCall:
      return unit_.direct(target, true, true, end, time);
    case Kind::kIndirect:
      return unit_.indirect(target, false, false, 0, time);
    case Kind::kIndirectCall:
      return unit_.indirect(target, true, false, end, time);
    case Kind::kReturn:
      return unit_.indirect(target, false, true, 0, time);
    case Kind::kEret:
      return unit_.exception_return(target, time);
    case Kind::kIsb:
      if (target != end) fail(e, "ISB goes elsewhere");
      return unit_.isb(end, time);
    default:
      if (target != end) fail(e, fmt::format("goes to {:#x}", target));
  }
}

void Arm64Flow::interrupted(Addr from, size_t next, bool by_brk) {
  namespace type = test::etm_exception;
  static constexpr uint16_t kTypes[] = {type::kDataFault, type::kIrq, type::kFiq, type::kSystemError};
  const Event& e = events_[next];
  const unsigned which = (*entry(e) - 0x200) / 0x80;
  out_.truth.async();
  ++out_.exceptions;
  if (by_brk) ++out_.breakpoints;
  unit_.exception(by_brk ? type::kInstDebug : kTypes[which % 4], from, address(e), ticks(e.count));
}

// What followed the last instruction that began, number `i` of the block.
void Arm64Flow::leave(const Event& e, size_t i, Addr at, size_t next) {
  const Kind kind = kind_of(word(e, i));
  const uint64_t time = ticks(e.count + i);
  const Event* after =
      next < events_.size() && events_[next].kind == Event::Kind::kBlock ? &events_[next] : nullptr;
  const auto vector = after != nullptr ? entry(*after) : std::nullopt;
  if (after == nullptr || (vector && *vector >= 0x400)) {
    if (kind != Kind::kEret) fail(e, "user code follows no return to it");
    retire(e, at, kind);
    unit_.leave();
    out_.truth.interrupted();
    return;
  }
  const Addr target = vector ? saved_pc(next) : address(*after);
  if (vector && target == at) return interrupted(at, next, kind == Kind::kBrk);
  if (target == at && kind == Kind::kStraight) return;  // restarted
  retire(e, at, kind);
  branch(e, at, kind, target, time);
  if (vector) interrupted(target, next, false);
}

void Arm64Flow::block(size_t index) {
  const Event& e = events_[index];
  const size_t n = std::min<size_t>(e.executed, log_.blocks[e.block].sizes.size());
  Addr at = address(e);
  run_time_ = static_cast<Time>(options_.perf_time(ticks(e.count)));
  for (size_t i = 0; i + 1 < n; ++i, at += kWord) {
    const Kind kind = kind_of(word(e, i));
    if (kind != Kind::kStraight && kind != Kind::kIsb) fail(e, "a branch in the middle");
    retire(e, at, kind);
    if (kind == Kind::kIsb) unit_.isb(at + kWord, ticks(e.count + i));
  }
  leave(e, n - 1, at, index + 1);
  out_.last_tick = ticks(e.count + n);
}

Arm64Cpu Arm64Flow::run(std::span<const Event> events) {
  for (const Event& e : events) {
    if (e.kind != Event::Kind::kBlock || e.executed != 0) events_.push_back(e);
  }
  size_t end = events_.size();
  while (end != 0 && events_[end - 1].kind == Event::Kind::kBlock) --end;  // cut by the end of the log
  bool traced = false;
  for (size_t i = 0; i < end; ++i) {
    const Event& e = events_[i];
    if (e.kind != Event::Kind::kBlock) {
      if (e.kind == Event::Kind::kPause || e.kind == Event::Kind::kResume)
        traced = e.kind == Event::Kind::kResume;
      if (e.kind == Event::Kind::kAway && out_.first_tick == 0) traced = true;
      if (out_.first_tick == 0) out_.first_tick = ticks(e.count);
      continue;
    }
    if (!traced) continue;
    if (!unit_.on()) {
      if (entry(e)) out_.truth.async();
      unit_.start(address(e), ticks(e.count));
    }
    block(i);
  }
  unit_.finish();
  out_.trace = unit_.writer().bytes();
  return std::move(out_);
}

}  // namespace

Arm64Cpu encode_arm64(const Log& log, size_t cpu, const Arm64Options& options) {
  return Arm64Flow(log, options).run(log.cpus.at(cpu));
}

std::vector<Poke> stored_pokes(const Log& log, const GuestFiles& files) {
  const Addr begin = files.addresses.at("_stext"), end = files.addresses.at("_etext");
  std::map<Addr, uint32_t> words;
  std::vector<Poke> out;
  const auto bytes_of = [](uint32_t w) {
    std::vector<uint8_t> b(kWord);
    std::memcpy(b.data(), &w, kWord);
    return b;
  };
  for (const Store& s : log.stores) {
    const Addr at = s.physical - files.physical_text + begin;
    if (at < begin || at >= end) continue;
    const auto [it, fresh] = words.try_emplace(at, 0);
    if (fresh) {
      for (const test::CoreSegment& c : files.kcore) {
        if (at - c.address < c.bytes.size())
          std::memcpy(&it->second, c.bytes.data() + (at - c.address), kWord);
      }
    }
    if (it->second == s.value) continue;
    out.push_back({files.perf_time(log.clock.ticks(s.count)), static_cast<uint32_t>(s.cpu), at,
                   bytes_of(it->second), bytes_of(s.value)});
    it->second = s.value;
  }
  return out;
}

}  // namespace asof::board
