// Records of a block stream as they lie in a file.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "decoder/blocks/block_format.h"
#include "decoder/io/zstd.h"

namespace asof::blocks {

// What a part begins with.
struct PartHead {
  uint64_t version = 0, size = 0, identity = 0;
  bool grew() const { return version % 2 != 0; }
  bool usable() const {
    return version >= kOldestVersion && version <= kGrowingVersion && size >= kHeaderSize;
  }
};
// nullopt: no part begins at `at`.
std::optional<PartHead> part_at(std::span<const uint8_t> file, uint64_t at);

struct RecordHead {
  RecordType type{};
  uint64_t offset = 0;  // of the record
  std::span<const uint8_t> prefix, packed;
  uint32_t raw = 0;
  uint64_t end = 0;
};
std::optional<RecordHead> head_at(std::span<const uint8_t> file, uint64_t at);

// Empty: the bytes are damaged. Their checksum is zstd's.
std::optional<std::vector<uint8_t>> unpack(std::span<const uint8_t> packed, uint32_t raw);

// Many records, one after the other, in memory that is used again.
class Unpacker {
 public:
  // Until the next call.
  std::optional<std::span<const uint8_t>> unpack(std::span<const uint8_t> packed, uint32_t raw);

 private:
  zstd::Unpacker context_ = zstd::unpacker();
  std::vector<uint8_t> memory_;
};

}  // namespace asof::blocks
