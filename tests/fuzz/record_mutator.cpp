#include "tests/fuzz/record_mutator.h"

#include <zstd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "decoder/blocks/block_records.h"

namespace asof::fuzz {
namespace {

constexpr size_t kMostBody = 1U << 20U;

// All records of all parts, wherever they begin.
std::vector<blocks::RecordHead> records_of(std::span<const uint8_t> file) {
  std::vector<blocks::RecordHead> out;
  for (uint64_t at = 0; at < file.size();) {
    const auto head = blocks::head_at(file, at);
    if (!head) {
      ++at;
      continue;
    }
    out.push_back(*head);
    at = head->end;
  }
  return out;
}

std::vector<uint8_t> packed(std::span<const uint8_t> body) {
  const std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> zstd(ZSTD_createCCtx(), ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(zstd.get(), ZSTD_c_checksumFlag, 1);
  std::vector<uint8_t> out(ZSTD_compressBound(body.size()));
  out.resize(ZSTD_compress2(zstd.get(), out.data(), out.size(), body.data(), body.size()));
  return out;
}

}  // namespace

size_t mutate_record(uint8_t* data, size_t size, size_t most, unsigned seed, MutateBytes mutate) {
  const std::span<const uint8_t> file(data, size);
  const auto records = records_of(file);
  if (records.empty()) return mutate(data, size, most);
  const blocks::RecordHead& record = records[seed % records.size()];
  if (record.raw > kMostBody) return mutate(data, size, most);
  auto body = blocks::unpack(record.packed, record.raw);
  if (!body) return mutate(data, size, most);
  body->resize(body->size() + 64);
  body->resize(mutate(body->data(), body->size() - 64, body->size()));
  const std::vector<uint8_t> now = packed(*body);

  std::vector<uint8_t> out(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(record.offset));
  const auto put = [&](uint64_t n, unsigned bytes) { blocks::put_fixed(out, n, bytes); };
  put(blocks::kRecordMagic, 4), put(static_cast<uint8_t>(record.type), 1), put(record.prefix.size(), 1),
      put(0, 2);
  put(record.prefix.size() + now.size(), 4), put(body->size(), 4);
  out.insert(out.end(), record.prefix.begin(), record.prefix.end());
  out.insert(out.end(), now.begin(), now.end());
  const auto rest = file.subspan(record.end);
  out.insert(out.end(), rest.begin(), rest.end());
  if (out.size() > most) return size;
  std::ranges::copy(out, data);
  return out.size();
}

}  // namespace asof::fuzz
