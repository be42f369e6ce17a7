// Lister: writes the packets of streams that pass the filters, as lines or as counts.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "arch/packets.h"
#include "arch/stream.h"
#include "tools/output/output.h"
#include "tools/packets/packet_count.h"
#include "tools/packets/packet_filter.h"
#include "tools/packets/packet_style.h"

namespace asof {

struct PacketSelection {
  std::vector<int> cpus;
  TaskChoice tasks;  // what was traced while they ran
  OffsetRange offsets;
  TimeBounds time;

  bool wants(const Stream& s) const;
};

class Lister {
 public:
  // All but `format` must outlive it.
  Lister(const Capture& capture, const PacketSelection& selection, const TypeFilter& types,
         const PacketFormat& format, bool count, Output& out);

  // All of a stream.
  void list(const Stream& stream, PacketReader& reader);
  // One by one: what follows is of this stream; then each packet that next() gave. True: it is listed.
  void start(const Stream& stream, const PacketReader& reader);
  bool add(const Stream& stream, const PacketReader& reader, const TracePacket& k);
  bool wants(const Stream& s) const { return selection_.wants(s); }
  bool is_behind(const TracePacket& k) const { return k.offset >= selection_.offsets.end; }
  // A line of its own, as the style has it.
  template <class Make>
  void line(Make&& make) {
    line_.clear();
    make(*style_, line_);
    out_.write(line_);
  }
  bool stopped() const { return interrupted() || out_.closed(); }
  const PacketCount& count() const { return count_; }

 private:
  bool passes(const Stream& stream, const TracePacket& k);

  const PacketSelection& selection_;
  const TypeFilter& types_;
  TaskFilter tasks_;
  const std::unique_ptr<PacketStyle> style_;
  const bool only_count_;
  Output& out_;
  PacketCount count_;
  PacketFields fields_;
  std::string line_;
};

}  // namespace asof
