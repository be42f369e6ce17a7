// A process runs code of a JIT that reuses addresses and moves functions, under Intel PT: every instruction
// must be decoded.
#include <gtest/gtest.h>

#include "tests/support/assembler.h"
#include "tests/support/capture_builder.h"
#include "tests/support/expect_exact.h"
#include "tests/support/jitdump_writer.h"
#include "tests/support/temp_dir.h"

namespace asof::test {
namespace {

constexpr Addr kText = 0xffffffff81000000, kUser = 0x401000, kJit = 0x7f0000001000, kMoved = 0x7f0000001800;
constexpr uint64_t kTicksPerUs = 2400;
constexpr int32_t kPid = 4242;

// Three bodies of different shape at the same address.
std::vector<uint8_t> body(unsigned variant) {
  Assembler a(kJit);
  a.straight(1 + variant);
  for (unsigned i = 0; i <= variant; ++i) {
    const std::string skip = "l" + std::to_string(i);
    a.straight(3 + i).jcc8(i % 2 == 0 ? Cond::kEqual : Cond::kSign, skip).straight(5).label(skip);
  }
  a.straight(2).ret();
  return a.finish();
}

class JitTrace : public ::testing::Test {
 protected:
  JitTrace() : user_(kUser) {
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
  uint64_t at_us(uint64_t us) const { return machine_->config().tsc_start + us * kTicksPerUs; }
  void call(uint64_t us, Addr target) {
    machine_->schedule(at_us(us), [this, target] { target_ = target; });
  }
  void write(uint64_t us, Addr at, const std::vector<uint8_t>& bytes) {
    machine_->schedule(at_us(us),
                       [this, us, at, bytes] { machine_->memory().write(at_us(us), 1, at, bytes); });
  }
  uint64_t stamp(uint64_t us) const { return counter_ ? at_us(us) : us * 1000; }

  // What the JIT does, and what it reports.
  void run() {
    JitDumpWriter dump(
        {.pid = static_cast<uint32_t>(kPid), .counter_time = counter_, .big_endian = big_endian_});
    const Addr leaf = user_.address("leaf");
    uint64_t us = 10;
    for (unsigned v = 0; v < 3; ++v, us += 20) {
      const auto code = body(v);
      write(us, kJit, code);
      dump.load(stamp(us), kJit, code, v, "version" + std::to_string(v));
      call(us + 1, kJit);
      call(us + 15, leaf);
    }
    const auto last = body(2);
    write(us, kMoved, last);
    write(us, kJit, std::vector<uint8_t>(last.size(), 0xcc));
    dump.move(stamp(us), kJit, kMoved, last.size(), 2);
    call(us + 1, kMoved);
    dump.close(stamp(us + 20));
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
    spec.symbols = {
        {kText, 'T', "_text", ""}, {kText, 'T', "_stext", ""}, {kText + 0x1000, 'T', "_etext", ""}};
    UserProgram p;
    p.path = "/opt/js";
    p.elf = {.address = kUser, .text = bytes_, .build_id = std::vector<uint8_t>(20, 0x5a)};
    p.pids = {kPid};
    spec.programs.push_back(p);
    write_capture(*machine_, spec, dir_.path(), "jit");
    write_bytes(dir_.path() / "symfs/tmp/jit-4242.dump", dump.bytes());
  }
  DecodedCapture decode(unsigned jobs = 1) {
    CaptureOptions options;
    options.host_files = false;
    options.symfs = (dir_.path() / "symfs").string();
    PipelineOptions pipeline;
    pipeline.jobs = jobs;
    auto decoded = decode_capture((dir_.path() / "perf.data").string(), options, pipeline);
    EXPECT_TRUE(decoded.has_value());
    return std::move(*decoded);
  }
  size_t in_jit() const {
    size_t n = 0;
    for (const Executed& e : machine_->cpu(0).truth.instructions())
      n += e.ip >= kJit && e.ip < kMoved ? 1 : 0;
    return n;
  }

  Assembler user_;
  std::vector<uint8_t> bytes_;
  std::unique_ptr<Machine> machine_;
  Addr target_ = 0;
  bool counter_ = true, big_endian_ = false;
  TempDir dir_;
};

TEST_F(JitTrace, EveryVersionOfAReusedAddress) {
  run();
  ASSERT_GT(in_jit(), 500U) << "the JIT's code ran";
  for (const unsigned jobs : {1U, 4U}) {
    const DecodedCapture decoded = decode(jobs);
    ASSERT_EQ(decoded.streams.size(), 1U);
    expect_exact(decoded.streams[0].instructions, machine_->cpu(0).truth.instructions());
    EXPECT_TRUE(decoded.streams[0].gaps.empty());
    std::set<std::string> names;
    const Capture& c = decoded.capture;
    const Space space = c.streams[0].contexts.at(0).space;
    for (const DecodedInstruction& i : decoded.streams[0].instructions) {
      const auto s = c.symbols.find(space, i.ip, i.time);
      if (s && s->symbol->dso.find("jit-4242") != std::string::npos) names.insert(s->symbol->name);
    }
    EXPECT_EQ(names, (std::set<std::string>{"version0", "version1", "version2"}));
  }
}

TEST_F(JitTrace, FileOfTheOtherByteOrder) {
  big_endian_ = true;
  run();
  expect_exact(decode().streams.at(0).instructions, machine_->cpu(0).truth.instructions());
}

TEST_F(JitTrace, WithoutACommonClockReusedAddressesAreUnknownNotWrong) {
  counter_ = false;
  run();
  const DecodedCapture decoded = decode();
  // Whatever is decoded ran, in this order, and none of it is where the code is unknown.
  const auto& truth = machine_->cpu(0).truth.instructions();
  size_t at = 0;
  for (const DecodedInstruction& i : decoded.streams.at(0).instructions) {
    while (at < truth.size() && truth[at].ip != i.ip) ++at;
    ASSERT_LT(at++, truth.size()) << "not executed: " << std::hex << i.ip;
    ASSERT_FALSE(i.ip >= kJit && i.ip < kMoved) << std::hex << i.ip;
  }
  for (const Gap& gap : decoded.streams.at(0).gaps) {
    // Either the bytes are unknown, or it is the return from code whose bytes are unknown.
    EXPECT_TRUE(gap.code == Code::kNoBytes || gap.code == Code::kReturnWithoutItsCall) << gap.code;
  }
  size_t moved = 0;  // the target of the move was used once
  for (const DecodedInstruction& i : decoded.streams.at(0).instructions)
    moved += i.ip >= kMoved && i.ip < kMoved + 0x100 ? 1 : 0;
  EXPECT_GT(moved, 50U);
}

}  // namespace
}  // namespace asof::test
