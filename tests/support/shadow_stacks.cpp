#include "tests/support/shadow_stacks.h"

#include <Zydis/Zydis.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <unordered_map>

#include "tests/support/perf_data_writer.h"

namespace asof::test {
namespace {

enum class Last : uint8_t { kOther, kCall, kReturn, kFarCall, kFarReturn, kUnknown };

struct RunEnd {
  Last kind = Last::kUnknown;
  Addr target = 0;  // of a direct branch that is always taken
};

RunEnd x86_end(const uint8_t* bytes, const TruthRun& run) {
  ZydisDecoder decoder;
  ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  ZydisDecodedInstruction z;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  size_t at = 0;
  for (uint32_t i = 0; i < run.instructions; ++i) {
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, bytes + at, run.bytes - at, &z, operands))) return {};
    at += z.length;
  }
  if (at != run.bytes) return {};
  RunEnd end{Last::kOther, 0};
  if (z.meta.category == ZYDIS_CATEGORY_CALL) {
    end.kind = Last::kCall;
  } else if (z.mnemonic == ZYDIS_MNEMONIC_RET) {
    end.kind = Last::kReturn;
  } else if (z.mnemonic == ZYDIS_MNEMONIC_SYSCALL || z.mnemonic == ZYDIS_MNEMONIC_INT) {
    end.kind = Last::kFarCall;
  } else if (z.mnemonic == ZYDIS_MNEMONIC_IRETQ || z.mnemonic == ZYDIS_MNEMONIC_SYSRET) {
    end.kind = Last::kFarReturn;
  }
  const bool direct = operands[0].type == ZYDIS_OPERAND_TYPE_IMMEDIATE;
  if (direct && (end.kind == Last::kCall || z.mnemonic == ZYDIS_MNEMONIC_JMP))
    end.target = run.address + run.bytes + static_cast<uint64_t>(operands[0].imm.value.s);
  return end;
}

// Arm ARM C4.1.66, branches and exception generation.
RunEnd arm64_end(const uint8_t* bytes, const TruthRun& run) {
  uint32_t word = 0;
  std::memcpy(&word, bytes + run.bytes - 4, 4);
  RunEnd end{Last::kOther, 0};
  if (word >> 26U == 0x25 || word >> 26U == 5) {
    if (word >> 31U != 0) end.kind = Last::kCall;
    end.target = run.address + run.bytes - 4 + static_cast<uint64_t>(static_cast<int32_t>(word << 6U) >> 4);
  } else if ((word & 0xfefffc1f) == 0xd63f0000 || (word & 0xfefff800) == 0xd63f0800) {
    end.kind = Last::kCall;
  } else if ((word & 0xfffffc1f) == 0xd65f0000 || (word & 0xfffffbff) == 0xd65f0bff) {
    end.kind = Last::kReturn;
  } else if ((word & 0xfffff3ff) == 0xd69f03e0) {
    end.kind = Last::kFarReturn;
  } else if ((word & 0xffe0001f) == 0xd4000001) {
    end.kind = Last::kFarCall;
  }
  return end;
}

}  // namespace

std::vector<TruthRun> read_truth_runs(const std::string& path) {
  const auto packed = read_bytes(path);
  const auto bytes = zstd_decompress(packed);
  std::vector<TruthRun> runs(bytes.size() / 32);
  for (size_t i = 0; i < runs.size(); ++i) {
    const uint8_t* p = bytes.data() + i * 32;
    std::memcpy(&runs[i].address, p, 8);
    std::memcpy(&runs[i].bytes, p + 8, 4);
    std::memcpy(&runs[i].instructions, p + 12, 4);
    std::memcpy(&runs[i].flags, p + 16, 4);
    std::memcpy(&runs[i].time, p + 24, 8);
  }
  return runs;
}

struct ShadowStacks::Impl {
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Node {
    enum class Kind : uint8_t { kReturn, kInterrupted, kBottom };
    Kind kind = Kind::kBottom;
    Addr at = 0;
    uint32_t below = kNone;
  };
  struct Cpu {
    int cpu = 0;
    std::vector<TruthRun> runs;
    const std::vector<ContextChange>* contexts = nullptr;
    size_t next = 0, context = 0;
    uint64_t instructions = 0;
    RunEnd end;
    uint32_t* top = nullptr;  // of the running thread
  };
  struct Sample {
    Moment moment;
    uint32_t top = kNone;
    Time time = 0;
    Addr ip = 0;
    Space user = kNoSpace;
  };

  explicit Impl(const Capture& c) : capture(c), arm64(c.machine == "aarch64") {
    for (const PokeRecord& p : c.text->pokes()) {
      for (const auto& bytes : {p.old_bytes(), p.new_bytes()}) {
        if (bytes.size() != 5 || bytes[0] != 0xe8) continue;
        int32_t offset = 0;
        std::memcpy(&offset, bytes.data() + 1, 4);
        patched_calls[p.addr + 5 + static_cast<uint64_t>(int64_t{offset})].insert(p.addr);
      }
    }
  }

  std::string name(Addr at, Time t, Space user = kNoSpace) const {
    const auto found = capture.symbols.find(is_kernel_address(at) ? kKernelSpace : user, at, t);
    if (!found) return "?";
    const std::string& n = found->symbol->name;
    return n.substr(0, n.find(".cold"));
  }
  static Space user_space(const Cpu& c) {
    return c.contexts->empty() ? kNoSpace : (*c.contexts)[c.context].space;
  }
  void odd(const std::string& what) { ++oddities[what]; }

  uint32_t make(Node n) {
    nodes.push_back(n);
    return static_cast<uint32_t>(nodes.size() - 1);
  }
  void push(uint32_t& top, Node::Kind kind, Addr at) { top = make({kind, at, top}); }
  // The frame below the known part of the stack is now known.
  uint32_t discover(uint32_t bottom, Node::Kind kind, Addr at) {
    const uint32_t below = make({});
    nodes[bottom] = {kind, at, below};
    return below;
  }

  RunEnd end_of(const Cpu& c, const TruthRun& run) const;
  uint32_t* thread(Cpu& c, Time t);
  void returned(uint32_t& top, const TruthRun& from, const TruthRun& to);
  void far_returned(uint32_t& top, const TruthRun& from, const TruthRun& to);
  void interrupted(Cpu& c, const TruthRun& from);
  void follow(Cpu& c, const TruthRun& from, const TruthRun& to);
  Moment finished(const Sample& s) const;

  const Capture& capture;
  const bool arm64;
  std::map<Addr, std::set<Addr>> patched_calls;  // by target: sites at which a call of it is patched in
  std::map<int, Cpu> cpus;
  std::map<std::pair<int, int>, uint32_t> threads;  // (tid, CPU of an idle one): top
  std::vector<Node> nodes;
  std::map<std::string, uint64_t> oddities;
};

// Reads the run's bytes as of its time; near a change, bytes of slightly other times that form such a run.
RunEnd ShadowStacks::Impl::end_of(const Cpu& c, const TruthRun& run) const {
  if ((run.flags & TruthRun::kInterrupted) != 0) return {Last::kOther, 0};
  const Space space = is_kernel_address(run.address) ? kKernelSpace : user_space(c);
  std::vector<uint8_t> bytes(run.bytes);
  for (const Time away : {0, 100, -100, 1'000, -1'000, 20'000, -20'000, 1'000'000, -1'000'000}) {
    if (capture.text->read(space, run.address, run.time + away, bytes) != bytes.size()) continue;
    const RunEnd end = arm64 ? arm64_end(bytes.data(), run) : x86_end(bytes.data(), run);
    if (end.kind != Last::kUnknown) return end;
  }
  return {};
}

uint32_t* ShadowStacks::Impl::thread(Cpu& c, Time t) {
  const auto& all = *c.contexts;
  while (c.context + 1 < all.size() && all[c.context + 1].time <= t) ++c.context;
  const int tid = all.empty() ? -1 : all[c.context].tid;
  const auto [it, fresh] = threads.try_emplace({tid, tid > 0 ? -1 : c.cpu}, kNone);
  if (fresh) it->second = make({});
  return &it->second;
}

void ShadowStacks::Impl::returned(uint32_t& top, const TruthRun& from, const TruthRun& to) {
  if (nodes[top].kind == Node::Kind::kBottom) {
    top = discover(top, Node::Kind::kReturn, to.address);
    return;
  }
  for (uint32_t n = top; nodes[n].kind == Node::Kind::kReturn; n = nodes[n].below) {
    if (nodes[n].at != to.address) continue;
    top = nodes[n].below;
    return;
  }
  // The return address was replaced; the trampoline returns to the caller (kernel/kprobes.c).
  const std::string to_name = name(to.address, to.time);
  if (to_name == "__kretprobe_trampoline" || to_name == "arch_rethook_trampoline") return;
  odd(fmt::format("return from {} to {}, top {}", name(from.address, from.time), to_name,
                  name(nodes[top].at, to.time)));
}

void ShadowStacks::Impl::far_returned(uint32_t& top, const TruthRun& from, const TruthRun& to) {
  if (to.address == from.address + from.bytes) return;  // to itself
  uint32_t n = top;
  while (nodes[n].kind == Node::Kind::kReturn) n = nodes[n].below;
  if (nodes[n].kind == Node::Kind::kBottom) {
    top = discover(n, Node::Kind::kInterrupted, to.address);
    return;
  }
  top = nodes[n].below;
  const Addr at = nodes[n].at;
  if (at == to.address) return;
  const auto calls = patched_calls.find(to.address);
  if (calls == patched_calls.end() || arm64) {
    if (at == 0) nodes[n].at = to.address;
    return;
  }
  if (at != 0 ? !calls->second.contains(at) : calls->second.size() != 1) {
    odd("emulated call from an unknown address");
    return;
  }
  nodes[n].at = *calls->second.begin();
  if (at != 0) nodes[n].at = at;
  push(top, Node::Kind::kReturn, nodes[n].at + 5);
}

// An exception before the next instruction: after the last branch, whatever its target.
void ShadowStacks::Impl::interrupted(Cpu& c, const TruthRun& from) {
  uint32_t& top = *c.top;
  Addr at = from.address + from.bytes;
  if ((from.flags & TruthRun::kInterrupted) == 0) {
    at = c.end.target;
    if (c.end.kind == Last::kCall) push(top, Node::Kind::kReturn, from.address + from.bytes);
    if (c.end.kind == Last::kReturn && nodes[top].kind == Node::Kind::kReturn) {
      at = nodes[top].at;
      top = nodes[top].below;
    } else if (c.end.kind == Last::kFarReturn) {  // interrupted again; the next return shows where
      while (nodes[top].kind == Node::Kind::kReturn) top = nodes[top].below;
      if (nodes[top].kind == Node::Kind::kInterrupted) {
        if (nodes[top].at == 0) return;
        top = nodes[top].below;
      }
    }
  }
  push(top, Node::Kind::kInterrupted, at);
}

void ShadowStacks::Impl::follow(Cpu& c, const TruthRun& from, const TruthRun& to) {
  if (c.end.kind == Last::kUnknown) odd(kUnknownText);
  const std::string left = name(from.address, from.time);
  if ((left == "__switch_to_asm" || left == "cpu_switch_to") && left != name(to.address, to.time))
    c.top = thread(c, from.time);
  if ((to.flags & TruthRun::kRestart) != 0) {
    if (c.end.kind != Last::kFarReturn) odd("trace stopped in " + left);
    c.top = thread(c, to.time);
    *c.top = make({});
    return;
  }
  if ((to.flags & TruthRun::kAsync) != 0) return interrupted(c, from);
  switch (c.end.kind) {
    case Last::kCall:
      return push(*c.top, Node::Kind::kReturn, from.address + from.bytes);
    case Last::kReturn:
      return returned(*c.top, from, to);
    case Last::kFarCall:
      return push(*c.top, Node::Kind::kInterrupted, from.address + from.bytes);
    case Last::kFarReturn:
      return far_returned(*c.top, from, to);
    case Last::kUnknown: {
      const Node& top = nodes[*c.top];
      if (top.kind == Node::Kind::kReturn && top.at == to.address) *c.top = top.below;
      return;
    }
    case Last::kOther:
      return;
  }
}

ShadowStacks::Moment ShadowStacks::Impl::finished(const Sample& s) const {
  Moment m = s.moment;
  m.stack.push_back(name(s.ip, s.time, s.user));
  for (uint32_t n = s.top; nodes[n].kind != Node::Kind::kBottom; n = nodes[n].below) {
    const Node& node = nodes[n];
    const Addr at = node.kind == Node::Kind::kReturn ? node.at - 1 : node.at;
    m.stack.push_back(node.at == 0 ? "?" : name(at, s.time, s.user));
  }
  return m;
}

ShadowStacks::ShadowStacks(const Capture& capture, std::map<int, std::vector<TruthRun>> runs)
    : impl_(std::make_unique<Impl>(capture)) {
  for (auto& [cpu, list] : runs) {
    Impl::Cpu& c = impl_->cpus[cpu];
    c.cpu = cpu;
    c.runs = std::move(list);
    for (const Stream& s : capture.streams)
      if (s.cpu == cpu) c.contexts = &s.contexts;
  }
}
ShadowStacks::~ShadowStacks() = default;
const std::vector<TruthRun>& ShadowStacks::runs(int cpu) const { return impl_->cpus.at(cpu).runs; }
const std::map<std::string, uint64_t>& ShadowStacks::oddities() const { return impl_->oddities; }

std::vector<ShadowStacks::Moment> ShadowStacks::stacks_at(const std::vector<std::pair<int, size_t>>& wanted) {
  std::map<std::pair<int, size_t>, std::vector<size_t>> at;
  for (size_t i = 0; i < wanted.size(); ++i) at[wanted[i]].push_back(i);
  std::vector<Impl::Sample> samples(wanted.size());
  for (;;) {
    Impl::Cpu* first = nullptr;  // threads migrate between CPUs: runs in order of time
    for (auto& [cpu, c] : impl_->cpus) {
      if (c.next < c.runs.size() && (first == nullptr || c.runs[c.next].time < first->runs[first->next].time))
        first = &c;
    }
    if (first == nullptr) break;
    Impl::Cpu& c = *first;
    const TruthRun& run = c.runs[c.next];
    if (c.next == 0) {
      c.top = impl_->thread(c, run.time);
      *c.top = impl_->make({});
    } else {
      impl_->follow(c, c.runs[c.next - 1], run);
    }
    if (const auto here = at.find({c.cpu, c.next}); here != at.end()) {
      for (const size_t i : here->second)
        samples[i] = {{c.cpu, c.next, c.instructions}, *c.top, run.time, run.address, impl_->user_space(c)};
    }
    c.end = impl_->end_of(c, run);
    if (c.end.kind != Last::kUnknown) c.instructions += run.instructions;
    ++c.next;
  }
  std::vector<Moment> out;
  for (const Impl::Sample& s : samples) out.push_back(impl_->finished(s));
  return out;
}

}  // namespace asof::test
