// SimMemory: the memory of the simulated machine: current bytes, the log of all writes, and instructions
// decoded from the current bytes. Instructions are decoded here with Zydis and not with asof's own
// classifier, so that the truth does not come from the code under test.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "textstore/address.h"

namespace asof::test {

enum class SimKind : uint8_t {
  kStraight,
  kCond,
  kJump,
  kCall,
  kJumpIndirect,
  kCallIndirect,
  kRet,
  kSyscall,
  kSysret,
  kIret,
  kInt3,
  kMovCr3,
  kPtwrite,
};

struct SimInsn {
  uint8_t length = 0;
  SimKind kind = SimKind::kStraight;
  Addr target = 0;  // of direct branches
  std::array<uint8_t, 15> bytes{};
};

class SimMemory {
 public:
  struct Write {
    uint64_t tsc = 0;
    Space space = kKernelSpace;
    Addr addr = 0;
    std::vector<uint8_t> old_bytes, new_bytes;
  };

  SimMemory();
  ~SimMemory();

  // Stores bytes without an entry in the log: what was there before the recording.
  void load(Space space, Addr addr, std::span<const uint8_t> bytes);
  // A change at an instant.
  void write(uint64_t tsc, Space space, Addr addr, std::span<const uint8_t> bytes);
  // Current bytes. What was never loaded reads as zero.
  std::vector<uint8_t> read(Space space, Addr addr, size_t size) const;
  // Bytes as of `tsc`, writes at that instant included.
  std::vector<uint8_t> read_at(uint64_t tsc, Space space, Addr addr, size_t size) const;
  uint8_t byte(Space space, Addr addr) const;

  // The current instruction at `addr`. Throws std::logic_error if there is none.
  const SimInsn& fetch(Space space, Addr addr);
  std::span<const Write> writes() const { return writes_; }

 private:
  static constexpr uint64_t kPageSize = 4096;
  using Page = std::array<uint8_t, kPageSize>;
  // Kernel addresses are the same in every space; `unit` is an address or a page number.
  static uint64_t key(Space space, uint64_t unit) { return unit ^ (static_cast<uint64_t>(space) << 48); }
  static Space home(Space space, Addr addr) { return is_kernel_address(addr) ? kKernelSpace : space; }
  Page& page(Space space, Addr addr);
  void store(Space space, Addr addr, std::span<const uint8_t> bytes);

  struct DecoderHolder;
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  std::unordered_map<uint64_t, SimInsn> decoded_;
  std::vector<Write> writes_;
  std::unique_ptr<DecoderHolder> decoder_;
};

}  // namespace asof::test
