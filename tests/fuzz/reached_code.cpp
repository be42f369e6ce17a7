#include "tests/fuzz/reached_code.h"

#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <vector>

namespace asof::fuzz {
namespace {

// Of the program; each of its files announces the same. (Clang's SanitizerCoverage.)
std::span<uint8_t> counters;
struct Place {
  uintptr_t address, flags;
};
std::span<const Place> places;

std::vector<bool>& reached() {
  static std::vector<bool> all(counters.size());
  return all;
}

uintptr_t load_address() {
  uintptr_t at = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* program, size_t, void* out) {
        *static_cast<uintptr_t*>(out) = program->dlpi_addr;
        return 1;  // the program is the first
      },
      &at);
  return at;
}

}  // namespace

bool counts_reached_code() { return !counters.empty() && counters.size() == places.size(); }

void note_reached_code() {
  for (size_t i = 0; i < counters.size(); ++i) {
    if (counters[i] != 0) reached()[i] = true;
  }
  std::ranges::fill(counters, uint8_t{0});
}

void write_reached_code(const std::string& path) {
  std::ofstream out(path);
  const uintptr_t loaded = load_address();
  for (size_t i = 0; i < places.size(); ++i)
    out << fmt::format("{:#x} {}\n", places[i].address - loaded, reached()[i] ? 1 : 0);
}

}  // namespace asof::fuzz

// NOLINTBEGIN(bugprone-reserved-identifier): the compiler calls them so
extern "C" void __sanitizer_cov_8bit_counters_init(uint8_t* begin, uint8_t* end);
extern "C" void __sanitizer_cov_8bit_counters_init(uint8_t* begin, uint8_t* end) {
  asof::fuzz::counters = {begin, end};
}

extern "C" void __sanitizer_cov_pcs_init(const asof::fuzz::Place* begin, const asof::fuzz::Place* end);
extern "C" void __sanitizer_cov_pcs_init(const asof::fuzz::Place* begin, const asof::fuzz::Place* end) {
  asof::fuzz::places = {begin, end};
}
// NOLINTEND(bugprone-reserved-identifier)
