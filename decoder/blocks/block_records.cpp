#include "decoder/blocks/block_records.h"

#include <cstring>

namespace asof::blocks {
namespace {

uint64_t fixed(std::span<const uint8_t> bytes, size_t at, unsigned n) {
  uint64_t v = 0;
  for (unsigned i = 0; i < n; ++i) v |= static_cast<uint64_t>(bytes[at + i]) << (8 * i);
  return v;
}

// Writers give the size in both places: a number that is damaged asks for no memory.
bool gives_size(std::span<const uint8_t> packed, uint32_t raw) {
  return ZSTD_getFrameContentSize(packed.data(), packed.size()) == raw;
}

bool unpack_to(ZSTD_DCtx* context, std::span<const uint8_t> packed, std::span<uint8_t> out) {
  const size_t n = ZSTD_decompressDCtx(context, out.data(), out.size(), packed.data(), packed.size());
  return !zstd::failed(n) && n == out.size();
}

}  // namespace

std::optional<PartHead> part_at(std::span<const uint8_t> file, uint64_t at) {
  if (at > file.size() || file.size() - at < kHeaderSize ||
      std::memcmp(file.data() + at, kMagic.data(), kMagic.size()) != 0)
    return std::nullopt;
  PartHead h;
  h.version = fixed(file, at + 8, 2);
  h.size = fixed(file, at + 10, 2);
  h.identity = fixed(file, at + 16, 8);
  if (h.size > file.size() - at) h.size = 0;
  return h;
}

std::optional<RecordHead> head_at(std::span<const uint8_t> file, uint64_t at) {
  if (at > file.size() || file.size() - at < kRecordHeader || fixed(file, at, 4) != kRecordMagic)
    return std::nullopt;
  RecordHead h;
  h.offset = at;
  const uint8_t type = file[at + 4], prefix = file[at + 5];
  const uint64_t stored = fixed(file, at + 8, 4);
  h.raw = static_cast<uint32_t>(fixed(file, at + 12, 4));
  if (type < static_cast<uint8_t>(RecordType::kCapture) ||
      type > static_cast<uint8_t>(RecordType::kFunctions) || fixed(file, at + 6, 2) != 0 ||
      stored > file.size() - at - kRecordHeader || prefix > stored || h.raw > kMaxRaw)
    return std::nullopt;
  h.type = static_cast<RecordType>(type);
  h.prefix = file.subspan(at + kRecordHeader, prefix);
  h.packed = file.subspan(at + kRecordHeader + prefix, stored - prefix);
  h.end = at + kRecordHeader + stored;
  return h;
}

std::optional<std::vector<uint8_t>> unpack(std::span<const uint8_t> packed, uint32_t raw) {
  if (!gives_size(packed, raw)) return std::nullopt;
  std::vector<uint8_t> out(raw);
  if (!unpack_to(zstd::unpacker().get(), packed, out)) return std::nullopt;
  return out;
}

std::optional<std::span<const uint8_t>> Unpacker::unpack(std::span<const uint8_t> packed, uint32_t raw) {
  if (!gives_size(packed, raw)) return std::nullopt;
  if (memory_.size() < raw) memory_.resize(raw);
  const auto out = std::span(memory_).first(raw);
  if (!unpack_to(context_.get(), packed, out)) return std::nullopt;
  return out;
}

}  // namespace asof::blocks
