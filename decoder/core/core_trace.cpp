#include "decoder/core/core_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "decoder/blocks/block_capture.h"
#include "decoder/io/content_hash.h"

namespace asof::core {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kHashed = 64 << 10;  // bytes at either end of a trace file that say whether it is the one
constexpr uint8_t kInFile = 0, kInFrames = 1, kMapped = 1, kDiscontinuity = 2;

uint64_t ends_hash(std::span<const uint8_t> bytes) {
  ContentHash hash;
  const size_t n = std::min<size_t>(bytes.size(), kHashed);
  hash.add(bytes.first(n));
  hash.add(bytes.last(n));
  return hash.value();
}

// Gives numbers to files and frames as they are met.
class TracePutter {
 public:
  explicit TracePutter(std::string folder) : folder_(std::move(folder)) {}

  Result<void> piece(Writer& w, const StreamPiece& p) {
    w.varint(p.reference);
    w.signed_varint(p.time.lo);
    w.signed_varint(p.time.hi);
    w.u8(p.mapped ? 1 : 0);
    if (!p.source) {
      w.u8(kInFile);
      return place(w, p.bytes);
    }
    const auto [frames, id] = CsFrames::frames_of(*p.source);
    if (!frames) return not_in_file();
    const auto [entry, is_new] = groups_.try_emplace(frames, groups_.size());
    if (is_new) order_.push_back(frames);
    w.u8(kInFrames);
    w.varint(entry->second);
    w.u8(id);
    w.varint(p.source_begin);
    return {};
  }

  Result<Writer> frames() {
    Writer w;
    w.varint(order_.size());
    for (const auto& group : order_) {
      w.u8(static_cast<uint8_t>(group->alignment()));
      w.varint(group->sections().size());
      for (const FrameSection& s : group->sections()) {
        w.varint(s.file_offset);
        w.u8(static_cast<uint8_t>((s.mapped ? kMapped : 0) | (s.discontinuity ? kDiscontinuity : 0)));
        w.varint(s.payload);
        w.varint(s.trailer);
        if (auto ok = place(w, s.bytes); !ok) return std::unexpected(ok.error());
      }
    }
    return w;
  }

  // Where positions are too far apart for a read of some bytes, each shard makes the index itself.
  std::vector<std::optional<Writer>> indexes() const {
    std::vector<std::optional<Writer>> out;
    for (const auto& group : order_) {
      out.emplace_back();
      if (group->is_dense()) put_index(*group, out.back().emplace());
    }
    return out;
  }

  Result<Writer> files() const {
    Writer w;
    w.varint(files_.size());
    for (const std::string& path : files_) {
      const auto file = MappedFile::open(path);
      if (!file) return std::unexpected(file.error());
      std::error_code failed;
      w.text(fs::absolute(path, failed).lexically_normal().string());
      w.text(fs::proximate(path, folder_, failed).string());
      w.varint((*file)->bytes().size());
      w.varint(ends_hash((*file)->bytes()));
    }
    return w;
  }

 private:
  static void put_index(const CsFrames& frames, Writer& w) {
    w.varint(frames.checkpoints().size());
    CsFrames::Checkpoint before;
    for (const CsFrames::Checkpoint& c : frames.checkpoints()) {
      w.varint(c.section - before.section);
      w.varint(c.section == before.section ? c.offset - before.offset : c.offset);
      w.u8(c.id);
      before = c;
    }
    w.varint(frames.sources().size());
    for (const CsFrames::Source& s : frames.sources()) {
      w.u8(s.id);
      w.varint(s.size);
      w.varint(s.first_checkpoint);
      w.varint(s.counts.size());
      uint64_t last = 0;
      for (const uint64_t n : s.counts) {
        w.varint(n - last);
        last = n;
      }
    }
  }
  std::unexpected<Error> not_in_file() const {
    return fail(Code::kTraceNotInFile, "", Error::kNoOffset, "the trace does not lie in files of its own",
                "write a pipe to a file first; unpack an archive with 'asof unpack'");
  }
  Result<void> place(Writer& w, std::span<const uint8_t> bytes) {
    std::optional<FilePlace> at = FilePlace{};
    if (!bytes.empty()) at = place_in_file(bytes);
    if (!at) return not_in_file();
    uint64_t file = 0;
    if (!bytes.empty()) {
      const auto [entry, is_new] = numbers_.try_emplace(at->path, files_.size());
      if (is_new) files_.push_back(at->path);
      file = entry->second;
    }
    w.varint(file);
    w.varint(at->offset);
    w.varint(bytes.size());
    return {};
  }

  std::string folder_;
  std::vector<std::string> files_;
  std::map<std::string, uint64_t> numbers_;
  std::map<std::shared_ptr<const CsFrames>, uint64_t> groups_;
  std::vector<std::shared_ptr<const CsFrames>> order_;
};

}  // namespace

Result<TraceSections> put_trace(const Capture& capture, const std::string& folder) {
  TraceSections out;
  TracePutter putter(folder);
  out.extents.varint(capture.streams.size());
  for (const Stream& s : capture.streams) {
    out.extents.text(s.name);
    out.extents.signed_varint(s.cpu);
    out.extents.signed_varint(s.tid);
    out.extents.varint(s.begin());
    out.extents.varint(s.end());
    Writer& w = out.streams.emplace_back();
    blocks::put_stream(w, s);
    for (const StreamPiece& p : s.pieces) {
      if (auto ok = putter.piece(w, p); !ok) return std::unexpected(ok.error());
    }
  }
  auto frames = putter.frames();
  if (!frames) return std::unexpected(frames.error());
  out.frames = std::move(*frames);
  out.indexes = putter.indexes();
  auto files = putter.files();
  if (!files) return std::unexpected(files.error());
  out.files = std::move(*files);
  return out;
}

bool TraceReader::read_tables(std::span<const uint8_t> files, std::span<const uint8_t> frames) {
  Source in(files);
  for (uint64_t i = 0, n = in.count(4); i < n && in.ok(); ++i) {
    TraceFile f;
    f.path = in.text();
    f.beside = in.text();
    f.size = in.varint();
    f.hash = in.varint();
    files_.push_back(std::move(f));
  }
  open_.resize(files_.size());
  return in.ok() && in.left() == 0 && read_frames(frames);
}

bool TraceReader::read_frames(std::span<const uint8_t> body) {
  Source in(body);
  for (uint64_t i = 0, n = in.count(2); i < n && in.ok(); ++i) {
    FrameGroup& group = groups_.emplace_back();
    const uint8_t alignment = in.u8();
    if (alignment > static_cast<uint8_t>(FrameAlignment::kTpiu)) return false;
    group.alignment = static_cast<FrameAlignment>(alignment);
    for (uint64_t k = 0, sections = in.count(7); k < sections && in.ok(); ++k) {
      FrameSection& s = group.sections.emplace_back();
      s.file_offset = in.varint();
      const uint8_t flags = in.u8();
      s.mapped = (flags & kMapped) != 0;
      s.discontinuity = (flags & kDiscontinuity) != 0;
      s.payload = in.varint();
      s.trailer = in.varint();
      Place& place = group.places.emplace_back();
      place.file = static_cast<uint32_t>(in.varint());
      place.offset = in.varint();
      place.size = in.varint();
    }
  }
  return in.ok() && in.left() == 0;
}

// Beside the core, where it was then; else where it was on the machine that made the plan.
Result<std::shared_ptr<const MappedFile>> TraceReader::file(uint32_t index) {
  if (index >= files_.size())
    return fail(Code::kBadPlan, folder_, Error::kNoOffset, "it names a file of trace that it does not list",
                "make the plan again");
  if (open_[index]) return open_[index];
  const TraceFile& wanted = files_[index];
  const fs::path beside = fs::path(folder_) / wanted.beside;  // an absolute one stands for itself
  std::error_code ignored;
  auto file = MappedFile::open(fs::is_regular_file(beside, ignored) ? beside.string() : wanted.path);
  if (!file) {
    Error error = file.error();
    error.hint = "the plan needs the trace where it was, or at the same place beside the plan";
    return std::unexpected(std::move(error));
  }
  if ((*file)->bytes().size() != wanted.size || ends_hash((*file)->bytes()) != wanted.hash) {
    return fail(Code::kTraceChanged, (*file)->path(), Error::kNoOffset,
                "this is not the file that the plan was made of: its size or its content is another",
                "make the plan again");
  }
  owners_.push_back(*file);
  return open_[index] = *file;
}

Result<std::span<const uint8_t>> TraceReader::bytes_at(const Place& place) {
  if (place.size == 0) return std::span<const uint8_t>();
  const auto mapped = file(place.file);
  if (!mapped) return std::unexpected(mapped.error());
  const auto bytes = (*mapped)->bytes();
  if (place.offset > bytes.size() || place.size > bytes.size() - place.offset)
    return fail(Code::kBadPlan, folder_, Error::kNoOffset, "it names trace beyond the end of a file",
                "make the plan again");
  return bytes.subspan(place.offset, place.size);
}

Result<void> TraceReader::open_group(uint32_t index) {
  FrameGroup& group = groups_[index];
  for (size_t i = 0; i < group.sections.size(); ++i) {
    auto bytes = bytes_at(group.places[i]);
    if (!bytes) return std::unexpected(bytes.error());
    group.sections[i].bytes = *bytes;
  }
  const auto body = index_(index);
  if (!body) return std::unexpected(body.error());
  group.frames =
      *body ? read_index(**body, group) : CsFrames::index(std::move(group.sections), group.alignment);
  if (!group.frames)
    return fail(Code::kBadPlan, folder_, Error::kNoOffset, "its index of CoreSight frames is damaged",
                "make the plan again");
  return {};
}

std::shared_ptr<const CsFrames> TraceReader::read_index(std::span<const uint8_t> body,
                                                        FrameGroup& group) const {
  Source in(body);
  std::vector<CsFrames::Checkpoint> checkpoints;
  CsFrames::Checkpoint at;
  for (uint64_t i = 0, n = in.count(3); i < n && in.ok(); ++i) {
    const uint64_t sections = in.varint(), offset = in.varint();
    at.section += sections;
    at.offset = (sections == 0 ? at.offset : 0) + offset;
    at.id = in.u8();
    checkpoints.push_back(at);
  }
  std::vector<CsFrames::Source> sources;
  for (uint64_t i = 0, n = in.count(4); i < n && in.ok(); ++i) {
    CsFrames::Source& s = sources.emplace_back();
    s.id = in.u8();
    s.size = in.varint();
    s.first_checkpoint = in.varint();
    uint64_t count = 0;
    for (uint64_t k = 0, counts = in.count(); k < counts && in.ok(); ++k)
      s.counts.push_back(count += in.varint());
  }
  if (!in.ok() || in.left() != 0) return nullptr;
  return CsFrames::restore(std::move(group.sections), group.alignment, std::move(checkpoints),
                           std::move(sources), folder_);
}

Result<TraceReader::OneSource> TraceReader::source(uint64_t index, uint8_t id) {
  if (index >= groups_.size())
    return fail(Code::kBadPlan, folder_, Error::kNoOffset, "it names frames that it does not list",
                "make the plan again");
  FrameGroup& group = groups_[index];
  if (!group.frames) {
    if (auto ok = open_group(static_cast<uint32_t>(index)); !ok) return std::unexpected(ok.error());
  }
  OneSource& one = group.sources[id];
  if (one.bytes) return one;
  const auto found = std::ranges::find(group.frames->sources(), id, &CsFrames::Source::id);
  if (found != group.frames->sources().end()) one = {group.frames->bytes_of(id), found->size};
  return one;
}

Result<void> TraceReader::read_piece(Source& in, StreamPiece& p) {
  const uint64_t size = p.size();
  p.reference = in.varint();
  p.time.lo = in.signed_varint();
  p.time.hi = in.signed_varint();
  p.mapped = in.u8() != 0;
  const auto bad = [this] {
    return fail(Code::kBadPlan, folder_, Error::kNoOffset, "the pieces of a stream are damaged",
                "make the plan again");
  };
  if (in.u8() == kInFrames) {
    const uint64_t group = in.varint();
    const uint8_t id = in.u8();
    p.source_begin = in.varint();
    if (!in.ok()) return bad();
    const auto one = source(group, id);
    if (!one) return std::unexpected(one.error());
    if (p.source_begin > one->size || size > one->size - p.source_begin) return bad();
    p.source = one->bytes;
    return p.source ? Result<void>() : bad();
  }
  Place place;
  place.file = static_cast<uint32_t>(in.varint());
  place.offset = in.varint();
  place.size = in.varint();
  if (!in.ok() || place.size != size) return bad();
  const auto bytes = bytes_at(place);
  if (!bytes) return std::unexpected(bytes.error());
  p.source.reset();
  p.source_size = 0;
  p.bytes = *bytes;
  return {};
}

Result<Stream> TraceReader::read_stream(std::span<const uint8_t> body, const std::string& where) {
  Source in(body);
  Stream s = blocks::take_stream(in);
  for (StreamPiece& p : s.pieces) {
    if (!in.ok()) break;
    if (auto ok = read_piece(in, p); !ok) return std::unexpected(ok.error());
  }
  if (!in.ok() || in.left() != 0)
    return fail(Code::kBadPlan, where, Error::kNoOffset, "the description of a stream is damaged",
                "make the plan again");
  return s;
}

}  // namespace asof::core
