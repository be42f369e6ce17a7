// PacketWalk: a stream from its first byte to its last, packet by packet; what a machine's packets are is given as
// `Machine`, put together at compile time. Trace is looked at through a window, so memory does not grow with it.
//
// Machine has:
//   kSyncSize, names(), find_sync(bytes, from)       of its sync points
//   kRoom                                            no packet is longer
//   sync(bytes, offset)                              a sync point: the state starts anew
//   starts(bytes, to_sync, offset, restarted)        can a stretch be read from its first byte, without a sync point?
//   read(p, end, last)                               the packet at p; `last`: there is no trace after end
//   fits(p, size, end)                               is a packet over what looks like a sync point one all the same?
//   time(), describe(fields)                         after read()
#pragma once
#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "arch/packets.h"
#include "arch/stream.h"

namespace asof {

struct ReadPacket {
  uint32_t size = 0;  // 0: not a packet, or (`cut`) one without its end
  uint8_t type = kPacketBad;
  bool cut = false;
};

template <class Machine>
class PacketWalk final : public PacketReader {
 public:
  PacketWalk(const Stream& stream, Machine machine) : stream_(stream), machine_(std::move(machine)) {
    set_loss();
  }

  std::span<const std::string_view> names() const override { return Machine::names(); }
  void describe(PacketFields& out) const override { machine_.describe(out); }

  bool next(TracePacket& out) override {
    for (;;) {
      if (offset() >= loss_at_) [[unlikely]]
        return lose(out);
      if (end_ - p_ < static_cast<ptrdiff_t>(Machine::kRoom) && !last_) [[unlikely]]
        look(offset());
      if (p_ == end_) [[unlikely]] {
        if (next_piece_ == stream_.pieces.size()) return lose(out);
        if (enter(out)) return true;
        continue;
      }
      if (p_ == sync_) [[unlikely]] {
        machine_.sync({p_, end_}, offset());
        synced_ = true;
        find_sync(Machine::kSyncSize);
      }
      if (!synced_) [[unlikely]]
        return pass(out, kPacketNoSync, "no sync point precedes these bytes");
      const ReadPacket k = machine_.read(p_, end_, last_);
      if (k.size == 0 || k.size > sync_ - p_) [[unlikely]] {
        if (k.size == 0 && k.cut && sync_ == end_) return pass(out, kPacketCut, "a packet without its end");
        if (k.size == 0) return pass(out, kPacketBad, "not a packet");
        if (!machine_.fits(p_, k.size, end_))
          return pass(out, kPacketBad, "a packet that a sync point cuts off");
        find_sync(k.size);
      }
      out.offset = offset();
      out.size = k.size;
      out.time = machine_.time();
      out.type = k.type;
      out.code = Code::kNone;
      out.bytes = {p_, k.size};
      p_ += k.size;
      said_ = false;
      return true;
    }
  }

 private:
  static constexpr uint64_t kWindow = 1 << 20;
  static constexpr size_t kShown = 32;  // of bytes that are no packet

  uint64_t offset() const { return at_ + static_cast<uint64_t>(p_ - begin_); }
  void set_loss() {
    loss_at_ = next_loss_ < stream_.losses.size() ? stream_.losses[next_loss_].offset : UINT64_MAX;
  }

  void find_sync(size_t skip) {
    const auto size = static_cast<size_t>(end_ - p_);
    const size_t hit = skip > size ? SIZE_MAX : Machine::find_sync({p_, size}, skip);
    sync_ = hit == SIZE_MAX ? end_ : p_ + hit;
  }
  // Takes the window from stream offset `from` on.
  void look(uint64_t from) {
    stream_.forget(at_, from);
    const uint64_t to = from + std::min(stretch_end_ - from, kWindow);
    const auto bytes = stream_.bytes(from, to, scratch_);
    at_ = from;
    begin_ = p_ = bytes.data();
    end_ = begin_ + bytes.size();
    last_ = to == stretch_end_;
    find_sync(0);
  }

  // The next stretch of trace without a hole. True: `out` says that there is one in front of it.
  bool enter(TracePacket& out) {
    const size_t first = next_piece_;
    const auto& pieces = stream_.pieces;
    const uint64_t begin = pieces[first].offset;
    const uint64_t before = stretch_end_;
    do {
      const StreamPiece& p = pieces[next_piece_++];
      stretch_end_ = p.offset + p.size();
    } while (next_piece_ < pieces.size() && !pieces[next_piece_].discontinuity &&
             pieces[next_piece_].offset == stretch_end_);
    look(begin);
    const bool restarted = std::ranges::any_of(
        stream_.losses, [&](const StreamLoss& l) { return l.code == Code::kAuxFull && l.offset == begin; });
    synced_ = p_ != end_ && p_ != sync_ &&
              machine_.starts({p_, end_}, static_cast<size_t>(sync_ - p_), begin, restarted);
    if (first == 0 || said_ || loss_at_ <= begin) return false;
    line(out, kPacketLost, begin, begin - std::min(before, begin), Code::kNone,
         "what follows does not continue what precedes it");
    return true;
  }

  bool lose(TracePacket& out) {
    if (next_loss_ == stream_.losses.size()) return false;
    const StreamLoss& loss = stream_.losses[next_loss_++];
    set_loss();
    said_ = true;
    line(out, kPacketLost, loss.offset, loss.bytes.value_or(0), loss.code, loss.reason);
    if (loss.time != kTimeMin) out.time = loss.time;
    return true;
  }

  // Bytes that are no packet, up to the next sync point.
  bool pass(TracePacket& out, PacketType type, std::string_view reason) {
    const uint64_t begin = offset();
    const size_t shown = std::min<size_t>(kShown, static_cast<size_t>(end_ - p_));
    std::copy_n(p_, shown, shown_.begin());
    find_sync(1);
    while (sync_ == end_ && !last_) {
      const auto left = std::min<uint64_t>(static_cast<uint64_t>(end_ - p_) - 1, Machine::kSyncSize - 1);
      look(at_ + static_cast<uint64_t>(end_ - begin_) - left);
    }
    p_ = sync_;
    synced_ = false;
    const Code code = type == kPacketNoSync ? Code::kNoSyncPoint
                      : type == kPacketBad  ? Code::kBadPacket
                                            : Code::kNone;
    line(out, type, begin, offset() - begin, code, reason);
    out.bytes = std::span<const uint8_t>(shown_).first(std::min<uint64_t>(shown, out.size));
    said_ = false;
    return true;
  }

  void line(TracePacket& out, PacketType type, uint64_t at, uint64_t size, Code code,
            std::string_view reason) {
    out = {.offset = at,
           .size = size,
           .time = machine_.time(),
           .type = type,
           .code = code,
           .bytes = {},
           .reason = reason};
  }

  const Stream& stream_;
  Machine machine_;
  std::vector<uint8_t> scratch_;
  const uint8_t* begin_ = nullptr;  // the window
  const uint8_t* p_ = nullptr;
  const uint8_t* end_ = nullptr;
  const uint8_t* sync_ = nullptr;  // the next sync point in the window, or its end
  uint64_t at_ = 0;                // of begin_
  uint64_t stretch_end_ = 0;
  uint64_t loss_at_ = UINT64_MAX;
  size_t next_piece_ = 0, next_loss_ = 0;
  bool last_ = true;  // nothing of the stretch is behind the window
  bool synced_ = false;
  bool said_ = false;  // since the last byte: trace is missing
  std::array<uint8_t, kShown> shown_{};
};

}  // namespace asof
