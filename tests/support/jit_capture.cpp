#include "tests/support/jit_capture.h"

#include <string>
#include <utility>

#include "tests/support/jitdump_writer.h"

namespace asof::test {
namespace {

// Three bodies of different shape at the same address.
std::vector<uint8_t> jit_body(unsigned variant) {
  Assembler a(JitCapture::kJit);
  a.straight(1 + variant);
  for (unsigned i = 0; i <= variant; ++i) {
    const std::string skip = "l" + std::to_string(i);
    a.straight(3 + i).jcc8(i % 2 == 0 ? Cond::kEqual : Cond::kSign, skip).straight(5).label(skip);
  }
  a.straight(2).ret();
  return a.finish();
}

}  // namespace

JitCapture::JitCapture(bool counter, bool big_endian)
    : counter_(counter), big_endian_(big_endian), user_(kUser) {
  user_.function("_start").endbr64().straight(3);
  user_.label("again").straight(1);
  user_.label("call").call_rax().straight(4).jcc8(Cond::kLess, "again").straight(2).jmp8("again");
  user_.function("leaf").straight(1).ret();
  MachineConfig config;
  config.cpus = 1;
  config.trace.kernel = false;
  machine_ = std::make_unique<Machine>(config);
  bytes_ = user_.finish();
  machine_->memory().load(1, kUser, bytes_);
  machine_->memory().load(1, kJit, std::vector<uint8_t>(0x1000, 0xcc));
  target_ = user_.address("leaf");
  machine_->on_indirect(user_.address("call"), [this](SimCpu&) { return target_; });
}

uint64_t JitCapture::at_us(uint64_t us) const { return machine_->config().tsc_start + us * kTicksPerUs; }

void JitCapture::call(uint64_t us, Addr target) {
  machine_->schedule(at_us(us), [this, target] { target_ = target; });
}

void JitCapture::put(uint64_t us, Addr at, const std::vector<uint8_t>& bytes) {
  machine_->schedule(at_us(us), [this, us, at, bytes] { machine_->memory().write(at_us(us), 1, at, bytes); });
}

// What the JIT does, and what it reports.
std::vector<uint8_t> JitCapture::make_dump(uint64_t& us) {
  JitDumpWriter dump(
      {.pid = static_cast<uint32_t>(kPid), .counter_time = counter_, .big_endian = big_endian_});
  const Addr leaf = user_.address("leaf");
  for (unsigned v = 0; v < 3; ++v, us += 20) {
    const auto code = jit_body(v);
    put(us, kJit, code);
    dump.load(stamp(us), kJit, code, v, "version" + std::to_string(v));
    call(us + 1, kJit);
    call(us + 15, leaf);
  }
  const auto last = jit_body(2);
  put(us, kMoved, last);
  put(us, kJit, std::vector<uint8_t>(last.size(), 0xcc));
  dump.move(stamp(us), kJit, kMoved, last.size(), 2);
  call(us + 1, kMoved);
  dump.close(stamp(us + 20));
  return dump.bytes();
}

void JitCapture::write(const std::filesystem::path& directory) {
  uint64_t us = 10;
  const std::vector<uint8_t> dump = make_dump(us);
  for (const auto& [addr, name] :
       {std::pair<Addr, const char*>{kJit, "//anon"}, {0x7f00ff000000, "/tmp/jit-4242.dump"}}) {
    machine_->side(0, 0, [addr = addr, name = std::string(name)](PerfDataWriter& w, const Trailer& t) {
      w.mmap2({.pid = kPid, .tid = kPid, .addr = addr, .len = 0x1000, .filename = name}, t);
    });
  }
  SimTask& task = machine_->add_task(kPid, kPid, "js", 1, kUser, kText);
  machine_->run_task(0, task, kUser);
  machine_->start_trace(0);
  machine_->run_until(at_us(us + 20));
  machine_->stop_trace(0);
  CaptureSpec spec;
  spec.kcore = {{kText, std::vector<uint8_t>(0x1000, 0xcc)}};
  spec.text_begin = kText, spec.text_end = kText + 0x1000;
  spec.symbols = {{kText, 'T', "_text", ""}, {kText, 'T', "_stext", ""}, {kText + 0x1000, 'T', "_etext", ""}};
  UserProgram p;
  p.path = "/opt/js";
  p.elf = {.address = kUser, .text = bytes_, .build_id = std::vector<uint8_t>(20, 0x5a)};
  p.pids = {kPid};
  spec.programs.push_back(p);
  write_capture(*machine_, spec, directory, "jit");
  write_bytes(directory / "symfs/tmp/jit-4242.dump", dump);
}

}  // namespace asof::test
