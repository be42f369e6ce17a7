#include "tools/board/ete_plugin/registers.h"

namespace asof::ete {
namespace {

struct Entry {
  uint32_t number;
  uint64_t reset, writable;
};

constexpr Entry kTable[] = {
#define ASOF_ETE_ENTRY(name, number, reset, writable) {number, reset, writable},
    ASOF_ETE_REGISTERS(ASOF_ETE_ENTRY)
#undef ASOF_ETE_ENTRY
};

// TRCRSCTLR<n> at 0x200 + 4n, TRCACVR<n> at 0x400 + 8n, TRCACATR<n> at 0x480 + 8n.
Entry entry_of(size_t r) {
  const auto selector = static_cast<size_t>(Register::kSelector2);
  const auto address = static_cast<size_t>(Register::kAddress0),
             type = static_cast<size_t>(Register::kAddressType0);
  if (r >= type) return {trace_register(static_cast<unsigned>(0x480 + 8 * (r - type))), 0, 0x7f7f};
  if (r >= address) return {trace_register(static_cast<unsigned>(0x400 + 8 * (r - address))), 0, ~0ull};
  if (r >= selector) return {trace_register(static_cast<unsigned>(0x208 + 4 * (r - selector))), 0, 0x3f'ffff};
  return kTable[r];
}

struct Numbers {
  std::array<Register, 1 << 16> of;
  Numbers() {
    of.fill(Register::kNone);
    for (size_t r = 0; r < kRegisters; ++r) of[entry_of(r).number] = static_cast<Register>(r);
  }
};

}  // namespace

Register register_of(uint32_t number) {
  static const Numbers numbers;
  return numbers.of[number & 0xffff];
}

Registers::Registers() {
  for (size_t r = 0; r < kRegisters; ++r) values_[r] = entry_of(r).reset;
}

// DDI 0487, TRCCLAIMSET and TRCCLAIMCLR: ones set and clear tags; only the latter shows which are set.
void Registers::write(Register r, uint64_t value) {
  if (r == Register::kClaimSet) {
    (*this)[Register::kClaimClear] |= value & 0xf;
  } else if (r == Register::kClaimClear) {
    (*this)[r] &= ~value;
  } else {
    const uint64_t writable = entry_of(static_cast<size_t>(r)).writable;
    (*this)[r] = ((*this)[r] & ~writable) | (value & writable);
  }
}

// TRCSTATR: idle and stable whenever the unit is disabled; here nothing takes time.
uint64_t Registers::read(Register r) const {
  if (r == Register::kStat) return (*this)[Register::kPrgCtl] & 1 ? 0 : 3;
  return (*this)[r];
}

}  // namespace asof::ete
