#include "decoder/blocks/block_file.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "decoder/blocks/block_capture.h"

namespace asof::blocks {
namespace {

namespace fs = std::filesystem;

uint64_t fixed(std::span<const uint8_t> bytes, size_t at, unsigned n) {
  uint64_t v = 0;
  for (unsigned i = 0; i < n; ++i) v |= static_cast<uint64_t>(bytes[at + i]) << (8 * i);
  return v;
}

struct RecordHead {
  RecordType type{};
  uint64_t offset = 0;  // of the record
  std::span<const uint8_t> prefix, packed;
  uint32_t raw = 0;
  uint64_t end = 0;
};

std::optional<RecordHead> head_at(std::span<const uint8_t> file, uint64_t at) {
  if (at > file.size() || file.size() - at < kRecordHeader || fixed(file, at, 4) != kRecordMagic)
    return std::nullopt;
  RecordHead h;
  h.offset = at;
  const uint8_t type = file[at + 4], prefix = file[at + 5];
  const uint64_t stored = fixed(file, at + 8, 4);
  h.raw = static_cast<uint32_t>(fixed(file, at + 12, 4));
  if (type < static_cast<uint8_t>(RecordType::kCapture) || type > static_cast<uint8_t>(RecordType::kEnd) ||
      fixed(file, at + 6, 2) != 0 || stored > file.size() - at - kRecordHeader || prefix > stored ||
      h.raw > kMaxRaw)
    return std::nullopt;
  h.type = static_cast<RecordType>(type);
  h.prefix = file.subspan(at + kRecordHeader, prefix);
  h.packed = file.subspan(at + kRecordHeader + prefix, stored - prefix);
  h.end = at + kRecordHeader + stored;
  return h;
}

// Empty: the bytes are damaged. Their checksum is zstd's.
std::optional<std::vector<uint8_t>> unpack(std::span<const uint8_t> packed, uint32_t raw) {
  thread_local const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context(ZSTD_createDCtx(),
                                                                                ZSTD_freeDCtx);
  std::vector<uint8_t> out(raw);
  const size_t n = ZSTD_decompressDCtx(context.get(), out.data(), out.size(), packed.data(), packed.size());
  if (ZSTD_isError(n) != 0 || n != raw) return std::nullopt;
  return out;
}

}  // namespace

// Reads through the files once.
class Scanner {
 public:
  Scanner() : file_(std::make_shared<BlockFile>()) {}

  Result<void> add(const std::string& path);
  Result<Capture> finish();

 private:
  Result<void> header(std::span<const uint8_t> bytes, uint64_t& at);
  void record(const RecordHead& head);
  void flow(const RecordHead& head);
  void close_part(uint64_t at);
  std::optional<std::vector<uint8_t>> kept(const RecordHead& head);
  uint64_t next_record(std::span<const uint8_t> bytes, uint64_t at) const;
  void damaged(Code code, uint64_t at, std::string reason, std::string hint);
  std::unexpected<Error> refuse(uint64_t at, std::string reason, std::string hint) const {
    return fail(Code::kNotBlockStream, path_, at, std::move(reason), std::move(hint));
  }

  std::shared_ptr<BlockFile> file_;
  std::string path_;
  std::vector<Notice> notices_;
  std::optional<Capture> capture_;
  std::vector<std::pair<uint64_t, Frame>> frames_;  // by stream
  uint64_t identity_ = 0, file_size_ = 0;
  uint64_t kept_raw_ = 0, kept_packed_ = 0;
  BlockFile::Part* part_ = nullptr;
  uint64_t flow_seen_ = 0;
  bool ended_ = true, has_symbols_ = false;
};

void Scanner::damaged(Code code, uint64_t at, std::string reason, std::string hint) {
  constexpr size_t kShown = 24;
  if (notices_.size() >= kShown) {
    ++notices_.back().count;
    return;
  }
  notices_.push_back(
      {Notice::Severity::kError, code, path_, at, kTimeMin, std::move(reason), std::move(hint), 1});
}

Result<void> Scanner::header(std::span<const uint8_t> bytes, uint64_t& at) {
  if (bytes.size() - at < kHeaderSize || std::memcmp(bytes.data() + at, kMagic.data(), kMagic.size()) != 0)
    return refuse(at, "no block stream begins here", "write one with 'asof decode --format blocks -o FILE'");
  const uint64_t version = fixed(bytes, at + 8, 2), size = fixed(bytes, at + 10, 2);
  if (version != kVersion || size < kHeaderSize || size > bytes.size() - at) {
    return refuse(at, fmt::format("a block stream of version {}, this asof reads {}", version, kVersion),
                  "read it with the asof that wrote it, or write it again");
  }
  const uint64_t identity = fixed(bytes, at + 16, 8);
  if (!file_->parts_.empty() && identity != identity_) {
    return refuse(at, "this part is of another recording than those before it",
                  "join only block streams that were written from one recording with the same options");
  }
  if (file_->parts_.size() == kMaxParts) {
    return refuse(at, fmt::format("more than {} parts", kMaxParts), "read them in several groups");
  }
  identity_ = identity;
  file_->parts_.push_back(std::make_unique<BlockFile::Part>(path_, 4096 + file_size_));
  part_ = file_->parts_.back().get();
  flow_seen_ = 0;
  ended_ = false;
  at += size;
  return {};
}

// What is kept in memory: in total no larger than a file of this size can hold.
std::optional<std::vector<uint8_t>> Scanner::kept(const RecordHead& head) {
  kept_packed_ += head.packed.size();
  if (kept_raw_ + head.raw > kFreeRaw + kMaxRatio * kept_packed_) return std::nullopt;
  kept_raw_ += head.raw;
  return unpack(head.packed, head.raw);
}

void Scanner::flow(const RecordHead& head) {
  Source in(head.prefix);
  Frame f;
  const uint64_t stream = in.varint();
  f.segment = in.varint();
  f.last = in.u8() != 0;
  f.start = in.signed_varint();
  f.part = static_cast<uint32_t>(file_->parts_.size() - 1);
  f.file_offset = head.offset;
  f.prefix = head.prefix;
  f.packed = head.packed;
  f.raw = head.raw;
  ++flow_seen_;
  if (!in.ok() || in.left() != 0 || f.raw > kFreeRaw + kMaxFlowRatio * f.packed.size()) {
    return damaged(Code::kBadBlockStream, head.offset, "a flow record's head is damaged",
                   "the file was changed; write it again");
  }
  frames_.emplace_back(stream, f);
}

void Scanner::record(const RecordHead& head) {
  const char* const hint = "the file was changed; write it again";
  if (head.type == RecordType::kFlow) return flow(head);
  const auto body = kept(head);
  if (!body) return damaged(Code::kBadBlockStream, head.offset, "a record does not unpack", hint);
  switch (head.type) {
    case RecordType::kCapture: {
      if (capture_) return;
      Capture c;
      if (!take_capture(*body, c) || identity_of(*body) != identity_)
        return damaged(Code::kBadBlockStream, head.offset, "the description of the recording is damaged",
                       hint);
      capture_ = std::move(c);
      return;
    }
    case RecordType::kSymbols:
      if (has_symbols_ || !capture_) return;
      has_symbols_ = true;
      if (!take_symbols(*body, capture_->symbols))
        damaged(Code::kBadBlockStream, head.offset, "the table of symbols is damaged", hint);
      return;
    case RecordType::kCode:
      if (!part_->map.add(*body))
        damaged(Code::kBadBlockStream, head.offset, "a piece of the map of code is damaged", hint);
      return;
    default: {
      Source in(*body);
      part_->flow_records = in.varint();
      ended_ = true;
    }
  }
}

// Where the next possible record is; the end of the file when there is none.
uint64_t Scanner::next_record(std::span<const uint8_t> bytes, uint64_t at) const {
  constexpr std::array<uint8_t, 4> kMark = {kRecordMagic & 0xff, kRecordMagic >> 8 & 0xff,
                                            kRecordMagic >> 16 & 0xff, kRecordMagic >> 24};
  while (at < bytes.size()) {
    const auto found =
        std::search(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end(), kMark.begin(), kMark.end());
    at = static_cast<uint64_t>(found - bytes.begin());
    if (head_at(bytes, at)) return at;
    ++at;
  }
  return bytes.size();
}

void Scanner::close_part(uint64_t at) {
  if (part_ == nullptr) return;
  if (!ended_) {
    damaged(Code::kBlockStreamTruncated, at, "the block stream has no end",
            "the writer was stopped, or the file was cut");
  } else if (part_->flow_records != flow_seen_) {
    damaged(Code::kBlockStreamTruncated, at,
            fmt::format("{} of {} flow records are there", flow_seen_, part_->flow_records),
            "the file was changed; write it again");
  }
  part_->map.finish();
  part_ = nullptr;
}

Result<void> Scanner::add(const std::string& path) {
  auto mapped = MappedFile::open(path);
  if (!mapped) return std::unexpected(mapped.error());
  file_->files_.push_back(*mapped);
  path_ = path;
  const std::span<const uint8_t> bytes = (*mapped)->bytes();
  file_size_ = bytes.size();
  uint64_t at = 0;
  while (at < bytes.size()) {
    const bool part = bytes.size() - at >= kMagic.size() &&
                      std::memcmp(bytes.data() + at, kMagic.data(), kMagic.size()) == 0;
    if (part || part_ == nullptr) {
      close_part(at);
      if (auto ok = header(bytes, at); !ok) return ok;
      continue;
    }
    const auto head = head_at(bytes, at);
    if (!head) {
      const uint64_t next = next_record(bytes, at + 1);
      damaged(Code::kBadBlockStream, at,
              fmt::format("no record begins here, {} bytes are passed over", next - at),
              "the file was changed or cut; write it again");
      at = next;
      continue;
    }
    record(*head);
    at = head->end;
  }
  close_part(bytes.size());
  return {};
}

Result<Capture> Scanner::finish() {
  if (!capture_) {
    return refuse(0, "the description of the recording is not there or damaged",
                  "write the block stream again");
  }
  if (frames_.empty() && !notices_.empty()) {
    return refuse(notices_.front().offset, "no flow record is left of it: " + notices_.front().reason,
                  notices_.front().hint);
  }
  file_->streams_.resize(capture_->streams.size());
  for (auto& [stream, frame] : frames_) {
    if (stream < file_->streams_.size()) {
      file_->streams_[stream].push_back(frame);
    } else {
      damaged(Code::kBadBlockStream, frame.file_offset, "a flow record is of a stream that is not there",
              "the file was changed; write it again");
    }
  }
  for (std::vector<Frame>& frames : file_->streams_) {
    std::ranges::stable_sort(frames, [](const Frame& a, const Frame& b) {
      return a.segment != b.segment ? a.segment < b.segment : a.part < b.part;
    });
    // Of a segment that several parts hold, only that of the first part is kept.
    const auto repeated = [first = std::optional<Frame>()](const Frame& f) mutable {
      if (first && first->segment == f.segment) return f.part != first->part;
      first = f;
      return false;
    };
    std::vector<Frame> unique;
    std::ranges::remove_copy_if(frames, std::back_inserter(unique), repeated);
    frames = std::move(unique);
  }
  capture_->symbols.finish();
  capture_->kind += ", blocks";
  std::ranges::move(notices_, std::back_inserter(capture_->notices));
  capture_->blocks = file_;
  capture_->keep = file_;
  return std::move(*capture_);
}

bool BlockFile::is_block_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::array<char, kMagic.size()> start{};
  return in.read(start.data(), start.size()) && std::string_view(start.data(), start.size()) == kMagic;
}

Result<Capture> BlockFile::open(const std::string& path) {
  std::vector<std::string> paths;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    for (const auto& entry : fs::directory_iterator(path, ignored)) {
      if (entry.path().extension() == ".blocks") paths.push_back(entry.path().string());
    }
    std::ranges::sort(paths);
  } else {
    paths.push_back(path);
  }
  Scanner scanner;
  for (const std::string& p : paths) {
    if (auto ok = scanner.add(p); !ok) return std::unexpected(ok.error());
  }
  auto capture = scanner.finish();
  if (capture) capture->path = path;
  return capture;
}

std::span<const TextPiece> BlockFile::text_of(const Block& block) const {
  for (const auto& part : parts_) {
    if (const auto text = part->map.text_of(block); !text.empty()) return text;
  }
  return {};
}

Chunk BlockFile::read(size_t stream, const Frame& frame, Chunk chunk) const {
  const Part& part = *parts_[frame.part];
  chunk.stream = stream;
  chunk.segment = frame.segment;
  chunk.last = frame.last;
  std::string wrong = "it does not unpack";
  if (const auto body = unpack(frame.packed, frame.raw))
    wrong = read_walk(part.map, *body, frame.prefix, chunk);
  if (!wrong.empty()) {
    Gap gap;
    gap.step = static_cast<uint32_t>(chunk.steps.size());
    gap.time.lo = chunk.steps.empty() ? frame.start : chunk.steps.time_at(chunk.steps.size() - 1);
    gap.code = Code::kBadBlockStream;
    gap.reason =
        fmt::format("{}: the flow record at {:#x} is damaged: {}", part.file, frame.file_offset, wrong);
    chunk.gaps.push_back(std::move(gap));
  }
  return chunk;
}

namespace {

class BlockDecoder final : public SegmentDecoder {
 public:
  explicit BlockDecoder(const BlockFile& file) : file_(file) {}
  void decode(const Segment& segment, ChunkSink& sink) override {
    sink.take(file_.read(segment.stream, file_.frames(segment.stream)[segment.index], sink.spare()));
  }

 private:
  const BlockFile& file_;
};

// A flow record is a segment; offsets count the bytes of the records.
class FrameSegments final : public SegmentSource {
 public:
  FrameSegments(std::span<const Frame> frames, size_t stream) : frames_(frames), stream_(stream) {}
  std::optional<Segment> next() override {
    if (index_ == frames_.size()) return std::nullopt;
    const Frame& f = frames_[index_];
    Segment s;
    s.stream = stream_;
    s.index = index_++;
    s.begin = at_;
    s.end = s.tail_end = at_ += f.packed.size();
    s.start_time = f.start;
    return s;
  }

 private:
  const std::span<const Frame> frames_;
  const size_t stream_;
  size_t index_ = 0;
  uint64_t at_ = 0;
};

class BlockArch final : public Arch {
 public:
  explicit BlockArch(std::shared_ptr<const BlockFile> file) : file_(std::move(file)) {}
  std::string_view name() const override { return "blocks"; }
  std::unique_ptr<SegmentSource> segments(const Stream&, size_t stream_index) const override {
    return std::make_unique<FrameSegments>(file_->frames(stream_index), stream_index);
  }
  std::unique_ptr<SegmentDecoder> decoder(std::span<const Stream>, const TextStore&,
                                          const DecodeOptions&) const override {
    return std::make_unique<BlockDecoder>(*file_);
  }

 private:
  std::shared_ptr<const BlockFile> file_;
};

}  // namespace

std::unique_ptr<Arch> make_block_arch(std::shared_ptr<const BlockFile> file) {
  return std::make_unique<BlockArch>(std::move(file));
}

}  // namespace asof::blocks
