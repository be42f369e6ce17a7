#include "tools/query/answer_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "decoder/io/content_hash.h"
#include "decoder/io/descriptor.h"
#include "tools/output/write_all.h"
#include "tools/query/kept_facts.h"

namespace asof {
namespace {

constexpr std::string_view kMark = "asofqry1";
constexpr size_t kEnd = 16;  // size of the facts, and the mark
constexpr size_t kKeyDigits = 32, kHashDigits = 16;
constexpr uint64_t kMostFacts = 64 << 20;
constexpr std::string_view kPart = "part-", kSuffix = ".db";
constexpr time_t kPartAge = 3600;  // older ones are of processes that ended while they wrote

std::unexpected<Error> unusable(const std::string& folder, std::string reason) {
  return fail(Code::kCacheNotUsable, folder, Error::kNoOffset, std::move(reason));
}

std::string key_name(const std::string& key) {
  return fmt::format("{:016x}{:016x}", hash_text(key, 1), hash_text(key, 2));
}

bool is_entry(std::string_view name) {
  const auto hexadecimal = [](std::string_view text) {
    return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  };
  return name.size() == kKeyDigits + 1 + kHashDigits + kSuffix.size() && name[kKeyDigits] == '-' &&
         name.ends_with(kSuffix) && hexadecimal(name.substr(0, kKeyDigits)) &&
         hexadecimal(name.substr(kKeyDigits + 1, kHashDigits));
}

// Nobody else can have written it.
bool is_own(const struct stat& s) { return s.st_uid == ::geteuid() && (s.st_mode & 022) == 0; }

std::string write_database(sqlite3* from, const std::string& path) {
  sqlite3* opened = nullptr;
  const int status = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READWRITE, nullptr);
  const Database to(opened);
  if (status != SQLITE_OK) return sqlite3_errmsg(opened);
  sqlite3_exec(opened, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF", nullptr, nullptr, nullptr);
  return copy_database(from, opened);
}

}  // namespace

struct AnswerCache::Entry {
  std::string name;
  uint64_t bytes = 0;
  struct timespec used {};
  bool part = false;
};

std::string AnswerCache::default_folder() {
  // A relative path is to be ignored (XDG Base Directory Specification).
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg == '/')
    return std::string(xdg) + "/asof";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::string(home) + "/.cache/asof";
  return {};
}

Result<AnswerCache> AnswerCache::open(const std::string& folder, uint64_t most_bytes) {
  std::error_code failed;
  const std::filesystem::path parent = std::filesystem::path(folder).parent_path();
  if (!parent.empty()) std::filesystem::create_directories(parent, failed);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return unusable(folder, std::strerror(errno));
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return unusable(folder, errno == ELOOP ? "a symbolic link" : std::strerror(errno));
  struct stat s {};
  AnswerCache cache(folder, fd, most_bytes);
  if (::fstat(fd, &s) != 0 || !is_own(s)) return unusable(folder, "others can write to it");
  return cache;
}

AnswerCache::AnswerCache(AnswerCache&& other) noexcept
    : folder_(std::move(other.folder_)), fd_(std::exchange(other.fd_, -1)), most_(other.most_) {}

AnswerCache::~AnswerCache() {
  if (fd_ >= 0) ::close(fd_);
}

std::vector<AnswerCache::Entry> AnswerCache::entries() const {
  std::vector<Entry> out;
  DIR* const list = ::fdopendir(::openat(fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (list == nullptr) return out;
  while (const dirent* d = ::readdir(list)) {
    const std::string name = d->d_name;
    const bool part = name.starts_with(kPart);
    struct stat s {};
    if ((!part && !is_entry(name)) || ::fstatat(fd_, d->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISREG(s.st_mode)) out.push_back({name, static_cast<uint64_t>(s.st_blocks) * 512, s.st_mtim, part});
  }
  ::closedir(list);
  return out;
}

AnswerCache::Use AnswerCache::use() const {
  Use use;
  for (const Entry& e : entries()) {
    ++use.files;
    use.bytes += e.bytes;
  }
  return use;
}

std::optional<FoundTables> AnswerCache::find(const std::string& key) {
  const std::string prefix = key_name(key) + "-";
  for (const Entry& e : entries()) {
    if (e.part || !e.name.starts_with(prefix)) continue;
    if (auto found = read(e.name, key)) return found;
    ::unlinkat(fd_, e.name.c_str(), 0);
  }
  return std::nullopt;
}

std::optional<FoundTables> AnswerCache::read(const std::string& name, const std::string& key) {
  const Descriptor file(::openat(fd_, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat s {};
  if (file.get() < 0 || ::fstat(file.get(), &s) != 0 || !S_ISREG(s.st_mode) || !is_own(s))
    return std::nullopt;
  const auto size = static_cast<uint64_t>(s.st_size);
  const auto hash = hash_file(file.get());
  if (size < kEnd || !hash ||
      fmt::format("{}{:016x}{}", name.substr(0, kKeyDigits + 1), *hash, kSuffix) != name)
    return std::nullopt;
  char end[kEnd];
  if (::pread(file.get(), end, kEnd, static_cast<off_t>(size - kEnd)) != kEnd) return std::nullopt;
  uint64_t facts_size = 0;
  std::memcpy(&facts_size, end, sizeof facts_size);
  if (std::string_view(end + 8, 8) != kMark || facts_size > std::min(kMostFacts, size - kEnd))
    return std::nullopt;
  std::string bytes(facts_size, 0);
  const auto at = static_cast<off_t>(size - kEnd - facts_size);
  if (::pread(file.get(), bytes.data(), facts_size, at) != static_cast<ssize_t>(facts_size))
    return std::nullopt;
  auto facts = facts_of(bytes, key);
  auto db = open_database(fmt::format("/proc/self/fd/{}", file.get()));
  if (!facts || !db) return std::nullopt;
  ::futimens(file.get(), nullptr);
  return FoundTables{std::move(*facts), std::move(*db)};
}

Result<uint64_t> AnswerCache::keep(const std::string& key, const KeptTables& facts, sqlite3* db) {
  const auto size = static_cast<uint64_t>(pragma(db, "PRAGMA page_count") * pragma(db, "PRAGMA page_size"));
  if (size > most_) return 0;
  struct statvfs space {};
  if (::fstatvfs(fd_, &space) == 0 && uint64_t{space.f_bavail} * space.f_frsize < size + size / 8)
    return unusable(folder_, "no space left");
  const std::string part = fmt::format("{}{}-{:08x}", kPart, ::getpid(), std::random_device()());
  const auto name = write(part, key, facts, db);
  if (!name) {
    ::unlinkat(fd_, part.c_str(), 0);
    return std::unexpected(name.error());
  }
  // What was kept for this key has fewer tables.
  for (const Entry& e : entries()) {
    if (!e.part && e.name != *name && e.name.starts_with(key_name(key))) ::unlinkat(fd_, e.name.c_str(), 0);
  }
  make_room(*name);
  return size;
}

Result<std::string> AnswerCache::write(const std::string& part, const std::string& key,
                                       const KeptTables& facts, sqlite3* db) {
  const auto failed = [&] { return unusable(folder_, std::strerror(errno)); };
  const Descriptor made(
      ::openat(fd_, part.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (made.get() < 0) return failed();
  if (const std::string wrong = write_database(db, folder_ + "/" + part); !wrong.empty())
    return unusable(folder_, wrong);
  struct stat copied {};
  if (::fstat(made.get(), &copied) != 0 || copied.st_size == 0)
    return unusable(folder_, "the file was replaced");
  std::string end = facts_bytes(key, facts);
  const uint64_t size = end.size();
  end.append(reinterpret_cast<const char*>(&size), sizeof size).append(kMark);
  if (::lseek(made.get(), 0, SEEK_END) < 0 || !write_all(made.get(), end) || ::fsync(made.get()) != 0)
    return failed();
  const auto hash = hash_file(made.get());
  if (!hash) return failed();
  std::string name = fmt::format("{}-{:016x}{}", key_name(key), *hash, kSuffix);
  if (::renameat(fd_, part.c_str(), fd_, name.c_str()) != 0) return failed();
  ::fsync(fd_);
  return name;
}

void AnswerCache::make_room(const std::string& newest) {
  std::vector<Entry> all = entries();
  std::ranges::sort(all, [](const Entry& a, const Entry& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  uint64_t bytes = 0;
  for (const Entry& e : all) bytes += e.bytes;
  const time_t now = ::time(nullptr);
  for (const Entry& e : all) {
    const bool abandoned = e.part && e.used.tv_sec < now - kPartAge;
    if (e.name == newest || (e.part && !abandoned) || (bytes <= most_ && !abandoned)) continue;
    if (::unlinkat(fd_, e.name.c_str(), 0) == 0) bytes -= e.bytes;
  }
}

}  // namespace asof
