// ELF files for test captures: the kcore that perf copies, and small static user programs with a build-id.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace asof::test {

struct CoreSegment {
  uint64_t address = 0;
  std::vector<uint8_t> bytes{};
};

// As `perf record --kcore` writes it: ET_CORE, PT_LOAD only, RWX, file offsets page aligned.
std::vector<uint8_t> make_core(const std::vector<CoreSegment>& segments, uint16_t machine = 62);

struct ExecutableSymbol {
  std::string name{};
  uint64_t address = 0;
  uint64_t size = 0;
};

struct ExecutableSpec {
  uint64_t address = 0x401000;  // of .text; page aligned, file offset 0x1000
  std::vector<uint8_t> text{};
  std::vector<ExecutableSymbol> symbols{};
  std::vector<uint8_t> build_id{};  // empty: no note
  uint16_t machine = 62;
};

std::vector<uint8_t> make_executable(const ExecutableSpec& spec);

}  // namespace asof::test
