// Which instructions a block of libipt has, libipt's instruction decoder says: it follows a trace that is made
// up, of one address. Nothing of asof's own decoding of instructions is used.
#include "arch/x86/reference_sum.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <map>
#include <new>
#include <vector>

#include "arch/x86/errata.h"
#include "arch/x86/insn.h"
#include "arch/x86/libipt_config.h"
#include "arch/x86/segments.h"
#include "arch/x86/sync_group.h"

namespace asof::x86 {
namespace {

constexpr size_t kMaxBlocks = size_t{1} << 20;
// libipt compares each section that is added to an image with all others of it.
constexpr size_t kMaxSections = 8192;

// A file in memory, which libipt maps.
class TextFile {
 public:
  TextFile() : fd_(memfd_create("asof-text", MFD_CLOEXEC)) {}
  TextFile(const TextFile&) = delete;
  TextFile& operator=(const TextFile&) = delete;
  ~TextFile() {
    if (fd_ >= 0) close(fd_);
  }
  bool append(const uint8_t* bytes, size_t size) {
    for (size_t done = 0; done < size;) {
      const ssize_t n = fd_ < 0 ? -1 : write(fd_, bytes + done, size - done);
      if (n <= 0) return false;
      done += static_cast<size_t>(n);
    }
    size_ += size;
    return true;
  }
  uint64_t size() const { return size_; }
  std::string path() const { return fmt::format("/proc/self/fd/{}", fd_); }

 private:
  int fd_;
  uint64_t size_ = 0;
};

// The text of the kernel and of one process that never changes.
class Image {
 public:
  Image(const TextStore& text, Space user)
      : sections_(pt_iscache_alloc(nullptr)), image_(pt_image_alloc(nullptr)) {
    if (sections_ == nullptr || image_ == nullptr) return;
    pt_iscache_set_limit(sections_, UINT64_MAX);
    good_ = find(text, kKernelSpace) && (user == kNoSpace || find(text, user)) && add();
  }
  Image(const Image&) = delete;
  Image& operator=(const Image&) = delete;
  ~Image() {
    if (image_ != nullptr) pt_image_free(image_);
    if (sections_ != nullptr) pt_iscache_free(sections_);
  }
  pt_image* get() const { return good_ ? image_ : nullptr; }

 private:
  struct Section {
    Addr begin = 0;
    uint64_t size = 0, offset = 0;
  };
  bool find(const TextStore& text, Space space) {
    const size_t others = found_.size();
    for (const Cell& cell : text.cells(space, {0, UINT64_MAX})) {
      if (!cell.stable() || cell.versions[0].bytes == nullptr) continue;
      if (is_kernel_address(cell.range.begin) != (space == kKernelSpace) ||
          is_kernel_address(cell.range.end - 1) != (space == kKernelSpace))
        continue;
      const uint64_t size = cell.range.end - cell.range.begin;
      if (found_.size() == others || found_.back().begin + found_.back().size != cell.range.begin) {
        if (found_.size() == kMaxSections) return false;
        found_.push_back({cell.range.begin, 0, file_.size()});
      }
      found_.back().size += size;
      if (!file_.append(cell.versions[0].bytes, size)) return false;
    }
    return true;
  }
  // When the file is complete: libipt takes it for another one as soon as it changes.
  bool add() {
    for (const Section& s : found_) {
      const int id = pt_iscache_add_file(sections_, file_.path().c_str(), s.offset, s.size, s.begin);
      if (id < 0 || pt_image_add_cached(image_, sections_, id, nullptr) < 0) return false;
    }
    return true;
  }

  TextFile file_;
  std::vector<Section> found_;
  pt_image_section_cache* sections_;
  pt_image* image_;
  bool good_ = false;
};

// The addresses of the instructions of a block.
class BlockReader {
 public:
  BlockReader() {
    pt_config c;
    pt_config_init(&c);
    c.begin = trace_.data();
    c.end = c.begin + trace_.size();
    decoder_ = pt_insn_alloc_decoder(&c);
    if (decoder_ == nullptr) throw std::bad_alloc();
  }
  BlockReader(const BlockReader&) = delete;
  BlockReader& operator=(const BlockReader&) = delete;
  ~BlockReader() { pt_insn_free_decoder(decoder_); }
  // False: libipt itself does not find the block again.
  bool read(const pt_block& block, pt_image* image, std::vector<pt_insn>& out) {
    out.clear();
    if (pt_insn_set_image(decoder_, image) < 0) return false;
    trace_[kMode] = block.mode == ptem_64bit ? 1 : block.mode == ptem_32bit ? 2 : 0;
    std::memcpy(&trace_[kAddress], &block.ip, sizeof block.ip);
    int status = pt_insn_sync_set(decoder_, 0);
    while (out.size() < block.ninsn) {
      while (status >= 0 && (status & pts_event_pending) != 0) {
        pt_event event{};
        status = pt_insn_event(decoder_, &event, sizeof event);
      }
      if (status < 0) return false;
      pt_insn& insn = out.emplace_back();
      status = pt_insn_next(decoder_, &insn, sizeof insn);
      // The last one may be a branch for which there is no trace.
      if (insn.iclass == ptic_error || (status < 0 && out.size() < block.ninsn)) return false;
    }
    return !out.empty() && out.back().ip == block.end_ip;
  }

 private:
  // PSB, PSBEND, MODE.Exec, TIP.PGE with eight bytes of address.
  static constexpr size_t kMode = 19, kAddress = 21;
  std::array<uint8_t, 29> trace_{2,    0x82, 2,    0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2,
                                 0x82, 2,    0x23, 0x99, 1, 0xd1, 0, 0,    0, 0,    0, 0,    0, 0};
  pt_insn_decoder* decoder_ = nullptr;
};

// Hashes of blocks. Half of a line of the cache for each, because one is read for each block that ran.
class BlockHashes {
 public:
  void clear() {
    entries_.clear();
    used_ = 0;
  }
  const uint64_t* find(const pt_block& b) const {
    if (entries_.empty()) return nullptr;
    const Entry& e = entries_[slot(b)];
    return e.count != 0 ? &e.hash : nullptr;
  }
  void add(const pt_block& b, uint64_t hash) {
    if (2 * (used_ + 1) > entries_.size()) grow();
    entries_[slot(b)] = {b.ip, b.end_ip, hash, b.ninsn, static_cast<uint32_t>(b.mode)};
    ++used_;
  }

 private:
  struct alignas(32) Entry {
    Addr ip = 0, end_ip = 0;
    uint64_t hash = 0;
    uint32_t count = 0;  // 0: free
    uint32_t mode = 0;
  };
  // Where the block is, or has room.
  size_t slot(const pt_block& b) const {
    const size_t mask = entries_.size() - 1;
    size_t i = (b.ip ^ b.ninsn) * kHashFactor >> 32U & mask;
    while (entries_[i].count != 0 &&
           (entries_[i].ip != b.ip || entries_[i].end_ip != b.end_ip || entries_[i].count != b.ninsn ||
            entries_[i].mode != static_cast<uint32_t>(b.mode)))
      i = (i + 1) & mask;
    return i;
  }
  void grow() {
    constexpr size_t kFirst = 4096;
    std::vector<Entry> old = std::move(entries_);
    if (used_ >= kMaxBlocks) old.clear();
    entries_ = std::vector<Entry>(old.empty() ? kFirst : 2 * old.size());
    used_ = 0;
    for (const Entry& e : old) {
      if (e.count == 0) continue;
      pt_block b{};
      b.ip = e.ip;
      b.end_ip = e.end_ip;
      b.ninsn = static_cast<uint16_t>(e.count);
      b.mode = static_cast<pt_exec_mode>(e.mode);
      add(b, e.hash);
    }
  }

  std::vector<Entry> entries_;
  size_t used_ = 0;
};

}  // namespace

class ReferenceSums::Impl {
 public:
  Impl(const Config& config, std::span<const Stream> streams, const TextStore& text)
      : config_(config), errata_(errata_of(config.cpu)), streams_(streams), text_(text) {}

  std::optional<RunSum> sum(const Segment& segment) {
    const Stream& stream = streams_[segment.stream];
    if (segment.before || segment.end <= segment.begin) return std::nullopt;
    const size_t body = segment.end - segment.begin;
    const auto bytes = stream.bytes(segment.begin, segment.tail_end, scratch_);
    image_ = image_of(stream);
    if (bytes.size() < body || image_ == nullptr) return std::nullopt;
    const SyncGroup tail =
        bytes.size() > body ? read_sync_group(bytes.subspan(body), Clock(config_, 0), errata_) : SyncGroup{};
    const pt_config c = libipt_config(config_, bytes.first(body));
    const std::unique_ptr<pt_block_decoder, void (*)(pt_block_decoder*)> decoder(pt_blk_alloc_decoder(&c),
                                                                                 pt_blk_free_decoder);
    if (decoder == nullptr || pt_blk_set_image(decoder.get(), image_) < 0) return std::nullopt;
    RunSum sum;
    return run(*decoder, tail, sum) ? std::optional(sum) : std::nullopt;
  }

 private:
  // For processes that share a CPU libipt would have to be told which one runs.
  pt_image* image_of(const Stream& stream) {
    const auto& contexts = stream.contexts;
    const bool one = contexts.size() == 1 && contexts[0].time == kTimeMin;
    const Space user = one ? contexts[0].space : kNoSpace;
    auto& image = images_[user];
    if (image == nullptr) image = std::make_unique<Image>(text_, user);
    if (image.get() != last_) blocks_.clear();
    last_ = image.get();
    return image->get();
  }

  // As the reference engine does. False: it may differ here.
  bool run(pt_block_decoder& decoder, const SyncGroup& tail, RunSum& sum) {
    constexpr uint64_t kMaxIdle = 1 << 12;
    uint64_t idle = 0, last_offset = 0;
    int status = pt_blk_sync_set(&decoder, 0);
    pt_block block{};
    while (status >= 0) {
      while (status >= 0 && (status & pts_event_pending) != 0) {
        pt_event event{};
        status = pt_blk_event(&decoder, &event, sizeof event);
        if (status >= 0 && event.type == ptev_disabled && event.ip_suppressed != 0 && may_go_on(block))
          return false;
      }
      const bool eos = status >= 0 && (status & pts_eos) != 0;
      if (status < 0 || (eos && !tail.has_ip)) break;
      block = {};
      status = pt_blk_next(&decoder, &block, sizeof block);
      if (block.ninsn == 0) continue;
      if (eos && reaches(block, tail.ip, sum)) return true;
      if (!add(block, sum)) return false;
      if ((idle++ & 0xff) != 0) continue;
      uint64_t at = 0;
      pt_blk_get_offset(&decoder, &at);
      if (at != last_offset) idle = 1;
      last_offset = at;
      if (idle > kMaxIdle) return false;  // a loop without trace
    }
    return status >= 0 || status == -pte_eos;
  }

  // Tracing was switched off, and not at an address: the reference engine looks for the way there.
  bool may_go_on(const pt_block& block) {
    if (block.ninsn == 0 || !reader_.read(block, image_, insns_)) return true;
    const pt_insn& last = insns_.back();
    Insn own;
    return decode_insn({last.raw, last.size}, last.ip, 64, own) != InsnStatus::kOk || own.writes_cr3;
  }

  // Adds what lies before the address, if the block reaches it. What cannot be read never does: add() says so.
  bool reaches(const pt_block& block, Addr ip, RunSum& sum) {
    if (!reader_.read(block, image_, insns_)) return false;
    RunSum before = sum;
    for (const pt_insn& insn : insns_) {
      if (insn.ip == ip) {
        sum = before;
        return true;
      }
      before.hash = before.hash * kHashFactor + insn.ip;
      ++before.instructions;
    }
    return false;
  }

  bool add(const pt_block& block, RunSum& sum) {
    if (block.isid <= 0 || block.truncated != 0) return false;
    uint64_t hash = 0;
    if (const uint64_t* const known = blocks_.find(block)) {
      hash = *known;
    } else {
      if (!reader_.read(block, image_, insns_)) return false;
      for (const pt_insn& insn : insns_) hash = hash * kHashFactor + insn.ip;
      blocks_.add(block, hash);
    }
    sum.hash = sum.hash * hash_power(block.ninsn) + hash;
    sum.instructions += block.ninsn;
    return true;
  }

  const Config& config_;
  const Errata errata_;
  const std::span<const Stream> streams_;
  const TextStore& text_;
  std::map<Space, std::unique_ptr<Image>> images_;
  const Image* last_ = nullptr;
  pt_image* image_ = nullptr;  // of the segment
  BlockReader reader_;
  BlockHashes blocks_;  // of last_
  std::vector<pt_insn> insns_;
  std::vector<uint8_t> scratch_;
};

ReferenceSums::ReferenceSums(const Config& config, std::span<const Stream> streams, const TextStore& text)
    : impl_(std::make_unique<Impl>(config, streams, text)) {}
ReferenceSums::~ReferenceSums() = default;
std::optional<RunSum> ReferenceSums::sum(const Segment& segment) { return impl_->sum(segment); }

}  // namespace asof::x86
