// CoreSight recordings for tests: metadata blocks, frames and AUX records put together with the perf.data
// writer.
#pragma once
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "decoder/coresight/cs_perf.h"
#include "tests/support/etm_frames.h"
#include "tests/support/perf_data_writer.h"

namespace asof::test {

inline constexpr uint64_t kEtm3Magic = 0x3030303030303030, kEtm4Magic = 0x4040404040404040,
                          kEteMagic = 0x5050505050505050;
inline constexpr uint64_t kRawFlag = 0x100, kTruncatedFlag = 1;

// One CPU's block. `params` after magic, cpu and, from version 1 on, their count.
struct CsBlock {
  uint64_t magic = kEtm4Magic;
  uint64_t cpu = 0;
  std::vector<uint64_t> params{};
};
inline CsBlock etm4_block(uint64_t cpu, uint64_t trace_id) {
  return {kEtm4Magic, cpu, {0x801, trace_id, 0x28000ea1, 0x4100f403, 0x488, 0, 0xcc}};
}
inline std::vector<uint64_t> cs_info(uint64_t version, const std::vector<CsBlock>& blocks) {
  std::vector<uint64_t> out = {version, (uint64_t{8} << 32U) | blocks.size(), 0};
  for (const CsBlock& block : blocks) {
    out.push_back(block.magic);
    out.push_back(block.cpu);
    if (version != 0) out.push_back(block.params.size());
    out.insert(out.end(), block.params.begin(), block.params.end());
  }
  return out;
}

// A recording with one ring for each CPU (or thread), growing AUX record by AUX record.
class CsRecording {
 public:
  CsRecording(uint64_t version, const std::vector<CsBlock>& blocks, uint64_t flags = attr_flag::kSampleIdAll,
              const PerfDataWriter::Options& options = {})
      : writer(options) {
    writer.add_attr({.type = 8, .sample_type = 0x10087, .flags = flags, .ids = {1, 2, 3, 4}});
    writer.arch("aarch64");
    writer.auxtrace_info(3, cs_info(version, blocks));
  }
  Trailer trailer(int32_t cpu, uint64_t time, int32_t tid = 7) const {
    return {.time = time, .cpu = static_cast<uint32_t>(cpu), .pid = tid, .tid = tid};
  }
  void start(int32_t cpu, uint64_t time) { writer.itrace_start(7, 7, trailer(cpu, time)); }
  // `tid` >= 0: a ring of that thread.
  void aux(int32_t cpu, uint64_t time, const std::vector<uint8_t>& bytes, uint64_t flags = 0,
           int32_t tid = -1) {
    const int32_t key = tid >= 0 ? 1000 + tid : cpu;
    uint64_t& at = offset_[key];
    Trailer t = trailer(cpu, time, tid >= 0 ? tid : 7);
    writer.aux(at, bytes.size(), flags, t);
    writer.auxtrace({.offset = at,
                     .reference = 1,
                     .idx = static_cast<uint32_t>(key),
                     .tid = tid,
                     .cpu = tid >= 0 ? -1 : cpu},
                    bytes);
    at += bytes.size();
  }
  void hw_id(int32_t cpu, uint64_t value) {
    ByteSink body;
    body.u64(value);
    const Trailer t = trailer(cpu, 5);
    writer.record(21, 0, body.bytes(), &t);
  }

  PerfDataWriter writer;

 private:
  std::map<int32_t, uint64_t> offset_;
};

inline std::vector<uint8_t> noise(uint32_t seed, size_t size) {
  std::mt19937 random(seed);
  std::vector<uint8_t> out(size);
  for (uint8_t& byte : out) byte = static_cast<uint8_t>(random() | 1U);
  return out;
}
inline std::vector<uint8_t> framed(const std::vector<std::pair<uint8_t, std::vector<uint8_t>>>& parts) {
  EtmFrames frames;
  for (const auto& [id, bytes] : parts) frames.write(id, bytes);
  frames.flush();
  return frames.bytes();
}

inline std::vector<uint8_t> stream_bytes(const Stream& stream) {
  std::vector<uint8_t> out, scratch;
  for (const StreamPiece& piece : stream.pieces) {
    const auto bytes = stream.bytes(piece.offset, piece.offset + piece.size(), scratch);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

}  // namespace asof::test
