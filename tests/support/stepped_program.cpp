#include "tests/support/stepped_program.h"

#include <Zydis/Zydis.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "decoder/model/image.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/pt_tracer.h"

namespace asof::test {
namespace {

constexpr int32_t kPid = 4711;
constexpr uint64_t kFirstTsc = 1'000'000, kTicks = kSteppedCycles;
constexpr Addr kSystemCall = 0xffffffff81000000;
constexpr uint64_t kPt = 101, kSideBand = 201;  // ids of the events

struct Mapping {
  AddrRange range;
  uint64_t offset = 0;
};

// The executable mapping of the program itself.
Mapping mapping_of(pid_t child, const std::string& path) {
  std::ifstream maps("/proc/" + std::to_string(child) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0, offset = 0;
    char access[5] = {};
    if (std::sscanf(line.c_str(), "%lx-%lx %4s %lx", &begin, &end, access, &offset) != 4) continue;
    if (access[2] == 'x' && line.ends_with(path)) return {{begin, end}, offset};
  }
  return {};
}

// The offset added to the addresses of the file.
std::optional<uint64_t> base_of(const std::string& path, const Mapping& m) {
  const auto image = ElfImage::open(path);
  if (!image) return std::nullopt;
  for (const ElfSegment& s : (*image)->segments()) {
    if (s.file_offset <= m.offset && m.offset < s.file_offset + s.bytes.size() && s.executable)
      return m.range.begin - (s.address + (m.offset - s.file_offset));
  }
  return std::nullopt;
}

class Child {
 public:
  explicit Child(const std::string& path) : pid_(fork()) {
    if (pid_ != 0) return;
    personality(ADDR_NO_RANDOMIZE);
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0) execl(path.c_str(), path.c_str(), nullptr);
    _exit(127);
  }
  ~Child() {
    if (pid_ <= 0 || ended_) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  // False: the program ended.
  bool wait() {
    int status = 0;
    if (pid_ <= 0 || waitpid(pid_, &status, 0) != pid_) return false;
    ended_ = !WIFSTOPPED(status);
    return !ended_;
  }
  bool step() { return ptrace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr) == 0 && wait(); }
  Addr ip() const {
    user_regs_struct regs{};
    ptrace(PTRACE_GETREGS, pid_, nullptr, &regs);
    return regs.rip;
  }
  std::array<uint8_t, 16> bytes(Addr at) const {
    std::array<uint8_t, 16> out{};
    for (size_t i = 0; i < out.size(); i += sizeof(long)) {
      errno = 0;
      const long word = ptrace(PTRACE_PEEKTEXT, pid_, at + i, nullptr);
      if (errno == 0) std::memcpy(&out[i], &word, sizeof word);
    }
    return out;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
  bool ended_ = false;
};

// Reports to the trace unit what the instruction at `ip` did. True: it was a taken branch.
bool report_branch(PtTracer& t, const ZydisDecodedInstruction& z, const ZydisDecodedOperand& target, Addr ip,
                   Addr next) {
  const Addr after = ip + z.length;
  const bool direct = target.type == ZYDIS_OPERAND_TYPE_IMMEDIATE;
  switch (z.meta.category) {
    case ZYDIS_CATEGORY_COND_BR:
      t.cond(next != after);
      return next != after;
    case ZYDIS_CATEGORY_UNCOND_BR:
      if (!direct) t.jump_indirect(next);
      return true;
    case ZYDIS_CATEGORY_CALL:
      direct ? t.call(after, next) : t.call_indirect(after, next);
      return true;
    case ZYDIS_CATEGORY_RET:
      t.ret(next);
      return true;
    case ZYDIS_CATEGORY_SYSCALL:
      t.transfer(kSystemCall, false, false);
      return false;
    default:
      return false;
  }
}

void write_capture(const PtTracer& tracer, const Mapping& m, const std::string& path,
                   const std::filesystem::path& capture, uint64_t last_tsc) {
  namespace bit = pt_config_bit;
  const TimeConvSpec clock;
  PerfDataWriter w;
  AttrSpec pt;
  pt.type = 8;
  pt.config = bit::kPt | bit::kTsc | bit::kBranch | bit::kMtc | (3ULL << 24) | (3ULL << 14);
  if (tracer.config().cyc) pt.config |= bit::kCyc;
  pt.flags =
      attr_flag::kSampleIdAll | attr_flag::kDisabled | attr_flag::kExcludeKernel | attr_flag::kExcludeHv;
  pt.sample_type |= sample::kIp;
  pt.name = "intel_pt//u";
  pt.ids = {kPt};
  w.add_attr(pt);
  AttrSpec side;
  side.flags =
      attr_flag::kSampleIdAll | attr_flag::kMmap | attr_flag::kComm | attr_flag::kTask | attr_flag::kMmap2;
  side.name = "dummy:u";
  side.ids = {kSideBand};
  w.add_attr(side);
  w.arch("x86_64");
  w.nr_cpus(1);
  w.cpu_id("GenuineIntel,6,142,10");
  w.event_desc();
  const std::pair<uint32_t, std::string> pmus[] = {{1, "software"}, {8, "intel_pt"}};
  w.pmu_mappings(pmus);
  w.time_conv(clock);
  w.auxtrace_info(
      {.time = clock, .tsc_ctc_n = tracer.config().tsc_ctc_n, .tsc_ctc_d = 1, .max_nonturbo = 24});
  w.comm(kPid, kPid, std::filesystem::path(path).filename().string(), false);
  w.mmap2({.pid = kPid,
           .tid = kPid,
           .addr = m.range.begin,
           .len = m.range.size(),
           .pgoff = m.offset,
           .filename = path});
  w.finished_init();
  const Trailer first{.time = kFirstTsc, .pid = kPid, .tid = kPid, .attr = 1, .has_id = true};
  Trailer last{.time = last_tsc, .pid = kPid, .tid = kPid, .attr = 0, .has_id = true};
  const auto& bytes = tracer.writer().bytes();
  w.auxtrace({.reference = last_tsc}, bytes);
  w.itrace_start(kPid, kPid, first);
  w.aux(0, bytes.size(), 0, last);
  w.finished_round();
  w.write_file(capture);
}

}  // namespace

std::optional<SteppedProgram> record_stepped(const std::filesystem::path& program,
                                             const std::filesystem::path& capture, uint64_t limit,
                                             bool cycles) {
  const std::string path = std::filesystem::canonical(program);
  Child child(path);
  if (!child.wait()) return std::nullopt;
  const Mapping mapping = mapping_of(child.pid(), path);
  if (mapping.range.empty()) return std::nullopt;
  const auto base = base_of(path, mapping);
  if (!base) return std::nullopt;
  SteppedProgram out;
  out.base = *base;
  PtTracer tracer({.kernel = false, .cyc = cycles});
  ZydisDecoder decoder;
  ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  Addr ip = child.ip();
  uint64_t tsc = kFirstTsc;
  tracer.at(tsc, ip, true, 0);
  tracer.start();
  for (;; ++out.instructions, tsc += kTicks) {
    if (out.instructions == limit) return std::nullopt;
    const auto bytes = child.bytes(ip);
    ZydisDecodedInstruction z;
    ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
    if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, bytes.data(), bytes.size(), &z, operands)))
      return std::nullopt;
    tracer.at(tsc, ip, true, 0);
    ++out.counts[ip];
    if (!child.step()) break;  // the last system call
    const Addr next = child.ip();
    if (report_branch(tracer, z, operands[0], ip, next) && mapping.range.contains(ip) &&
        mapping.range.contains(next))
      ++out.taken[{ip, next}];
    if (z.meta.category == ZYDIS_CATEGORY_SYSCALL) {
      tracer.at(tsc + 1, kSystemCall, false, 0);
      tracer.transfer(next, true, false);
    }
    ip = next;
  }
  tracer.transfer(kSystemCall, false, false);
  tracer.at(tsc, kSystemCall, false, 0);
  ++out.instructions;
  tracer.stop();
  write_capture(tracer, mapping, path, capture, tsc);
  return out;
}

}  // namespace asof::test
