// Records of a block stream: what the recording is, the map of code as it grows, flow. The walks themselves
// are in block_writer_walk.cpp.
#include "decoder/blocks/block_writer.h"

#include <algorithm>

#include "decoder/blocks/block_capture.h"
#include "decoder/io/content_hash.h"
#include "decoder/io/zstd.h"
#include "textstore/check.h"

namespace asof::blocks {
namespace {

constexpr int kLevel = 1;                  // higher ones cost more than they save
constexpr size_t kMaxWaiting = 256 << 10;  // bytes of flow records after one code record
constexpr uint64_t kFreeDescriptions = 1 << 20;

}  // namespace

BlockWriter::BlockWriter(const Capture& capture, Write write, bool calls)
    : write_(std::move(write)), texts_(capture), zstd_(nullptr, nullptr), capture_(&capture) {
  if (calls) numbered_by_ = identity_of(blocks::put_symbols(capture));
  const std::vector<uint8_t> body = put_capture(capture);
  std::vector<uint8_t> out;
  put_header(kVersion, identity_of(body), out);
  put_record(RecordType::kCapture, {}, body, out);
  write_(out);
}

BlockWriter::BlockWriter(const Capture& capture, Write write, uint64_t identity, PartCoverage coverage,
                         bool calls, Memory& memory)
    : write_(std::move(write)),
      texts_(capture),
      zstd_(nullptr, nullptr),
      table_(memory.table),
      runs_(std::move(memory.runs)),
      ends_(std::move(memory.ends)),
      coverage_(std::move(coverage)),
      memory_(&memory) {
  if (calls) numbered_by_ = identity_of(blocks::put_symbols(capture));
  std::vector<uint8_t> out;
  put_header(kVersion, identity, out);
  write_(out);
}

void BlockWriter::put_header(uint16_t version, uint64_t identity, std::vector<uint8_t>& out) {
  zstd_ = {zstd::packer().release(), [](ZSTD_CCtx_s* c) { ZSTD_freeCCtx(c); }};
  ZSTD_CCtx_setParameter(zstd_.get(), ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(zstd_.get(), ZSTD_c_checksumFlag, 1);
  out.assign(kMagic.begin(), kMagic.end());
  put_fixed(out, version, 2);
  put_fixed(out, kHeaderSize, 2);
  put_fixed(out, 0, 4);
  put_fixed(out, identity, 8);
}

BlockWriter::~BlockWriter() {
  if (memory_ == nullptr) return;
  for (const uint32_t run : known_) runs_[run] = {};
  *memory_ = {table_, std::move(runs_), std::move(ends_)};
}

void BlockWriter::put_record(RecordType type, std::span<const uint8_t> prefix, std::span<const uint8_t> body,
                             std::vector<uint8_t>& out) {
  const size_t at = out.size();
  const size_t bound = ZSTD_compressBound(body.size());
  out.resize(at + kRecordHeader + prefix.size() + bound);
  std::ranges::copy(prefix, out.begin() + static_cast<std::ptrdiff_t>(at + kRecordHeader));
  const size_t packed = ZSTD_compress2(zstd_.get(), out.data() + at + kRecordHeader + prefix.size(), bound,
                                       body.data(), body.size());
  ASOF_CHECK(!zstd::failed(packed));
  out.resize(at + kRecordHeader + prefix.size() + packed);
  std::vector<uint8_t> header;
  put_fixed(header, kRecordMagic, 4);
  put_fixed(header, static_cast<uint8_t>(type), 1);
  put_fixed(header, prefix.size(), 1);
  put_fixed(header, 0, 2);
  put_fixed(header, prefix.size() + packed, 4);
  put_fixed(header, body.size(), 4);
  std::ranges::copy(header, out.begin() + static_cast<std::ptrdiff_t>(at));
}

uint32_t BlockWriter::id_of(const Block* block) {
  const auto known = by_pointer_.find(block);
  if (known != by_pointer_.end()) return known->second;
  const Block& b = *block;
  const uint64_t bytes = hash_text({reinterpret_cast<const char*>(b.bytes), b.size}, 0);
  const Key key{b.ip, bytes, b.from, b.until, b.space, number_of(b.origin), b.size, b.count, b.mode, b.kind};
  const auto [entry, is_new] = by_content_.insert({key, static_cast<uint32_t>(nodes_.size())});
  const uint32_t id = entry->second;
  if (is_new) {
    nodes_.emplace_back();
    returns_.push_back(RunId::kNone);
    define(b);
  }
  by_pointer_[block] = id;
  return id;
}

void BlockWriter::define(const Block& b) {
  Writer& w = new_blocks_;
  const std::span<const TextPiece> text = texts_->of(b);
  const bool target = b.target != 0, timed = b.from != kTimeMin || b.until != kTimeMax;
  const bool versions = text.size() != 1 || text[0] != TextPiece{b.count, 1, b.origin};
  w.u8(static_cast<uint8_t>(b.kind));
  w.u8(static_cast<uint8_t>(b.mode >> 4 | (target ? kHasTarget : 0) | (timed ? kHasTimes : 0) |
                            (versions ? kHasVersions : 0)));
  w.difference(last_end_, b.ip);
  w.varint(b.space);
  w.varint(number_of(b.origin));
  if (target) w.difference(b.ip, b.target);
  if (timed) {
    w.signed_varint(b.from);
    w.signed_varint(b.until);
  }
  w.varint(b.count);
  w.bytes({b.lengths, b.count});
  w.bytes({b.bytes, b.size});
  if (versions) {
    for (const TextPiece& piece : text) {
      w.varint(piece.instructions);
      w.varint(piece.version);
      w.varint(number_of(piece.origin));
    }
  }
  last_end_ = b.end();
}

void BlockWriter::link(Exit from, uint32_t to) {
  nodes_[from.block].exits[from.slot] = to;
  ++new_way_count_;
  new_exits_.difference(last_exit_, from.block);
  new_exits_.u8(from.slot);
  new_exits_.difference(from.block, to);
  last_exit_ = from.block;
}

void BlockWriter::part_of_chunk(const Chunk& chunk, FlowRecord& record, bool last) {
  Writer prefix;
  prefix.varint(chunk.stream);
  prefix.varint(chunk.segment);
  prefix.u8(last ? 1 : 0);
  prefix.signed_varint(chunk.segment_start);
  ASOF_CHECK(prefix.size() <= UINT8_MAX);
  put_record(RecordType::kFlow, prefix.data(), record.body(prefix.data()), waiting_);
  ++flow_records_;
  steps_ += record.steps;
  record = FlowRecord();
}

void BlockWriter::flush() {
  std::vector<uint8_t> out;
  const auto blocks = static_cast<uint32_t>(nodes_.size()) - first_new_;
  if (blocks != 0 || new_way_count_ != 0) {
    Writer body;
    body.varint(first_new_);
    body.varint(blocks);
    body.bytes(new_blocks_.data());
    body.varint(new_way_count_);
    body.bytes(new_exits_.data());
    put_record(RecordType::kCode, {}, body.data(), out);
    new_blocks_.clear();
    new_exits_.clear();
    first_new_ = static_cast<uint32_t>(nodes_.size());
    new_way_count_ = 0;
    last_end_ = 0;
    last_exit_ = 0;
  }
  if (origins_) {
    hold(out);
    hold(waiting_);
    waiting_.clear();
    if (described_ + description_.size() <= kFreeDescriptions + given_out_ + held_.size()) give_out();
    return;
  }
  write_(out);
  write_(waiting_);
  waiting_.clear();
}

// They are of the chunk's flow record, if it is a single one.
void BlockWriter::put_calls(std::span<const uint8_t> calls) {
  Writer prefix;
  prefix.varint(flow_records_);
  prefix.varint(numbered_by_);
  put_record(RecordType::kCalls, prefix.data(), calls, waiting_);
}

void BlockWriter::add(const Chunk& chunk, std::span<const uint8_t> calls) {
  const uint64_t records_before = flow_records_;
  FlowRecord record;
  size_t event = 0, gap = 0, time = 0, loose = 0;
  size_t next_item = 0;  // the entry before which the next of them comes
  const auto items_before = [&](size_t position) {
    while (event < chunk.events.size() && chunk.events[event].step <= position)
      record.event(chunk.events[event++]);
    while (gap < chunk.gaps.size() && chunk.gaps[gap].step <= position) record.gap(chunk.gaps[gap++]);
    next_item = std::min<size_t>(event < chunk.events.size() ? chunk.events[event].step : SIZE_MAX,
                                 gap < chunk.gaps.size() ? chunk.gaps[gap].step : SIZE_MAX);
  };
  const StepList& steps = chunk.steps;
  if (steps.table() != nullptr && steps.table() != table_) {
    table_ = steps.table();
    runs_.assign(1, {});
    ends_.assign(1, {});
    known_.clear();
    calls_.clear();
    returns_.assign(nodes_.size(), RunId::kNone);
  }
  const std::span<const StepCode> codes = steps.codes();
  const auto times = steps.times();
  for (size_t i = 0; i < codes.size();) {
    if (record.steps == kMaxSteps) part_of_chunk(chunk, record, false);
    if (i >= next_item) items_before(i);
    if (codes[i] == StepCode::kLoose) {
      instructions_ += steps.loose()[loose].count;
      step(chunk, record, steps.loose()[loose++]);
      ++i;
      continue;
    }
    while (time < times.size() && times[time].position <= i) ++time;
    const Time now = time == 0 ? kTimeMin : times[time - 1].time;
    const size_t until =
        std::min<size_t>({codes.size(), next_item, time < times.size() ? times[time].position : SIZE_MAX});
    record.at(now);
    const size_t known = known_runs(record, codes.subspan(i, until - i));
    i += known;
    if (known == 0) spell_run(chunk, record, codes[i++], now);
  }
  items_before(SIZE_MAX);
  instructions_ += steps.instructions_in_runs();
  part_of_chunk(chunk, record, chunk.last);
  if (!calls.empty() && flow_records_ == records_before + 1) put_calls(calls);
  if (waiting_.size() > kMaxWaiting) flush();
}

// Only what is new: of a recording that grows, names come with each description of it. What is said of functions counts
// for the symbols before it.
BlockWriter::Names BlockWriter::put_names(std::vector<uint8_t>& out) {
  const std::vector<uint8_t> symbols = blocks::put_symbols(*capture_), functions = put_functions(*capture_);
  const Names now{identity_of(symbols), identity_of(functions)};
  const bool others = !names_ || now.symbols != names_->symbols;
  if (others) put_record(RecordType::kSymbols, {}, symbols, out);
  if (others || now.functions != names_->functions) put_record(RecordType::kFunctions, {}, functions, out);
  return now;
}

void BlockWriter::stop() {
  flush();
  give_out();
  std::vector<uint8_t> out;
  if (capture_ != nullptr) put_names(out);
  write_(out);
}

void BlockWriter::finish() {
  flush();
  give_out();
  std::vector<uint8_t> out;
  if (capture_ != nullptr) put_names(out);
  if (coverage_) put_record(RecordType::kCoverage, {}, put_coverage(*coverage_), out);
  Writer end;
  end.varint(flow_records_);
  end.varint(steps_);
  end.varint(instructions_);
  put_record(RecordType::kEnd, {}, end.data(), out);
  write_(out);
}

}  // namespace asof::blocks
