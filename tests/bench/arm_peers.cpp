// arm_peers [--rounds N] [--repeat N] [--only-asof] CAPTURE...: decodes CoreSight captures (ETMv4, ETE) with
// asof and with OpenCSD's full decoder by turns, in one process and thread, and prints medians of CPU time
// with their ratio, and counts and hashes of what both found.
//
// What is measured: the trace of all units, to executed blocks (asof) or instruction ranges (OpenCSD), with
// everything that is made for it and thrown away again: each round starts with no decoder and no cache. Not
// measured, for either: opening the capture. OpenCSD gets each unit's bytes out of their frames already, and
// its memory as plain buffers, which is the fastest it has: no files, no callback. Where text changes, the
// buffers are changed when a timestamp says that it is time for it, so that both decode the same.
// --repeat N: the same decoders decode the trace N times.
#include <fmt/format.h>
#include <opencsd/c_api/opencsd_c_api.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "decoder/capture.h"
#include "tests/bench/chunk_count.h"

namespace asof {
namespace {

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

using bench::Outcome;

// ---- asof ----

class Count final : public ChunkSink {
 public:
  explicit Count(bool hash) : count(hash) {}
  void take(Chunk&& chunk) override { count.add(chunk); }
  bench::ChunkCount count;
};

Outcome with_asof(const Capture& capture, unsigned repeat, bool hash) {
  const auto arch = capture.arch();
  if (!arch) return {};
  Count count(hash);
  const auto decoder = (*arch)->decoder(capture.streams, *capture.text, {});
  for (unsigned n = 0; n < repeat; ++n) {
    for (size_t i = 0; i < capture.streams.size(); ++i) {
      for (const Segment& s : (*arch)->split(capture.streams[i], i)) decoder->decode(s, count);
    }
  }
  return count.count.outcome;
}

// ---- OpenCSD ----

// The text as it was at first, in buffers, and what came to stand in them later.
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
    uint64_t size = 0;
  };
  std::vector<Buffer> buffers;
  std::vector<Change> changes;

  // All that stands in `space`, and in the kernel's.
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
          changes.push_back({v.from, cell.range.begin, v.bytes, cell.range.size()});
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
};

class Csd {
 public:
  Csd(const Capture& capture, size_t stream, const Memory& memory, bool hash)
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

  // What has changed up to `now` changes in the buffers.
  void pass(Time now) {
    for (; next_ < memory_.changes.size() && memory_.changes[next_].time <= now; ++next_) {
      const Memory::Change& c = memory_.changes[next_];
      for (const Memory::Buffer& b : memory_.buffers) {
        if (b.contains(c.at)) std::memcpy(const_cast<uint8_t*>(&b.bytes[c.at - b.begin]), c.bytes, c.size);
      }
    }
  }

  const Capture& capture_;
  const arm64::Source& source_;
  const Memory& memory_;
  const bool hash_;
  void* tree_ = nullptr;
  size_t next_ = 0;
};

// What OpenCSD needs of a capture, made ahead.
struct CsdInput {
  std::vector<std::vector<uint8_t>> traces;
  std::vector<Memory> memories;  // one for each trace: text changes while it is decoded

  explicit CsdInput(const Capture& capture) {
    for (const Stream& s : capture.streams) {
      std::vector<uint8_t> scratch;
      std::vector<uint8_t>& trace = traces.emplace_back();
      for (const StreamPiece& p : s.pieces) {
        const auto bytes = s.bytes(p.offset, p.offset + p.size(), scratch);
        trace.insert(trace.end(), bytes.begin(), bytes.end());
      }
      memories.emplace_back(*capture.text, s.contexts.empty() ? kKernelSpace : s.contexts.front().space);
    }
  }
};

Outcome with_opencsd(const Capture& capture, const CsdInput& input, unsigned repeat, bool hash) {
  Outcome all;
  for (size_t i = 0; i < input.traces.size(); ++i) {
    Csd csd(capture, i, input.memories[i], hash);
    for (unsigned n = 0; n < repeat; ++n) csd.decode(input.traces[i]);
    IpHash joined{all.instructions, all.hash, hash_power(static_cast<uint32_t>(all.instructions))};
    joined.append({csd.outcome.instructions, csd.outcome.hash,
                   hash_power(static_cast<uint32_t>(csd.outcome.instructions))});
    all = {.instructions = joined.count, .hash = joined.hash, .errors = all.errors + csd.outcome.errors};
  }
  return all;
}

double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v[v.size() / 2];
}

// For a profiler.
bool run_asof(const std::string& path, int rounds, unsigned repeat) {
  const auto capture = open_capture(path, {});
  for (int round = 0; capture && round < rounds; ++round) with_asof(*capture, repeat, false);
  return capture.has_value();
}

bool compare(const std::string& path, int rounds, unsigned repeat) {
  const auto capture = open_capture(path, {});
  if (!capture) {
    fmt::print(stderr, "{}: {}\n", path, capture.error().reason);
    return false;
  }
  CsdInput input(*capture);
  const CsdInput fresh = input;
  struct Peer {
    const char* name;
    std::vector<double> seconds{};
    Outcome outcome{};
  };
  Peer csd{"OpenCSD full decoder"}, ours{"asof blocks"}, hashed{"asof blocks, hashed"};
  const auto measure = [](Peer& peer, auto&& run) {
    const double start = cpu_seconds();
    peer.outcome = run();
    peer.seconds.push_back(cpu_seconds() - start);
  };
  for (int round = 0; round < rounds; ++round) {
    input = fresh;  // text as at first
    measure(csd, [&] { return with_opencsd(*capture, input, repeat, false); });
    measure(ours, [&] { return with_asof(*capture, repeat, false); });
    measure(hashed, [&] { return with_asof(*capture, repeat, true); });
  }
  input = fresh;
  const Outcome expected = with_opencsd(*capture, input, 1, true);
  const Outcome found = with_asof(*capture, 1, true);
  uint64_t bytes = 0;
  for (const auto& t : input.traces) bytes += t.size();
  fmt::print("{} ({} bytes of trace, {} time{})\n", path, bytes, repeat, repeat == 1 ? "" : "s");
  for (const Peer* peer : {&csd, &ours, &hashed}) {
    const double s = median(peer->seconds);
    fmt::print("  {:<22}{:>12} instructions{:>11.3f} ms (best {:.3f}){:>9.1f} M/s{:>8.2f} x   {} errors\n",
               peer->name, peer->outcome.instructions, s * 1e3, std::ranges::min(peer->seconds) * 1e3,
               static_cast<double>(peer->outcome.instructions) / s * 1e-6, median(csd.seconds) / s,
               peer->outcome.errors);
  }
  const bool equal = expected.instructions == found.instructions && expected.hash == found.hash;
  fmt::print("  {}: OpenCSD {} instructions, hash {:016x}; asof {}, {:016x}\n", equal ? "equal" : "NOT EQUAL",
             expected.instructions, expected.hash, found.instructions, found.hash);
  return true;
}

}  // namespace
}  // namespace asof

int main(int argc, char** argv) {
  int rounds = 5;
  unsigned repeat = 1;
  bool good = true, only_asof = false;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--rounds" && i + 1 < argc)
      rounds = std::max(1, std::atoi(argv[++i]));
    else if (std::string_view(argv[i]) == "--repeat" && i + 1 < argc)
      repeat = static_cast<unsigned>(std::max(1, std::atoi(argv[++i])));
    else if (std::string_view(argv[i]) == "--only-asof")
      only_asof = true;
    else
      good = (only_asof ? asof::run_asof : asof::compare)(argv[i], rounds, repeat) && good;
  }
  return good ? 0 : 1;
}
