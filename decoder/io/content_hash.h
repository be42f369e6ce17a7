// XXH64 (github.com/Cyan4973/xxHash, doc/xxhash_spec.md): says whether bytes are those they were. No
// protection against somebody who makes two files with one hash.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace asof {

class ContentHash {
 public:
  explicit ContentHash(uint64_t seed = 0);
  void add(std::span<const uint8_t> bytes);
  uint64_t value() const;

 private:
  void stripe(const uint8_t* at);
  uint64_t seed_, lanes_[4], size_ = 0;
  uint8_t rest_[32] = {};
};

uint64_t hash_text(std::string_view text, uint64_t seed);
// Of a whole file, whatever its position; empty: it cannot be read.
std::optional<uint64_t> hash_file(int fd);

}  // namespace asof
