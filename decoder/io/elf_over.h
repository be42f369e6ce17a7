// libelf over bytes in memory.
#pragma once
#include <libelf.h>

#include <cstdint>
#include <span>

namespace asof {

// nullptr: elf_errmsg() says why. The bytes must outlive it. libelf takes a non-const pointer, but never writes through a descriptor
// that it did not open for writing.
inline Elf* elf_over(std::span<const uint8_t> bytes) {
  return elf_memory(reinterpret_cast<char*>(const_cast<uint8_t*>(bytes.data())), bytes.size());
}

}  // namespace asof
