// TempDir: a separate directory for one test, removed at the end. With ASOF_TEST_KEEP=FOLDER, of the same file system, it is
// moved there instead (scripts/fuzz.sh).
#pragma once
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace asof::test {

class TempDir {
 public:
  TempDir() : TempDir(std::filesystem::temp_directory_path()) {}
  explicit TempDir(const std::filesystem::path& parent) {
    std::string name = (parent / "asof-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
    path_ = name;
  }
  ~TempDir() {
    std::error_code failed;
    if (const char* keep = std::getenv("ASOF_TEST_KEEP")) {
      std::filesystem::rename(path_, std::filesystem::path(keep) / path_.filename(), failed);
      if (!failed) return;
    }
    std::filesystem::remove_all(path_, failed);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

// Where many folders cost little: on some virtual disks, removing 10,000 of them takes a minute.
inline std::filesystem::path parent_in_memory() {
  return access("/dev/shm", W_OK | X_OK) == 0 ? std::filesystem::path("/dev/shm")
                                              : std::filesystem::temp_directory_path();
}

}  // namespace asof::test
