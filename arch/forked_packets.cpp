#include "arch/forked_packets.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "arch/child.h"

namespace asof {
namespace {

constexpr uint32_t kLongestText = 1024;
constexpr unsigned kMostDeaths = 16;  // of a stream
constexpr uint64_t kShown = 32;       // bytes of a packet
constexpr size_t kFlush = size_t{1} << 16U;

enum class Says : uint32_t { kMade, kPart, kLine, kEnd };
struct Answer {
  Says says = Says::kEnd;
  uint32_t type = 0;
  uint64_t offset = 0, size = 0;  // kPart: `offset` is its end
  Time time = kTimeMin;
  uint64_t text = 0;  // bytes of text that follow
};

// In the child. What is listed is written before the library gets more to read: it may not come back.
class Writer {
 public:
  explicit Writer(int fd) : fd_(fd) {}

  void put(const Answer& answer, std::string_view text = {}) {
    out_.append(reinterpret_cast<const char*>(&answer), sizeof answer);
    out_.append(text);
    if (out_.size() >= kFlush || answer.says != Says::kLine) flush();
  }
  void line(const PacketReader& reader, const TracePacket& k) {
    PacketFields fields;
    std::string_view text = k.reason;
    if (k.is_packet()) {
      reader.describe(fields);
      text = fields.all().empty() ? std::string_view() : fields.all().front().text;
    }
    text = text.substr(0, kLongestText);
    put({.says = Says::kLine,
         .type = k.type,
         .offset = k.offset,
         .size = k.size,
         .time = k.time,
         .text = text.size()},
        text);
  }

 private:
  void flush() {
    write_answer(fd_, out_.data(), out_.size());
    out_.clear();
  }

  int fd_;
  std::string out_;
};

void list_in_child(const MakePackets& make, const PacketStart& start, unsigned cpu_seconds, int fd) {
  Writer writer(fd);
  allow_cpu_time(cpu_seconds);
  const auto reader = make(start, [&](uint64_t end) {
    writer.put({.says = Says::kPart, .offset = end});
    allow_cpu_time(cpu_seconds);
  });
  if (reader == nullptr) return;
  for (TracePacket k; reader->next(k);) writer.line(*reader, k);
  writer.put({});
}

bool is_taken(const MakePackets& make, unsigned cpu_seconds) {
  Child child([&](int fd) {
    allow_cpu_time(cpu_seconds);
    const Answer answer{.says = make({}, [](uint64_t) {}) == nullptr ? Says::kEnd : Says::kMade};
    write_answer(fd, &answer, sizeof answer);
  });
  Answer answer;
  return !child.read(&answer, sizeof answer) || answer.says == Says::kMade;
}

class ForkedPackets final : public PacketReader {
 public:
  ForkedPackets(const Stream& stream, MakePackets make, ForeignList list)
      : stream_(stream), make_(std::move(make)), list_(std::move(list)) {
    next_stretch();
  }

  std::span<const std::string_view> names() const override { return list_.names; }
  bool next(TracePacket& out) override;
  void describe(PacketFields& out) const override { out.text("meaning", text_, true); }

 private:
  struct Line {
    uint64_t size = 0;
    Time time = kTimeMin;
    uint8_t type = kPacketBad;
  };

  bool next_stretch();
  bool read(Line& line);
  bool read_text(uint64_t size);
  void die();
  bool lose(TracePacket& out);
  void give(const Line& line, TracePacket& out);

  const Stream& stream_;
  const MakePackets make_;
  const ForeignList list_;
  std::unique_ptr<Child> child_;
  unsigned deaths_ = 0;
  uint64_t listed_ = 0, end_ = 0;  // of the stretch: bytes before `listed_` are in a line
  uint64_t part_ = 0;              // end of what the child has in hand
  uint64_t given_up_ = 0;          // bytes before it are in a line without a packet
  std::string why_;
  size_t next_piece_ = 0, next_loss_ = 0;
  Time now_ = kTimeMin;
  Line line_;
  bool held_ = false;  // line_ is to be given, after what was lost before it
  std::string text_;   // of the last one given
  std::vector<uint8_t> shown_;
};

bool ForkedPackets::next_stretch() {
  while (listed_ == end_ && next_piece_ < stream_.pieces.size()) {
    listed_ = stream_.pieces[next_piece_].offset;
    next_piece_ = stretch_end(stream_, next_piece_);
    const StreamPiece& last = stream_.pieces[next_piece_ - 1];
    end_ = last.offset + last.size();
  }
  return listed_ < end_;
}

bool ForkedPackets::read_text(uint64_t size) {
  text_.resize(size <= kLongestText ? size : 0);
  return size <= kLongestText && child_->read(text_.data(), text_.size());
}

// The line at `listed_`. False: there is none, whatever the child says.
bool ForkedPackets::read(Line& line) {
  Answer a;
  while (child_->read(&a, sizeof a)) {
    if (a.says == Says::kPart) {
      if (a.offset <= part_ || a.offset > end_) return false;
      part_ = a.offset;
      continue;
    }
    const bool good = a.says == Says::kLine && a.type != kPacketLost && a.type < list_.names.size() &&
                      a.offset == listed_ && a.size != 0 && a.size <= end_ - listed_;
    if (!good || !read_text(a.text)) return false;
    line = {a.size, a.time, static_cast<uint8_t>(a.type)};
    return true;
  }
  return false;
}

void ForkedPackets::die() {
  why_ = fmt::format("{} {} on this part of the trace, which it had for itself", list_.library,
                     child_->what_happened());
  child_.reset();
  given_up_ = part_ > listed_ ? std::min(part_, end_) : end_;
  if (++deaths_ == kMostDeaths) why_ += fmt::format("; it is not asked again, after {} times", kMostDeaths);
}

bool ForkedPackets::lose(TracePacket& out) {
  if (next_loss_ == stream_.losses.size()) return false;
  const StreamLoss& loss = stream_.losses[next_loss_++];
  out = {.offset = loss.offset,
         .size = loss.bytes.value_or(0),
         .time = loss.time,
         .type = kPacketLost,
         .code = loss.code,
         .bytes = {},
         .reason = loss.reason};
  return true;
}

void ForkedPackets::give(const Line& line, TracePacket& out) {
  out = {};
  out.offset = listed_;
  out.size = line.size;
  out.time = now_ = line.time;
  out.type = line.type;
  out.bytes = stream_.bytes(listed_, listed_ + std::min(line.size, kShown), shown_);
  if (line.type == kPacketNoSync) out.code = Code::kNoSyncPoint;
  if (line.type == kPacketBad) out.code = Code::kBadPacket;
  if (!out.is_packet()) out.reason = text_;
  listed_ += line.size;
}

bool ForkedPackets::next(TracePacket& out) {
  while (!held_ && next_stretch()) {
    if (listed_ < given_up_ || deaths_ >= kMostDeaths) {
      line_ = {std::max(given_up_, deaths_ >= kMostDeaths ? end_ : 0) - listed_, now_, kPacketBad};
      text_ = why_;
      held_ = true;
      break;
    }
    if (!child_) {
      part_ = listed_;
      const PacketStart start{listed_, now_};
      child_ = std::make_unique<Child>([&](int fd) { list_in_child(make_, start, list_.cpu_seconds, fd); });
    }
    held_ = read(line_);
    if (!held_) die();
  }
  const bool lost =
      next_loss_ < stream_.losses.size() && (!held_ || stream_.losses[next_loss_].offset <= listed_);
  if (lost) return lose(out);
  if (!held_) return false;
  held_ = false;
  give(line_, out);
  return true;
}

}  // namespace

size_t stretch_end(const Stream& stream, size_t first) {
  const auto& pieces = stream.pieces;
  uint64_t end = pieces[first].offset;
  do {
    end += pieces[first++].size();
  } while (first < pieces.size() && !pieces[first].discontinuity && pieces[first].offset == end);
  return first;
}

std::unique_ptr<PacketReader> packets_in_children(const Stream& stream, MakePackets make,
                                                  const ForeignList& list) {
  if (!is_taken(make, list.cpu_seconds)) return nullptr;
  return std::make_unique<ForkedPackets>(stream, std::move(make), list);
}

}  // namespace asof
