#include <fmt/format.h>
#include <zstd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "arch/arch.h"
#include "tools/board/machine/machine_truth.h"

namespace asof::machine {
namespace {

constexpr int kLevel = 6;
constexpr uint32_t kTruthFlags = kLogException | kLogStart | kLogNoBranch | kLogUser;
constexpr uint32_t kLateText = 4;  // of the truth only

// Records of 32 bytes as zstd, written as they come.
class RunFile {
 public:
  explicit RunFile(const std::filesystem::path& path)
      : path_(path), file_(std::fopen(path.c_str(), "wbe")), stream_(ZSTD_createCStream()) {
    if (!file_)
      throw std::runtime_error(fmt::format("cannot write {}: {}", path.string(), std::strerror(errno)));
    ZSTD_initCStream(stream_.get(), kLevel);
  }

  void add(const LogRecord& r, uint32_t bytes, Time time) {
    struct {
      uint64_t address;
      uint32_t bytes, instructions, flags, reserved;
      int64_t time;
    } const run{r.address, bytes, r.count, r.flags & (kTruthFlags | kLateText), 0, time};
    static_assert(sizeof run == 32);
    const auto* p = reinterpret_cast<const uint8_t*>(&run);
    pending_.insert(pending_.end(), p, p + sizeof run);
    if (pending_.size() >= (1U << 20)) write(ZSTD_e_continue);
  }
  void finish() {
    write(ZSTD_e_end);
    if (std::fflush(file_.get()) != 0)
      throw std::runtime_error(fmt::format("cannot write {}", path_.string()));
  }

 private:
  void write(ZSTD_EndDirective mode) {
    ZSTD_inBuffer in{pending_.data(), pending_.size(), 0};
    std::vector<uint8_t> bytes(ZSTD_CStreamOutSize());
    for (bool done = false; !done;) {
      ZSTD_outBuffer out{bytes.data(), bytes.size(), 0};
      const size_t left = ZSTD_compressStream2(stream_.get(), &out, &in, mode);
      if (ZSTD_isError(left) != 0) throw std::runtime_error(ZSTD_getErrorName(left));
      if (std::fwrite(bytes.data(), 1, out.pos, file_.get()) != out.pos)
        throw std::runtime_error(fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)));
      done = mode == ZSTD_e_end ? left == 0 : in.pos == in.size;
    }
    pending_.clear();
  }

  struct Close {
    void operator()(std::FILE* f) const { std::fclose(f); }
    void operator()(ZSTD_CStream* s) const { ZSTD_freeCStream(s); }
  };
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
  std::unique_ptr<ZSTD_CStream, Close> stream_;
  std::vector<uint8_t> pending_;
};

// Whether the next record is in the recording: from a sync point in a window on, up to what that window's end
// lets a decoder know.
class InWindow {
 public:
  explicit InWindow(const std::vector<Window>& windows) : windows_(windows) {}

  void sync(uint64_t position) {
    while (next_ < windows_.size() && windows_[next_].end <= position) ++next_;
    if (next_ < windows_.size() && windows_[next_].begin <= position) open_until_ = windows_[next_].end;
  }
  bool has(uint64_t position) {
    if (position > open_until_) open_until_ = 0;
    return open_until_ != 0;
  }

 private:
  const std::vector<Window>& windows_;
  size_t next_ = 0;
  uint64_t open_until_ = 0;
};

// The question is asked once for each run.
class SeenRuns {
 public:
  explicit SeenRuns(const std::function<bool(Addr, std::span<const uint8_t>)>& ask) : ask_(ask) {}
  bool known(uint32_t code, Addr address, std::span<const uint8_t> bytes) {
    const auto [it, is_new] = answers_.try_emplace({address, bytes.size() << 32 | code}, true);
    if (is_new) it->second = ask_(address, bytes);
    return it->second;
  }

 private:
  const std::function<bool(Addr, std::span<const uint8_t>)>& ask_;
  std::map<std::pair<Addr, uint64_t>, bool> answers_;
};

}  // namespace

CpuTruth write_cpu_truth(const std::filesystem::path& log, int cpu, const CodeTable& code,
                         const std::vector<Window>& windows, const TimeConversion& clock,
                         const std::filesystem::path& folder,
                         const std::function<bool(Addr, std::span<const uint8_t>)>& known) {
  CpuTruth truth;
  truth.windows = windows;
  RunFile file(folder / fmt::format("cpu{}.blocks.zst", cpu));
  CpuLog records(log_file(log, cpu));
  InWindow window(windows);
  LogRecord r;
  uint64_t position = 0;
  SeenRuns seen(known);
  bool hole = true;  // the run before this one is not in the truth
  while (records.next(r, position)) {
    if (r.code == kLogMark) {
      if (r.first == static_cast<uint16_t>(Mark::kSync)) window.sync(position);
      continue;
    }
    const bool lost = (r.flags & kLogLost) != 0;
    if (lost || !window.has(position)) {
      (lost ? truth.lost : truth.outside) += r.count;
      hole = true;
      continue;
    }
    const Executed run = executed(code, r);
    Addr ip = r.address;
    for (const uint8_t length : run.lengths) {
      truth.hash = truth.hash * kHashFactor + ip;
      ip += length;
    }
    if (hole) r.flags |= kLogStart;
    hole = false;
    if (!seen.known(r.code, r.address, run.bytes)) {
      r.flags |= kLateText;
      truth.late += r.count;
    }
    truth.instructions += r.count;
    if ((r.flags & kLogUser) != 0) truth.user_instructions += r.count;
    ++truth.runs;
    file.add(r, static_cast<uint32_t>(run.bytes.size()), clock.to_perf(r.clock));
  }
  file.finish();
  return truth;
}

}  // namespace asof::machine
