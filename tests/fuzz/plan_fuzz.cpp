// Cores of plans with right hashes: what a blind mutation never gets past. The hashes are made right here, then the
// core is opened and decoded.
#include <filesystem>

#include "decoder/core/core_file.h"
#include "decoder/core/core_format.h"
#include "decoder/io/content_hash.h"
#include "tests/fuzz/decode_all.h"
#include "tests/fuzz/fuzz.h"

namespace {

using asof::fuzz::Bytes;

uint64_t number_at(Bytes bytes, size_t at) {
  uint64_t n = 0;
  for (unsigned i = 0; i < 8; ++i) n |= static_cast<uint64_t>(bytes[at + i]) << (8 * i);
  return n;
}

void put_at(std::vector<uint8_t>& bytes, size_t at, uint64_t n) {
  for (unsigned i = 0; i < 8; ++i) bytes[at + i] = static_cast<uint8_t>(n >> (8 * i));
}

uint64_t hash_of(Bytes bytes) {
  asof::ContentHash hash;
  hash.add(bytes);
  return hash.value();
}

// docs/formats.md: the header has the number of entries and ends with where the table is and its hash; each entry ends
// with offset, size and hash.
void make_hashes_right(std::vector<uint8_t>& core) {
  using namespace asof::core;
  if (core.size() < kHeaderSize) return;
  const uint64_t table = number_at(core, kHeaderSize - 16);
  if (table < kHeaderSize || table > core.size()) return;
  const size_t entries = (core.size() - table) / kEntrySize;
  core.resize(table + entries * kEntrySize);
  for (unsigned i = 0; i < 4; ++i) core[12 + i] = static_cast<uint8_t>(entries >> (8 * i));
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = table + i * kEntrySize;
    const uint64_t offset = number_at(core, entry + 8), size = number_at(core, entry + 16);
    if (offset <= table && size <= table - offset)
      put_at(core, entry + 24, hash_of(Bytes(core).subspan(offset, size)));
  }
  put_at(core, kHeaderSize - 8, hash_of(Bytes(core).subspan(table)));
}

}  // namespace

FUZZ_TARGET(plan) {
  auto files = asof::fuzz::split_files(bytes);
  const auto found = files.find("core.asof");
  if (found == files.end()) return;
  std::vector<uint8_t> core(found->second.begin(), found->second.end());
  make_hashes_right(core);
  found->second = core;
  asof::fuzz::move_plan(files);
  const std::string folder = asof::fuzz::as_folder(files) + "/plan";
  asof::CaptureOptions options;
  options.host_files = false;
  options.jobs = 1;
  asof::fuzz::decode_opened(asof::CoreFile::open(folder, options));
}
