// BytePool: the one owner of copied bytes. Text is patched between few states, so equal contents are kept
// once: ten million pokes of a hundred thousand static keys need a few megabytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace asof {

class BytePool {
 public:
  // A copy that lives as long as the pool. Equal contents give the same pointer nearly always; callers that
  // need equality compare the bytes.
  const uint8_t* intern(std::span<const uint8_t> bytes);
  // `a` then `b`, as one piece.
  const uint8_t* intern(std::span<const uint8_t> a, std::span<const uint8_t> b);
  // Frees what only intern() needs.
  void freeze();
  size_t size() const { return used_; }

 private:
  struct Entry {
    const uint8_t* bytes = nullptr;
    uint32_t length = 0;
    uint32_t hash = 0;
  };

  uint8_t* allocate(size_t size);
  void grow();

  std::vector<std::unique_ptr<uint8_t[]>> chunks_;
  uint8_t* next_ = nullptr;
  size_t left_ = 0;
  size_t used_ = 0;
  std::vector<Entry> table_;  // open addressing, size a power of two
  size_t entries_ = 0;
  std::vector<uint8_t> joined_;
};

}  // namespace asof
