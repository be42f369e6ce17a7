#include "tools/board/known_text.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace asof::board {
namespace {

bool in_core(std::span<const test::CoreSegment> core, Addr address, uint8_t value) {
  return std::ranges::any_of(core, [&](const test::CoreSegment& s) {
    return address - s.address < s.bytes.size() && s.bytes[address - s.address] == value;
  });
}

}  // namespace

KnownText::KnownText(const GuestFiles& files, std::span<const Poke> pokes) : files_(files) {
  for (const Poke& p : pokes) add(p.address, p.old_bytes), add(p.address, p.new_bytes);
  for (const test::BpfProgSpec& p : files.programs) {
    for (const auto& f : p.functions) add(f.address, f.bytes);
  }
  // ksym_text.bin, docs/bundle.md.
  constexpr size_t kHead = 24;
  const std::span<const uint8_t> watched = files.ksym_text;
  for (size_t at = 0; at < watched.size();) {
    if (watched.size() - at < kHead) throw std::runtime_error("ksym_text.bin is cut");
    uint64_t address = 0;
    uint32_t size = 0;
    std::memcpy(&address, watched.data() + at + 8, sizeof address);
    std::memcpy(&size, watched.data() + at + 16, sizeof size);
    if (watched.size() - at - kHead < size) throw std::runtime_error("ksym_text.bin is cut");
    add(address, watched.subspan(at + kHead, size));
    at += kHead + size;
  }
}

void KnownText::add(Addr address, std::span<const uint8_t> bytes) {
  if (!bytes.empty()) pieces_.push_back({address, {bytes.begin(), bytes.end()}});
}

bool KnownText::byte(Addr address, uint8_t value) const {
  if (in_core(files_.kcore, address, value) || in_core(files_.kcore_end, address, value)) return true;
  return std::ranges::any_of(pieces_, [&](const Piece& p) {
    return address - p.address < p.bytes.size() && p.bytes[address - p.address] == value;
  });
}

bool KnownText::has(Addr address, std::span<const uint8_t> bytes) const {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (!byte(address + i, bytes[i])) return false;
  }
  return true;
}

}  // namespace asof::board
