// Text: which bytes were at an address at a time. Needs no decoding.
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "asof/error.h"
#include "asof/types.h"

namespace asof::v0 {

struct CaptureData;

struct Source {
  SourceKind kind = SourceKind::kUnknown;
  std::string_view name;      // path, name of a program; may be empty
  std::uint64_t id = 0;       // kBpfImage: id of the program; kPoke, kBeforePoke: index in Text::changes()
  std::string_view build_id;  // lower-case hexadecimal; empty: none
};

// One state of a range.
struct TextImage {
  Address begin = 0;
  std::vector<std::uint8_t> bytes;  // of the whole range; 0 where unknown
  std::vector<SourceRef> sources;   // of each byte; 0: the byte is unknown
  // Of each byte 1 where it may have been another one at that time: several versions are possible, or it may have
  // changed without a record. Else 0. Just after a TextChange's time the old bytes or a breakpoint may still be there.
  std::vector<std::uint8_t> doubts;

  // Whether all bytes [offset, offset + size) are known.
  bool known(std::size_t offset, std::size_t size) const {
    if (offset > sources.size() || size > sources.size() - offset) return false;
    for (std::size_t i = offset; i < offset + size; ++i) {
      if (sources[i] == 0) return false;
    }
    return true;
  }

  // Whether all of them are known, and can have been no others.
  bool certain(std::size_t offset, std::size_t size) const {
    if (!known(offset, size) || offset + size > doubts.size()) return false;
    for (std::size_t i = offset; i < offset + size; ++i) {
      if (doubts[i] != 0) return false;
    }
    return true;
  }
};

// What a range held during one interval, both ends included. Intervals of two versions overlap where the
// recording leaves open when one replaced the other.
struct TextVersion {
  Time from = kTimeMin;
  Time until = kTimeMax;
  std::span<const std::uint8_t> bytes;  // of the whole cell; empty: unknown
  SourceRef source = 0;
  bool unsure = false;  // the bytes may have changed without a record
};

// The largest range around an address in which all bytes have the same versions.
struct TextCell {
  AddressRange range;
  std::vector<TextVersion> versions;  // by time; empty: nothing is known
};

// A PERF_RECORD_TEXT_POKE record.
struct TextChange {
  Address address = 0;
  Time time = 0;  // of the record, which the kernel writes before it changes the text
  std::span<const std::uint8_t> old_bytes;
  std::span<const std::uint8_t> new_bytes;
  std::uint64_t file_offset = 0;  // of the record
};

struct Symbol {
  std::string_view name;
  std::string_view dso;  // "[kernel.kallsyms]", path of a file, ...
  Space space = kKernelSpace;
  AddressRange range;  // end == begin: up to the next symbol
  TimeRange lifetime;
  std::uint64_t offset = 0;  // Text::symbol(): of the given address, in bytes
};

// A handle, cheap to copy: it keeps the capture's data alive, and all spans and string_views it gives live
// as long as that. Const and thread-safe. Look-ups take O(log n).
class ASOF_EXPORT Text {
 public:
  static constexpr std::uint64_t kMaxImage = 16 << 20;  // bytes

  // `range` at instant `time`. Where several versions are possible, the one that began last. Error
  // E-FILE-091: the range is empty or larger than kMaxImage.
  Result<TextImage> at(AddressRange range, Time time, Space space = kKernelSpace) const;

  TextCell cell(Address address, Space space = kKernelSpace) const;
  // All that overlap `range`, by address, holes included; the first and the last may reach beyond it.
  std::vector<TextCell> cells(AddressRange range, Space space = kKernelSpace) const;

  // By time.
  std::span<const TextChange> changes() const;

  // The symbol that covers `address` at instant `time`.
  std::optional<Symbol> symbol(Address address, Time time, Space space = kKernelSpace) const;
  // All of this exact name, in all spaces.
  std::vector<Symbol> symbols(std::string_view name) const;

  // Empty for a reference that is not of this capture.
  Source source(SourceRef ref) const;

  // The spaces of processes of this pid that a traced CPU or thread ran, in order.
  std::vector<Space> spaces(std::int32_t pid) const;

 private:
  friend class Capture;
  explicit Text(std::shared_ptr<const CaptureData> data);
  std::shared_ptr<const CaptureData> data_;
};

}  // namespace asof::v0
