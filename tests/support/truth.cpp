#include "tests/support/truth.h"

#include <fmt/format.h>
#include <zstd.h>

#include "arch/arch.h"
#include "tests/support/bytes.h"
#include "tests/support/perf_data_writer.h"
#include "textstore/check.h"

namespace asof::test {

void Truth::instruction(Addr ip, const SimInsn& insn, Space space, bool user, Time time) {
  if (!open_) {
    if (next_flags_ & TruthRun::kRestart) ++restarts_;
    runs_.push_back({ip, 0, 0, next_flags_ | (user ? TruthRun::kUser : 0), time});
    next_flags_ = 0;
    open_ = true;
  }
  TruthRun& run = runs_.back();
  run.bytes += insn.length;
  ++run.instructions;
  ++count_;
  hash_ = hash_ * kHashFactor + ip;
  if (keep_instructions_) executed_.push_back({ip, time, space, insn.length, insn.bytes});
  const bool goes_on =
      insn.kind == SimKind::kStraight || insn.kind == SimKind::kMovCr3 || insn.kind == SimKind::kPtwrite;
  if (!goes_on) open_ = false;
}

void Truth::late_text() {
  ASOF_CHECK(!runs_.empty());
  runs_.back().flags |= TruthRun::kLateText;
}

void Truth::async() {
  if (open_) runs_.back().flags |= TruthRun::kInterrupted;
  open_ = false;
  next_flags_ |= TruthRun::kAsync;
  ++exceptions_;
}

void Truth::interrupted() {
  open_ = false;
  next_flags_ = TruthRun::kRestart;
}

std::vector<uint8_t> zstd_compress(std::span<const uint8_t> bytes) {
  std::vector<uint8_t> out(ZSTD_compressBound(bytes.size()));
  // Captures in the repository are small; the highest level would take minutes for large ones.
  constexpr size_t kLarge = 16 << 20;
  const int level = bytes.size() < kLarge ? 19 : 6;
  const size_t n = ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), level);
  ASOF_CHECK(!ZSTD_isError(n));
  out.resize(n);
  return out;
}

std::vector<uint8_t> zstd_decompress(std::span<const uint8_t> bytes) {
  const unsigned long long size = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
  ASOF_CHECK(size < (1U << 30));
  std::vector<uint8_t> out(size);
  const size_t n = ZSTD_decompress(out.data(), out.size(), bytes.data(), bytes.size());
  ASOF_CHECK(n == size);
  return out;
}

void write_truth(const std::filesystem::path& directory, std::span<const Truth* const> cpus,
                 const std::string& note) {
  std::string cpus_json;
  for (size_t i = 0; i < cpus.size(); ++i) {
    const Truth& t = *cpus[i];
    ByteSink s;
    uint64_t user = 0;
    for (const TruthRun& r : t.runs()) {
      s.u64(r.address), s.u32(r.bytes), s.u32(r.instructions), s.u32(r.flags), s.u32(0);
      s.u64(static_cast<uint64_t>(r.time));
      if (r.flags & TruthRun::kUser) user += r.instructions;
    }
    write_bytes(directory / fmt::format("cpu{}.blocks.zst", i), zstd_compress(s.bytes()));
    cpus_json += fmt::format(
        "{}\n    \"{}\": {{\"instructions\": {}, \"user_instructions\": {}, \"runs\": {}, \"ip_hash\": "
        "\"{:#018x}\",\n"
        "          \"exceptions\": {}, \"trace_restarts\": {}, \"first_time\": {}, \"last_time\": {}}}",
        i == 0 ? "" : ",", i, t.count(), user, t.runs().size(), t.hash(), t.exceptions(), t.restarts(),
        t.runs().empty() ? 0 : t.runs().front().time, t.runs().empty() ? 0 : t.runs().back().time);
  }
  write_text(directory / "summary.json",
             fmt::format("{{\n  \"note\": \"{}\",\n  \"cpus\": {{{}\n  }}\n}}\n", note, cpus_json));
}

}  // namespace asof::test
