// JitDumpWriter: a jitdump file as a JIT's agent writes it
// (tools/perf/Documentation/jitdump-specification.txt), in either byte order.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/bytes.h"

namespace asof::test {

class JitDumpWriter {
 public:
  struct Options {
    uint32_t pid = 1;
    uint32_t machine = 62;  // EM_X86_64
    bool counter_time = true;
    bool big_endian = false;
  };

  explicit JitDumpWriter(const Options& options) : options_(options), out_(options.big_endian) {
    out_.u32(0x4a695444), out_.u32(1), out_.u32(40), out_.u32(options.machine), out_.u32(0);
    out_.u32(options.pid), out_.u64(0), out_.u64(options.counter_time ? 1 : 0);
  }

  void load(uint64_t time, uint64_t address, const std::vector<uint8_t>& code, uint64_t index,
            const std::string& name) {
    ByteSink b = body();
    put_task(b);
    b.u64(address), b.u64(address), b.u64(code.size()), b.u64(index);
    b.text(name), b.u8(0), b.raw(code);
    record(0, time, b);
  }
  void move(uint64_t time, uint64_t from, uint64_t to, uint64_t size, uint64_t index) {
    ByteSink b = body();
    put_task(b);
    b.u64(to), b.u64(from), b.u64(to), b.u64(size), b.u64(index);
    record(1, time, b);
  }
  // One source line for a piece of code.
  void debug_info(uint64_t time, uint64_t address, uint32_t line, const std::string& file) {
    ByteSink b = body();
    b.u64(address), b.u64(1), b.u64(address), b.u32(line), b.u32(0), b.text(file), b.u8(0);
    record(2, time, b);
  }
  void close(uint64_t time) { record(3, time, body()); }
  void unwinding_info(uint64_t time, const std::vector<uint8_t>& data) {
    ByteSink b = body();
    b.u64(data.size()), b.u64(0), b.u64(data.size()), b.raw(data);
    record(4, time, b);
  }
  void record(uint32_t id, uint64_t time, const ByteSink& b) {
    out_.u32(id), out_.u32(static_cast<uint32_t>(16 + b.size())), out_.u64(time), out_.raw(b.bytes());
  }
  ByteSink body() const { return ByteSink(options_.big_endian); }
  const std::vector<uint8_t>& bytes() const { return out_.bytes(); }

 private:
  void put_task(ByteSink& b) const { b.u32(options_.pid), b.u32(options_.pid); }

  Options options_;
  ByteSink out_;
};

}  // namespace asof::test
