#include "decoder/ocsd/ocsd_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace asof {
namespace {

void read_core(const IniFile& file, const IniSection& device, OcsdDevices& devices, NoticeBook& notices) {
  OcsdCore core{
      .name = std::string(device.get("name")), .type = std::string(device.get("type")), .dumps = {}};
  for (const IniSection& section : file.sections()) {
    if (!section.name.starts_with("dump")) continue;
    const auto address = section.number("address");
    OcsdDump dump;
    dump.where = fmt::format("{} [{}]", file.path(), section.name);
    if (section.get("file").empty() || !address || (section.has("length") && !section.number("length")) ||
        (section.has("offset") && !section.number("offset"))) {
      notices.error(Code::kBadSnapshot, dump.where,
                    "this memory dump has no file or no address, or a number is none: its code is unknown",
                    "give the section file and address, as the snapshot's program writes them",
                    section.file_offset);
      continue;
    }
    dump.file = file.resolve(section.get("file"));
    dump.address = *address;
    dump.offset = section.number("offset").value_or(0);
    dump.length = section.number("length");
    dump.space = section.get("space");
    if (dump.space == "any" || dump.space == "ANY") dump.space.clear();
    core.dumps.push_back(std::move(dump));
  }
  devices.cores.push_back(std::move(core));
}

// Registers of ETMv4 and ETE (Arm IHI 0064), ETMv3 (IHI 0014) and PTM (IHI 0035) by their names.
void read_registers(const IniSection& registers, arm64::Source& s) {
  const auto value = [&](std::string_view name) {
    return static_cast<uint32_t>(registers.number(name).value_or(0));
  };
  s.configr = value("TRCCONFIGR");
  s.traceidr = value("TRCTRACEIDR");
  s.idr0 = value("TRCIDR0");
  s.idr1 = value("TRCIDR1");
  s.idr2 = value("TRCIDR2");
  s.idr8 = value("TRCIDR8");
  s.idr9 = value("TRCIDR9");
  s.idr10 = value("TRCIDR10");
  s.idr11 = value("TRCIDR11");
  s.idr12 = value("TRCIDR12");
  s.idr13 = value("TRCIDR13");
  s.devarch = value("TRCDEVARCH");
  s.etmcr = value("ETMCR");
  s.etmidr = value("ETMIDR");
  s.etmccer = value("ETMCCER");
  if (registers.has("ETMTRACEIDR")) s.traceidr = value("ETMTRACEIDR");
  s.trace_id = static_cast<uint8_t>(s.traceidr & 0x7fU);
}

void read_source(const IniFile& file, const IniSection& device, OcsdDevices& devices) {
  OcsdSource out;
  out.name = device.get("name");
  out.type = device.get("type");
  const IniSection* registers = file.find("regs");
  static const IniSection kNone;
  if (registers == nullptr) registers = &kNone;
  read_registers(*registers, out.source);
  const std::string_view type = out.type;
  out.instructions = true;
  if (type.starts_with("ETE")) {
    out.source.protocol = arm64::Protocol::kEte;
  } else if (type.starts_with("ETM4") || type.starts_with("ETMv4")) {
    out.source.protocol = arm64::Protocol::kEtm4;
  } else if (type.starts_with("ETM3") || type.starts_with("ETMv3")) {
    out.source.protocol = arm64::Protocol::kEtm3;
  } else if (type.starts_with("PTM") || type.starts_with("PFT")) {
    out.source.protocol = arm64::Protocol::kPtm;
  } else {
    out.instructions = false;
    // STMTCSR and ITMTCR have the ID in the same bits.
    for (std::string_view name : {"STMTCSR", "ITMTCR"}) {
      if (const auto control = registers->number(name))
        out.source.trace_id = static_cast<uint8_t>((*control >> 16U) & 0x7fU);
    }
  }
  devices.sources.push_back(std::move(out));
}

}  // namespace

const OcsdCore* OcsdDevices::core(std::string_view name) const {
  const auto hit =
      std::find_if(cores.begin(), cores.end(), [&](const OcsdCore& c) { return c.name == name; });
  return hit == cores.end() ? nullptr : &*hit;
}

const OcsdSource* OcsdDevices::source(std::string_view name) const {
  const auto hit =
      std::find_if(sources.begin(), sources.end(), [&](const OcsdSource& s) { return s.name == name; });
  return hit == sources.end() ? nullptr : &*hit;
}

void read_ocsd_device(const IniFile& file, OcsdDevices& devices, NoticeBook& notices) {
  const IniSection* device = file.find("device");
  if (device == nullptr || device->get("name").empty()) {
    notices.error(Code::kBadSnapshot, file.path(),
                  "this is no device: it has no [device] section with a name");
    return;
  }
  const std::string_view kind = device->get("class");
  if (kind == "core") {
    read_core(file, *device, devices, notices);
  } else if (kind == "trace_source") {
    read_source(file, *device, devices);
  }
}

void set_core_type(arm64::Source& source, std::string_view core_type) {
  constexpr std::array<std::string_view, 14> k32BitCores = {
      "Cortex-A5",  "Cortex-A7", "Cortex-A8", "Cortex-A9", "Cortex-A12", "Cortex-A15", "Cortex-A17",
      "Cortex-A32", "Cortex-R4", "Cortex-R5", "Cortex-R7", "Cortex-R8",  "Cortex-R52", "ARM926EJ-S"};
  source.m_profile = core_type.starts_with("Cortex-M");
  source.armv7 = source.m_profile || core_type.starts_with("ARMv7") ||
                 std::find(k32BitCores.begin(), k32BitCores.end(), core_type) != k32BitCores.end();
}

}  // namespace asof
