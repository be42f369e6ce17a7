#include "arch/x86/reference.h"

#include <fmt/format.h>
#include <tsl/robin_map.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <new>

#include "arch/x86/errata.h"
#include "arch/x86/flow.h"
#include "arch/x86/libipt_config.h"
#include "arch/x86/segments.h"

namespace asof::x86 {
namespace {

BranchKind kind_of(pt_insn_class c, const Insn& insn) {
  switch (c) {
    case ptic_call:
      return insn.kind == BranchKind::kCall ? BranchKind::kCall : BranchKind::kCallInd;
    case ptic_jump:
      return insn.kind == BranchKind::kJump ? BranchKind::kJump : BranchKind::kJumpInd;
    case ptic_return:
      return BranchKind::kRet;
    case ptic_cond_jump:
      return BranchKind::kCond;
    case ptic_far_call:
      return BranchKind::kFarCall;
    case ptic_far_return:
      return BranchKind::kFarRet;
    case ptic_far_jump:
      return BranchKind::kFarJump;
    case ptic_ptwrite:
      return BranchKind::kPtwrite;
    default:
      return BranchKind::kNone;
  }
}

class Reference final : public SegmentDecoder {
 public:
  Reference(const Config& config, std::span<const Stream> streams, const TextStore& text,
            const DecodeOptions& options)
      : config_(config), errata_(errata_of(config.cpu)), streams_(streams), text_(text), options_(options) {}
  ~Reference() override { free_decoder(); }

  void decode(const Segment& segment, ChunkSink& sink) override {
    stream_ = &streams_[segment.stream];
    Chunk chunk;
    chunk.stream = segment.stream;
    chunk.segment = segment.index;
    if (segment.before) chunk.gaps.push_back(*segment.before);
    if (segment.end > segment.begin) run(segment, chunk, sink);
    chunk.last = true;
    sink.take(std::move(chunk));
  }

 private:
  void free_decoder() {
    if (decoder_ != nullptr) pt_insn_free_decoder(decoder_);
    if (image_ != nullptr) pt_image_free(image_);
    decoder_ = nullptr;
    image_ = nullptr;
  }

  bool start(std::span<const uint8_t> bytes) {
    free_decoder();
    const pt_config c = libipt_config(config_, bytes);
    errno = 0;
    decoder_ = pt_insn_alloc_decoder(&c);
    image_ = pt_image_alloc("asof");
    if (image_ == nullptr || (decoder_ == nullptr && errno == ENOMEM)) throw std::bad_alloc();
    if (decoder_ == nullptr) return false;
    pt_image_set_callback(image_, &Reference::read_text, this);
    return pt_insn_set_image(decoder_, image_) == 0;
  }

  Time now() const {
    uint64_t tsc = 0;
    uint32_t lost_mtc = 0, lost_cyc = 0;  // libipt 2.1 and later want them
    if (!config_.time || pt_insn_time(decoder_, &tsc, &lost_mtc, &lost_cyc) < 0) return kTimeMin;
    return config_.time->to_perf(tsc);
  }

  // libipt's read callback: bytes as of its own idea of the time.
  static int read_text(uint8_t* buffer, size_t size, const pt_asid*, uint64_t ip, void* context) {
    auto* self = static_cast<Reference*>(context);
    const Time t = self->options_.text_at == TextAt::kFirst  ? kTimeMin
                   : self->options_.text_at == TextAt::kLast ? kTimeMax
                                                             : self->now();
    Space space = kKernelSpace;
    if (!is_kernel_address(ip)) {
      const ContextChange* c = self->stream_->context_at(t);
      if (c == nullptr || c->space == kNoSpace) return -pte_nomap;
      space = c->space;
    }
    const size_t n = self->text_.read(space, ip, t, {buffer, size});
    return n == 0 ? -pte_nomap : static_cast<int>(n);
  }

  int take_events(int status, const pt_insn& last, Chunk& chunk, ChunkSink& sink) {
    while (status >= 0 && (status & pts_event_pending) != 0) {
      pt_event event{};
      status = pt_insn_event(decoder_, &event, sizeof event);
      if (status >= 0 && event.type == ptev_disabled && event.ip_suppressed != 0)
        go_on_to_user_mode(last, chunk, sink);
    }
    return status;
  }

  void add_gap(int status, const Segment& segment, Chunk& chunk) {
    Gap g;
    g.step = static_cast<uint32_t>(chunk.steps.size());
    uint64_t offset = 0;
    pt_insn_get_offset(decoder_, &offset);
    g.begin = segment.begin + std::min<uint64_t>(offset, segment.end - segment.begin);
    g.end = segment.end;
    g.code = status == -pte_nomap     ? Code::kNoBytes
             : status == -pte_bad_opc ? Code::kBadPacket
                                      : Code::kTraceContradictsText;
    g.reason = fmt::format("libipt: {}", pt_errstr(pt_errcode(status)));
    chunk.gaps.push_back(std::move(g));
  }

  void run(const Segment& segment, Chunk& chunk, ChunkSink& sink) {
    const auto bytes = stream_->bytes(segment.begin, segment.tail_end, scratch_);
    const size_t body = segment.end - segment.begin;
    SyncGroup tail;
    if (bytes.size() > body) tail = read_sync_group(bytes.subspan(body), Clock(config_, 0), errata_);
    if (!start(bytes.first(body))) return;
    int status = pt_insn_sync_set(decoder_, 0);
    // libipt follows a loop that uses no trace for ever.
    constexpr uint64_t kMaxIdle = 1 << 20;
    uint64_t idle = 0, last_offset = 0;
    pt_insn last{};
    last.iclass = ptic_error;
    while (status >= 0) {
      uint64_t at = 0;
      pt_insn_get_offset(decoder_, &at);
      idle = at == last_offset ? idle + 1 : 0;
      last_offset = at;
      if (idle > kMaxIdle) {
        status = -pte_bad_query;
        break;
      }
      status = take_events(status, last, chunk, sink);
      // All packets are used up: the flow goes on to the address in the next PSB+, or stops as libipt's own
      // tools do.
      const bool eos = status >= 0 && (status & pts_eos) != 0;
      if (status < 0 || (eos && !tail.has_ip)) break;
      pt_insn insn{};
      status = pt_insn_next(decoder_, &insn, sizeof insn);
      if (status == -pte_event_ignored) {  // libipt 2.1 and later: one of which nothing was said before
        status = pts_event_pending;
        continue;
      }
      if (eos && insn.ip == tail.ip) return;
      last = insn;
      if (insn.iclass != ptic_error) emit(insn, chunk, sink);
    }
    if (status >= 0 || status == -pte_eos) return;
    if (status == -pte_nomem) throw std::bad_alloc();
    add_gap(status, segment, chunk);
  }

  // A TIP.PGD without address: the CPU left the traced privilege level, or the traced address space. libipt
  // takes it at the first instruction that could do either, and that is a MOV to CR3, too
  // (pt_insn_at_disabled_event()). Without a CR3 filter, which perf has not (PT_CONFIG_MASK in
  // arch/x86/events/intel/pt.c), the MOV to CR3 of the kernel's way to user mode (SWITCH_TO_USER_CR3 in
  // arch/x86/entry/calling.h) did not end tracing: the CPU went straight on to the SYSRET or IRET, and what
  // lies between needs no packet. Nothing is added when anything else comes first.
  void go_on_to_user_mode(pt_insn insn, Chunk& chunk, ChunkSink& sink) {
    constexpr size_t kMost = 64;
    Insn own;
    if (config_.cr3_filter || insn.mode != ptem_64bit ||
        decode_insn({insn.raw, insn.size}, insn.ip, 64, own) != InsnStatus::kOk || !own.writes_cr3)
      return;
    std::vector<pt_insn> way;
    while (way.size() < kMost && own.kind != BranchKind::kFarRet) {
      insn.ip += insn.size;
      const int n = read_text(insn.raw, sizeof insn.raw, nullptr, insn.ip, this);
      if (n <= 0 || decode_insn({insn.raw, static_cast<size_t>(n)}, insn.ip, 64, own) != InsnStatus::kOk)
        return;
      if (own.kind != BranchKind::kNone && own.kind != BranchKind::kFarRet) return;
      insn.size = own.length;
      insn.iclass = own.kind == BranchKind::kFarRet ? ptic_far_return : ptic_other;
      way.push_back(insn);
    }
    if (own.kind != BranchKind::kFarRet) return;
    for (const pt_insn& i : way) emit(i, chunk, sink);
  }

  void emit(const pt_insn& insn, Chunk& chunk, ChunkSink& sink) {
    Block*& b = blocks_[insn.ip];
    if (b == nullptr || b->size != insn.size || std::memcmp(b->bytes, insn.raw, insn.size) != 0)
      b = make_block(insn);
    Step step;
    step.block = b;
    step.count = 1;
    step.time = now();
    chunk.steps.push_back(step);
    if (chunk.steps.size() < options_.chunk_steps) return;
    Chunk next;
    next.stream = chunk.stream;
    next.segment = chunk.segment;
    sink.take(std::move(chunk));
    chunk = std::move(next);
  }

  Block* make_block(const pt_insn& insn) {
    Bytes& raw = raw_.emplace_back();
    std::memcpy(raw.data(), insn.raw, insn.size);
    raw[15] = insn.size;
    Insn own;
    const uint8_t mode = insn.mode == ptem_64bit ? 64 : insn.mode == ptem_32bit ? 32 : 16;
    decode_insn({insn.raw, insn.size}, insn.ip, mode, own);
    Block& b = pool_.emplace_back();
    b.ip = insn.ip;
    b.size = insn.size;
    b.count = 1;
    b.mode = mode;
    b.kind = kind_of(insn.iclass, own);
    b.target = own.target;
    b.bytes = raw.data();
    b.lengths = &raw[15];
    b.hash = insn.ip;
    b.power = kHashFactor;
    return &b;
  }

  using Bytes = std::array<uint8_t, 16>;
  const Config& config_;
  const Errata errata_;
  const std::span<const Stream> streams_;
  const TextStore& text_;
  const DecodeOptions options_;
  const Stream* stream_ = nullptr;
  pt_insn_decoder* decoder_ = nullptr;
  pt_image* image_ = nullptr;
  std::vector<uint8_t> scratch_;
  tsl::robin_map<Addr, Block*> blocks_;
  std::deque<Block> pool_;
  std::deque<Bytes> raw_;
};

}  // namespace

std::unique_ptr<SegmentDecoder> make_reference(const Config& config, std::span<const Stream> streams,
                                               const TextStore& text, const DecodeOptions& options) {
  return std::make_unique<Reference>(config, streams, text, options);
}

}  // namespace asof::x86
