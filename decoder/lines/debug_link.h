// .gnu_debuglink: what a program without debug information says of the file that has it.
#pragma once
#include <cstdint>
#include <string>

namespace asof {

struct DebugLink {
  std::string file;  // its name, without a folder; empty: nothing is said
  uint32_t crc = 0;
};

DebugLink debug_link(const std::string& path);
// The checksum of a debug link: CRC-32 of the whole file. 0 where it cannot be read.
uint32_t debug_link_crc(const std::string& path);

}  // namespace asof
