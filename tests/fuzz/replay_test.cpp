// Each fuzz target over its corpus: what fuzzers found once, and what makes them reach all of the readers.
#include <archive.h>
#include <archive_entry.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/fuzz/fuzz.h"

namespace asof::fuzz {
namespace {

struct CloseArchive {
  void operator()(archive* a) const { archive_read_free(a); }
};

std::map<std::string, std::vector<uint8_t>> corpus(const std::string& file) {
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

class Replay : public ::testing::TestWithParam<Target> {};

TEST_P(Replay, Corpus) {
  const std::string file = std::string(ASOF_FUZZ_CORPUS) + "/" + GetParam().name + ".tar.zst";
  const auto inputs = corpus(file);
  ASSERT_FALSE(inputs.empty()) << file;
  for (const auto& [name, bytes] : inputs) {
    SCOPED_TRACE(name);
    // Memory of its own, so that a sanitizer sees a read beyond its end.
    const auto copy = std::make_unique<uint8_t[]>(bytes.size());
    std::ranges::copy(bytes, copy.get());
    GetParam().run({copy.get(), bytes.size()});
  }
}

std::vector<Target> sorted_targets() {
  std::vector<Target> list = targets();
  std::ranges::sort(list, {}, [](const Target& t) { return std::string(t.name); });
  return list;
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Replay, ::testing::ValuesIn(sorted_targets()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace asof::fuzz
