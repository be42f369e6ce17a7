// arm_peers [--rounds N] [--repeat N] [--only-asof] CAPTURE...: decodes CoreSight captures (ETMv4, ETE) with
// asof and OpenCSD's full decoder alternately, in one process and thread. Prints medians of CPU time with
// their ratio, and the counts and hashes of what both found.
//
// Measured: decoding the trace of all units to executed blocks (asof) or instruction ranges (OpenCSD),
// including all setup and teardown: each round starts with no decoder and no cache. Not measured, for either:
// opening the capture. Both get each unit's bytes in one piece of memory; where the capture has them in
// frames, a further row shows asof with deformatting included. OpenCSD reads memory from plain buffers, the
// fastest accessor it has: no files, no callback. Where text changes, the buffers are changed when a
// timestamp reaches the time of the change, so both decode the same. --repeat N: the same decoders decode the
// trace N times, from the initial text each time.
#include <fmt/format.h>
#include <opencsd/c_api/opencsd_c_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "decoder/model/capture.h"
#include "tests/bench/chunk_count.h"

namespace asof {
namespace {

using bench::Outcome;
using bench::Row;

// ---- asof ----

// Returns chunks for reuse, as the pipeline does.
class Count final : public ChunkSink {
 public:
  explicit Count(bool hash) : count(hash) {}
  Chunk spare() override { return std::exchange(spare_, Chunk{}); }
  void take(Chunk&& chunk) override {
    count.add(chunk);
    spare_ = std::move(chunk);
    spare_.clear();
  }
  bench::ChunkCount count;

 private:
  Chunk spare_;
};

Outcome with_asof(const Capture& capture, std::span<const Stream> streams, unsigned repeat, bool hash) {
  Count count(hash);
  const double seconds = bench::cpu_seconds_of([&] {
    const auto arch = capture.arch();
    if (!arch) throw std::runtime_error(arch.error().reason);
    const auto decoder = (*arch)->decoder(streams, *capture.text, {});
    for (unsigned n = 0; n < repeat; ++n) {
      for (size_t i = 0; i < streams.size(); ++i) {
        for (const Segment& s : (*arch)->split(streams[i], i)) decoder->decode(s, count);
      }
    }
  });
  Outcome outcome = count.count.outcome;
  outcome.seconds = seconds;
  return outcome;
}

// A capture's streams with the bytes of each in one piece of memory.
struct PlainTrace {
  std::vector<std::vector<uint8_t>> bytes;
  std::vector<Stream> streams;
  bool framed = false;  // the capture has them in frames

  explicit PlainTrace(const Capture& capture) : streams(capture.streams) {
    std::vector<uint8_t> scratch;
    for (Stream& s : streams) {
      std::vector<uint8_t>& all = bytes.emplace_back();
      for (const StreamPiece& p : s.pieces) {
        const auto part = s.bytes(p.offset, p.offset + p.size(), scratch);
        all.insert(all.end(), part.begin(), part.end());
      }
      size_t at = 0;
      for (StreamPiece& p : s.pieces) {
        framed = framed || p.source != nullptr;
        p.bytes = std::span(all).subspan(at, p.size());
        p.source = nullptr;
        at += p.bytes.size();
      }
    }
  }
  uint64_t size() const {
    uint64_t all = 0;
    for (const auto& b : bytes) all += b.size();
    return all;
  }
};

// ---- OpenCSD ----

// The initial text in buffers, and the changes made to it later.
struct Memory {
  struct Buffer {
    Addr begin = 0;
    std::vector<uint8_t> bytes;
    bool contains(Addr a) const { return a >= begin && a - begin < bytes.size(); }
  };
  struct Change {
    Time time = 0;
    Addr at = 0;
    const uint8_t* bytes = nullptr;
    const uint8_t* first = nullptr;  // the bytes there initially
    uint64_t size = 0;
  };
  std::vector<Buffer> buffers;
  std::vector<Change> changes;

  // All text of `space` and of the kernel.
  Memory(const TextStore& text, Space space) {
    add(text, space, 0, Addr{1} << 63);
    add(text, kKernelSpace, Addr{1} << 63, UINT64_MAX);
    std::ranges::stable_sort(changes, {}, &Change::time);
  }
  void add(const TextStore& text, Space space, Addr from, Addr to) {
    for (Addr at = from; at < to;) {
      const Cell cell = text.cell(space, at);
      const Addr end = std::min(cell.range.end, to);
      const Version* first = nullptr;
      for (const Version& v : cell.versions) {
        if (v.bytes == nullptr) continue;
        if (first == nullptr)
          first = &v;
        else
          changes.push_back({v.from, cell.range.begin, v.bytes, first->bytes, cell.range.size()});
      }
      if (first != nullptr) {
        constexpr uint64_t kMost = 1U << 30;
        if (buffers.empty() || buffers.back().begin + buffers.back().bytes.size() != at ||
            buffers.back().bytes.size() > kMost)
          buffers.push_back({at, {}});
        const uint8_t* const bytes = first->bytes + (at - cell.range.begin);
        buffers.back().bytes.insert(buffers.back().bytes.end(), bytes, bytes + (end - at));
      }
      if (end <= at) break;
      at = end;
    }
  }
  void write(Addr at, const uint8_t* from, uint64_t size) {
    for (Buffer& b : buffers) {
      if (b.contains(at)) std::memcpy(&b.bytes[at - b.begin], from, size);
    }
  }
};

class Csd {
 public:
  Csd(const Capture& capture, size_t stream, Memory& memory, bool hash)
      : capture_(capture), source_(capture.arm64.sources[stream]), memory_(memory), hash_(hash) {
    ocsd_def_errlog_init(OCSD_ERR_SEV_NONE, 0);
    tree_ = ocsd_create_dcd_tree(OCSD_TRC_SRC_SINGLE, 0);
    make_decoder();
    ocsd_dt_set_gen_elem_outfn(tree_, &on_element, this);
    for (const Memory::Buffer& b : memory_.buffers) {
      ocsd_dt_add_buffer_mem_acc(tree_, b.begin, OCSD_MEM_SPACE_ANY, b.bytes.data(),
                                 static_cast<uint32_t>(b.bytes.size()));
    }
  }
  Csd(const Csd&) = delete;
  Csd& operator=(const Csd&) = delete;
  ~Csd() { ocsd_destroy_dcd_tree(tree_); }

  void decode(std::span<const uint8_t> trace) {
    uint32_t ignored = 0;
    while (next_ > 0) {
      const Memory::Change& c = memory_.changes[--next_];
      memory_.write(c.at, c.first, c.size);
    }
    for (size_t at = 0; at < trace.size();) {
      const size_t n = std::min<size_t>(trace.size() - at, size_t{1} << 20);
      uint32_t used = 0;
      const auto r = ocsd_dt_process_data(tree_, OCSD_OP_DATA, static_cast<ocsd_trc_index_t>(at),
                                          static_cast<uint32_t>(n), trace.data() + at, &used);
      if (OCSD_DATA_RESP_IS_FATAL(r)) {
        ++outcome.errors;
        ocsd_dt_process_data(tree_, OCSD_OP_RESET, 0, 0, nullptr, &ignored);
      } else if (OCSD_DATA_RESP_IS_WAIT(r)) {
        ocsd_dt_process_data(tree_, OCSD_OP_FLUSH, 0, 0, nullptr, &ignored);
      }
      at += std::max(used, 1U);
    }
    ocsd_dt_process_data(tree_, OCSD_OP_EOT, 0, 0, nullptr, &ignored);
    ocsd_dt_process_data(tree_, OCSD_OP_RESET, 0, 0, nullptr, &ignored);
  }

  Outcome outcome;

 private:
  void make_decoder() {
    unsigned char id = 0;
    const auto create = [this, &id](const char* name, auto& config) {
      config.arch_ver = source_.armv7 ? ARCH_V7 : ARCH_AA64;
      config.core_prof = source_.m_profile ? profile_CortexM : profile_CortexA;
      config.reg_idr0 = source_.idr0, config.reg_idr1 = source_.idr1, config.reg_idr2 = source_.idr2;
      config.reg_idr8 = source_.idr8;
      config.reg_configr = source_.configr, config.reg_traceidr = source_.traceidr;
      ocsd_dt_create_decoder(tree_, name, OCSD_CREATE_FLG_FULL_DECODER, &config, &id);
    };
    if (source_.protocol == arm64::Protocol::kEte) {
      ocsd_ete_cfg c{};
      c.reg_devarch = source_.devarch;
      create(OCSD_BUILTIN_DCD_ETE, c);
    } else {
      ocsd_etmv4_cfg c{};
      create(OCSD_BUILTIN_DCD_ETMV4I, c);
    }
  }

  static ocsd_datapath_resp_t on_element(const void* context, ocsd_trc_index_t, uint8_t,
                                         const ocsd_generic_trace_elem* element) {
    static_cast<Csd*>(const_cast<void*>(context))->element(*element);
    return OCSD_RESP_CONT;
  }

  void element(const ocsd_generic_trace_elem& e) {
    if (e.elem_type == OCSD_GEN_TRC_ELEM_INSTR_RANGE) {
      outcome.instructions += e.num_instr_range;
      if (hash_) {
        for (Addr a = e.st_addr; a < e.en_addr; a += 4) outcome.hash = outcome.hash * kHashFactor + a;
      }
    } else if (e.elem_type == OCSD_GEN_TRC_ELEM_ADDR_NACC) {
      ++outcome.errors;
    } else if (e.elem_type == OCSD_GEN_TRC_ELEM_TIMESTAMP && e.timestamp != 0 && capture_.arm64.time) {
      pass(capture_.arm64.time->to_perf(e.timestamp));
    }
  }

  // Applies the changes up to `now` to the buffers.
  void pass(Time now) {
    for (; next_ < memory_.changes.size() && memory_.changes[next_].time <= now; ++next_) {
      const Memory::Change& c = memory_.changes[next_];
      memory_.write(c.at, c.bytes, c.size);
    }
  }

  const Capture& capture_;
  const arm64::Source& source_;
  Memory& memory_;
  const bool hash_;
  void* tree_ = nullptr;
  size_t next_ = 0;
};

// Instructions at user addresses by process.
class BySpace final : public ChunkSink {
 public:
  Chunk spare() override { return {}; }
  void take(Chunk&& chunk) override {
    for (const Step& step : chunk.steps) {
      if (step.block->space != kKernelSpace) instructions[step.block->space] += step.count;
    }
  }
  std::map<Space, uint64_t> instructions;
};

// The text of each unit: it changes while its trace is decoded. One process's, as no address says whose it is: that
// of the one which ran most.
std::vector<Memory> memories_of(const Capture& capture) {
  const auto arch = capture.arch();
  if (!arch) throw std::runtime_error(arch.error().reason);
  const auto decoder = (*arch)->decoder(capture.streams, *capture.text, {});
  std::vector<Memory> all;
  for (size_t i = 0; i < capture.streams.size(); ++i) {
    BySpace by;
    for (const Segment& s : (*arch)->split(capture.streams[i], i)) decoder->decode(s, by);
    const auto most = std::ranges::max_element(by.instructions, {}, [](const auto& n) { return n.second; });
    all.emplace_back(*capture.text, most == by.instructions.end() ? kKernelSpace : most->first);
  }
  return all;
}

Outcome with_opencsd(const Capture& capture, const PlainTrace& trace, unsigned repeat, bool hash) {
  std::vector<Memory> memories = memories_of(capture);
  Outcome all;
  IpHash joined;
  all.seconds = bench::cpu_seconds_of([&] {
    for (size_t i = 0; i < trace.bytes.size(); ++i) {
      Csd csd(capture, i, memories[i], hash);
      for (unsigned n = 0; n < repeat; ++n) csd.decode(trace.bytes[i]);
      const uint64_t n = csd.outcome.instructions;
      joined.append({n, csd.outcome.hash, hash ? hash_power(static_cast<uint32_t>(n)) : 0});
      all.errors += csd.outcome.errors;
    }
  });
  all.instructions = joined.count;
  all.hash = joined.hash;
  return all;
}

Capture open(const std::string& path) {
  auto capture = open_capture(path, {});
  if (!capture) throw std::runtime_error(path + ": " + capture.error().reason);
  return *std::move(capture);
}

// For a profiler, and for comparing two builds.
void run_asof(const std::string& path, int rounds, unsigned repeat) {
  const Capture capture = open(path);
  const PlainTrace trace(capture);
  bench::print_table(
      path, {{"asof, blocks", [&] { return with_asof(capture, trace.streams, repeat, false); }}}, rounds);
}

void compare(const std::string& path, int rounds, unsigned repeat) {
  const Capture capture = open(path);
  const PlainTrace trace(capture);
  std::vector<Row> rows = {
      {"asof, blocks", [&] { return with_asof(capture, trace.streams, repeat, false); }},
      {"asof, blocks, hash of all addresses",
       [&] { return with_asof(capture, trace.streams, repeat, true); }},
      {"OpenCSD, full decoder", [&] { return with_opencsd(capture, trace, repeat, false); }}};
  if (trace.framed)
    rows.insert(rows.begin() + 1, {"asof, blocks, and out of the frames",
                                   [&] { return with_asof(capture, capture.streams, repeat, false); }});
  bench::print_table(
      fmt::format("{} ({} bytes of trace, {} time{})", path, trace.size(), repeat, repeat == 1 ? "" : "s"),
      rows, rounds);
  const Outcome theirs = with_opencsd(capture, trace, 1, true);
  const Outcome ours = with_asof(capture, capture.streams, 1, true);
  const bool equal = theirs.instructions == ours.instructions && theirs.hash == ours.hash;
  fmt::print("  {}: OpenCSD {} instructions, hash {:016x}; asof {}, {:016x}\n", equal ? "equal" : "NOT EQUAL",
             theirs.instructions, theirs.hash, ours.instructions, ours.hash);
}

}  // namespace
}  // namespace asof

int main(int argc, char** argv) {
  int rounds = 5;
  unsigned repeat = 1;
  bool only_asof = false;
  try {
    for (int i = 1; i < argc; ++i) {
      const std::string_view word = argv[i];
      if (word == "--rounds" && i + 1 < argc)
        rounds = std::max(1, std::atoi(argv[++i]));
      else if (word == "--repeat" && i + 1 < argc)
        repeat = static_cast<unsigned>(std::max(1, std::atoi(argv[++i])));
      else if (word == "--only-asof")
        only_asof = true;
      else
        (only_asof ? asof::run_asof : asof::compare)(argv[i], rounds, repeat);
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
  return 0;
}
