// Which file a mapped span is of, so that what was read can be named and read again by another process.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace asof {

// Says that these bytes are the file `path` from its start; for as long as the object exists.
class MappedFileEntry {
 public:
  MappedFileEntry(std::span<const uint8_t> bytes, const std::string& path);
  ~MappedFileEntry();
  MappedFileEntry(const MappedFileEntry&) = delete;
  MappedFileEntry& operator=(const MappedFileEntry&) = delete;

 private:
  const uint8_t* const at_;
};

struct FilePlace {
  std::string path;
  uint64_t offset = 0;
};
// nullopt: the bytes are no part of a file that is mapped now. Any thread.
std::optional<FilePlace> place_in_file(std::span<const uint8_t> bytes);

}  // namespace asof
