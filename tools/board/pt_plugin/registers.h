// The registers of the CPU that calls back.
#pragma once
#include <array>
#include <cstdint>

#include "tools/board/machine/qemu_api.h"

namespace asof::pt {

// General registers as the machine numbers them, then the others.
enum Reg : unsigned {
  kRax,
  kRcx,
  kRdx,
  kRbx,
  kRip = 16,
  kCs,
  kEflags,
  kCr2,
  kCr3,
  kFsBase,
  kGsBase,
  kRegCount
};

class Registers {
 public:
  Registers();
  void find();  // in a callback of vCPU initialisation
  uint64_t get(unsigned reg);
  void set(unsigned reg, uint64_t value);  // of a general register
  // EDX:EAX
  uint64_t pair() { return (get(kRax) & 0xffffffff) | get(kRdx) << 32; }
  void set_pair(uint64_t value);

 private:
  GByteArray* bytes_;
  std::array<qemu_plugin_register*, kRegCount> handles_{};
};

// Guest memory at a virtual address; false where it is not mapped.
bool read_guest(uint64_t address, void* to, size_t size);

[[noreturn]] void die(const char* what);

}  // namespace asof::pt
