#include "textstore/byte_pool.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <string_view>

namespace asof {
namespace {

constexpr size_t kChunk = size_t{256} * 1024;
constexpr size_t kFirstTable = 1024;
// Contents made to collide cost memory, not time.
constexpr size_t kMaxProbes = 64;

uint32_t hash_of(std::span<const uint8_t> bytes) {
  const std::string_view view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t h = std::hash<std::string_view>{}(view);
  return static_cast<uint32_t>(h ^ (h >> 32));
}

}  // namespace

uint8_t* BytePool::allocate(size_t size) {
  if (size > left_) {
    const size_t chunk = std::max(size, kChunk);
    chunks_.push_back(std::make_unique_for_overwrite<uint8_t[]>(chunk));
    next_ = chunks_.back().get();
    left_ = chunk;
  }
  uint8_t* at = next_;
  next_ += size;
  left_ -= size;
  used_ += size;
  return at;
}

void BytePool::grow() {
  std::vector<Entry> old(std::max(kFirstTable, table_.size() * 2));
  old.swap(table_);
  const size_t mask = table_.size() - 1;
  entries_ = 0;
  for (const Entry& e : old) {
    if (e.bytes == nullptr) continue;
    for (size_t probe = 0; probe < kMaxProbes; ++probe) {
      Entry& slot = table_[(e.hash + probe) & mask];
      if (slot.bytes != nullptr) continue;
      slot = e;
      ++entries_;
      break;
    }
  }
}

const uint8_t* BytePool::intern(std::span<const uint8_t> bytes) {
  static constexpr uint8_t kNothing = 0;
  if (bytes.empty()) return &kNothing;
  if ((entries_ + 1) * 2 > table_.size()) grow();
  const uint32_t hash = hash_of(bytes);
  const size_t mask = table_.size() - 1;
  Entry* free_slot = nullptr;
  for (size_t probe = 0; probe < kMaxProbes; ++probe) {
    Entry& slot = table_[(hash + probe) & mask];
    if (slot.bytes == nullptr) {
      free_slot = &slot;
      break;
    }
    if (slot.hash == hash && slot.length == bytes.size() &&
        std::memcmp(slot.bytes, bytes.data(), bytes.size()) == 0) {
      return slot.bytes;
    }
  }
  uint8_t* copy = allocate(bytes.size());
  std::memcpy(copy, bytes.data(), bytes.size());
  if (free_slot != nullptr && bytes.size() <= UINT32_MAX) {
    *free_slot = {copy, static_cast<uint32_t>(bytes.size()), hash};
    ++entries_;
  }
  return copy;
}

const uint8_t* BytePool::intern(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  joined_.assign(a.begin(), a.end());
  joined_.insert(joined_.end(), b.begin(), b.end());
  return intern(joined_);
}

void BytePool::freeze() {
  table_ = {};
  joined_ = {};
  entries_ = 0;
}

}  // namespace asof
