#include "tests/fuzz/corpus.h"

#include <archive.h>
#include <archive_entry.h>

#include <memory>

namespace asof::fuzz {
namespace {

struct CloseArchive {
  void operator()(archive* a) const { archive_read_free(a); }
};

}  // namespace

std::map<std::string, std::vector<uint8_t>> read_corpus(const std::string& file) {
  std::map<std::string, std::vector<uint8_t>> out;
  const std::unique_ptr<archive, CloseArchive> in(archive_read_new());
  archive_read_support_filter_zstd(in.get());
  archive_read_support_format_tar(in.get());
  if (archive_read_open_filename(in.get(), file.c_str(), 65536) != ARCHIVE_OK) return out;
  for (archive_entry* entry = nullptr; archive_read_next_header(in.get(), &entry) == ARCHIVE_OK;) {
    if (archive_entry_filetype(entry) != AE_IFREG) continue;
    std::vector<uint8_t> bytes(static_cast<size_t>(archive_entry_size(entry)));
    if (archive_read_data(in.get(), bytes.data(), bytes.size()) == static_cast<la_ssize_t>(bytes.size()))
      out.emplace(archive_entry_pathname(entry), std::move(bytes));
  }
  return out;
}

}  // namespace asof::fuzz
