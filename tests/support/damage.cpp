#include "tests/support/damage.h"

#include <algorithm>
#include <cstring>

#include "decoder/model/image.h"
#include "decoder/perf/perf_data.h"
#include "decoder/perf/record_types.h"
#include "decoder/sideband/sideband.h"
#include "tests/support/perf_data_writer.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

template <class T>
T load(const std::vector<uint8_t>& bytes, uint64_t at) {
  T v{};
  std::memcpy(&v, bytes.data() + at, sizeof v);
  return v;
}

template <class T>
void store(std::vector<uint8_t>& bytes, uint64_t at, T v) {
  std::memcpy(bytes.data() + at, &v, sizeof v);
}

}  // namespace

fs::path DamagedCapture::data_file() const { return path_ / "data"; }
void DamagedCapture::save() const { write_bytes(data_file(), data_); }

DamagedCapture::DamagedCapture(const fs::path& from, const fs::path& to) : path_(to / from.filename()) {
  fs::create_directories(path_);
  for (const auto& entry :
       fs::recursive_directory_iterator(from, fs::directory_options::follow_directory_symlink)) {
    const fs::path target = path_ / entry.path().lexically_relative(from);
    if (entry.is_directory()) {
      fs::create_directories(target);
    } else {
      fs::copy_file(entry.path(), target, fs::copy_options::overwrite_existing);
      fs::permissions(target, fs::perms::owner_write, fs::perm_options::add);
    }
  }
  data_ = read_bytes(data_file());
  const auto opened = PerfData::open(path_.string());
  if (!opened) return;
  NoticeBook notices;
  for (const Poke& p : read_side_band(**opened, notices).pokes)
    pokes_.push_back({p.addr, p.time, p.file_offset});
}

void DamagedCapture::drop_poke(size_t index) {
  constexpr uint32_t kNobodysType = 45;
  store(data_, pokes_.at(index).offset, kNobodysType);
  save();
}

std::vector<uint32_t> DamagedCapture::swap_bpf_images() {
  struct Found {
    uint32_t id = 0;
    uint64_t offset = 0;
    std::vector<uint8_t> bytes;
  };
  std::vector<Found> found;
  {
    const auto opened = PerfData::open(path_.string());
    if (!opened) return {};
    for (const BpfImage& image : (*opened)->bpf_images()) {
      if (image.functions.empty() || image.functions[0].bytes.empty()) continue;
      const auto bytes = image.functions[0].bytes;
      const auto at = std::ranges::search(data_, bytes);
      if (at.empty()) continue;
      found.push_back(
          {image.id, static_cast<uint64_t>(at.begin() - data_.begin()), {bytes.begin(), bytes.end()}});
    }
  }
  if (found.size() < 2) return {};
  const Found& a = found[0];
  const Found& b = found[1];
  const size_t size = std::min(a.bytes.size(), b.bytes.size());
  std::copy_n(b.bytes.begin(), size, data_.begin() + static_cast<long>(a.offset));
  std::copy_n(a.bytes.begin(), size, data_.begin() + static_cast<long>(b.offset));
  save();
  return {a.id, b.id};
}

void DamagedCapture::shift_clock(int64_t by) {
  constexpr uint64_t kZeroInTimeConv = 24;
  std::vector<std::pair<uint64_t, uint64_t>> infos;  // offset, size
  uint64_t zero = 0;
  {
    const auto opened = PerfData::open(path_.string());
    if (!opened) return;
    (*opened)->for_each([&](const Record& r) {
      if (r.type == perf::kAuxtraceInfo) infos.emplace_back(r.file_offset, r.bytes.size());
      if (r.type == perf::kTimeConv) {
        zero = load<uint64_t>(data_, r.file_offset + kZeroInTimeConv);
        store(data_, r.file_offset + kZeroInTimeConv, zero + static_cast<uint64_t>(by));
      }
      return true;
    });
  }
  for (const auto& [offset, size] : infos) {
    for (uint64_t at = offset + 16; at + 8 <= offset + size; at += 8) {
      if (zero != 0 && load<uint64_t>(data_, at) == zero) store(data_, at, zero + static_cast<uint64_t>(by));
    }
  }
  save();
}

bool DamagedCapture::flip_kcore(Addr address, uint8_t bit) {
  const fs::path file = path_ / "kcore_dir" / "kcore";
  std::vector<uint8_t> bytes = read_bytes(file);
  {
    const auto image = ElfImage::open(file.string());
    if (!image) return false;
    for (const ElfSegment& s : (*image)->segments()) {
      if (!range_of(s.address, s.bytes.size()).contains(address)) continue;
      const auto at = std::ranges::search(bytes, s.bytes);
      if (at.empty()) return false;
      *(at.begin() + static_cast<long>(address - s.address)) ^= bit;
      break;
    }
  }
  if (bytes == read_bytes(file)) return false;
  write_bytes(file, bytes);
  return true;
}

}  // namespace asof::test
