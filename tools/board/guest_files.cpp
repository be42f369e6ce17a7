#include "tools/board/guest_files.h"

#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "decoder/perf/record_types.h"
#include "tools/board/protocol.h"

namespace asof::board {
namespace {

namespace fs = std::filesystem;
constexpr size_t kHeader = 8, kTrailer = 32;  // of a record; TID, TIME, CPU, IDENTIFIER
constexpr uint64_t kMaxSegment = 1ULL << 30;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error("guest files: " + what); }

std::string text_of(const fs::path& path) {
  const auto bytes = test::read_bytes(path);
  return {bytes.begin(), bytes.end()};
}

template <class T>
T load(std::span<const uint8_t> bytes, size_t at) {
  if (at > bytes.size() || bytes.size() - at < sizeof(T)) fail("a file is cut");
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::vector<uint8_t> part(std::span<const uint8_t> bytes, size_t at, uint64_t size) {
  if (at > bytes.size() || size > bytes.size() - at) fail("a file is cut");
  const auto p = bytes.subspan(at, size);
  return {p.begin(), p.end()};
}

std::vector<test::CoreSegment> read_kcore(const fs::path& path) {
  const auto bytes = test::read_bytes(path);
  std::vector<test::CoreSegment> out;
  for (size_t at = 0; at < bytes.size();) {
    const auto address = load<uint64_t>(bytes, at), size = load<uint64_t>(bytes, at + 8);
    if (size > kMaxSegment) fail("a copy of kernel text of more than 1 GiB");
    out.push_back({address, part(bytes, at + 16, size)});
    at += 16 + size;
  }
  return out;
}

std::vector<test::BpfProgSpec> read_programs(const fs::path& path) {
  const auto bytes = test::read_bytes(path);
  std::vector<test::BpfProgSpec> out;
  for (size_t at = 0; at < bytes.size();) {
    const auto head = load<board_bpf_program>(bytes, at);
    at += sizeof head;
    test::BpfProgSpec p{.id = head.id, .type = head.type, .load_time = head.load_time};
    std::memcpy(p.tag.data(), head.tag, sizeof head.tag);
    p.name.assign(head.name, strnlen(head.name, sizeof head.name));
    const size_t table = at, code = at + 16 * size_t{head.functions};
    size_t begin = code;
    for (uint32_t i = 0; i < head.functions; ++i) {
      const auto address = load<uint64_t>(bytes, table + size_t{16} * i),
                 size = load<uint64_t>(bytes, table + size_t{16} * i + 8);
      p.functions.push_back({address, part(bytes, begin, size), p.tag});
      begin += size;
    }
    at = code + head.code_bytes;
    out.push_back(std::move(p));
  }
  return out;
}

void read_clock(const fs::path& path, GuestFiles& out) {
  std::istringstream in(text_of(path));
  std::string key;
  for (uint64_t value = 0; in >> key >> value;) {
    if (key == "time_shift") out.clock.shift = value;
    if (key == "time_mult") out.clock.mult = value;
    if (key == "time_zero") out.clock.zero = value;
    if (key == "cap_user_time_zero") out.clock.cap_zero = value != 0;
    if (key.starts_with("id")) out.ids.push_back(value);
  }
  if (out.ids.empty() || out.clock.mult == 0) fail("the clock is not recorded");
}

void read_symbols(GuestFiles& out) {
  std::istringstream in(out.kallsyms);
  for (std::string line; std::getline(in, line);) {
    const size_t type = line.find(' ');
    if (type == std::string::npos || line.find('\t') != std::string::npos || line.size() < type + 4) continue;
    Addr address = 0;
    std::from_chars(line.data(), line.data() + type, address, 16);
    const std::string name = line.substr(type + 3);
    out.addresses.try_emplace(name, address);
    if ((line[type + 1] | 0x20) == 't') out.symbols[address] = name;
  }
}

}  // namespace

uint64_t GuestFiles::perf_time(uint64_t ticks) const {
  const auto scaled = static_cast<unsigned __int128>(ticks) * clock.mult >> clock.shift;
  return clock.zero + static_cast<uint64_t>(scaled);
}

std::string GuestFiles::place(Addr address) const {
  auto it = symbols.upper_bound(address);
  if (it == symbols.begin()) return fmt::format("{:#x}", address);
  --it;
  return fmt::format("{}+{:#x}", it->second, address - it->first);
}

std::vector<Poke> GuestFiles::pokes() const {
  std::vector<Poke> out;
  for (const auto& ring : rings) {
    for (size_t at = 0; at < ring.size();) {
      const auto type = load<uint32_t>(ring, at);
      const auto size = load<uint16_t>(ring, at + 6);
      if (size < kHeader) fail("a record without a size");
      if (type == perf::kTextPoke) {
        const std::span<const uint8_t> r(ring.data() + at, std::min<size_t>(size, ring.size() - at));
        const auto old_size = load<uint16_t>(r, 16), new_size = load<uint16_t>(r, 18);
        Poke p{load<uint64_t>(r, size - kTrailer + 8), load<uint32_t>(r, size - kTrailer + 16),
               load<uint64_t>(r, 8), part(r, 20, old_size), part(r, 20 + size_t{old_size}, new_size)};
        out.push_back(std::move(p));
      }
      at += size;
    }
  }
  std::ranges::stable_sort(out, {}, &Poke::time);
  return out;
}

std::map<uint32_t, uint64_t> GuestFiles::record_counts() const {
  std::map<uint32_t, uint64_t> out;
  for (const auto& ring : rings) {
    for (size_t at = 0; at < ring.size(); at += load<uint16_t>(ring, at + 6)) ++out[load<uint32_t>(ring, at)];
  }
  return out;
}

GuestFiles read_guest_files(const fs::path& directory) {
  GuestFiles out;
  out.kcore = read_kcore(directory / "kcore");
  out.kcore_end = read_kcore(directory / "kcore.end");
  out.kallsyms = text_of(directory / "kallsyms"), out.kallsyms_end = text_of(directory / "kallsyms.end");
  out.modules = text_of(directory / "modules"), out.modules_end = text_of(directory / "modules.end");
  out.ksym_text = test::read_bytes(directory / "ksym_text.bin");
  out.programs = read_programs(directory / "bpf.bin");
  read_clock(directory / "clock", out);
  for (size_t cpu = 0; cpu < out.ids.size(); ++cpu)
    out.rings.push_back(test::read_bytes(directory / fmt::format("ring{}", cpu)));
  std::istringstream system(text_of(directory / "system"));
  std::getline(system, out.release), std::getline(system, out.version), std::getline(system, out.machine);
  system >> std::hex >> out.physical_text;
  read_symbols(out);
  return out;
}

}  // namespace asof::board
