#include "decoder/blocks/block_file.h"

#include <fmt/format.h>

#include "decoder/blocks/block_records.h"

namespace asof::blocks {

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
  if (frame.missing_end != 0) {
    Gap gap;
    gap.begin = frame.segment;
    gap.end = frame.missing_end;
    gap.time = {frame.start, frame.missing_until};
    gap.code = Code::kPartMissing;
    gap.reason = "no part that was merged has this stretch of trace";
    chunk.gaps.push_back(std::move(gap));
    return chunk;
  }
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

std::vector<uint8_t> BlockFile::calls_of(const Frame& frame) const {
  if (frame.calls.empty()) return {};
  return unpack(frame.calls, frame.calls_raw).value_or(std::vector<uint8_t>());
}

namespace {

class BlockDecoder final : public SegmentDecoder {
 public:
  BlockDecoder(const BlockFile& file, bool calls) : file_(file), calls_(calls) {}
  void decode(const Segment& segment, ChunkSink& sink) override {
    const Frame& frame = file_.frames(segment.stream)[segment.index];
    Chunk chunk = sink.spare();
    if (segment.only_before) return sink.take(before(file_.read(segment.stream, frame, std::move(chunk))));
    if (calls_) chunk.calls = file_.calls_of(frame);
    chunk.calls_of = segment.index;
    if (chunk.calls.empty()) return sink.take(file_.read(segment.stream, frame, std::move(chunk)));
    chunk.stream = segment.stream;
    chunk.segment = frame.segment;
    chunk.last = frame.last;
    sink.take(std::move(chunk));
  }

 private:
  // Its gaps in front of all steps.
  static Chunk before(Chunk&& whole) {
    Chunk chunk;
    chunk.stream = whole.stream;
    chunk.segment = whole.segment;
    chunk.last = true;
    for (Gap& gap : whole.gaps)
      if (gap.step == 0) chunk.gaps.push_back(std::move(gap));
    return chunk;
  }

  const BlockFile& file_;
  const bool calls_;
};

// A flow record is a segment; offsets count the bytes of the records.
class FrameSegments final : public SegmentSource {
 public:
  FrameSegments(std::span<const Frame> frames, size_t stream, uint64_t from)
      : frames_(frames), stream_(stream), from_(from) {}
  std::optional<Segment> next() override {
    for (; index_ < frames_.size() && at_ < from_; ++index_) at_ += frames_[index_].packed.size();
    if (index_ == frames_.size()) return std::nullopt;
    const Frame& f = frames_[index_];
    Segment s;
    s.stream = stream_;
    s.index = index_++;
    s.begin = at_;
    s.end = s.tail_end = at_ += f.packed.size();
    s.start_time = f.start;
    // The records of one segment have its start.
    while (other_ < frames_.size() && (other_ < index_ || frames_[other_].start == f.start)) ++other_;
    s.end_time = other_ == frames_.size() ? kTimeMax : frames_[other_].start;
    return s;
  }

 private:
  const std::span<const Frame> frames_;
  const size_t stream_;
  const uint64_t from_;
  size_t index_ = 0;
  size_t other_ = 0;  // the next record of another segment
  uint64_t at_ = 0;
};

class BlockArch final : public Arch {
 public:
  explicit BlockArch(std::shared_ptr<const BlockFile> file) : file_(std::move(file)) {}
  std::string_view name() const override { return "blocks"; }
  std::unique_ptr<SegmentSource> segments(const Stream&, size_t stream_index, uint64_t from) const override {
    return std::make_unique<FrameSegments>(file_->frames(stream_index), stream_index, from);
  }
  std::unique_ptr<SegmentDecoder> decoder(std::span<const Stream>, const TextStore&,
                                          const DecodeOptions& options) const override {
    return std::make_unique<BlockDecoder>(*file_, options.calls);
  }

 private:
  std::shared_ptr<const BlockFile> file_;
};

}  // namespace

std::unique_ptr<Arch> make_block_arch(std::shared_ptr<const BlockFile> file) {
  return std::make_unique<BlockArch>(std::move(file));
}

}  // namespace asof::blocks
