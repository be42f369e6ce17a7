#include "tests/support/reencode.h"

#include <fmt/format.h>

#include <stdexcept>

#include "arch/x86/packet.h"
#include "decoder/model/image.h"
#include "decoder/perf/perf_data.h"
#include "decoder/perf/record_types.h"
#include "decoder/perf/records.h"
#include "tests/support/bytes.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/sim_memory.h"
#include "tests/support/truth.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error("reencode: " + what); }

std::shared_ptr<const PerfData> open_data(const fs::path& board) {
  auto data = PerfData::open((board / "perf.data").string());
  if (!data) fail(data.error().reason);
  return *data;
}

std::vector<TruthRun> read_runs(const fs::path& file) {
  const std::vector<uint8_t> bytes = zstd_decompress(read_bytes(file));
  std::vector<TruthRun> runs(bytes.size() / 32);
  for (size_t i = 0; i < runs.size(); ++i) {
    const uint8_t* p = bytes.data() + 32 * i;
    runs[i].address = x86::load_le(p, 8);
    runs[i].bytes = static_cast<uint32_t>(x86::load_le(p + 8, 4));
    runs[i].instructions = static_cast<uint32_t>(x86::load_le(p + 12, 4));
    runs[i].flags = static_cast<uint32_t>(x86::load_le(p + 16, 4));
    runs[i].time = static_cast<Time>(x86::load_le(p + 24, 8));
  }
  return runs;
}

// Where the recording was interrupted. The truth has the runs on both sides, but not always the address
// between them: a run that ends at a return does not state its target.
struct Interruption {
  Addr at = 0;
  bool stops = false;  // tracing ended there
};

std::vector<Interruption> interruptions(std::span<const uint8_t> trace) {
  using x86::Pk;
  std::vector<Interruption> out;
  Addr last_ip = 0;
  bool sync = false, bound = false;
  for (const uint8_t *p = trace.data(), *end = p + trace.size(); p < end;) {
    const x86::Packet k = x86::read_packet(p, end);
    if (k.type == Pk::kEnd) break;
    if (k.type == Pk::kBad || k.type == Pk::kOvf) fail("the recorded trace is not complete");
    p += k.size;
    const bool address = k.type == Pk::kTip || k.type == Pk::kPge || k.type == Pk::kPgd || k.type == Pk::kFup;
    if (k.type == Pk::kPsb) sync = true, last_ip = 0;
    if (k.type == Pk::kPsbend) sync = false;
    if (address) x86::update_ip(k.ipc, k.value, last_ip);
    if (k.type == Pk::kFup && !sync) out.push_back({last_ip, false});
    if (k.type == Pk::kPgd && bound) out.back().stops = true;
    if (address) bound = k.type == Pk::kFup && !sync;
  }
  return out;
}

// One change of text at an instant.
struct Change {
  Time time = 0;
  Addr addr = 0;
  std::vector<uint8_t> bytes;
};

// New bytes of the pokes, and BPF images from the record that names their program.
std::vector<Change> changes(const PerfData& data) {
  std::vector<Change> out;
  data.for_each([&](const Record& r) {
    if (r.type == perf::kTextPoke) {
      if (const auto poke = parse_text_poke(r)) {
        out.push_back({r.time(), poke->addr, {poke->new_bytes.begin(), poke->new_bytes.end()}});
      }
    } else if (r.type == perf::kBpfEvent) {
      const auto event = parse_bpf_event(r);
      if (!event || event->kind != BpfEventRecord::kLoad) return true;
      for (const BpfImage& image : data.bpf_images()) {
        if (image.id != event->id) continue;
        for (const auto& f : image.functions)
          out.push_back({r.time(), f.address, {f.bytes.begin(), f.bytes.end()}});
      }
    }
    return true;
  });
  std::ranges::stable_sort(out, {}, &Change::time);
  return out;
}

// Follows the runs of one CPU and reports the outcome at the end of each to the trace unit.
class RunEncoder {
 public:
  RunEncoder(SimMemory& memory, std::span<const Change> changes, std::span<const Interruption> interruptions,
             const TimeConvRecord& clock, const ReencodeOptions& options)
      : memory_(memory),
        changes_(changes),
        interruptions_(interruptions),
        clock_(clock),
        tracer_(config(options)) {}

  ReencodedCpu run(std::span<const TruthRun> runs);

 private:
  static TracerConfig config(const ReencodeOptions& options) {
    TracerConfig c;
    c.user = false;
    c.return_compression = options.return_compression;
    c.mtc = false;
    c.psb_bytes = options.psb_bytes;
    c.keep_packets = true;
    return c;
  }
  uint64_t tsc(Time time) const {
    const auto ns = static_cast<unsigned __int128>(static_cast<uint64_t>(time) - clock_.zero);
    return static_cast<uint64_t>((ns << clock_.shift) / clock_.mult);
  }
  SimInsn last_of(const TruthRun& run);
  void branch(const SimInsn& insn, Addr end, Addr next);
  void leave(const TruthRun& run, const SimInsn& insn, Addr end, const TruthRun* next);
  Interruption next_interruption(const TruthRun& run);

  SimMemory& memory_;
  std::span<const Change> changes_;
  std::span<const Interruption> interruptions_;
  const TimeConvRecord& clock_;
  PtTracer tracer_;
};

bool is_branch(SimKind kind) {
  return kind != SimKind::kStraight && kind != SimKind::kMovCr3 && kind != SimKind::kPtwrite;
}

// The last instruction of a run, after the memory has been advanced to its time. The whole run must match the
// truth.
SimInsn RunEncoder::last_of(const TruthRun& run) {
  for (; !changes_.empty() && changes_.front().time <= run.time; changes_ = changes_.subspan(1)) {
    memory_.write(static_cast<uint64_t>(changes_.front().time), kKernelSpace, changes_.front().addr,
                  changes_.front().bytes);
  }
  Addr at = run.address;
  SimInsn insn;
  for (uint32_t i = 0; i < run.instructions; ++i, at += insn.length) {
    if (i != 0 && is_branch(insn.kind)) fail(fmt::format("a branch within the run at {:#x}", run.address));
    insn = memory_.fetch(kKernelSpace, at);
  }
  if (at != run.address + run.bytes) fail(fmt::format("wrong instructions in the run at {:#x}", run.address));
  return insn;
}

Interruption RunEncoder::next_interruption(const TruthRun& run) {
  if (interruptions_.empty()) fail(fmt::format("the trace has no interruption after {:#x}", run.address));
  const Interruption i = interruptions_.front();
  interruptions_ = interruptions_.subspan(1);
  return i;
}

void RunEncoder::branch(const SimInsn& insn, Addr end, Addr next) {
  const auto must_be = [&](Addr target) {
    if (next != target) fail(fmt::format("{:#x} follows a branch to {:#x}", next, target));
  };
  switch (insn.kind) {
    case SimKind::kCond:
      if (next != end) must_be(insn.target);
      return tracer_.cond(next != end);
    case SimKind::kJump:
      return must_be(insn.target);
    case SimKind::kCall:
      must_be(insn.target);
      return tracer_.call(end, next);
    case SimKind::kJumpIndirect:
      return tracer_.jump_indirect(next);
    case SimKind::kCallIndirect:
      return tracer_.call_indirect(end, next);
    case SimKind::kRet:
      return tracer_.ret(next);
    case SimKind::kIret:
      return tracer_.transfer(next, false, false);
    default:
      must_be(end);  // no branch: the run was cut
  }
}

// The transition between two runs.
void RunEncoder::leave(const TruthRun& run, const SimInsn& insn, Addr end, const TruthRun* next) {
  const bool restart = next == nullptr || (next->flags & TruthRun::kRestart) != 0;
  const bool async = next != nullptr && !restart && (next->flags & TruthRun::kAsync) != 0;
  if (!restart && !async) return branch(insn, end, next->address);
  const bool to_user = insn.kind == SimKind::kIret || insn.kind == SimKind::kSysret;
  if (restart && to_user) return tracer_.transfer(0, true, false);
  if (restart && next == nullptr && interruptions_.empty()) return;
  const Interruption i = next_interruption(run);
  if (i.stops != restart) fail(fmt::format("a different kind of interruption after {:#x}", run.address));
  branch(insn, end, i.at);
  tracer_.at(tsc(restart ? run.time : next->time), i.at, false, 0);
  tracer_.transfer(restart ? 0 : next->address, restart, true);
}

ReencodedCpu RunEncoder::run(std::span<const TruthRun> runs) {
  ReencodedCpu out;
  if (runs.empty()) return out;
  constexpr bool kUser = true, kKernel = false;
  tracer_.at(tsc(runs[0].time), runs[0].address, kUser, 0);
  tracer_.start();
  for (size_t i = 0; i < runs.size(); ++i) {
    const TruthRun& r = runs[i];
    if ((r.flags & TruthRun::kUser) != 0) fail("the truth contains user code");
    if (i == 0 || (r.flags & TruthRun::kRestart) != 0) {
      tracer_.at(tsc(r.time), r.address, kUser, 0);
      tracer_.transfer(r.address, false, false);
    }
    tracer_.at(tsc(r.time), r.address, kKernel, 0);
    leave(r, last_of(r), r.address + r.bytes, i + 1 < runs.size() ? &runs[i + 1] : nullptr);
    ++out.runs;
    out.instructions += r.instructions;
  }
  if (!interruptions_.empty()) fail("the trace has more interruptions than the truth");
  tracer_.writer().flush();
  out.trace = tracer_.writer().bytes();
  out.syncs =
      static_cast<uint64_t>(std::ranges::count(tracer_.writer().packets(), PtKind::kPsb, &PtPacket::kind));
  return out;
}

std::map<int, std::vector<uint8_t>> recorded_traces(const PerfData& data) {
  std::map<int, std::vector<uint8_t>> out;
  for (const AuxBuffer& b : data.aux_buffers()) {
    auto& trace = out[b.cpu];
    if (!trace.empty()) fail("a CPU has several trace buffers");
    trace.assign(b.bytes.begin(), b.bytes.end());
  }
  return out;
}

// perf.data with other trace buffers. Sections after the records move; nothing else changes except the sizes
// in AUX and AUXTRACE records, and the attribute's MTC bit.
class DataPatch {
 public:
  DataPatch(const PerfData& data, std::vector<uint8_t> bytes) : data_(data), in_(std::move(bytes)) {}
  std::vector<uint8_t> run(const std::map<int, ReencodedCpu>& cpus);

 private:
  // Offsets in struct perf_file_header (tools/perf/util/header.h).
  static constexpr size_t kAttrs = 24, kData = 40, kFeatures = 72;
  static constexpr unsigned kAuxtraceIndex = 18;
  uint64_t word(size_t at) const {
    if (in_.size() < 8 || at > in_.size() - 8) fail("perf.data is cut");
    return x86::load_le(in_.data() + at, 8);
  }
  void copy(size_t from, size_t to) { out_.raw(std::span(in_).subspan(from, to - from)); }

  const PerfData& data_;
  std::vector<uint8_t> in_;
  ByteSink out_;
};

std::vector<uint8_t> DataPatch::run(const std::map<int, ReencodedCpu>& cpus) {
  constexpr size_t kAuxtraceSize = 48;  // struct perf_record_auxtrace
  if ((word(kFeatures) >> kAuxtraceIndex & 1) != 0) fail("an index of trace buffers is not supported");
  const size_t begin = word(kData), end = begin + word(kData + 8);
  size_t at = 0;
  for (const AuxBuffer& b : data_.aux_buffers()) {
    const std::vector<uint8_t>& trace = cpus.at(b.cpu).trace;
    copy(at, b.file_offset);
    out_.patch(out_.size() - kAuxtraceSize + 8, (trace.size() + 7) / 8 * 8, 8);
    out_.raw(trace);
    out_.zeros((8 - trace.size() % 8) % 8);
    at = b.file_offset + b.bytes.size();
  }
  copy(at, end);
  const size_t new_end = out_.size();
  copy(end, in_.size());
  out_.patch(kData + 8, new_end - begin, 8);
  for (size_t i = 0; i < static_cast<size_t>(std::popcount(word(kFeatures))); ++i) {
    out_.patch(new_end + 16 * i, word(end + 16 * i) + new_end - end, 8);
  }
  // AUX records precede the buffers, so they did not move.
  for (const AuxRecord& a : data_.aux_records()) {
    if (a.file_offset > data_.aux_buffers().front().file_offset) fail("an AUX record after a buffer");
    out_.patch(a.file_offset + 16, cpus.at(a.id.cpu).trace.size(), 8);
  }
  const uint64_t pmu = data_.auxtrace_info()->priv.at(0);
  for (size_t a = word(kAttrs); a < word(kAttrs) + word(kAttrs + 8); a += word(16)) {
    if ((word(a) & UINT32_MAX) == pmu) out_.patch(a + 8, word(a + 8) & ~pt_config_bit::kMtc, 8);
  }
  return std::move(out_).take();
}

}  // namespace

std::map<int, ReencodedCpu> reencode(const fs::path& board, const ReencodeOptions& options) {
  const auto data = open_data(board);
  auto kcore = ElfImage::open((board / "perf.data/kcore_dir/kcore").string());
  if (!kcore) fail(kcore.error().reason);
  if (!data->time_conv()) fail("the recording does not describe its clock");
  const std::vector<Change> text_changes = changes(*data);
  std::map<int, ReencodedCpu> out;
  for (const auto& [cpu, trace] : recorded_traces(*data)) {
    SimMemory memory;
    for (const ElfSegment& s : (*kcore)->segments()) memory.load(kKernelSpace, s.address, s.bytes);
    const auto runs = read_runs(board / fmt::format("truth/cpu{}.blocks.zst", cpu));
    const auto found = interruptions(trace);
    RunEncoder encoder(memory, text_changes, found, *data->time_conv(), options);
    out[cpu] = encoder.run(runs);
  }
  return out;
}

void write_reencoded(const fs::path& board, const std::map<int, ReencodedCpu>& cpus,
                     const fs::path& directory) {
  const auto data = open_data(board);
  fs::create_directories(directory);
  const fs::path from = fs::absolute(board / "perf.data");
  write_bytes(directory / "data", DataPatch(*data, read_bytes(from / "data")).run(cpus));
  for (const char* name : {"kcore_dir", "symfs"}) {
    if (fs::exists(from / name) && !fs::exists(fs::symlink_status(directory / name)))
      fs::create_directory_symlink(from / name, directory / name);
  }
}

}  // namespace asof::test
