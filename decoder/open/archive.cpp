#include "decoder/open/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "decoder/io/descriptor.h"
#include "decoder/io/files_read.h"
#include "decoder/io/packed_stream.h"

namespace asof {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostEntries = 65536;
constexpr size_t kLongestName = 1024;
// Names of a few bytes may ask for hundreds of folders, and each takes a block of the disk.
constexpr size_t kMostFolders = 16384;
// Copies of kcore have long runs of zeros; a higher ratio is an attempt to fill the disk.
constexpr uint64_t kAlways = 1ULL << 30U, kPerPackedByte = 256;

struct ArchiveCloser {
  void operator()(archive* a) const { archive_read_free(a); }
};
using Reader = std::unique_ptr<archive, ArchiveCloser>;

// The name as a path below the root; empty when it is no such path.
fs::path safe_name(const char* name) {
  if (name == nullptr || std::strlen(name) > kLongestName || name[0] == '/') return {};
  fs::path out;
  for (const fs::path& part : fs::path(name)) {
    if (part == ".." || part.native().find('\0') != std::string::npos) return {};
    if (part == "." || part.empty()) continue;
    out /= part;
  }
  return out;
}

// Where a link in the folder `folder` leads, if that is below the root whatever other links there are: upwards only at
// its beginning, where the folders are real ones.
bool stays_inside(const fs::path& folder, const char* link) {
  if (link == nullptr || link[0] == '/' || link[0] == '\0' || std::strlen(link) > kLongestName) return false;
  auto depth = std::distance(folder.begin(), folder.end());
  bool down = false;
  for (const fs::path& part : fs::path(link)) {
    if (part == "." || part.empty()) continue;
    if (part != "..") {
      down = true;
    } else if (down || depth-- == 0) {
      return false;
    }
  }
  return true;
}

// Zstd's own word for it; libarchive passes it on without an errno.
bool is_out_of_memory(const char* said) {
  return std::string_view(said).find("not enough memory") != std::string_view::npos;
}

// What begins as nothing that libarchive knows; it has no number of its own for that.
bool is_other_format(std::string_view said) { return said.starts_with("Unrecognized archive format"); }

// The folders of all TemporaryTrees. They are needed until the process has ended.
std::set<std::string>& trees() {
  static auto& paths = *new std::set<std::string>;
  return paths;
}
std::mutex& trees_mutex() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

class Unpacker {
 public:
  size_t files() const { return names_.size(); }

  Unpacker(const std::string& path, const std::string& to) : path_(path), to_(to) {}

  Result<void> run() {
    struct stat status {};
    if (::stat(path_.c_str(), &status) == 0) FilesRead::note(path_, status);
    most_bytes_ = kAlways + kPerPackedByte * static_cast<uint64_t>(status.st_size);
    const Descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.get() < 0)
      return fail(Code::kCannotReadInput, path_, Error::kNoOffset,
                  fmt::format("cannot read: {}", std::strerror(errno)));
    stream_.emplace(file.get());
    const Reader reader(archive_read_new());
    archive* const a = reader.get();
    if (a == nullptr) throw std::bad_alloc();
    if (archive_read_support_format_tar(a) < ARCHIVE_WARN ||
        archive_read_open(a, this, nullptr, read_block, nullptr) != ARCHIVE_OK)
      return damaged(a);
    // One of its own libarchive uses unseen where there is no memory for it.
    const std::unique_ptr<archive_entry, decltype(&archive_entry_free)> entry(archive_entry_new2(a),
                                                                              &archive_entry_free);
    if (entry == nullptr) throw std::bad_alloc();
    for (size_t count = 0;; ++count) {
      const int r = archive_read_next_header2(a, entry.get());
      if (r == ARCHIVE_EOF && count == 0)
        return fail(Code::kBadArchive, path_, 0, "the archive is cut or damaged: it is empty",
                    "copy it again");
      if (r == ARCHIVE_EOF) {
        if (const auto ended = read_to_end(); !ended) return ended;
        return make_links();
      }
      if (r < ARCHIVE_WARN) return damaged(a);
      if (count == kMostEntries) return refused("more entries than a capture has");
      if (const auto done = unpack(a, *entry); !done) return done;
    }
  }

 private:
  static la_ssize_t read_block(archive* a, void* self, const void** bytes) {
    auto& own = *static_cast<Unpacker*>(self);
    const auto n = own.stream_->read(own.block_);
    *bytes = own.block_.data();
    if (n) return static_cast<la_ssize_t>(*n);
    archive_set_error(a, own.stream_->fault().number, "%s", own.stream_->fault().reason.c_str());
    return ARCHIVE_FATAL;
  }
  // Behind the tar: only there the checksum of all that is in front of it is known to be right.
  Result<void> read_to_end() {
    for (uint64_t bytes = 0; bytes <= most_bytes_;) {
      const auto n = stream_->read(block_);
      if (!n) return damaged(stream_->fault().number, stream_->fault().reason.c_str());
      if (*n == 0) return {};
      bytes += *n;
    }
    return refused("far more bytes follow than such an archive can hold");
  }
  std::unexpected<Error> damaged(archive* a) const {
    return damaged(archive_errno(a), archive_error_string(a));
  }
  std::unexpected<Error> damaged(int error, const char* said) const {
    // Of damage it says what it is.
    if (error == ENOMEM || said == nullptr || is_out_of_memory(said))
      return fail(Code::kNoResources, path_, Error::kNoOffset, "the system refused memory to unpack it",
                  "raise the limit of memory (ulimit -v, cgroup)");
    if (is_other_format(said))
      return fail(Code::kBadArchive, path_, Error::kNoOffset, "this is no archive, or its start is damaged",
                  "archives are made by 'asof pack'; decompress a recording with gzip, xz or zstd -d");
    if (error == EIO || error == EMFILE || error == ENFILE || error == EACCES || error == ENOENT)
      return fail(Code::kCannotReadInput, path_, Error::kNoOffset,
                  fmt::format("cannot read: {}", std::strerror(error)));
    return fail(Code::kBadArchive, path_, stream_->file_offset(),
                fmt::format("the archive is cut or damaged: {}", said), "copy it again");
  }
  std::unexpected<Error> refused(const std::string& reason) const {
    return fail(Code::kArchiveRefused, path_, Error::kNoOffset, reason, "do not use this archive");
  }
  // Names that the archive has twice were refused before.
  static std::unexpected<Error> exists_already(const std::string& file) {
    return fail(Code::kCannotWrite, file, Error::kNoOffset, "it exists already, and no file is replaced",
                "choose an empty folder with -o");
  }
  std::unexpected<Error> cannot_write(const std::string& file) const {
    return fail(Code::kNoTemporaryCopy, file, Error::kNoOffset, std::strerror(errno),
                "set TMPDIR to a directory with room");
  }

  Result<void> unpack(archive* a, archive_entry& entry) {
    // A name in UTF-8 that the locale has no letters for.
    const char* raw = archive_entry_pathname(&entry);
    if (raw == nullptr) raw = archive_entry_pathname_utf8(&entry);
    const std::string shown = raw == nullptr ? "(no name)" : std::string(raw).substr(0, 100);
    const fs::path name = safe_name(raw);
    const auto type = archive_entry_filetype(&entry);
    if (name.empty() && type == AE_IFDIR && shown == "./") return {};
    if (name.empty()) return refused(fmt::format("the name '{}' leads out of the archive", shown));
    const bool link = type == AE_IFLNK && stays_inside(name.parent_path(), archive_entry_symlink(&entry));
    if (type == AE_IFLNK && !link)
      return refused(fmt::format("the link '{}' may lead out of the archive", shown));
    if (archive_entry_hardlink(&entry) != nullptr || (type != AE_IFREG && type != AE_IFDIR && !link))
      return refused(fmt::format("'{}' is neither a file nor a directory", shown));
    const fs::path target = fs::path(to_) / name;
    if (!count_folders(type == AE_IFDIR ? name : name.parent_path()))
      return refused("more folders than a capture has");
    std::error_code error;
    fs::create_directories(type == AE_IFDIR ? target : target.parent_path(), error);
    if (error) return refused(fmt::format("'{}' is below a file", shown));
    if (type == AE_IFDIR) return {};
    if (!names_.insert(name.string()).second) return refused(fmt::format("'{}' appears twice", shown));
    if (link) {
      links_.emplace_back(target, archive_entry_symlink(&entry));
      return {};
    }
    return copy(a, entry, target.string(), shown);
  }

  // Last: nothing is written through them.
  Result<void> make_links() const {
    for (const auto& [at, to] : links_) {
      std::error_code error;
      fs::create_symlink(to, at, error);
      const std::string name = at.lexically_relative(to_).string();
      if (error == std::errc::file_exists)
        return folders_.contains(name) ? refused(fmt::format("'{}' appears twice", name))
                                       : exists_already(at.string());
      if (error) {
        errno = error.value();
        return cannot_write(at.string());
      }
    }
    return {};
  }

  // False: there are too many with this one and those it is in.
  bool count_folders(fs::path folder) {
    for (; !folder.empty(); folder = folder.parent_path()) {
      if (!folders_.insert(folder.string()).second) break;  // so are those it is in
      if (folders_.size() > kMostFolders) return false;
    }
    return true;
  }

  // Sizes in headers are not trusted: the bytes that arrive are counted.
  Result<void> copy(archive* a, archive_entry& entry, const std::string& target, const std::string& shown) {
    const Descriptor out(::open(target.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (out.get() < 0) return errno == EEXIST ? exists_already(target) : Result<void>(cannot_write(target));
    uint64_t end = 0;
    for (;;) {
      const void* block = nullptr;
      size_t size = 0;
      la_int64_t offset = 0;
      const int r = archive_read_data_block(a, &block, &size, &offset);
      if (r == ARCHIVE_EOF) break;
      if (r < ARCHIVE_WARN || offset < 0) return damaged(a);
      end = std::max(end, static_cast<uint64_t>(offset) + size);
      bytes_ += size;
      if (bytes_ > most_bytes_ || end > most_bytes_)
        return refused(fmt::format("'{}' unpacks to far more bytes than such an archive can hold", shown));
      if (pwrite(out.get(), block, size, offset) != static_cast<ssize_t>(size)) return cannot_write(target);
    }
    const la_int64_t stated = archive_entry_size(&entry);
    if (stated < 0 || static_cast<uint64_t>(stated) > most_bytes_)
      return refused(fmt::format("'{}' is said to have an impossible size", shown));
    // Holes take no room here, but whoever reads the files reads them all the same.
    sizes_ += std::max(end, static_cast<uint64_t>(stated));
    if (sizes_ > most_bytes_)
      return refused(
          fmt::format("with '{}' the files have far more bytes than such an archive can hold", shown));
    // Holes at the end of a sparse file.
    if (static_cast<uint64_t>(stated) > end && ftruncate(out.get(), stated) != 0) return cannot_write(target);
    const std::array<timespec, 2> times{timespec{archive_entry_mtime(&entry), 0},
                                        timespec{archive_entry_mtime(&entry), 0}};
    futimens(out.get(), times.data());  // files are compared with the recording by age
    return {};
  }

  const std::string& path_;
  const std::string& to_;
  std::optional<PackedStream> stream_;
  std::vector<uint8_t> block_ = std::vector<uint8_t>(64 << 10);
  std::set<std::string> names_, folders_;
  std::vector<std::pair<fs::path, std::string>> links_;
  uint64_t bytes_ = 0, sizes_ = 0, most_bytes_ = 0;
};

// Reading a folder takes memory. Where it was refused, what was in use by then has been given back: once more.
void remove_tree(const std::string& path) noexcept {
  for (int attempt = 0; attempt < 3; ++attempt) {
    try {
      std::error_code failed;
      fs::remove_all(path, failed);
      if (failed != std::errc::not_enough_memory) return;
    } catch (const std::bad_alloc&) {
      continue;
    }
  }
}

}  // namespace

Result<std::shared_ptr<TemporaryTree>> TemporaryTree::make() {
  const char* const chosen = std::getenv("TMPDIR");
  for (const char* place : {chosen != nullptr ? chosen : "", "/var/tmp", "/tmp"}) {
    if (*place == '\0') continue;
    // The object first: where there is no memory for it, nothing has been made.
    std::shared_ptr<TemporaryTree> tree(new TemporaryTree);
    std::string name = std::string(place) + "/asof-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) continue;
    tree->path_ = std::move(name);
    const std::lock_guard lock(trees_mutex());
    trees().insert(tree->path_);
    return tree;
  }
  return fail(Code::kNoTemporaryCopy, "", Error::kNoOffset, std::strerror(errno),
              "set TMPDIR to a directory with room");
}

TemporaryTree::~TemporaryTree() {
  if (path_.empty()) return;
  remove_tree(path_);
  const std::lock_guard lock(trees_mutex());
  trees().erase(path_);
}

void TemporaryTree::remove_all() {
  const std::lock_guard lock(trees_mutex());
  for (const std::string& path : trees()) remove_tree(path);
}

bool is_archive(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  std::ifstream in(path, std::ios::binary);
  std::array<char, 512> head{};
  in.read(head.data(), head.size());
  const std::string_view bytes(head.data(), static_cast<size_t>(in.gcount()));
  for (const std::string_view magic : {"\x28\xb5\x2f\xfd", "\x1f\x8b\x08",
                                       "\xfd"
                                       "7zXZ"}) {
    if (bytes.starts_with(magic)) return true;
  }
  return bytes.size() > 262 && bytes.substr(257, 5) == "ustar";
}

Result<size_t> unpack_archive(const std::string& path, const std::string& to) {
  Unpacker unpacker(path, to);
  if (const auto done = unpacker.run(); !done) return std::unexpected(done.error());
  return unpacker.files();
}

Result<std::string> unpacked_capture(const std::string& root, CaptureOptions& options) {
  std::error_code ignored;
  const auto beside = [&](const char* name, std::string& option) {
    const std::string place = root + "/" + name;
    if (option.empty() && fs::exists(place, ignored)) option = place;
  };
  if (!fs::exists(root + "/perf.data", ignored)) {
    if (fs::is_directory(root + "/capture", ignored)) return root + "/capture";
    return fail(Code::kArchiveWithoutCapture, root, Error::kNoOffset,
                "an archive without perf.data or a folder `capture` in it",
                "only archives that asof pack has made can be opened");
  }
  beside("vmlinux", options.vmlinux);
  beside("modules", options.modules_dir);
  beside("debug", options.buildid_dir);
  return root + "/perf.data";
}

}  // namespace asof
