#include "tests/support/sim_memory.h"

#include <Zydis/Zydis.h>
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace asof::test {

struct SimMemory::DecoderHolder {
  ZydisDecoder decoder;
  DecoderHolder() { ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64); }
};

namespace {

constexpr size_t kMaxInsn = 15;

SimKind kind_of(const ZydisDecodedInstruction& z) {
  const bool indirect = z.raw.imm[0].size == 0;
  switch (z.mnemonic) {
    case ZYDIS_MNEMONIC_JMP:
      return indirect ? SimKind::kJumpIndirect : SimKind::kJump;
    case ZYDIS_MNEMONIC_CALL:
      return indirect ? SimKind::kCallIndirect : SimKind::kCall;
    case ZYDIS_MNEMONIC_RET:
      return SimKind::kRet;
    case ZYDIS_MNEMONIC_SYSCALL:
      return SimKind::kSyscall;
    case ZYDIS_MNEMONIC_SYSRET:
      return SimKind::kSysret;
    case ZYDIS_MNEMONIC_IRETQ:
      return SimKind::kIret;
    case ZYDIS_MNEMONIC_INT3:
      return SimKind::kInt3;
    case ZYDIS_MNEMONIC_PTWRITE:
      return SimKind::kPtwrite;
    case ZYDIS_MNEMONIC_MOV:
      if (z.opcode_map == ZYDIS_OPCODE_MAP_0F && z.opcode == 0x22 && z.raw.modrm.reg == 3)
        return SimKind::kMovCr3;
      return SimKind::kStraight;
    default:
      return z.meta.category == ZYDIS_CATEGORY_COND_BR ? SimKind::kCond : SimKind::kStraight;
  }
}

}  // namespace

SimMemory::SimMemory() : decoder_(std::make_unique<DecoderHolder>()) {}
SimMemory::~SimMemory() = default;

SimMemory::Page& SimMemory::page(Space space, Addr addr) {
  auto& p = pages_[key(home(space, addr), addr / kPageSize)];
  if (!p) p = std::make_unique<Page>();
  return *p;
}

uint8_t SimMemory::byte(Space space, Addr addr) const {
  const auto it = pages_.find(key(home(space, addr), addr / kPageSize));
  return it == pages_.end() ? 0 : (*it->second)[addr % kPageSize];
}

void SimMemory::store(Space space, Addr addr, std::span<const uint8_t> bytes) {
  for (size_t i = 0; i < bytes.size();) {
    const size_t at = (addr + i) % kPageSize;
    const size_t n = std::min<size_t>(bytes.size() - i, kPageSize - at);
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(i), n, page(space, addr + i).begin() + at);
    i += n;
  }
  if (decoded_.empty()) return;
  if (bytes.size() > 2 * decoded_.size()) {
    decoded_.clear();
    return;
  }
  // Instructions that begin up to 14 bytes before the change may reach into it.
  for (Addr a = addr - (kMaxInsn - 1); a != addr + bytes.size(); ++a) decoded_.erase(key(home(space, a), a));
}

void SimMemory::load(Space space, Addr addr, std::span<const uint8_t> bytes) { store(space, addr, bytes); }

void SimMemory::write(uint64_t tsc, Space space, Addr addr, std::span<const uint8_t> bytes) {
  writes_.push_back(
      {tsc, home(space, addr), addr, read(space, addr, bytes.size()), {bytes.begin(), bytes.end()}});
  store(space, addr, bytes);
}

std::vector<uint8_t> SimMemory::read(Space space, Addr addr, size_t size) const {
  std::vector<uint8_t> out(size);
  for (size_t i = 0; i < size;) {
    const size_t at = (addr + i) % kPageSize;
    const size_t n = std::min<size_t>(size - i, kPageSize - at);
    const auto it = pages_.find(key(home(space, addr + i), (addr + i) / kPageSize));
    if (it != pages_.end())
      std::copy_n(it->second->begin() + at, n, out.begin() + static_cast<std::ptrdiff_t>(i));
    i += n;
  }
  return out;
}

std::vector<uint8_t> SimMemory::read_at(uint64_t tsc, Space space, Addr addr, size_t size) const {
  std::vector<uint8_t> out = read(space, addr, size);
  for (auto w = writes_.rbegin(); w != writes_.rend() && w->tsc > tsc; ++w) {
    if (w->space != home(space, addr)) continue;
    for (size_t i = 0; i < w->old_bytes.size(); ++i) {
      const Addr a = w->addr + i;
      if (a >= addr && a - addr < size) out[a - addr] = w->old_bytes[i];
    }
  }
  return out;
}

const SimInsn& SimMemory::fetch(Space space, Addr addr) {
  const auto [it, fresh] = decoded_.try_emplace(key(home(space, addr), addr));
  if (!fresh) return it->second;
  const std::vector<uint8_t> bytes = read(space, addr, kMaxInsn);
  ZydisDecodedInstruction z;
  ZydisDecoderContext context;
  if (!ZYAN_SUCCESS(
          ZydisDecoderDecodeInstruction(&decoder_->decoder, &context, bytes.data(), bytes.size(), &z))) {
    decoded_.erase(it);
    throw std::logic_error(fmt::format("no instruction at {:#x}", addr));
  }
  SimInsn& insn = it->second;
  insn.length = z.length;
  insn.kind = kind_of(z);
  std::copy_n(bytes.begin(), z.length, insn.bytes.begin());
  if (insn.kind == SimKind::kCond || insn.kind == SimKind::kJump || insn.kind == SimKind::kCall) {
    insn.target = addr + z.length + static_cast<Addr>(z.raw.imm[0].value.s);
  }
  return insn;
}

}  // namespace asof::test
