// Archives: nothing is written outside the folder, whatever the members are called.
#include <filesystem>

#include "decoder/open/archive.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(archive) {
  const std::string file = asof::fuzz::as_file(bytes);
  asof::is_archive(file);
  const std::string folder = asof::fuzz::as_folder({});
  asof::unpack_archive(file, folder + "/inside");
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    FUZZ_CHECK(entry.path().filename() == "inside");
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const auto status = entry.symlink_status();
    FUZZ_CHECK(std::filesystem::is_directory(status) || std::filesystem::is_regular_file(status) ||
               std::filesystem::is_symlink(status));
    if (!std::filesystem::is_symlink(status)) continue;
    const auto to = std::filesystem::weakly_canonical(entry.path());
    FUZZ_CHECK(to.string().starts_with(std::filesystem::canonical(folder).string()));
  }
}
