#include "decoder/live/followed_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "decoder/io/files_read.h"
#include "decoder/io/reader.h"
#include "decoder/perf/record_types.h"

namespace asof {
namespace {

constexpr uint64_t kMagic = 0x32454c4946524550;  // "PERFILE2"
constexpr uint64_t kFileHeader = 104, kPipeHeader = 16, kMostAttributes = 64 << 20;
constexpr size_t kDataSize = 48;  // where the header has it
constexpr int kArch = 6, kNrCpus = 7, kCpuId = 9;

template <class T>
void put(std::vector<uint8_t>& out, T value) {
  const auto* p = reinterpret_cast<const uint8_t*>(&value);
  out.insert(out.end(), p, p + sizeof value);
}

// False: it does not fit into a record.
bool put_record(std::vector<uint8_t>& out, uint32_t type,
                std::initializer_list<std::span<const uint8_t>> parts) {
  size_t size = 8;
  for (const auto part : parts) size += part.size();
  if (size > UINT16_MAX) return false;
  put<uint32_t>(out, type);
  put<uint16_t>(out, 0);
  put<uint16_t>(out, static_cast<uint16_t>(size));
  for (const auto part : parts) out.insert(out.end(), part.begin(), part.end());
  return true;
}

}  // namespace

MachineFeatures machine_features(const PerfData& other) {
  MachineFeatures out;
  for (const int bit : {kArch, kNrCpus, kCpuId}) {
    const auto body = other.feature(bit);
    if (!body.empty()) out.emplace_back(bit, std::vector<uint8_t>(body.begin(), body.end()));
  }
  return out;
}

Result<FollowedFile> FollowedFile::open(const std::string& path, MachineFeatures features) {
  std::error_code ignored;
  const std::string name = std::filesystem::is_directory(path, ignored) ? path + "/data" : path;
  Descriptor file(::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0)
    return fail(Code::kCannotReadInput, name, Error::kNoOffset,
                fmt::format("cannot open: {}", std::strerror(errno)));
  if (!S_ISREG(info.st_mode))
    return fail(Code::kNotRegularFile, name, Error::kNoOffset, "only a file can be followed",
                "a pipe is: asof decode -");
  FilesRead::note(name, info);
  return FollowedFile(std::move(file), name, std::move(features));
}

// A read lease is given only where nobody has the file open for writing.
bool FollowedFile::is_written() const {
  if (::fcntl(file_.get(), F_SETLEASE, F_RDLCK) != 0) return true;
  ::fcntl(file_.get(), F_SETLEASE, F_UNLCK);
  return false;
}

uint64_t FollowedFile::size() const {
  struct stat info {};
  return ::fstat(file_.get(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
}

std::vector<uint8_t> FollowedFile::bytes_at(uint64_t at, uint64_t size) const {
  std::vector<uint8_t> out(size);
  const ssize_t got = ::pread(file_.get(), out.data(), out.size(), static_cast<off_t>(at));
  out.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return out;
}

// What the header says, as records of a pipe. False: it is not all there yet.
Result<bool> FollowedFile::begin() {
  const auto header = bytes_at(0, kFileHeader);
  if (header.size() < kFileHeader) return false;
  Reader in(header);
  const uint64_t magic = in.u64(), header_size = in.u64(), attr_size = in.u64(), attrs = in.u64(),
                 attrs_size = in.u64(), data = in.u64();
  if (magic != kMagic || header_size != kFileHeader)
    return fail(Code::kNotPerfData, path_, 0, "no perf.data file of this machine that could be followed");
  if (data == 0 || size() < data) return false;
  constexpr uint64_t kIds = 16;
  if (attr_size <= kIds || attrs > data || attrs_size > data - attrs || attrs_size > kMostAttributes)
    return fail(Code::kBadPerfHeader, path_, 0, "its attributes do not lie in front of its data");
  put<uint64_t>(head_, kMagic);
  put<uint64_t>(head_, kPipeHeader);
  for (uint64_t at = attrs; at + attr_size <= attrs + attrs_size; at += attr_size) {
    const auto entry = bytes_at(at, attr_size);
    Reader section(entry);
    section.skip(attr_size - kIds);
    const uint64_t ids = section.u64(), ids_size = section.u64();
    if (!section.ok() || ids > data || ids_size > data - ids)
      return fail(Code::kBadPerfHeader, path_, at, "ids of an attribute do not lie in front of its data");
    const auto list = bytes_at(ids, ids_size);
    if (!put_record(head_, perf::kHeaderAttr, {std::span(entry).first(attr_size - kIds), list}))
      return fail(Code::kBadPerfHeader, path_, at, "an attribute has too many ids to be followed");
  }
  for (const auto& [bit, body] : features_) {
    std::vector<uint8_t> number;
    put<uint64_t>(number, static_cast<uint64_t>(bit));
    put_record(head_, perf::kHeaderFeature, {number, body});
  }
  at_ = data;
  return begun_ = true;
}

Result<size_t> FollowedFile::read(std::span<uint8_t> out) {
  // In this order: what perf writes before it ends is read after it was seen to have ended.
  const auto stated = bytes_at(kDataSize, sizeof(uint64_t));
  const bool finished =
      stated.size() == sizeof(uint64_t) && std::ranges::any_of(stated, [](uint8_t b) { return b != 0; });
  const bool over = finished || !is_written();
  if (!begun_) {
    const auto ready = begin();
    if (!ready) return std::unexpected(ready.error());
    ended_ = !*ready && over;
    if (!*ready) return size_t{0};
  }
  if (!head_.empty()) {
    const size_t n = std::min(head_.size(), out.size());
    std::copy_n(head_.begin(), n, out.begin());
    head_.erase(head_.begin(), head_.begin() + static_cast<ptrdiff_t>(n));
    return n;
  }
  if (over) {  // whoever opens the file itself reads the rest
    ended_ = true;
    return size_t{0};
  }
  const ssize_t got = ::pread(file_.get(), out.data(), out.size(), static_cast<off_t>(at_));
  if (got < 0)
    return fail(Code::kCannotReadInput, path_, at_, fmt::format("cannot read: {}", std::strerror(errno)));
  at_ += static_cast<uint64_t>(got);
  return static_cast<size_t>(got);
}

}  // namespace asof
