// The block stream: what was executed, decoded once, for other verbs and other machines to read without trace
// or text. docs/formats.md has the bytes; this file has the numbers both sides agree on and the coding of
// integers.
//
// A file is a map of code and walks through it. The map has every block that ran and, for each edge out of
// it, the block that was met there first. A walk follows the map and records only what the map does not
// determine: a bit for each conditional branch, and a block's number where it went elsewhere. So it is about
// as small as the trace was, every stretch can be read alone once the map is known, and reading needs no
// decision except the bits.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arch/block.h"
#include "decoder/io/reader.h"
#include "decoder/model/shard.h"
#include "textstore/code.h"

namespace asof::blocks {

inline constexpr std::string_view kMagic{"asofblk\n", 8};
inline constexpr uint16_t kVersion = 8, kOldestVersion = 4;
// Of a part that was written while its recording went on: its description is there more than once, and the last one
// holds.
inline constexpr uint16_t kGrowingVersion = kVersion + 1;  // odd ones before, too
inline constexpr uint32_t kHeaderSize = 24;                // of a part
inline constexpr uint32_t kRecordMagic = 0x72626c61;       // "albr"
inline constexpr uint32_t kRecordHeader = 16;
// Bytes of one record, unpacked: more is damage. What describes code and recording is kept in memory, so its
// total may be at most this many times its size in the file.
inline constexpr uint32_t kMaxRaw = 1U << 30;
inline constexpr size_t kMaxParts = 65536;
inline constexpr uint64_t kFreeRaw = 1U << 20, kMaxRatio = 32, kMaxFlowRatio = 1024;

enum class RecordType : uint8_t {
  kCapture = 1,
  kSymbols = 2,
  kCode = 3,
  kFlow = 4,
  kEnd = 5,
  kCoverage = 6,
  kCalls = 7,
  kFunctions = 8,
};

// Edges out of a block, as the map keeps them.
enum ExitSlot : uint8_t {
  kOther = 0,   // not taken, or no branch
  kTaken = 1,   // taken, or an unconditional branch
  kReturn = 2,  // of a call: where its return went
};
inline constexpr unsigned kExitSlots = 3;

// A block's second byte: the mode / 16, and what else is recorded of it.
inline constexpr uint8_t kModeBits = 7, kHasTarget = 8, kHasTimes = 16, kHasVersions = 32;
inline constexpr uint8_t kBlockFlags = kModeBits | kHasTarget | kHasTimes | kHasVersions;

// What a walk remembers of its calls; older ones are forgotten.
inline constexpr unsigned kCallDepth = 64;
// Steps that follow from the map without an entry. After this many the next has an entry in any case: no walk
// is longer than its bytes allow.
inline constexpr uint32_t kMaxQuiet = 4096;
inline constexpr uint32_t kMaxSteps = 1U << 20;  // of one flow record

inline bool is_call(BranchKind kind) { return kind == BranchKind::kCall || kind == BranchKind::kCallInd; }

// Open calls of one walk: what each saved for its return, never 0. The latest kCallDepth of them are
// known; entries of others are 0, so that the stack needs no check of its depth.
class Calls {
 public:
  void push(uint32_t call) { ring_[top_++ % kCallDepth] = call; }
  // 0: no call. Without a branch, which no processor could predict.
  void push_if(uint32_t call) {
    uint32_t& above = ring_[top_ % kCallDepth];
    above = call != 0 ? call : above;
    top_ += call != 0;
  }
  // The latest; 0: none is known.
  uint32_t top() const { return ring_[(top_ - 1) % kCallDepth]; }
  // The same, and removes it.
  uint32_t pop() { return std::exchange(ring_[--top_ % kCallDepth], 0); }

 private:
  uint32_t ring_[kCallDepth] = {};
  uint32_t top_ = 0;
};

// Where the map is queried for the block after this one.
struct Exit {
  uint32_t block = 0;  // 0: nowhere
  ExitSlot slot = kOther;
};
// The edge by which a block is left at its end. Returns are left by kReturn of their call, if that is known.
inline ExitSlot exit_slot(BranchKind kind, bool taken) {
  if (kind == BranchKind::kCond) return taken ? kTaken : kOther;
  return kind == BranchKind::kNone ? kOther : kTaken;
}

// Fixed numbers: little-endian.
inline void put_fixed(std::vector<uint8_t>& out, uint64_t v, unsigned bytes) {
  for (unsigned i = 0; i < bytes; ++i) out.push_back(static_cast<uint8_t>(v >> (8 * i)));
}

// Integers: seven bits per byte, lowest first; the top bit means that more follow. Signed ones alternate: 0,
// -1, 1, -2, ...
class Writer {
 public:
  void u8(uint8_t v) { out_.push_back(v); }
  void varint(uint64_t v) {
    for (; v >= 0x80; v >>= 7) out_.push_back(static_cast<uint8_t>(v | 0x80));
    out_.push_back(static_cast<uint8_t>(v));
  }
  void signed_varint(int64_t v) { varint(static_cast<uint64_t>(v) << 1 ^ static_cast<uint64_t>(v >> 63)); }
  // b - a, of any two numbers.
  void difference(uint64_t a, uint64_t b) { signed_varint(static_cast<int64_t>(b - a)); }
  void bytes(std::span<const uint8_t> b) { out_.insert(out_.end(), b.begin(), b.end()); }
  void text(std::string_view s) {
    varint(s.size());
    out_.insert(out_.end(), s.begin(), s.end());
  }
  const std::vector<uint8_t>& data() const { return out_; }
  size_t size() const { return out_.size(); }
  void clear() { out_.clear(); }

 private:
  std::vector<uint8_t> out_;
};

class Source : public asof::Reader {
 public:
  using asof::Reader::Reader;
  uint64_t varint() {
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      const uint8_t b = u8();
      v |= static_cast<uint64_t>(b & 0x7f) << shift;
      if (b < 0x80) return v;
    }
    take(UINT64_MAX);  // longer than any number: damage
    return 0;
  }
  int64_t signed_varint() {
    const uint64_t v = varint();
    return static_cast<int64_t>(v >> 1 ^ (~(v & 1) + 1));
  }
  uint64_t difference(uint64_t a) { return a + static_cast<uint64_t>(signed_varint()); }
  // A count of things that take at least `least` bytes each; 0, and failed, if so many do not fit in what is
  // left.
  uint64_t count(size_t least = 1) {
    const uint64_t n = varint();
    if (n <= left() / least) return n;
    take(UINT64_MAX);
    return 0;
  }
  // A code of a later version is unknown here.
  Code code() { return code_of(text()).value_or(Code::kBadBlockStream); }
  std::string text() {
    const auto field = take(varint());
    return {field.begin(), field.end()};
  }
};

// What a part has of its recording: all segments of these ranges. Parts with it need not be complete together; what is
// missing is known.
struct PartCoverage {
  Shard shard;
  uint64_t options = 0;  // by which they were decoded: parts with others do not go together
  std::vector<StreamRange> ranges;
  bool operator==(const PartCoverage&) const = default;
};
std::vector<uint8_t> put_coverage(const PartCoverage& coverage);
// False: damaged.
bool take_coverage(std::span<const uint8_t> body, PartCoverage& out);

// FNV-1a: which recording a part is of.
inline uint64_t identity_of(std::span<const uint8_t> capture_record) {
  uint64_t h = 0xcbf29ce484222325ULL;
  for (const uint8_t b : capture_record) h = (h ^ b) * 0x100000001b3ULL;
  return h;
}

}  // namespace asof::blocks
