// How one line of `asof packets` looks: as text, as one JSON object, as comma-separated values.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "arch/arch.h"
#include "arch/packets.h"
#include "arch/stream.h"

namespace asof {

struct PacketFormat {
  enum class Kind : uint8_t { kText, kJson, kCsv } kind = Kind::kText;
  bool raw = false;           // the bytes in hex
  bool color = false;         // of text
  bool file_offsets = false;  // where the bytes are in the file, not in the stream
};

class PacketStyle {
 public:
  virtual ~PacketStyle() = default;
  // Before the first line.
  virtual std::string header() const { return {}; }
  // The lines that follow are of this stream.
  virtual void start(const Stream& stream, std::span<const std::string_view> names) = 0;
  // `fields`: of packets, what they say.
  virtual void line(std::string& out, const TracePacket& k, std::span<const PacketField> fields) = 0;
  // Of the flow, under the packet that made it run; `sure`: it is known to be that one.
  virtual void block(std::string& /*out*/, const Step& /*step*/, const std::string& /*symbol*/,
                     bool /*sure*/) {}
  virtual void gap(std::string& /*out*/, const Gap& /*gap*/, const std::string& /*text*/) {}
};
std::unique_ptr<PacketStyle> make_packet_style(const PacketFormat& format);

}  // namespace asof
