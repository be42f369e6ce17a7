// Opening a block stream: its files are read through once.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>

#include "decoder/blocks/block_capture.h"
#include "decoder/blocks/block_file.h"
#include "decoder/blocks/block_records.h"
#include "decoder/io/folder.h"

namespace asof::blocks {

namespace fs = std::filesystem;

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
  void calls(const RecordHead& head);
  void forget_calls();
  void close_part(uint64_t at);
  std::optional<std::vector<uint8_t>> kept(const RecordHead& head);
  // Of a recording that went on, each description holds until the next one.
  bool replaces() const { return grew_ && describing_ == part_; }
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
  const BlockFile::Part* describing_ = nullptr;    // the part that capture_ is from
  uint64_t flow_seen_ = 0, flow_kept_ = 0;         // of the part; the number of the latest that is kept
  uint64_t symbols_ = 0;                           // their identity
  std::optional<std::vector<uint8_t>> functions_;  // of those
  bool ended_ = true, has_symbols_ = false;
  bool grew_ = false;  // part_
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
  const auto head = part_at(bytes, at);
  if (!head)
    return refuse(at, "no block stream begins here", "write one with 'asof decode --format blocks -o FILE'");
  if (!head->usable()) {
    return refuse(at,
                  fmt::format("a block stream of version {}, this asof reads {}", head->version, kVersion),
                  "read it with the asof that wrote it, or write it again");
  }
  if (!file_->parts_.empty() && head->identity != identity_) {
    return refuse(at, "this part is of another recording than those before it",
                  "join only block streams that were written from one recording with the same options");
  }
  if (file_->parts_.size() == kMaxParts) {
    return refuse(at, fmt::format("more than {} parts", kMaxParts), "read them in several groups");
  }
  identity_ = head->identity;
  file_->parts_.push_back(std::make_unique<BlockFile::Part>(path_, 4096 + file_size_));
  part_ = file_->parts_.back().get();
  flow_seen_ = flow_kept_ = 0;
  ended_ = false;
  grew_ = head->grew();
  at += head->size;
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
  part_->has_flow = true;
  if (!in.ok() || in.left() != 0 || f.raw > kFreeRaw + kMaxFlowRatio * f.packed.size()) {
    return damaged(Code::kBadBlockStream, head.offset, "a flow record's head is damaged",
                   "the file was changed; write it again");
  }
  frames_.emplace_back(stream, f);
  flow_kept_ = flow_seen_;
}

// Of the flow record before. Without them that is followed itself, so nothing is lost with them.
void Scanner::calls(const RecordHead& head) {
  Source in(head.prefix);
  const uint64_t number = in.varint(), numbered_by = in.varint();
  if (!in.ok() || in.left() != 0 || head.raw > kFreeRaw + kMaxFlowRatio * head.packed.size() ||
      (part_->numbered_by != 0 && part_->numbered_by != numbered_by)) {
    return damaged(Code::kBadBlockStream, head.offset, "the head of a record of calls is damaged",
                   "the file was changed; write it again");
  }
  part_->numbered_by = numbered_by;
  if (number == 0 || number != flow_seen_ || number != flow_kept_) return;
  frames_.back().second.calls = head.packed;
  frames_.back().second.calls_raw = head.raw;
  file_->has_calls_ = true;
}

// Those that number their functions by symbols that are not these.
void Scanner::forget_calls() {
  for (auto& [stream, frame] : frames_) {
    if (symbols_ == 0 || file_->parts_[frame.part]->numbered_by != symbols_) frame.calls = {};
  }
}

void Scanner::record(const RecordHead& head) {
  const char* const hint = "the file was changed; write it again";
  if (head.type == RecordType::kFlow) return flow(head);
  if (head.type == RecordType::kCalls) return calls(head);
  const auto body = kept(head);
  if (!body) return damaged(Code::kBadBlockStream, head.offset, "a record does not unpack", hint);
  switch (head.type) {
    case RecordType::kCapture: {
      if (capture_ && !replaces()) return;
      Capture c;
      if (!take_capture(*body, c) || (!capture_ && identity_of(*body) != identity_))
        return damaged(Code::kBadBlockStream, head.offset, "the description of the recording is damaged",
                       hint);
      if (capture_) c.symbols = std::move(capture_->symbols);
      capture_ = std::move(c);
      describing_ = part_;
      return;
    }
    case RecordType::kSymbols:
      if (!capture_ || (has_symbols_ && !replaces())) return;
      if (has_symbols_) capture_->symbols = {};
      functions_.reset();  // it was of the symbols before
      has_symbols_ = true;
      symbols_ = identity_of(*body);
      if (!take_symbols(*body, capture_->symbols)) {
        symbols_ = 0;
        damaged(Code::kBadBlockStream, head.offset, "the table of symbols is damaged", hint);
      }
      return;
    case RecordType::kFunctions:
      if (!functions_ || replaces()) functions_ = *body;
      return;
    case RecordType::kCode:
      if (!part_->map.add(*body))
        damaged(Code::kBadBlockStream, head.offset, "a piece of the map of code is damaged", hint);
      return;
    case RecordType::kCoverage:
      if (!take_coverage(*body, part_->coverage.emplace()))
        damaged(Code::kBadBlockStream, head.offset, "what the part has is damaged", hint);
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
    if (part_at(bytes, at) || part_ == nullptr) {
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
                  "write the block stream again; parts of a plan are read after 'asof merge PLAN PARTS'");
  }
  if (frames_.empty() && !notices_.empty()) {
    return refuse(notices_.front().offset, "no flow record is left of it: " + notices_.front().reason,
                  notices_.front().hint);
  }
  file_->streams_.resize(capture_->streams.size());
  if (file_->has_calls_) forget_calls();
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
  BlockFile::add_missing(*file_, capture_->streams, notices_);
  capture_->symbols.finish();
  if (functions_ && !take_functions(*functions_, *capture_))
    damaged(Code::kBadBlockStream, 0, "what the text says of functions is damaged",
            "the file was changed; write it again");
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
    paths = paths_in(path, ignored);
    std::erase_if(paths, [](const std::string& p) { return !p.ends_with(".blocks"); });
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

}  // namespace asof::blocks
