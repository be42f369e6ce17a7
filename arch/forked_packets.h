// A list of packets that is not asof's own (OpenCSD's of ETMv3 and PTM), made in a child: damaged trace is known to crash that
// library. Where a child dies, does not come to an end or gives a false answer, the part of the trace that it had in hand is
// one line without a packet, and another child goes on behind it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "arch/packets.h"
#include "arch/stream.h"

namespace asof {

// Where a list begins, in a piece of the stream; `time`: by the packets before.
struct PacketStart {
  uint64_t offset = 0;
  Time time = kTimeMin;
};

// To be called with the end of each part of the trace before the library gets it.
using BeforePart = std::function<void(uint64_t end)>;
// Lists all from there on, but what was lost. nullptr: the library does not take this configuration.
using MakePackets =
    std::function<std::unique_ptr<PacketReader>(const PacketStart& start, const BeforePart& before)>;

struct ForeignList {
  std::string library;                      // its name, for people
  std::span<const std::string_view> names;  // PacketReader::names()
  unsigned cpu_seconds = 20;                // that a child may take for one part
};

// `make` is called in children only. It must need nothing that another thread may hold: no lock, no file. The first field of a
// packet, if it is text, is all that is shown of what it says. The stream must outlive the result. nullptr: so said `make`.
std::unique_ptr<PacketReader> packets_in_children(const Stream& stream, MakePackets make,
                                                  const ForeignList& list);

// Index of the first piece behind those that follow piece `first` without a break.
size_t stretch_end(const Stream& stream, size_t first);

}  // namespace asof
