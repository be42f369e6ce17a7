#include "arch/packets.h"

#include <algorithm>

#include "arch/arch.h"

namespace asof {

std::unique_ptr<PacketReader> Arch::packets(const Stream&, size_t) const { return nullptr; }

void PacketFields::letters(std::string_view name, uint64_t bits, unsigned count, char one, char zero) {
  count = std::min(count, static_cast<unsigned>(letters_.size()));
  for (unsigned i = 0; i < count; ++i) letters_[i] = (bits >> (count - 1 - i) & 1) != 0 ? one : zero;
  text(name, {letters_.data(), count}, true);
}

}  // namespace asof
