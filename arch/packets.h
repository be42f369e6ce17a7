// PacketReader: the raw trace of one stream as a list of packets, for people (asof packets). It shows what the
// machine's packet decoder reads, in order, with everything that is no packet: bytes that were lost, that no sync point
// precedes, that cannot be read. Every byte of the stream is in exactly one line.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "textstore/code.h"
#include "textstore/time.h"

namespace asof {

// An index into PacketReader::names(). These are the same for all machines; packets follow.
enum PacketType : uint8_t {
  kPacketLost,     // trace is missing here; `size` of it is not in the stream
  kPacketNoSync,   // bytes that no sync point precedes
  kPacketBad,      // bytes that are no packet, up to the next sync point
  kPacketCut,      // a packet without its end
  kPacketPadding,  // what recorders fill buffers up with, where that is no packet
  kFirstPacketType,
};
inline constexpr std::array<std::string_view, kFirstPacketType> kLineNames = {"LOST", "NOSYNC", "BAD", "CUT",
                                                                              "PADDING"};

struct TracePacket {
  uint64_t offset = 0;   // in the stream
  uint64_t size = 0;     // kPacketLost: 0 when it is not known
  Time time = kTimeMin;  // by the timing packets up to and with this one
  uint8_t type = kPacketBad;
  Code code = Code::kNone;         // of lines that are no packets
  std::span<const uint8_t> bytes;  // of packets all, of others the first. Valid until next()
  std::string_view reason;         // likewise, of lines that are no packets

  bool is_packet() const { return type >= kFirstPacketType || type == kPacketPadding; }
};

// A part of what a packet says.
struct PacketField {
  enum class Kind : uint8_t { kNumber, kHex, kText, kFlag };
  std::string_view name;
  std::string_view text;
  uint64_t value = 0;
  Kind kind = Kind::kNumber;
  bool bare = false;  // says itself what it is
};

class PacketFields {
 public:
  void clear() { count_ = 0; }
  std::span<const PacketField> all() const { return {fields_.data(), count_}; }

  void number(std::string_view name, uint64_t value) {
    add({name, {}, value, PacketField::Kind::kNumber, false});
  }
  void hex(std::string_view name, uint64_t value, bool bare = false) {
    add({name, {}, value, PacketField::Kind::kHex, bare});
  }
  // `text` must live as long as this.
  void text(std::string_view name, std::string_view text, bool bare = false) {
    add({name, text, 0, PacketField::Kind::kText, bare});
  }
  void flag(std::string_view name, bool value) {
    add({name, {}, value ? 1U : 0U, PacketField::Kind::kFlag, false});
  }
  // The `count` lowest bits, the highest first, as letters. Once for each packet.
  void letters(std::string_view name, uint64_t bits, unsigned count, char one, char zero);

 private:
  void add(const PacketField& f) {
    if (count_ < fields_.size()) fields_[count_++] = f;
  }

  std::array<PacketField, 16> fields_;
  std::array<char, 64> letters_;
  size_t count_ = 0;
};

// Not thread-safe. The stream must outlive it.
class PacketReader {
 public:
  virtual ~PacketReader() = default;
  virtual std::span<const std::string_view> names() const = 0;
  // False: that was all.
  virtual bool next(TracePacket& out) = 0;
  // What the last packet says. `out` is valid until next().
  virtual void describe(PacketFields& out) const = 0;
};

}  // namespace asof
