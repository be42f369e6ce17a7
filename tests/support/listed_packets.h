// What a PacketReader gives, kept: for comparisons with other readers.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "arch/packets.h"
#include "decoder/model/capture.h"

namespace asof::test {

struct ListedPacket {
  uint64_t offset = 0, size = 0;
  Time time = kTimeMin;
  std::string name;
  Code code = Code::kNone;
  std::map<std::string, uint64_t> numbers;
  std::map<std::string, std::string> texts;

  bool is_lost() const { return name == kLineNames[kPacketLost]; }
  bool is_packet() const { return code == Code::kNone && name != kLineNames[kPacketCut] && !is_lost(); }
  uint64_t number(const char* field) const {
    const auto it = numbers.find(field);
    return it == numbers.end() ? UINT64_MAX : it->second;
  }
};

inline std::vector<ListedPacket> listed_packets(PacketReader& reader) {
  std::vector<ListedPacket> out;
  PacketFields fields;
  for (TracePacket k; reader.next(k);) {
    ListedPacket& p = out.emplace_back();
    p.offset = k.offset;
    p.size = k.size;
    p.time = k.time;
    p.name = reader.names()[k.type];
    p.code = k.code;
    if (!k.is_packet()) continue;
    fields.clear();
    reader.describe(fields);
    for (const PacketField& f : fields.all()) {
      if (f.kind == PacketField::Kind::kText)
        p.texts.emplace(f.name, f.text);
      else
        p.numbers.emplace(f.name, f.value);
    }
  }
  return out;
}

// Every byte of the stream is in one line, in order. Returns what is wrong, or nothing.
inline std::string not_covered(const Stream& stream, const std::vector<ListedPacket>& list) {
  auto line = list.begin();
  for (const StreamPiece& piece : stream.pieces) {
    uint64_t at = piece.offset;
    const uint64_t end = at + piece.size();
    while (at < end) {
      while (line != list.end() && line->is_lost()) ++line;
      if (line == list.end()) return "the list ends before offset " + std::to_string(at);
      if (line->offset > at || line->offset + line->size <= at)
        return "offset " + std::to_string(at) + " is not in the line at " + std::to_string(line->offset);
      at = line->offset + line->size;
      if (at <= end || &piece == &stream.pieces.back()) ++line;
    }
  }
  while (line != list.end() && line->is_lost()) ++line;
  return line == list.end() ? std::string() : "a line too many at " + std::to_string(line->offset);
}

}  // namespace asof::test
