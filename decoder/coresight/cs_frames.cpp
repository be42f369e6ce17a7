#include "decoder/coresight/cs_frames.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <type_traits>
#include <utility>

#include "decoder/coresight/cs_deframer.h"
#include "decoder/coresight/cs_frame_indexer.h"
#include "decoder/io/thrown_error.h"
#include "textstore/check.h"

namespace asof {
namespace {

constexpr uint64_t kCheckpointDistance = uint64_t{4} * 1024;  // bytes of frames, at first
constexpr uint64_t kHeld = 8 << 20;  // bytes of frames that the index pass keeps in memory

using Item = Deframer::Item;

}  // namespace

// One source's bytes, read from the frames.
class CsSourceBytes : public TraceBytes {
 public:
  CsSourceBytes(std::shared_ptr<const CsFrames> frames, const CsFrames::Source& source)
      : frames_(std::move(frames)), source_(source) {
    if (frames_->restored_) checked_ = std::make_unique<std::atomic<bool>[]>(source_.counts.size());
  }

  // In parts, so that a source of few bytes in many frames does not hold all of them in memory.
  void read(uint64_t at, std::span<uint8_t> out) const override {
    while (!out.empty()) {
      const size_t begin = index_of(at), stop = begin + frames_->window_;
      uint64_t n = out.size();
      if (stop < source_.counts.size()) n = std::min(n, source_.counts[stop] - at);
      if (is_given_up(begin)) {
        n = std::min(n, end_of(begin) - at);
        std::ranges::fill(out.first(n), uint8_t{0});
      } else {
        if (const auto gone = given_up(); gone && *gone > begin && *gone < source_.counts.size())
          n = std::min(n, source_.counts[*gone] - at);
        check(begin, at + n);
        read_part(at, out.first(n));
      }
      at += n;
      out = out.subspan(n);
      passed(begin, at);
    }
  }
  uint64_t file_offset(uint64_t at) const override {
    uint64_t found = 0;
    const size_t index = index_of(at);
    if (is_given_up(index)) {
      const CsFrames::Checkpoint& gone = frames_->checkpoints_[source_.first_checkpoint + index];
      return frames_->sections_[gone.section].place(gone.offset);
    }
    check(index, at + 1);
    walk(
        at,
        [&](const FrameRun& run, size_t skip, size_t section) {
          found = frames_->sections_[section].place(run.base + run.places[skip]);
          return false;
        },
        nullptr);
    return found;
  }
  void forget(uint64_t from, uint64_t to) const override { forget_between(index_of(from), index_of(to)); }

 private:
  friend class CsFrames;
  void read_part(uint64_t at, std::span<uint8_t> out) const {
    walk(
        at,
        [&out](const FrameRun& run, size_t skip, size_t) {
          const size_t take = std::min<size_t>(run.count - skip, out.size());
          std::copy_n(run.data + skip, take, out.begin());
          out = out.subspan(take);
          return !out.empty();
        },
        [&out, this](Deframer& frames) { out = out.subspan(frames.copy_plain(source_.id, out)); });
    ASOF_CHECK(out.empty());
  }
  // Of frames that another process passed over: compares those from checkpoint `from` up to byte `end` of the source with
  // what it found, once.
  void check(size_t from, uint64_t end) const {
    if (!checked_) return;
    for (size_t i = from; i < source_.counts.size() && source_.counts[i] < end; ++i) {
      if (checked_[i].load(std::memory_order_relaxed)) continue;
      if (!agrees(i)) {
        const CsFrames::Checkpoint& at = frames_->checkpoints_[source_.first_checkpoint + i];
        throw ThrownError(
            {Code::kTraceChanged, frames_->where_, frames_->sections_[at.section].place(at.offset),
             "CoreSight frames of the trace are not those that the plan was made of", "make the plan again"});
      }
      checked_[i].store(true, std::memory_order_relaxed);
    }
  }
  bool agrees(size_t i) const;
  // The checkpoint of the source between which and the next the frames are gone.
  std::optional<size_t> given_up() const {
    const auto& all = frames_->given_up_;
    if (!all || *all < source_.first_checkpoint) return std::nullopt;
    return *all - source_.first_checkpoint;
  }
  bool is_given_up(size_t checkpoint) const { return given_up() == checkpoint; }
  // Of its bytes that lie between a checkpoint and the next.
  uint64_t end_of(size_t checkpoint) const {
    return checkpoint + 1 < source_.counts.size() ? source_.counts[checkpoint + 1] : source_.size;
  }
  // The last checkpoint before byte `at`, counted from the source's first one.
  size_t index_of(uint64_t at) const {
    const auto after = std::upper_bound(source_.counts.begin(), source_.counts.end(), at);
    ASOF_CHECK(after != source_.counts.begin());
    return static_cast<size_t>(after - source_.counts.begin()) - 1;
  }
  // The bytes from checkpoint `from` up to byte `at` were read. A reader that lags behind the others, which
  // returned what it reads, returns it at once.
  void passed(size_t from, uint64_t at) const {
    const size_t to = index_of(at), window = to / frames_->window_;
    size_t before = reached_.load(std::memory_order_relaxed);
    if (window + 1 < before) return forget_between(from, std::min(to + 1, source_.counts.size() - 1));
    if (window <= before || !reached_.compare_exchange_strong(before, window, std::memory_order_relaxed))
      return;
    if (window > 1)
      forget_between((before == 0 ? 0 : before - 1) * frames_->window_, (window - 1) * frames_->window_);
  }
  void forget_between(size_t from, size_t to) const {
    const CsFrames::Checkpoint& first = frames_->checkpoints_[source_.first_checkpoint + from];
    const CsFrames::Checkpoint& last = frames_->checkpoints_[source_.first_checkpoint + to];
    for (size_t i = first.section; i <= last.section; ++i) {
      const FrameSection& section = frames_->sections_[i];
      const uint64_t begin = i == first.section ? first.offset : 0;
      const uint64_t end = i == last.section ? last.offset : section.bytes.size();
      if (section.mapped && begin < end) forget_mapping(section.bytes.subspan(begin, end - begin));
    }
  }
  // Calls visit(run, first byte in it, section) with every run of the source from byte `at` on until it
  // returns false. visit_plain(frames), unless it is nullptr, may take frames first.
  template <class Visit, class VisitPlain>
  void walk(uint64_t at, Visit visit, VisitPlain visit_plain) const;

  std::shared_ptr<const CsFrames> frames_;
  const CsFrames::Source& source_;
  mutable std::atomic<size_t> reached_{0};  // the latest window that was read
  std::unique_ptr<std::atomic<bool>[]>
      checked_;  // by checkpoint; nullptr: this process passed over them itself
};

// Whether the frames between a checkpoint and the next one end there, in the state and with as many bytes of the source
// as it says.
bool CsSourceBytes::agrees(size_t i) const {
  const auto& all = frames_->checkpoints_;
  const CsFrames::Checkpoint& from = all[source_.first_checkpoint + i];
  const bool last = i + 1 == source_.counts.size();
  const CsFrames::Checkpoint to = last ? CsFrames::Checkpoint{.section = frames_->sections_.size()}
                                       : all[source_.first_checkpoint + i + 1];
  const uint64_t want = end_of(i) - source_.counts[i];
  uint64_t offset = from.offset, count = 0;
  uint8_t id = from.id;
  for (size_t section = from.section; section < frames_->sections_.size() && section <= to.section;
       ++section) {
    const auto bytes = frames_->sections_[section].bytes;
    const uint64_t end = section == to.section ? to.offset : bytes.size();
    Deframer frames(bytes, frames_->alignment_, offset, id);
    while (frames.offset() < end) {
      if (const size_t plain = frames.skip_plain(); plain != 0) {
        if (frames.id() == source_.id) count += plain;
        continue;
      }
      if (frames.next() == Item::kEnd) break;
      for (const FrameRun& run : frames.runs()) count += run.id == source_.id ? run.count : 0;
    }
    if (frames.offset() != end || (section == to.section && frames.id() != to.id)) return false;
    offset = 0;
    id = kUnknownTraceId;
  }
  return count == want;
}

template <class Visit, class VisitPlain>
void CsSourceBytes::walk(uint64_t at, Visit visit, VisitPlain visit_plain) const {
  const size_t index = index_of(at);
  const CsFrames::Checkpoint& start = frames_->checkpoints_[source_.first_checkpoint + index];
  uint64_t skip = at - source_.counts[index];
  uint64_t offset = start.offset;
  uint8_t id = start.id;
  for (size_t section = start.section; section < frames_->sections_.size(); ++section) {
    Deframer frames(frames_->sections_[section].bytes, frames_->alignment_, offset, id);
    for (;;) {
      while (skip >= kFrameSize) {
        const size_t count = frames.skip_plain();
        if (count == 0) break;
        if (frames.id() == source_.id) skip -= count;
      }
      if constexpr (!std::is_null_pointer_v<VisitPlain>) {
        if (skip == 0) visit_plain(frames);
      }
      if (frames.next() == Item::kEnd) break;
      for (const FrameRun& run : frames.runs()) {
        if (run.id != source_.id) continue;
        if (skip >= run.count) {
          skip -= run.count;
          continue;
        }
        if (!visit(run, static_cast<size_t>(skip), section)) return;
        skip = 0;
      }
    }
    offset = 0;
    id = kUnknownTraceId;
  }
}

std::shared_ptr<const CsFrames> CsFrames::index(std::vector<FrameSection> sections, FrameAlignment alignment,
                                                size_t most_checkpoints) {
  const std::shared_ptr<CsFrames> out(new CsFrames);
  out->sections_ = std::move(sections);
  out->alignment_ = alignment;
  out->most_checkpoints_ = most_checkpoints;
  CsFrameIndexer indexer(kCheckpointDistance);
  for (size_t i = 0; i < out->sections_.size(); ++i) out->index_section(indexer, i);
  out->finish(indexer);
  return out;
}

void CsFrames::finish(const CsFrameIndexer& indexer) {
  window_ = std::max<size_t>(1, kHeld / 4 / indexer.distance);
  sources_ = indexer.finish();
}

std::shared_ptr<const CsFrames> CsFrames::restore(std::vector<FrameSection> sections,
                                                  FrameAlignment alignment,
                                                  std::vector<Checkpoint> checkpoints,
                                                  std::vector<Source> sources, std::string where) {
  const std::shared_ptr<CsFrames> out(new CsFrames);
  out->sections_ = std::move(sections);
  out->alignment_ = alignment;
  out->checkpoints_ = std::move(checkpoints);
  out->sources_ = std::move(sources);
  out->restored_ = true;
  out->where_ = std::move(where);
  if (!out->is_dense()) return nullptr;
  const size_t count = out->checkpoints_.size();
  uint64_t bytes = 0;
  for (const FrameSection& s : out->sections_) bytes += s.bytes.size();
  uint8_t before = kNoTraceId;
  for (const Source& s : out->sources_) {
    if (s.id <= before || !is_source_id(s.id) || s.size > bytes) return nullptr;
    if (s.first_checkpoint >= count || s.counts.size() != count - s.first_checkpoint) return nullptr;
    if (s.counts.front() != 0 || !std::ranges::is_sorted(s.counts) || s.counts.back() > s.size)
      return nullptr;
    before = s.id;
  }
  out->window_ = std::max<size_t>(1, kHeld / 4 / std::max(kCheckpointDistance, bytes / count));
  return out;
}

bool CsFrames::is_dense() const {
  std::vector<uint64_t> begins;  // of sections, one behind the other
  uint64_t total = 0;
  for (const FrameSection& s : sections_) {
    begins.push_back(total);
    total += s.bytes.size();
  }
  // After positions were dropped there are more than a quarter of the most.
  const uint64_t most = std::max(2 * kCheckpointDistance, total / (kMostCheckpoints / 4));
  if (checkpoints_.empty() || checkpoints_.front() != Checkpoint{.id = kUnknownTraceId}) return false;
  uint64_t before = 0;
  for (const Checkpoint& c : checkpoints_) {
    if (c.section >= sections_.size() || c.offset > sections_[c.section].bytes.size()) return false;
    if (alignment_ == FrameAlignment::kMemory && c.offset % kFrameSize != 0) return false;
    const uint64_t at = begins[c.section] + c.offset;
    if (at < before || at - before > most) return false;
    before = at;
  }
  return std::ranges::is_sorted(checkpoints_) && total - before <= most;
}

void CsFrames::index_section(CsFrameIndexer& indexer, size_t i) {
  const FrameSection& section = sections_[i];
  Deframer frames(section.bytes, alignment_);
  indexer.start(i, section.discontinuity);
  uint64_t held = 0;  // what lies before it is no longer in memory
  for (bool synced = true;;) {
    if (indexer.since >= indexer.distance && synced)
      add_checkpoint(indexer, {i, frames.offset(), frames.id()});
    const uint64_t before = frames.offset();
    const Item item = frames.next();
    if (section.mapped && (before - held >= kHeld || item == Item::kEnd)) {
      forget_mapping(section.bytes.subspan(held, before - held));
      held = before;
    }
    if (item == Item::kEnd) break;
    indexer.since += frames.offset() - before;
    synced = item == Item::kFrame;
    if (item == Item::kFrame) {
      index_frame(indexer, frames, section);
    } else if (item != Item::kPartial) {
      indexer.start(i, true);
    }
    if (item == Item::kUnsynced || item == Item::kPartial)
      lose_bytes(item == Item::kPartial, frames, section);
  }
}

void CsFrames::add_checkpoint(CsFrameIndexer& indexer, const Checkpoint& checkpoint) {
  if (checkpoints_.size() >= most_checkpoints_) {
    size_t kept = 0;
    for (size_t i = 0; i < checkpoints_.size(); i += 2) checkpoints_[kept++] = checkpoints_[i];
    checkpoints_.resize(kept);
    indexer.thin_out();
    indexer.distance *= 2;
    if (indexer.since < indexer.distance) return;
  }
  checkpoints_.push_back(checkpoint);
  indexer.checkpoint();
  indexer.since = 0;
}

void CsFrames::index_frame(CsFrameIndexer& indexer, const Deframer& frames, const FrameSection& section) {
  for (const FrameRun& run : frames.runs()) {
    const uint64_t at = section.place(run.base + run.places[0]);
    if (is_source_id(run.id)) {
      indexer.take(run, at);
    } else if (run.id != kNoTraceId) {
      if (losses_.unassigned == 0) losses_.unassigned_at = at;
      losses_.unassigned += run.count;
    }
  }
}

void CsFrames::lose_bytes(bool partial, const Deframer& frames, const FrameSection& section) {
  uint64_t& count = partial ? losses_.partial : losses_.unsynced;
  uint64_t& at = partial ? losses_.partial_at : losses_.unsynced_at;
  if (count == 0) at = section.place(frames.skipped_at());
  count += frames.skipped();
}

const CsFrames::Source* CsFrames::find(uint8_t id) const {
  const auto hit = std::lower_bound(sources_.begin(), sources_.end(), id,
                                    [](const Source& s, uint8_t v) { return s.id < v; });
  return hit == sources_.end() || hit->id != id ? nullptr : &*hit;
}

std::shared_ptr<const TraceBytes> CsFrames::bytes_of(uint8_t id) const {
  const Source* source = find(id);
  if (source == nullptr) return nullptr;
  return std::make_shared<CsSourceBytes>(shared_from_this(), *source);
}

std::pair<std::shared_ptr<const CsFrames>, uint8_t> CsFrames::frames_of(const TraceBytes& bytes) {
  const auto* source = dynamic_cast<const CsSourceBytes*>(&bytes);
  if (source == nullptr) return {};
  return {source->frames_, source->source_.id};
}

std::vector<StreamPiece> CsFrames::pieces_of(uint8_t id) const {
  const Source* source = find(id);
  std::vector<StreamPiece> out;
  if (source == nullptr) return out;
  const auto bytes = bytes_of(id);
  for (size_t i = 0; i < source->breaks.size(); ++i) {
    const FrameBreak& b = source->breaks[i];
    const uint64_t end = i + 1 < source->breaks.size() ? source->breaks[i + 1].at : source->size;
    StreamPiece piece;
    piece.offset = b.at;
    piece.discontinuity = b.discontinuity;
    piece.file_offset = b.file_offset;
    piece.source = bytes;
    piece.source_begin = b.at;
    piece.source_size = end - b.at;
    out.push_back(std::move(piece));
  }
  return out;
}

uint64_t CsFrames::begin_of_section(const Source& source, size_t section) {
  const auto hit = std::lower_bound(source.breaks.begin(), source.breaks.end(), section,
                                    [](const FrameBreak& b, size_t v) { return b.section < v; });
  return hit == source.breaks.end() ? source.size : hit->at;
}

void report_unused_frames(const CsFrames& frames, const std::string& where, NoticeBook& notices) {
  const auto report = [&](uint64_t bytes, uint64_t at, const char* what) {
    if (bytes == 0) return;
    notices.error(Code::kOutsideFrames, where, fmt::format("{} bytes of CoreSight frames {}", bytes, what),
                  "the start of a buffer that went round, trace sources that are not of a CPU, or damage",
                  at);
  };
  const CsFrames::Losses& losses = frames.losses();
  report(losses.unassigned, losses.unassigned_at, "have no trace ID, or a reserved one");
  report(losses.unsynced, losses.unsynced_at, "lie between no synchronisation packets");
  report(losses.partial, losses.partial_at, "are no whole frame");
}

void report_unknown_ids(const CsFrames& frames, const std::string& where, const std::set<uint8_t>& known,
                        NoticeBook& notices) {
  uint64_t bytes = 0, first_at = UINT64_MAX;
  std::string ids;
  for (const CsFrames::Source& source : frames.sources()) {
    if (known.contains(source.id)) continue;
    bytes += source.size;
    first_at = std::min(first_at, source.breaks.front().file_offset);
    ids += fmt::format("{}{:#x}", ids.empty() ? "" : ", ", source.id);
  }
  if (bytes == 0) return;
  notices.error(
      Code::kTraceWithoutOwner, where,
      fmt::format("{} bytes with trace IDs that are no known trace unit's ({}) are left out", bytes, ids),
      "a system trace source, a record that gives the ID is missing, or damage", first_at);
}

}  // namespace asof
