// Unpacks the COMPRESSED records of one file into a spool. Private to the perf.data reader.
#pragma once
#include <memory>
#include <optional>

#include "decoder/perf/perf_data_impl.h"

struct ZSTD_DCtx_s;

namespace asof::perf {

// One zstd stream runs through all COMPRESSED records of a file (tools/perf/util/zstd.c, compress.h). A
// record of the output may be cut where one ends and continue in the next one, so what was unpacked is kept
// as one run of bytes.
class Unpacker {
 public:
  // A packed byte gives at most this many, over the whole file, before it counts as an attack on the disk.
  // Side-band packs 3 to 60 times.
  static constexpr uint64_t kMaxRatio = 256;
  static constexpr uint64_t kFreeBytes = 64U << 20;

  Unpacker(std::string path, NoticeList& notices);
  ~Unpacker();
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  // The next COMPRESSED record (type 81 or 83). An Error only when the spool cannot be written.
  Result<void> feed(uint32_t type, std::span<const uint8_t> packed, uint64_t file_offset);
  // Records were skipped: only a new zstd frame can be unpacked from here on.
  void lose();
  // The last record fed could not be unpacked as a whole.
  bool failed() const { return lost_ || stopped_; }
  // The unpacked bytes; stretches are still to be found.
  Result<Unpacked> finish();

 private:
  Result<void> unpack(std::span<const uint8_t> packed, uint64_t file_offset);
  void damaged(uint64_t file_offset, Code code, std::string reason, std::string hint);

  struct FreeContext {
    void operator()(ZSTD_DCtx_s* context) const;
  };
  std::string path_;
  NoticeList& notices_;
  std::unique_ptr<ZSTD_DCtx_s, FreeContext> context_;
  std::optional<Spool> spool_;
  std::vector<uint8_t> buffer_;
  std::vector<Unpacked::Chunk> chunks_;
  uint64_t packed_bytes_ = 0;
  bool lost_ = false, stopped_ = false;
};

}  // namespace asof::perf
