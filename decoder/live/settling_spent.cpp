// Which bytes of a pipe that is still written are not read again, and whether trace is still where it was.
#include <algorithm>
#include <map>
#include <memory>
#include <ranges>

#include "decoder/coresight/cs_frames.h"
#include "decoder/live/settling.h"

namespace asof {
namespace {

constexpr uint64_t kPage = 4096;
// Zeros at the end of a buffer may be padding: they stay what they are.
constexpr uint64_t kTail = 64;
// On arm64 the last context synchronisation event is searched for so far back (arch/arm64/last_sync.h), with room.
constexpr uint64_t kSearchedBack = 4 << 20;

// The offset that has `bytes` of trace between itself and `at`; 0: there is less.
uint64_t before(const Stream& stream, uint64_t at, uint64_t bytes) {
  for (const StreamPiece& p : stream.pieces | std::views::reverse) {
    if (p.offset >= at) continue;
    const uint64_t here = std::min(at - p.offset, p.size());
    if (here > bytes) return p.offset + here - bytes;
    bytes -= here;
  }
  return 0;
}

// Taken out of frames, together with those of other streams.
bool is_in_frames(const Stream& stream) {
  return std::ranges::any_of(stream.pieces, [](const StreamPiece& p) { return p.source != nullptr; });
}

// Frames that no stream needs any more: those between two checkpoints.
struct SpentFrames {
  std::shared_ptr<const CsFrames> frames;
  size_t from = 0, to = SIZE_MAX;
};

// Whole pages. Zeros at the end of a buffer may be padding, and what begins in the page that was left before goes with it.
FileRange pages_of(const CsFrames::FileBytes& bytes) {
  const uint64_t end = bytes.end - (bytes.ends ? std::min(bytes.end - bytes.begin, kTail) : 0);
  const uint64_t begin = bytes.goes_on ? bytes.begin : bytes.begin + kPage - 1;
  return {begin / kPage * kPage, end / kPage * kPage};
}

// Whole pages of what [begin, end) of the stream is in this piece, with the page that a call before left over.
FileRange pages_of(const StreamPiece& p, uint64_t begin, uint64_t end) {
  if (end <= p.offset || begin >= p.offset + p.size()) return {};
  const uint64_t skip = std::max(begin, p.offset) - p.offset,
                 until = std::min(end - p.offset, p.size() - std::min(p.size(), kTail));
  const uint64_t first = std::max(p.file_offset, (p.file_offset + skip) / kPage * kPage);
  return {(first + kPage - 1) / kPage * kPage, (p.file_offset + until) / kPage * kPage};
}

bool same_pieces(const Stream& before, const Stream& now, uint64_t until, bool same_file) {
  for (size_t i = 0;; ++i) {
    const bool had = i < before.pieces.size() && before.pieces[i].offset < until;
    const bool has = i < now.pieces.size() && now.pieces[i].offset < until;
    if (!had || !has) return had == has;
    const StreamPiece &a = before.pieces[i], &b = now.pieces[i];
    const uint64_t most = until - a.offset;
    if (a.offset != b.offset || std::min(a.size(), most) != std::min(b.size(), most) ||
        a.discontinuity != b.discontinuity || (same_file && a.file_offset != b.file_offset))
      return false;
  }
}

}  // namespace

std::vector<FileRange> Settling::spent(const Capture& capture) {
  std::vector<FileRange> out;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = lanes_[i];
    const Stream& stream = capture.streams[i];
    if (lane.last_given.size() < kLookedAt || is_in_frames(stream)) continue;
    const uint64_t until = needed_from(capture, i);
    if (until <= lane.spent) continue;
    for (const StreamPiece& p : stream.pieces) {
      const FileRange pages = pages_of(p, lane.spent, until);
      if (pages.begin < pages.end) out.push_back(pages);
    }
    lane.spent = until;
  }
  spent_frames(capture, out);
  return out;
}

uint64_t Settling::needed_from(const Capture& capture, size_t stream) const {
  const Lane& lane = lanes_[stream];
  if (lane.last_given.size() < kLookedAt) return 0;
  const uint64_t until = lane.last_given.front();
  return capture.arm64.sources.empty() ? until : before(capture.streams[stream], until, kSearchedBack);
}

// A buffer of frames has trace of several streams, and a stream has trace in several buffers.
void Settling::spent_frames(const Capture& capture, std::vector<FileRange>& out) const {
  std::map<const CsFrames*, SpentFrames> all;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const uint64_t checked = lanes_[i].checked, until = checked == 0 ? 0 : needed_from(capture, i);
    for (const StreamPiece& p : capture.streams[i].pieces) {
      if (!p.source) continue;
      const auto [frames, id] = CsFrames::frames_of(*p.source);
      if (!frames) continue;
      SpentFrames& spent = all[frames.get()];
      spent.frames = frames;
      const auto at = [&p](uint64_t offset) {
        return p.source_begin + (std::max(offset, p.offset) - p.offset);
      };
      if (p.offset < checked)
        spent.from =
            std::max(spent.from, frames->checkpoint_behind(id, at(std::min(checked, p.offset + p.size()))));
      if (p.offset + p.size() > until)
        spent.to = std::min(spent.to, frames->checkpoint_before(id, at(until)));
    }
  }
  for (const auto& [frames, spent] : all) {
    if (spent.from >= spent.to) continue;
    for (const CsFrames::FileBytes& bytes : frames->give_up(spent.from, spent.to)) {
      const FileRange pages = pages_of(bytes);
      if (pages.begin < pages.end) out.push_back(pages);
    }
  }
}

bool Settling::same_trace(const Capture& before, const Capture& now, bool same_file) const {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (i >= before.streams.size() || i >= now.streams.size() ||
        !same_pieces(before.streams[i], now.streams[i], lanes_[i].given, same_file))
      return false;
  }
  return true;
}

}  // namespace asof
