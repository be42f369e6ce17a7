#include "tools/board/machine/truth_writer.h"

#include <fmt/format.h>
#include <zstd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <stdexcept>

#include "arch/arch.h"

namespace asof::machine {
namespace {

constexpr int kLevel = 6;
constexpr uint32_t kTruthFlags = kLogException | kLogStart | kLogNoBranch | kLogUser;
constexpr uint32_t kLateText = 4;  // of the truth only

}  // namespace

// Records of 32 bytes as zstd, written as they come.
class TruthWriter::RunFile {
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

// The question is asked once for each run.
class TruthWriter::SeenRuns {
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

TruthWriter::TruthWriter(const std::filesystem::path& file, const CodeTable& code,
                         const TimeConversion& clock, const Known& known)
    : code_(code),
      clock_(clock),
      file_(std::make_unique<RunFile>(file)),
      seen_(std::make_unique<SeenRuns>(known)) {}
TruthWriter::~TruthWriter() = default;

void TruthWriter::leave_out(const LogRecord& r) {
  ((r.flags & kLogLost) != 0 ? truth_.lost : truth_.outside) += r.count;
  hole_ = true;
}

void TruthWriter::add(LogRecord r) {
  const Executed run = executed(code_, r);
  Addr ip = r.address;
  for (const uint8_t length : run.lengths) {
    truth_.hash = truth_.hash * kHashFactor + ip;
    ip += length;
  }
  if (hole_) r.flags |= kLogStart;
  hole_ = false;
  if (!seen_->known(r.code, r.address, run.bytes)) {
    r.flags |= kLateText;
    truth_.late += r.count;
  }
  truth_.instructions += r.count;
  if ((r.flags & kLogUser) != 0) truth_.user_instructions += r.count;
  ++truth_.runs;
  file_->add(r, static_cast<uint32_t>(run.bytes.size()), clock_.to_perf(r.clock));
}

CpuTruth TruthWriter::finish() {
  file_->finish();
  return std::move(truth_);
}

}  // namespace asof::machine
