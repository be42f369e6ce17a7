// OpenCSD's full decoder: it asks for code through a callback and is
// given the text of the last timestamp packet; it follows one version only, so what it says where text
// changes is no surer than that.
#include "arch/arm64/reference.h"

#include <fmt/format.h>
#include <opencsd/c_api/opencsd_c_api.h>
#include <tsl/robin_map.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "arch/arm64/insn.h"
#include "arch/arm64/packet.h"
#include "arch/arm64/reference_tree.h"
#include "arch/walk/block_cache.h"

namespace asof::arm64 {
namespace {

constexpr uint64_t kFeed = 1 << 16;  // bytes handed over at once

class Reference;
ocsd_datapath_resp_t on_element(const void* context, ocsd_trc_index_t index, uint8_t id,
                                const ocsd_generic_trace_elem* element);
uint32_t on_read(const void* context, ocsd_vaddr_t address, ocsd_mem_space_acc_t space, uint32_t size,
                 uint8_t* out);

class Reference final : public SegmentDecoder {
 public:
  Reference(const Config& config, std::span<const Stream> streams, const TextStore& text,
            const DecodeOptions& options)
      : config_(config), streams_(streams), text_(text), options_(options) {}

  void decode(const Segment& segment, ChunkSink& sink) override;
  void element(uint64_t at, const ocsd_generic_trace_elem& e);
  uint32_t read(Addr a, std::span<uint8_t> out) const;

 private:
  struct Key {
    Addr begin = 0;
    uint32_t size = 0;
    uint32_t mode = 0;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const {
      return (k.begin ^ (uint64_t{k.size} << 44) ^ k.mode) * kHashFactor;
    }
  };
  struct StoredBlock {
    Block block;
    std::vector<uint8_t> bytes, lengths;
  };

  void run(const Segment& segment);
  void range(const ocsd_generic_trace_elem& e);
  const Block* block(Addr begin, Addr end, uint8_t mode, bool wfx);
  Space space_of(Addr a) const;
  void event(EventKind kind, Addr ip, uint64_t a, uint64_t b, uint64_t at);
  void gap(Code code, std::string reason, Addr ip, uint64_t at);
  void close_gap(Addr ip, uint64_t at);
  void flush(bool last);

  const Config& config_;
  const std::span<const Stream> streams_;
  const TextStore& text_;
  const DecodeOptions options_;
  tsl::robin_map<Key, std::vector<StoredBlock*>, KeyHash> known_;
  std::deque<StoredBlock> blocks_;

  const Stream* stream_ = nullptr;
  const Segment* segment_ = nullptr;
  ChunkSink* sink_ = nullptr;
  Chunk chunk_;
  Time now_ = kTimeMin;
  uint8_t next_flags_ = 0;
  bool stopped_ = true;  // the next range comes after a trace on
  std::optional<Gap> gap_;
};

void Reference::event(EventKind kind, Addr ip, uint64_t a, uint64_t b, uint64_t at) {
  Event e;
  e.kind = kind;
  e.step = static_cast<uint32_t>(chunk_.steps.size());
  e.time = now_;
  e.ip = ip;
  e.a = a;
  e.b = b;
  e.offset = segment_->begin + at;
  chunk_.events.push_back(e);
}

void Reference::gap(Code code, std::string reason, Addr ip, uint64_t at) {
  next_flags_ |= Step::kAfterGap;
  if (gap_) return;
  Gap g;
  g.step = static_cast<uint32_t>(chunk_.steps.size());
  g.begin = segment_->begin + at;
  g.ip = ip;
  g.code = code;
  g.reason = std::move(reason);
  g.time.lo = now_;
  gap_ = std::move(g);
}

void Reference::close_gap(Addr ip, uint64_t at) {
  if (!gap_) return;
  gap_->end = std::max(gap_->begin, segment_->begin + at);
  gap_->resume_ip = ip;
  gap_->time.hi = std::max(gap_->time.lo, now_);
  chunk_.gaps.push_back(std::move(*gap_));
  gap_.reset();
}

void Reference::flush(bool last) {
  chunk_.stream = segment_->stream;
  chunk_.segment = segment_->index;
  chunk_.last = last;
  sink_->take(std::exchange(chunk_, Chunk{}));
}

void Reference::decode(const Segment& segment, ChunkSink& sink) {
  segment_ = &segment;
  sink_ = &sink;
  stream_ = &streams_[segment.stream];
  chunk_ = Chunk{};
  gap_.reset();
  now_ = segment.start_time;
  next_flags_ = segment.before ? Step::kAfterGap : uint8_t{0};
  stopped_ = true;
  if (segment.before) chunk_.gaps.push_back(*segment.before);
  if (segment.end > segment.begin) run(segment);
  close_gap(0, segment.end - segment.begin);
  flush(true);
}

void Reference::run(const Segment& segment) {
  const Tree tree = make_tree(config_.sources.at(segment.stream), false);
  if (!tree || ocsd_dt_set_gen_elem_outfn(tree.get(), &on_element, this) != OCSD_OK ||
      ocsd_dt_add_callback_mem_acc(tree.get(), 0, UINT64_MAX, OCSD_MEM_SPACE_ANY, &on_read, this) !=
          OCSD_OK) {
    gap(Code::kPacketOutOfPlace, "OpenCSD does not take this trace unit's configuration", 0, 0);
    return;
  }
  // Atoms in front of the next sync point's address are of this segment. Where it takes more to know what was
  // committed, all of the next one's would be in it.
  const uint64_t end = PacketFormat::of(config_.sources.at(segment.stream)).max_spec == 0
                           ? std::max(segment.end, segment.tail_end)
                           : segment.end;
  std::vector<uint8_t> scratch;
  for (uint64_t at = segment.begin; at < end;) {
    const auto bytes = stream_->bytes(at, std::min(end, at + kFeed), scratch);
    uint32_t used = 0;
    const ocsd_datapath_resp_t r =
        ocsd_dt_process_data(tree.get(), OCSD_OP_DATA, static_cast<ocsd_trc_index_t>(at - segment.begin),
                             static_cast<uint32_t>(bytes.size()), bytes.data(), &used);
    uint32_t ignored = 0;
    if (OCSD_DATA_RESP_IS_FATAL(r)) {
      gap(Code::kBadPacket, fmt::format("OpenCSD gives up at offset {:#x}", at + used), 0,
          at + used - segment.begin);
      ocsd_dt_process_data(tree.get(), OCSD_OP_RESET, 0, 0, nullptr, &ignored);
      used = std::max(used, 1U);
    } else if (OCSD_DATA_RESP_IS_WAIT(r)) {
      ocsd_dt_process_data(tree.get(), OCSD_OP_FLUSH, 0, 0, nullptr, &ignored);
    } else if (used == 0) {
      used = 1;
    }
    at += used;
  }
  uint32_t ignored = 0;
  ocsd_dt_process_data(tree.get(), OCSD_OP_EOT, 0, 0, nullptr, &ignored);
}

void Reference::element(uint64_t at, const ocsd_generic_trace_elem& e) {
  switch (e.elem_type) {
    case OCSD_GEN_TRC_ELEM_INSTR_RANGE:
      close_gap(e.st_addr, at);
      if (std::exchange(stopped_, false)) event(EventKind::kTraceStart, e.st_addr, 0, 0, at);
      range(e);
      break;
    case OCSD_GEN_TRC_ELEM_ADDR_NACC:
      gap(Code::kNoBytes, fmt::format("no bytes are known at {:#x}", e.st_addr), e.st_addr, at);
      break;
    case OCSD_GEN_TRC_ELEM_NO_SYNC:
      // The first one only says that OpenCSD has begun.
      if (e.unsync_eot_info != UNSYNC_INIT_DECODER) gap(Code::kNoSyncPoint, "no sync point yet", 0, at);
      break;
    case OCSD_GEN_TRC_ELEM_TRACE_ON:
      if (e.trace_on_reason == TRACE_ON_OVERFLOW) event(EventKind::kOverflow, 0, 0, 0, at);
      stopped_ = true;
      break;
    case OCSD_GEN_TRC_ELEM_EXCEPTION:
      event(EventKind::kAsync, e.excep_ret_addr != 0 ? e.en_addr : 0, 0, e.exception_number, at);
      next_flags_ |= Step::kAsyncEntry;
      break;
    case OCSD_GEN_TRC_ELEM_TIMESTAMP:
      if (config_.time && e.timestamp != 0) now_ = config_.time->to_perf(e.timestamp);
      break;
    case OCSD_GEN_TRC_ELEM_EO_TRACE:
      close_gap(0, at);
      break;
    default:
      break;
  }
}

Space Reference::space_of(Addr a) const {
  if (is_kernel_address(a)) return kKernelSpace;
  const ContextChange* c = stream_->context_at(now_);
  return c == nullptr ? kNoSpace : c->space;
}

uint32_t Reference::read(Addr a, std::span<uint8_t> out) const {
  const Space space = space_of(a);
  if (space == kNoSpace) return 0;
  Time t = now_ == kTimeMin ? stream_->bounds.lo : now_;
  if (options_.text_at != TextAt::kAsof) t = options_.text_at == TextAt::kFirst ? kTimeMin : kTimeMax;
  return static_cast<uint32_t>(text_.read(space, a, t, out));
}

// One range of OpenCSD ends at the first instruction that takes an atom, or where an exception came.
void Reference::range(const ocsd_generic_trace_elem& e) {
  const uint8_t mode = e.isa == ocsd_isa_aarch64 ? kA64 : e.isa == ocsd_isa_arm ? kA32 : kT32;
  const bool wfx = (config_.sources.at(segment_->stream).idr2 >> 31) != 0;
  for (Addr at = e.st_addr; at < e.en_addr;) {
    const Block* b = block(at, e.en_addr, mode, wfx);
    if (b == nullptr) return gap(Code::kNoBytes, fmt::format("no bytes are known at {:#x}", at), at, 0);
    Step s;
    s.block = b;
    s.time = now_;
    s.count = b->count;
    const bool last = b->end() >= e.en_addr;
    s.flags = static_cast<uint8_t>(
        (last && e.last_instr_exec != 0 && b->kind != BranchKind::kNone ? Step::kTaken : 0) |
        std::exchange(next_flags_, uint8_t{0}));
    chunk_.steps.push_back(s);
    at = b->end();
  }
  if (chunk_.steps.size() >= options_.chunk_steps && !gap_) flush(false);
}

// Instructions from `begin` on, not beyond `end`.
const Block* Reference::block(Addr begin, Addr end, uint8_t mode, bool wfx) {
  std::array<uint8_t, size_t{4} * walk::kMaxBlockInsns> bytes;
  const size_t want = std::min<uint64_t>(end - begin, bytes.size());
  const size_t size = read(begin, std::span(bytes).first(want));
  Block b;
  std::array<uint8_t, walk::kMaxBlockInsns> lengths;
  Insn insn;
  while (b.count < walk::kMaxBlockInsns && b.size < size) {
    const auto rest = std::span<const uint8_t>(bytes).subspan(b.size, size - b.size);
    if (decode_insn(rest, begin + b.size, mode, wfx, insn) != InsnStatus::kOk) break;
    lengths[b.count++] = insn.length;
    b.size += insn.length;
    if (insn.waypoint != Waypoint::kNone && insn.waypoint != Waypoint::kTrap) break;
  }
  if (b.count == 0) return nullptr;
  auto& same = known_[Key{begin, b.size, mode}];
  for (const StoredBlock* s : same) {
    if (std::memcmp(s->bytes.data(), bytes.data(), b.size) == 0) return &s->block;
  }
  StoredBlock& s = blocks_.emplace_back();
  s.bytes.assign(bytes.begin(), bytes.begin() + b.size);
  s.lengths.assign(lengths.begin(), lengths.begin() + b.count);
  b.ip = begin;
  b.mode = mode;
  b.kind = insn.kind;
  b.target = insn.target;
  b.space = space_of(begin);
  b.bytes = s.bytes.data();
  b.lengths = s.lengths.data();
  Addr ip = begin;
  for (uint32_t i = 0; i < b.count; ip += lengths[i++]) {
    b.hash = b.hash * kHashFactor + ip;
    b.power *= kHashFactor;
  }
  s.block = b;
  same.push_back(&s);
  return &s.block;
}

// The library hands contexts back as pointers to const.
Reference& reference_of(const void* context) { return *static_cast<Reference*>(const_cast<void*>(context)); }

ocsd_datapath_resp_t on_element(const void* context, ocsd_trc_index_t index, uint8_t,
                                const ocsd_generic_trace_elem* element) {
  reference_of(context).element(index, *element);
  return OCSD_RESP_CONT;
}

uint32_t on_read(const void* context, ocsd_vaddr_t address, ocsd_mem_space_acc_t, uint32_t size,
                 uint8_t* out) {
  return reference_of(context).read(address, {out, size});
}

}  // namespace

std::unique_ptr<SegmentDecoder> make_reference(const Config& config, std::span<const Stream> streams,
                                               const TextStore& text, const DecodeOptions& options) {
  return std::make_unique<Reference>(config, streams, text, options);
}

}  // namespace asof::arm64
