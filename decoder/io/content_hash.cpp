#include "decoder/io/content_hash.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace asof {
namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87, kPrime2 = 0xC2B2AE3D27D4EB4F, kPrime3 = 0x165667B19E3779F9,
                   kPrime4 = 0x85EBCA77C2B2AE63, kPrime5 = 0x27D4EB2F165667C5;
constexpr size_t kStripe = 32, kPiece = size_t{1} << 20U;
static_assert(std::endian::native == std::endian::little);

uint64_t read8(const uint8_t* at) {
  uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}
uint64_t round_of(uint64_t lane, uint64_t input) { return std::rotl(lane + input * kPrime2, 31) * kPrime1; }

}  // namespace

ContentHash::ContentHash(uint64_t seed)
    : seed_(seed), lanes_{seed + kPrime1 + kPrime2, seed + kPrime2, seed, seed - kPrime1} {}

void ContentHash::stripe(const uint8_t* at) {
  for (size_t i = 0; i < 4; ++i) lanes_[i] = round_of(lanes_[i], read8(at + i * 8));
}

void ContentHash::add(std::span<const uint8_t> bytes) {
  const size_t held = size_ % kStripe;
  size_ += bytes.size();
  if (held != 0) {
    const size_t more = std::min(kStripe - held, bytes.size());
    std::memcpy(rest_ + held, bytes.data(), more);
    bytes = bytes.subspan(more);
    if (held + more < kStripe) return;
    stripe(rest_);
  }
  for (; bytes.size() >= kStripe; bytes = bytes.subspan(kStripe)) stripe(bytes.data());
  if (!bytes.empty()) std::memcpy(rest_, bytes.data(), bytes.size());
}

uint64_t ContentHash::value() const {
  uint64_t h = seed_ + kPrime5;
  if (size_ >= kStripe) {
    h = std::rotl(lanes_[0], 1) + std::rotl(lanes_[1], 7) + std::rotl(lanes_[2], 12) +
        std::rotl(lanes_[3], 18);
    for (const uint64_t lane : lanes_) h = (h ^ round_of(0, lane)) * kPrime1 + kPrime4;
  }
  h += size_;
  const uint8_t *at = rest_, *end = rest_ + size_ % kStripe;
  for (; at + 8 <= end; at += 8) h = std::rotl(h ^ round_of(0, read8(at)), 27) * kPrime1 + kPrime4;
  if (at + 4 <= end) {
    uint32_t four = 0;
    std::memcpy(&four, at, sizeof four);
    h = std::rotl(h ^ four * kPrime1, 23) * kPrime2 + kPrime3;
    at += 4;
  }
  for (; at < end; ++at) h = std::rotl(h ^ *at * kPrime5, 11) * kPrime1;
  h = (h ^ h >> 33U) * kPrime2;
  h = (h ^ h >> 29U) * kPrime3;
  return h ^ h >> 32U;
}

uint64_t hash_text(std::string_view text, uint64_t seed) {
  ContentHash hash(seed);
  hash.add({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  return hash.value();
}

std::optional<uint64_t> hash_file(int fd) {
  ContentHash hash;
  std::vector<uint8_t> piece(kPiece);
  for (off_t at = 0;;) {
    const ssize_t n = ::pread(fd, piece.data(), piece.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) return hash.value();
    hash.add(std::span(piece).first(static_cast<size_t>(n)));
    at += n;
  }
}

}  // namespace asof
