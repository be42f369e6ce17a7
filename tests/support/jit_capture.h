// A process runs code of a JIT that reuses addresses and moves functions, under Intel PT.
#pragma once
#include <filesystem>
#include <memory>
#include <vector>

#include "tests/support/assembler.h"
#include "tests/support/capture_builder.h"

namespace asof::test {

class JitCapture {
 public:
  static constexpr Addr kJit = 0x7f0000001000, kMoved = 0x7f0000001800;
  static constexpr int32_t kPid = 4242;
  // `counter`: the JIT dump's times are the trace's counter; otherwise of a clock that nothing relates to it.
  JitCapture(bool counter, bool big_endian);
  // Runs it. Below `directory`: perf.data/, symfs/ with the program and the JIT dump.
  void write(const std::filesystem::path& directory);
  // What ran.
  const std::vector<Executed>& truth() const { return machine_->cpu(0).truth.instructions(); }

 private:
  static constexpr Addr kText = 0xffffffff81000000, kUser = 0x401000;
  static constexpr uint64_t kTicksPerUs = 2400;
  uint64_t at_us(uint64_t us) const;
  uint64_t stamp(uint64_t us) const { return counter_ ? at_us(us) : us * 1000; }
  void call(uint64_t us, Addr target);
  void put(uint64_t us, Addr at, const std::vector<uint8_t>& bytes);
  std::vector<uint8_t> make_dump(uint64_t& end_us);

  const bool counter_, big_endian_;
  Assembler user_;
  std::vector<uint8_t> bytes_;
  std::unique_ptr<Machine> machine_;
  Addr target_ = 0;
};

}  // namespace asof::test
