#include "tools/board/machine/known_bytes.h"

#include <algorithm>
#include <string_view>

#include "decoder/perf/record_types.h"
#include "decoder/perf/records.h"

namespace asof::machine {
namespace {

// A file, the vDSO, or the marker of a jitdump file: other executable memory has bytes nowhere.
bool has_file(std::string_view name) {
  return (name.starts_with("/") && !name.starts_with("//anon") && !name.starts_with("/memfd:")) ||
         name == "[vdso]";
}

}  // namespace

KnownBytes::KnownBytes(const PerfData& data) {
  if (!data.directory().empty()) {
    if (auto kcore = ElfImage::open(data.directory() + "/kcore_dir/kcore")) kcore_ = *kcore;
  }
  kernel_known_ = kcore_ != nullptr;
  data.for_each([&](const Record& r) {
    if (r.type == perf::kMmap || r.type == perf::kMmap2) {
      if (const auto map = parse_mmap(r)) {
        const AddrRange range = range_of(map->addr, map->len);
        if (!is_kernel_address(map->addr) && has_file(map->filename)) mapped_.push_back(range);
      }
    } else if (r.type == perf::kTextPoke) {
      if (const auto poke = parse_text_poke(r)) {
        add(poke->addr, poke->old_bytes);
        add(poke->addr, poke->new_bytes);
      }
    }
    return true;
  });
  for (const BpfImage& image : data.bpf_images()) {
    for (const BpfImage::Function& f : image.functions) add(f.address, f.bytes);
  }
}

void KnownBytes::add(Addr address, std::span<const uint8_t> bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    auto& values = at_[address + i];
    if (std::ranges::find(values, bytes[i]) == values.end()) values.push_back(bytes[i]);
  }
}

bool KnownBytes::has_byte(Addr address, uint8_t byte) const {
  if (const auto it = at_.find(address);
      it != at_.end() && std::ranges::find(it->second, byte) != it->second.end())
    return true;
  for (const ElfSegment& s : kcore_->segments()) {
    if (address - s.address < s.bytes.size()) return s.bytes[address - s.address] == byte;
  }
  return false;
}

bool KnownBytes::has(Addr address, std::span<const uint8_t> bytes) const {
  const auto within = [address](const AddrRange& r) { return r.contains(address); };
  if (!is_kernel_address(address)) return std::ranges::any_of(mapped_, within);
  // The copy reaches over all modules that were loaded. perf's mapping of a module is no proof: it reaches up to the next
  // one, over memory in which another one may be loaded later.
  if (!kernel_known_) return true;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (!has_byte(address + i, bytes[i])) return false;
  }
  return true;
}

}  // namespace asof::machine
