#include "decoder/io/mapped_files.h"

#include <map>
#include <mutex>

namespace asof {
namespace {

struct Entry {
  uint64_t size = 0;
  std::string path;
};

struct Entries {
  std::mutex mutex;
  std::map<const uint8_t*, Entry> by_address;
};

Entries& entries() {
  static Entries all;
  return all;
}

}  // namespace

MappedFileEntry::MappedFileEntry(std::span<const uint8_t> bytes, const std::string& path)
    : at_(bytes.data()) {
  if (bytes.empty()) return;
  Entries& all = entries();
  const std::lock_guard lock(all.mutex);
  all.by_address[at_] = {bytes.size(), path};
}

MappedFileEntry::~MappedFileEntry() {
  Entries& all = entries();
  const std::lock_guard lock(all.mutex);
  all.by_address.erase(at_);
}

std::optional<FilePlace> place_in_file(std::span<const uint8_t> bytes) {
  Entries& all = entries();
  const std::lock_guard lock(all.mutex);
  const auto after = all.by_address.upper_bound(bytes.data());
  if (after == all.by_address.begin()) return std::nullopt;
  const auto& [at, entry] = *std::prev(after);
  const auto offset = static_cast<uint64_t>(bytes.data() - at);
  if (offset > entry.size || bytes.size() > entry.size - offset) return std::nullopt;
  return FilePlace{entry.path, offset};
}

}  // namespace asof
