// What the guest handed out besides the log: copies of kernel text, names, rings, BPF code, clock
// (guest/*.c).
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "decoder/perf/records.h"
#include "tests/support/elf_writer.h"
#include "tests/support/perf_data_writer.h"
#include "textstore/address.h"

namespace asof::board {

struct Poke {
  uint64_t time = 0;  // perf time, ns
  uint32_t cpu = 0;
  Addr address = 0;
  std::vector<uint8_t> old_bytes, new_bytes;
};

struct GuestFiles {
  std::vector<test::CoreSegment> kcore, kcore_end;
  std::string kallsyms, kallsyms_end, modules, modules_end;
  std::vector<uint8_t> ksym_text;
  std::vector<std::vector<uint8_t>> rings;  // records as the kernel wrote them, one ring per CPU
  std::vector<test::BpfProgSpec> programs;
  test::TimeConvSpec clock;
  std::vector<uint64_t> ids;  // of the side-band events, per CPU
  std::string release, version, machine;
  uint64_t physical_text = 0;           // where the kernel's code begins in memory
  std::map<Addr, std::string> symbols;  // of the kernel's own text
  std::map<std::string, Addr> addresses;

  uint64_t perf_time(uint64_t ticks) const;
  std::string place(Addr address) const;  // "symbol+0x12"
  std::vector<Poke> pokes() const;
  std::map<uint32_t, uint64_t> record_counts() const;
};

// Throws std::runtime_error.
GuestFiles read_guest_files(const std::filesystem::path& directory);

}  // namespace asof::board
