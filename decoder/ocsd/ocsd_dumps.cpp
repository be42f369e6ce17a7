#include "decoder/ocsd/ocsd_dumps.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "decoder/model/image.h"

namespace asof {
namespace {

// What of a range no earlier dump of the same memory space has.
class Covered {
 public:
  std::vector<AddrRange> add(AddrRange range) {
    std::vector<AddrRange> fresh;
    Addr at = range.begin;
    for (const auto& [begin, end] : ranges_) {
      if (end <= at) continue;
      if (begin >= range.end) break;
      if (begin > at) fresh.push_back({at, begin});
      at = std::max(at, end);
    }
    if (at < range.end) fresh.push_back({at, range.end});
    for (const AddrRange& piece : fresh) ranges_.emplace(piece.begin, piece.end);
    return fresh;
  }

 private:
  std::map<Addr, Addr> ranges_;
};

class DumpAdder {
 public:
  DumpAdder(Builder& builder, Space user, NoticeBook& notices)
      : builder_(builder), user_(user), notices_(notices) {}

  void add(const OcsdDump& dump);

 private:
  struct File {
    std::shared_ptr<const MappedFile> file;
    std::map<uint64_t, OriginRef> origins;  // by offset
  };
  const MappedFile* open(const OcsdDump& dump);
  void place(const OcsdDump& dump, AddrRange range, std::span<const uint8_t> bytes);
  void compare(const OcsdDump& dump, AddrRange range, std::span<const uint8_t> bytes);

  struct Placed {
    AddrRange range;
    std::span<const uint8_t> bytes;
    const OcsdDump* dump;
  };
  Builder& builder_;
  const Space user_;
  NoticeBook& notices_;
  bool kernel_ = false;                                             // kernel text was dumped
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;  // nullptr: cannot be read
  std::map<std::string, Covered> covered_;                          // by memory space
  std::map<std::string, std::vector<Placed>> placed_;               // so
};

const MappedFile* DumpAdder::open(const OcsdDump& dump) {
  const auto [it, fresh] = files_.try_emplace(dump.file);
  if (!fresh) return it->second.get();
  auto file = MappedFile::open(dump.file);
  if (!file) {
    notices_.error(Code::kDumpNotUsed, dump.where,
                   fmt::format("memory dump {}: {}; its code is unknown", dump.file, file.error().reason),
                   "copy the snapshot again, with all files that its .ini files name");
    return nullptr;
  }
  builder_.keep(*file);
  it->second = *file;
  return file->get();
}

void DumpAdder::add(const OcsdDump& dump) {
  const MappedFile* file = open(dump);
  if (file == nullptr) return;
  auto bytes = file->bytes();
  if (dump.offset > bytes.size()) {
    notices_.error(Code::kDumpNotUsed, dump.where,
                   fmt::format("offset {:#x} is beyond the {:#x} bytes of {}: its code is unknown",
                               dump.offset, bytes.size(), dump.file),
                   "copy the file again; the section says where in it the dump begins");
    return;
  }
  bytes = bytes.subspan(dump.offset);
  if (dump.length && *dump.length > bytes.size()) {
    notices_.error(Code::kDumpNotUsed, dump.where,
                   fmt::format("{:#x} bytes at offset {:#x} go beyond the end of {}: {:#x} are used",
                               *dump.length, dump.offset, dump.file, bytes.size()));
  }
  if (dump.length) bytes = bytes.first(std::min<uint64_t>(*dump.length, bytes.size()));
  const AddrRange range = range_of(dump.address, bytes.size());
  compare(dump, range, bytes);
  for (const AddrRange& piece : covered_[dump.space].add(range)) {
    const auto part = bytes.subspan(piece.begin - range.begin, piece.size());
    place(dump, piece, part);
    placed_[dump.space].push_back({piece, part, &dump});
  }
}

// Where an earlier dump has other bytes, either may be what ran.
void DumpAdder::compare(const OcsdDump& dump, AddrRange range, std::span<const uint8_t> bytes) {
  for (const Placed& before : placed_[dump.space]) {
    const AddrRange both = before.range.intersect(range);
    if (both.empty()) continue;
    const auto here = bytes.subspan(both.begin - range.begin, both.size());
    const auto there = before.bytes.subspan(both.begin - before.range.begin, both.size());
    if (here.data() == there.data() || std::ranges::equal(here, there)) continue;
    notices_.error(
        Code::kDumpNotUsed, dump.where,
        fmt::format("memory dump {} has other bytes than {} in {:#x}-{:#x}: nothing there is certain",
                    dump.file, before.dump->file, both.begin, both.end),
        "compare the addresses of the dumps");
    place(dump, both, here);
  }
}

void DumpAdder::place(const OcsdDump& dump, AddrRange range, std::span<const uint8_t> bytes) {
  constexpr Addr kKernel = 1ULL << 63U;
  if (range.begin < kKernel && range.end > kKernel) {
    const uint64_t low = kKernel - range.begin;
    place(dump, {range.begin, kKernel}, bytes.first(low));
    place(dump, {kKernel, range.end}, bytes.subspan(low));
    return;
  }
  Layer layer{.space = is_kernel_address(range.begin) ? kKernelSpace : user_, .range = range, .bytes = bytes};
  layer.rank = kRankMapping;
  layer.unsure = layer.space == kKernelSpace;
  if (layer.unsure && !std::exchange(kernel_, true))
    notices_.info(Code::kChangesNotRecorded, dump.where,
                  "dumps of memory have no time, and kernels change their text: none of it is certain");
  layer.origin =
      builder_.add_origin({.kind = OriginKind::kRaw, .name = dump.file, .id = dump.offset, .build_id = {}});
  builder_.add_layer(layer);
}

}  // namespace

void add_ocsd_dumps(const OcsdDevices& devices, Builder& builder, Space user, NoticeBook& notices) {
  DumpAdder adder(builder, user, notices);
  for (const OcsdCore& core : devices.cores) {
    for (const OcsdDump& dump : core.dumps) adder.add(dump);
  }
}

}  // namespace asof
