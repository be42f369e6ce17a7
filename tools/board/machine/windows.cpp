#include "tools/board/machine/windows.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace asof::machine {
namespace {

constexpr std::array<uint8_t, 16> kPsb{2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82,
                                       2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82};
constexpr std::array<uint8_t, 12> kAsync{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80};
constexpr uint8_t kTsc = 0x19;
constexpr size_t kTscBytes = 8;
constexpr uint64_t kPadding = 8;  // to a multiple of it (tools/perf/util/auxtrace.c, __auxtrace_mmap__read())

// Zeros at the end that may be padding.
size_t padding_of(std::span<const uint8_t> bytes) {
  size_t n = 0;
  while (n + 1 < kPadding && n < bytes.size() && bytes[bytes.size() - 1 - n] == 0) ++n;
  return n;
}

template <size_t N>
std::vector<FoundSync> find_pattern(std::span<const uint8_t> bytes, const std::array<uint8_t, N>& pattern) {
  std::vector<FoundSync> found;
  for (auto at = bytes.begin();;) {
    at = std::search(at, bytes.end(), pattern.begin(), pattern.end());
    if (at == bytes.end()) return found;
    found.push_back({static_cast<size_t>(at - bytes.begin()), std::nullopt});
    at += N;
  }
}

// The mark at which this sync point was written: the same time, or where there are no times, one that agrees
// with the most other sync points of its piece about where the piece begins.
class Placer {
 public:
  Placer(std::span<const FoundSync> syncs, std::span<const SyncMark> marks) : syncs_(syncs), marks_(marks) {}

  bool timed() const {
    return std::ranges::any_of(syncs_, [](const FoundSync& s) { return s.time.has_value(); });
  }

  // How far position and offset in the piece differ, for each sync point; nullopt: it is not of these marks.
  std::vector<std::optional<uint64_t>> bases() const {
    std::vector<std::optional<uint64_t>> out(syncs_.size());
    for (size_t i = 0; i < syncs_.size(); ++i) {
      if (!syncs_[i].time) continue;
      const auto it = std::ranges::lower_bound(marks_, *syncs_[i].time, {},
                                               [](const SyncMark& m) { return m.time & kTscMask; });
      if (it != marks_.end() && (it->time & kTscMask) == *syncs_[i].time)
        out[i] = it->position - syncs_[i].offset;
    }
    if (!timed()) place_without_times(out);
    return out;
  }

  // The same by the bytes up to the next sync point, `piece` being all of the piece.
  std::vector<std::optional<uint64_t>> bases(std::span<const uint8_t> piece,
                                             std::span<const uint8_t> written) const {
    std::vector<std::optional<uint64_t>> out(syncs_.size());
    const auto fits = [&](size_t i, uint64_t position) {
      const size_t end = i + 1 < syncs_.size() ? syncs_[i + 1].offset : piece.size();
      auto own = piece.subspan(syncs_[i].offset, end - syncs_[i].offset);
      if (end == piece.size()) own = own.first(own.size() - padding_of(own));
      return position + own.size() <= written.size() &&
             std::ranges::equal(written.subspan(position, own.size()), own);
    };
    auto from = marks_.begin();
    for (size_t i = 0; i < syncs_.size(); ++i) {
      const auto here =
          std::find_if(from, marks_.end(), [&](const SyncMark& m) { return fits(i, m.position); });
      if (here == marks_.end()) continue;
      out[i] = here->position - syncs_[i].offset;
      from = here + 1;
    }
    // A few bytes may be in an earlier recording on the machine as well: then what follows them tells.
    for (size_t i = syncs_.size(); i-- > 1;) {
      if (out[i] && out[i - 1] != out[i] && *out[i] + syncs_[i - 1].offset < written.size() &&
          is_mark(*out[i] + syncs_[i - 1].offset) && fits(i - 1, *out[i] + syncs_[i - 1].offset))
        out[i - 1] = out[i];
    }
    return out;
  }

  static constexpr uint64_t kTscMask = (uint64_t{1} << 56) - 1;

 private:
  void place_without_times(std::vector<std::optional<uint64_t>>& out) const {
    if (syncs_.empty()) return;
    size_t best = 0;
    bool only_one = false;
    uint64_t base = 0;
    for (const SyncMark& m : marks_) {
      if (m.position < syncs_.front().offset) continue;
      const uint64_t candidate = m.position - syncs_.front().offset;
      size_t agree = 0;
      for (const FoundSync& s : syncs_) agree += is_mark(candidate + s.offset) ? 1 : 0;
      only_one = agree > best || (only_one && agree < best);
      if (agree > best) best = agree, base = candidate;
    }
    // With few sync points the trace of another recording on the machine may have them at the same distances.
    if (2 * best <= syncs_.size() || !only_one) return;
    for (size_t i = 0; i < syncs_.size(); ++i) {
      if (is_mark(base + syncs_[i].offset)) out[i] = base;
    }
  }
  bool is_mark(uint64_t position) const {
    return std::ranges::binary_search(marks_, position, {}, &SyncMark::position);
  }

  std::span<const FoundSync> syncs_;
  std::span<const SyncMark> marks_;
};

void unite(std::vector<Window>& windows) {
  std::ranges::sort(windows, {}, &Window::begin);
  std::vector<Window> out;
  for (const Window& w : windows) {
    if (!out.empty() && w.begin <= out.back().end) {
      out.back().end = std::max(out.back().end, w.end);
    } else {
      out.push_back(w);
    }
  }
  windows = std::move(out);
}

}  // namespace

std::vector<FoundSync> find_psbs(std::span<const uint8_t> bytes) {
  auto found = find_pattern(bytes, kPsb);
  for (FoundSync& f : found) {
    const size_t at = f.offset + kPsb.size();  // the TSC packet is the first of PSB+ where there is one
    if (at + kTscBytes > bytes.size() || bytes[at] != kTsc) continue;
    uint64_t time = 0;
    std::memcpy(&time, bytes.data() + at + 1, kTscBytes - 1);
    f.time = time;
  }
  return found;
}

std::vector<FoundSync> find_async(std::span<const uint8_t> bytes) { return find_pattern(bytes, kAsync); }

namespace {

// Pieces that continue each other in one ring are one: a sync point may lie across their ends.
struct Joined {
  int cpu = -1;
  uint64_t end = 0;
  uint64_t pieces = 0;
  std::vector<uint8_t> bytes;
};
std::vector<Joined> join(std::span<const TracePiece> pieces) {
  std::vector<Joined> out;
  std::map<int, size_t> last;  // by CPU
  for (const TracePiece& p : pieces) {
    const auto it = last.find(p.cpu);
    // perf pads what it copies; the next piece begins where the trace went on.
    const uint64_t padding = it == last.end() ? kPadding : out[it->second].end - p.offset;
    if (padding >= kPadding || padding > out[it->second].bytes.size()) {
      last[p.cpu] = out.size();
      out.push_back({p.cpu, p.offset, 0, {}});
    } else {
      out[it->second].bytes.resize(out[it->second].bytes.size() - padding);
    }
    Joined& j = out[last[p.cpu]];
    j.bytes.insert(j.bytes.end(), p.bytes.begin(), p.bytes.end());
    j.end = p.offset + p.bytes.size();
    ++j.pieces;
  }
  return out;
}

}  // namespace

WindowReport find_windows(std::span<const TracePiece> pieces,
                          const std::map<int, std::vector<SyncMark>>& marks, bool pt,
                          const std::map<int, std::span<const uint8_t>>& written) {
  WindowReport report;
  for (const Joined& piece : join(pieces)) {
    const auto syncs = pt ? find_psbs(piece.bytes) : find_async(piece.bytes);
    bool placed = false;
    for (const auto& [cpu, own] : marks) {
      if (piece.cpu >= 0 && piece.cpu != cpu) continue;
      const Placer placer(syncs, own);
      const auto kept = written.find(cpu);
      const bool by_bytes = kept != written.end() && !placer.timed();
      const auto bases = by_bytes ? placer.bases(piece.bytes, kept->second) : placer.bases();
      for (size_t i = 0; i < syncs.size(); ++i) {
        if (!bases[i]) continue;
        const size_t end = i + 1 < syncs.size() ? syncs[i + 1].offset : piece.bytes.size();
        report.windows[cpu].push_back({*bases[i] + syncs[i].offset, *bases[i] + end});
        placed = true;
      }
    }
    report.pieces += piece.pieces;
    report.unplaced += placed ? 0 : piece.pieces;
  }
  for (auto& [cpu, windows] : report.windows) unite(windows);
  return report;
}

}  // namespace asof::machine
