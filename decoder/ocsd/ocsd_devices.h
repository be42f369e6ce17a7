// Devices of an OpenCSD snapshot: cores with their memory dumps, and trace sources with their registers.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "arch/arm64/arm64.h"
#include "decoder/io/sideband_notices.h"
#include "decoder/ocsd/ocsd_ini.h"
#include "textstore/address.h"

namespace asof {

struct OcsdDump {
  std::string file;  // resolved
  Addr address = 0;
  uint64_t offset = 0;             // in the file
  std::optional<uint64_t> length;  // default: the rest of the file
  std::string space;               // "S", "N", "EL2", ...; empty: all
  std::string where;               // INI file and section, for notices
};

struct OcsdCore {
  std::string name, type;
  std::vector<OcsdDump> dumps;
};

struct OcsdSource {
  std::string name, type;
  arm64::Source source;
  bool instructions = false;  // of a core; else STM, ITM, or something unknown
};

struct OcsdDevices {
  std::vector<OcsdCore> cores;
  std::vector<OcsdSource> sources;

  const OcsdCore* core(std::string_view name) const;
  const OcsdSource* source(std::string_view name) const;
};

// Reads one device file into `devices`. What is invalid in it is reported and left out.
void read_ocsd_device(const IniFile& file, OcsdDevices& devices, NoticeBook& notices);

// What the core's type says about the code it runs: no AArch64 state, M profile.
void set_core_type(arm64::Source& source, std::string_view core_type);

}  // namespace asof
