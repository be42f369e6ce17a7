// The fixed parts of a perf.data file: header, attributes, table of features; and which files a directory
// has. tools/perf/util/header.h (perf_file_header, perf_pipe_file_header), header.c
// (perf_session__read_header).
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <filesystem>

#include "decoder/io/folder.h"
#include "decoder/perf/perf_data_impl.h"

namespace asof {

using perf::Source;

namespace {

constexpr uint64_t kMagic = 0x32454c4946524550;    // "PERFILE2" read little-endian
constexpr uint64_t kMagicV1 = 0x454c494646524550;  // "PERFFILE"
constexpr uint64_t kPipeHeader = 16, kOldHeader = 72, kFileHeader = 104;

// Big-endian machines number the bits of perf_event_attr's bit field from the top of each byte.
uint64_t flag_bits(std::span<const uint8_t> bytes, bool swapped) {
  uint64_t flags = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    uint8_t byte = bytes[i];
    if (swapped) {
      uint8_t reversed = 0;
      for (int bit = 0; bit < 8; ++bit) reversed |= static_cast<uint8_t>(((byte >> bit) & 1U) << (7 - bit));
      byte = reversed;
    }
    flags |= uint64_t{byte} << (8 * i);
  }
  return flags;
}

// [offset, offset + size) lies in a file of `total` bytes.
bool lies_in(uint64_t offset, uint64_t size, uint64_t total) {
  return offset <= total && size <= total - offset;
}

// A killed recorder leaves a `data` section of size 0; but this may also be an empty recording with its
// features after it. Then the table there describes bodies that all lie in the file.
bool features_follow(Reader table, size_t count, uint64_t table_end, uint64_t total) {
  if (count == 0) return false;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t offset = table.u64(), size = table.u64();
    if (!table.ok() || offset < table_end || !lies_in(offset, size, total)) return false;
  }
  return true;
}

}  // namespace

Result<void> PerfData::Impl::open_source(const std::string& file_path) {
  auto file = directory.empty() ? FileBytes::open(file_path) : FileBytes::open_part(file_path);
  if (!file) return std::unexpected(file.error());
  Source source;
  source.path = file_path == "-" ? "standard input" : file_path;
  source.file = *file;
  if (auto done = read_header(source); !done) return done;
  sources.push_back(std::move(source));
  return {};
}

Result<void> PerfData::Impl::read_header(Source& source) {
  const auto bytes = source.bytes();
  Reader in(bytes);
  const uint64_t magic = in.u64();
  if (!in.ok())
    return fail(Code::kNotPerfData, source.path, 0,
                fmt::format("{} bytes are no perf.data file", bytes.size()));
  if (magic == kMagicV1 || magic == __builtin_bswap64(kMagicV1)) {
    return fail(Code::kUnsupportedPerfData, source.path, 0, "perf.data version 1 (PERFFILE) cannot be read",
                "record with perf of Linux 2.6.34 or later");
  }
  if (magic != kMagic && magic != __builtin_bswap64(kMagic)) {
    return fail(Code::kNotPerfData, source.path, 0, "no perf.data file: it does not start with PERFILE2");
  }
  // Written as a number: a file from a machine of the other byte order starts with "2ELIFREP".
  swapped = magic != kMagic;
  in = reader(bytes);
  in.skip(8);
  const uint64_t header_size = in.u64();
  source.end = bytes.size();
  if (in.ok() && header_size == kPipeHeader) {
    pipe = true;
    source.begin = kPipeHeader;
    return {};
  }
  if (!in.ok() || (header_size != kFileHeader && header_size != kOldHeader) || bytes.size() < header_size) {
    return fail(Code::kBadPerfHeader, source.path, 8,
                fmt::format("header of {} bytes in a file of {}: 16, 72 or 104 are known", header_size,
                            bytes.size()));
  }
  const uint64_t attr_size = in.u64();
  const uint64_t attrs_offset = in.u64(), attrs_size = in.u64();
  const uint64_t data_offset = in.u64();
  uint64_t data_size = in.u64();
  if (attr_size == 0)
    return fail(Code::kBadPerfHeader, source.path, 16, "the header says attributes of 0 bytes");
  if (data_offset > bytes.size()) {
    return fail(
        Code::kBadPerfHeader, source.path, 40,
        fmt::format("the data section starts at {}, the file has {} bytes", data_offset, bytes.size()),
        "the file is cut: copy it again");
  }
  read_attrs(source, attr_size, attrs_offset, attrs_size);

  const auto bitmap = header_size == kFileHeader ? bytes.subspan(72, 32) : std::span<const uint8_t>();
  size_t count = 0;
  for (const uint64_t word : feature_bits(bitmap)) count += static_cast<size_t>(std::popcount(word));
  const uint64_t rest = bytes.size() - data_offset;
  const bool killed = data_size == 0 && !features_follow(reader(bytes.subspan(data_offset)), count,
                                                         data_offset + 16 * count, bytes.size());
  if (killed) {
    note(Notice::Severity::kLoss, Code::kUnfinishedRecording, source.path, 48,
         "the header says no data: the recorder was killed before it could finish the file",
         "records are read up to the end of the file; header features (build-ids, BPF programs) are not in "
         "it");
    data_size = rest;
    passed_over.push_back({0, bytes.size(), UINT64_MAX});
  } else if (data_size > rest) {
    note(Notice::Severity::kLoss, Code::kPerfDataTruncated, source.path, 48,
         fmt::format("the file is cut: data of {} bytes at {}, but the file ends at {}", data_size,
                     data_offset, bytes.size()),
         "what is there is read; header features (build-ids, BPF programs) are not in it");
    data_size = rest;
    passed_over.push_back({0, bytes.size(), UINT64_MAX});
  } else if (count != 0) {
    read_feature_table(source, bitmap, data_offset + data_size);
  }
  source.begin = data_offset;
  source.end = data_offset + data_size;
  return {};
}

// Entries of perf_event_attr and {offset, size} of its ids. As in perf: the number of entries follows from
// the header's entry size, the distance to the next one from the attribute's own size.
void PerfData::Impl::read_attrs(const Source& source, uint64_t entry_size, uint64_t offset, uint64_t size) {
  const auto bytes = source.bytes();
  uint64_t ids_left = bytes.size() / sizeof(uint64_t);  // ids of all attributes together cannot be more
  Reader in = reader(bytes);
  in.seek(offset);
  for (uint64_t left = size / entry_size; left != 0; --left) {
    const uint64_t at = in.pos();
    Reader peek = in;
    peek.skip(4);
    const uint32_t stated = peek.u32();
    const uint64_t attr_size = stated == 0 ? perf::kAttrMinSize : stated;
    const auto body = in.take(attr_size);
    const uint64_t ids_offset = in.u64(), ids_size = in.u64();
    auto attr = in.ok() ? read_attr(body) : std::nullopt;
    if (!attr) {
      note(Notice::Severity::kError, Code::kBadAttributes, source.path, at,
           fmt::format("attribute {} of {} bytes does not fit, {} are left unread", attrs.size(), attr_size,
                       left));
      return;
    }
    const uint64_t count = ids_size / sizeof(uint64_t);
    if (!lies_in(ids_offset, ids_size, bytes.size()) || count > ids_left) {
      note(Notice::Severity::kError, Code::kBadAttributes, source.path, at + attr_size,
           fmt::format("{} ids at {} of attribute {} do not lie in the file", count, ids_offset,
                       attrs.size()));
    } else {
      ids_left -= count;
      Reader ids_in = reader(bytes.subspan(ids_offset, ids_size));
      for (uint64_t i = 0; i < count; ++i) attr->ids.push_back(ids_in.u64());
    }
    attrs.push_back(std::move(*attr));
  }
}

std::optional<PerfAttr> PerfData::Impl::read_attr(std::span<const uint8_t> bytes) const {
  if (bytes.size() < perf::kAttrMinSize) return std::nullopt;
  // Fields that this attribute's version does not have yet are zero.
  const auto u64_at = [&](size_t at) {
    Reader in = reader(bytes);
    in.seek(at);
    return in.u64_or(0);
  };
  const auto u32_at = [&](size_t at) -> uint32_t {
    Reader in = reader(bytes);
    in.seek(at);
    return in.left() >= sizeof(uint32_t) ? in.u32() : 0;
  };
  PerfAttr attr;
  attr.type = u32_at(0);
  attr.config = u64_at(8);
  attr.sample_type = u64_at(24);
  attr.read_format = u64_at(32);
  attr.flags = flag_bits(bytes.subspan(40, 8), swapped);
  attr.config1 = u64_at(56);
  attr.config2 = u64_at(64);
  attr.branch_sample_type = u64_at(72);
  attr.sample_regs_user = u64_at(80);
  attr.clockid = static_cast<int32_t>(u32_at(92));
  attr.sample_regs_intr = u64_at(96);
  attr.aux_sample_size = u32_at(112);
  return attr;
}

// The bitmap is an array of the recording machine's longs. In a file of the other byte order their width
// cannot be known; like perf, take the one under which HOSTNAME, which every recorder writes, is set.
std::array<uint64_t, 4> PerfData::Impl::feature_bits(std::span<const uint8_t> bitmap) const {
  std::array<uint64_t, 4> bits{};
  if (bitmap.size() != sizeof(bits)) return bits;
  Reader in = reader(bitmap);
  for (uint64_t& word : bits) word = in.u64();
  const auto has_hostname = [&] { return ((bits[0] >> perf::kFeatureHostname) & 1U) != 0; };
  if (swapped && !has_hostname()) {
    for (uint64_t& word : bits) word = (word << 32) | (word >> 32);
    if (!has_hostname()) {
      for (uint64_t& word : bits) word = (word << 32) | (word >> 32);
    }
  }
  return bits;
}

void PerfData::Impl::read_feature_table(const Source& source, std::span<const uint8_t> bitmap,
                                        uint64_t offset) {
  const auto bytes = source.bytes();
  const auto bits = feature_bits(bitmap);
  Reader in = reader(bytes);
  in.seek(offset);
  for (int bit = 0; bit < perf::kFeatureBits; ++bit) {
    if (((bits[static_cast<size_t>(bit) / 64] >> (bit % 64)) & 1U) == 0) continue;
    const uint64_t at = in.pos();
    const uint64_t body_offset = in.u64(), size = in.u64();
    if (!in.ok()) {
      note(Notice::Severity::kError, Code::kFeaturesTruncated, source.path, at,
           fmt::format("the table of header features ends before feature {}", bit),
           "the file is cut: copy it again");
      return;
    }
    if (!lies_in(body_offset, size, bytes.size())) {
      note(
          Notice::Severity::kError, Code::kFeaturesTruncated, source.path, at,
          fmt::format("header feature {} ({} bytes at {}) does not lie in the file", bit, size, body_offset));
      continue;
    }
    features[bit] = {bytes.subspan(body_offset, size), body_offset};
  }
}

// `perf record --threads` writes a file of bare records per ring, data.0, data.1, ...
Result<void> PerfData::Impl::open_stream_files() {
  std::map<uint64_t, std::string> found;
  std::error_code error;
  for (const std::string& name : names_in(directory, error)) {
    if (!name.starts_with("data.")) continue;
    uint64_t number = 0;
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + 5, end, number);
    if (parsed.ec == std::errc() && parsed.ptr == end && name.size() > 5)
      found.emplace(number, (std::filesystem::path(directory) / name).string());
  }
  if (error)
    return fail(Code::kCannotReadInput, directory, Error::kNoOffset, "cannot list: " + error.message());
  constexpr uint64_t kPerRingFiles = 1;  // PERF_DIR_VERSION; 0 is a directory with `data` alone
  const auto format = features.find(perf::kFeatureDirFormat);
  const uint64_t version = format == features.end() ? 0 : reader(format->second.bytes).u64();
  if (found.empty() == (version >= kPerRingFiles)) {
    note(Notice::Severity::kInfo, Code::kBadDirectory, directory, Error::kNoOffset,
         fmt::format("feature DIR_FORMAT of `data` is {}, but the directory has {} data.<n> files", version,
                     found.size()),
         found.empty() ? "if it was recorded with --threads, copy the whole directory" : "they are read");
  }
  for (const auto& [number, file_path] : found) {
    auto file = FileBytes::open_part(file_path);
    if (!file) {
      note(Notice::Severity::kLoss, file.error().code, file_path, Error::kNoOffset, file.error().reason);
      continue;
    }
    Source source;
    source.path = file_path;
    source.file = *file;
    source.end = source.bytes().size();
    sources.push_back(std::move(source));
  }
  return {};
}

}  // namespace asof
