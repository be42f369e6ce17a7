// Damage that validation must find: a capture is copied, one thing in it is changed as a fault would, and
// everything else stays. Offsets are those of the reader, so no writer's layout is assumed.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "textstore/address.h"
#include "textstore/time.h"

namespace asof::test {

class DamagedCapture {
 public:
  // Copies the perf.data directory `from` below `to`.
  DamagedCapture(const std::filesystem::path& from, const std::filesystem::path& to);

  const std::filesystem::path& path() const { return path_; }

  size_t pokes() const { return pokes_.size(); }
  Addr poke_address(size_t index) const { return pokes_[index].address; }
  Time poke_time(size_t index) const { return pokes_[index].time; }

  // The record becomes one of an unknown type: its size stays, its content is lost.
  void drop_poke(size_t index);
  // Swaps the first functions of two BPF images, as far as both have bytes. Returns their program ids.
  std::vector<uint32_t> swap_bpf_images();
  // Shifts the relation of the trace's counter to perf's clock, wherever the file states it.
  void shift_clock(int64_t by);
  // Flips one bit of the byte at an address in the copy of kcore. False: the copy does not have it.
  bool flip_kcore(Addr address, uint8_t bit);

 private:
  struct PokeAt {
    Addr address = 0;
    Time time = kTimeMin;
    uint64_t offset = 0;
  };
  void save() const;
  std::filesystem::path data_file() const;

  std::filesystem::path path_;
  std::vector<uint8_t> data_;
  std::vector<PokeAt> pokes_;
};

}  // namespace asof::test
