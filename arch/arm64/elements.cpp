#include "arch/arm64/elements_plain.h"

#include <algorithm>
#include <utility>

namespace asof::arm64 {
namespace {

constexpr size_t kBatch = 2;
constexpr size_t kWorthDropping = 1 << 16;
constexpr size_t kMaxLookahead = 1 << 20;  // elements to look through for a timestamp
constexpr size_t kMaxWait = 4096;          // elements between a packet and the one it waits for
constexpr size_t kMaxUncommitted = 2048;   // with speculation: far more than any unit can hold back

bool is_executed(const Element& e) {
  switch (e.kind) {
    case El::kAtoms:
    case El::kException:
    case El::kExceptionNoAddress:
    case El::kSourceAddress:
    case El::kQ:
    case El::kTransStart:
      return true;
    default:
      return false;
  }
}

}  // namespace

void ElementParser::start(std::span<const uint8_t> bytes, size_t tail) {
  bytes_ = bytes;
  at_ = 0;
  tail_ = tail;
  list_.clear();
  base_ = ready_ = times_base_ = 0;
  times_.clear();
  done_ = draining_ = torn_ = false;
  waiting_ = true;
  depth_ = unseen_ = foreign_ = 0;
  exception_ = marker_ = SIZE_MAX;
  history_ = {};
  timestamp_ = 0;
  context_ = Context{};
  const SyncGroup g = read_sync_group(bytes, format_);
  start_offset_ = g.has_start ? g.start_offset : UINT32_MAX;
}

bool ElementParser::parse_to(size_t index) {
  while (index >= base_ + ready_ && !done_) parse_batch();
  return index < base_ + ready_;
}

void ElementParser::parse_batch() {
  const size_t full = list_.size() + kBatch;
  while (!done_ && list_.size() < full) {
    if (plain_only()) parse_plain(full - list_.size());
    parse_one();
  }
  settle();
}

// How far the list can be used.
void ElementParser::settle() {
  if (!done_ && format_.max_spec != 0) return;  // commit() says
  ready_ = list_.size();
  if (done_) return;
  // Without speculation nothing waits but an exception for its address, and a marker for its timestamp.
  ready_ = std::min({ready_, exception_, marker_});
}

std::optional<uint64_t> ElementParser::timestamp(size_t n) {
  const size_t limit = list_.size() + kMaxLookahead;
  while (n >= times_base_ + times_.size() && !done_ && list_.size() < limit) {
    parse_batch();
  }
  if (n < times_base_ || n >= times_base_ + times_.size()) return std::nullopt;
  return times_[n - times_base_];
}

void ElementParser::drop_before(size_t index) {
  const size_t n = std::min(index - base_, ready_);
  if (n == list_.size()) {  // all is used, and with it all timestamps
    base_ += n;
    ready_ = 0;
    list_.clear();
    times_base_ += times_.size();
    times_.clear();
    return;
  }
  if (n < kWorthDropping) return;
  const size_t first_time = list_[n].time == 0 ? 0 : list_[n].time - 1;
  list_.erase(list_.begin(), list_.begin() + static_cast<ptrdiff_t>(n));
  base_ += n;
  ready_ -= n;
  if (exception_ != SIZE_MAX) exception_ -= n;
  if (marker_ != SIZE_MAX) marker_ -= n;
  if (first_time <= times_base_) return;
  times_.erase(times_.begin(), times_.begin() + static_cast<ptrdiff_t>(first_time - times_base_));
  times_base_ = first_time;
}

void ElementParser::parse_one() {
  const uint8_t* const p = bytes_.data() + at_;
  const uint8_t* const end = bytes_.data() + bytes_.size();
  const auto at = static_cast<uint32_t>(at_);
  const Packet k = read_packet(p, end, format_, cc_threshold_);
  if ((k.type == Pk::kEnd || k.type == Pk::kBad) && skip_padding()) return;
  if (k.type == Pk::kEnd) return end_with(El::kEos, at);
  at_ += k.size;
  torn_ = torn_ || (at < tail_ && at_ > tail_) || (at >= tail_ && exception_ != SIZE_MAX);
  if (k.type == Pk::kAsync && at >= tail_) return on_sync(at);
  if (draining_) return drain(k, at);
  if (waiting_ && k.type != Pk::kTraceInfo) {
    if (k.type == Pk::kBad) end_with(El::kBad, at);
    return;
  }
  on_packet(k, at);
}

uint32_t ElementParser::offset_of_atom(size_t index, uint32_t n) const {
  uint32_t at = (*this)[index].offset;
  for (; at < bytes_.size(); ++at) {
    const uint32_t count = atoms_of(bytes_[at]) >> 24;
    if (count == 0 || n < count) break;
    n -= count;
  }
  return at;
}

// Zero bytes fill up the end of a buffer, in front of the next one's A-Sync or of nothing. True: the packet
// that is read next is that A-Sync, or there is none.
bool ElementParser::skip_padding() {
  const auto rest = bytes_.subspan(at_);
  const auto data = std::ranges::find_if(rest, [](uint8_t b) { return b != 0; });
  const auto zeros = static_cast<size_t>(data - rest.begin());
  const bool sync = data != rest.end() && *data == 0x80 && zeros >= kAsyncSize;
  if (zeros == 0 || (data != rest.end() && !sync)) return false;
  if (sync)
    at_ += zeros - (kAsyncSize - 1);
  else
    end_with(El::kEos, static_cast<uint32_t>(at_));
  return true;
}

void ElementParser::push(Element e) {
  e.time = static_cast<uint32_t>(times_base_ + times_.size());
  list_.push_back(e);
  // A damaged trace may never bring what is waited for.
  if (marker_ != SIZE_MAX && list_.size() - marker_ > kMaxWait) marker_ = SIZE_MAX;
  const bool hopeless = (exception_ != SIZE_MAX && list_.size() - exception_ > kMaxWait) ||
                        (format_.max_spec != 0 && list_.size() - ready_ > kMaxUncommitted);
  if (hopeless && !done_) end_with(El::kBad, e.offset);
}

void ElementParser::on_packet(const Packet& k, uint32_t at) {
  Element e;
  e.offset = at;
  e.type = k.count;
  const bool waits = exception_ != SIZE_MAX;  // an address must follow, a context may come in between
  switch (k.type) {
    case Pk::kAtoms:
      if (waits) return end_with(El::kBad, at);
      return push_atoms(k, at);
    case Pk::kAddress:
      return on_address(k, at);
    case Pk::kContext:
      return on_context(k.context, at);
    case Pk::kException:
      if (waits) return end_with(El::kBad, at);
      return on_exception(k, at);
    case Pk::kTimestamp:
      return on_timestamp(k, at);
    case Pk::kTimestampMarker:
      e.kind = El::kNone;
      if (marker_ == SIZE_MAX) {
        marker_ = list_.size();
        push(e);
      }
      return;
    case Pk::kTraceInfo:
      waiting_ = false;
      cc_threshold_ = k.count;
      if (list_.empty() && base_ == 0) depth_ = unseen_ = k.commit;
      e.kind = El::kTraceInfo;
      return push(e);
    case Pk::kTraceOn:
      if (waits) return end_with(El::kBad, at);
      e.kind = El::kTraceOn;
      return push(e);
    case Pk::kSourceAddress:
      e.kind = El::kSourceAddress;
      e.value = decompress(k, e.isa);
      push(e);
      return executed(1);
    case Pk::kQ:
      e.kind = El::kQ;
      e.flags = k.has_count ? Element::kCounted : 0;
      if (k.form != AddrForm::kNone) {
        e.flags |= Element::kHasAddress;
        e.value = decompress(k, e.isa);
      }
      push(e);
      return executed(1);
    case Pk::kExceptionReturn:
    case Pk::kTransStart:
    case Pk::kTransCommit:
    case Pk::kEvent:
    case Pk::kInstrumentation:
      e.kind = k.type == Pk::kExceptionReturn ? El::kExceptionReturn
               : k.type == Pk::kTransStart    ? El::kTransStart
               : k.type == Pk::kTransCommit   ? El::kTransCommit
               : k.type == Pk::kEvent         ? El::kEvent
                                              : El::kInstrumentation;
      e.value = k.value;
      return push(e);
    case Pk::kCycleCount:
      e.kind = El::kCycles;
      // A counter that has reached its end stands still.
      if (k.has_count && k.count < (uint32_t{1} << format_.cycle_bits) - 1) e.flags = Element::kCounted;
      push(e);
      if (k.commit != 0) commit(k.commit);
      return;
    case Pk::kCommit:
      return commit(k.count);
    case Pk::kMispredict:
    case Pk::kCancel:
      // What is not speculative has been used by now.
      if (format_.max_spec == 0) return end_with(El::kBad, at);
      push_atoms(k, at);
      if (k.type == Pk::kMispredict) return mispredict();
      cancel(k.count);
      if (k.mispredict) mispredict();
      return;
    case Pk::kOverflow:
      return end_with(El::kOverflow, at);
    case Pk::kDiscard:
      return end_with(El::kDiscard, at);
    case Pk::kBad:
      return end_with(El::kBad, at);
    default:
      return;  // without effect on the flow
  }
}

void ElementParser::push_atoms(const Packet& k, uint32_t at) {
  if (k.atom_count == 0) return;
  Element e;
  e.kind = El::kAtoms;
  e.value = k.atoms;
  e.count = k.atom_count;
  e.offset = at;
  push(e);
  executed(e.count);
}

Addr ElementParser::decompress(const Packet& k, uint8_t& isa) {
  Register r = history_[0];
  switch (k.form) {
    case AddrForm::kExact:
      r = history_[std::min<size_t>(k.isa, 2)];
      break;
    case AddrForm::kShort:
    case AddrForm::kLong32: {
      const unsigned bits = k.form == AddrForm::kShort ? k.addr_bits : 32;
      const uint64_t mask = (1ULL << bits) - 1;
      r = {(r.address & ~mask) | (k.value & mask), k.isa};
      break;
    }
    default:
      r = {k.value, k.isa};
  }
  remember(r);
  isa = r.isa;
  return r.address;
}

void ElementParser::on_address(const Packet& k, uint32_t at) {
  Element e;
  e.kind = El::kAddress;
  e.offset = at;
  e.value = decompress(k, e.isa);
  if (k.context.present) on_context(k.context, at);
  if (exception_ != SIZE_MAX) {
    Element& x = list_[exception_];
    x.value = e.value;
    x.isa = e.isa;
    exception_ = SIZE_MAX;
    return executed(1);
  }
  if (at == start_offset_) e.flags = Element::kStart;
  push(e);
}

void ElementParser::on_context(const ContextInfo& c, uint32_t at) {
  if (!c.present) return;
  context_.sf = c.sf;
  context_.ns = c.ns;
  context_.el = c.el;
  if (c.has_cid) context_.cid = c.cid;
  Element e;
  e.kind = El::kContext;
  e.value = pack(context_);
  e.offset = at;
  e.time = static_cast<uint32_t>(times_base_ + times_.size());
  if (exception_ == SIZE_MAX) {
    list_.push_back(e);
    return;
  }
  // The state at an exception's return address: what ran up to there ran in it.
  list_.insert(list_.begin() + static_cast<ptrdiff_t>(exception_), e);
  ++exception_;
}

void ElementParser::on_exception(const Packet& k, uint32_t at) {
  Element e;
  e.kind = k.no_address ? El::kExceptionNoAddress : El::kException;
  e.type = k.count;
  e.flags = k.target ? Element::kTarget : 0;
  e.offset = at;
  if (k.no_address) {
    push(e);
    return executed(1);
  }
  exception_ = list_.size();
  push(e);
}

void ElementParser::on_timestamp(const Packet& k, uint32_t at) {
  const uint64_t mask = k.value_bits >= 64 ? ~0ULL : (1ULL << k.value_bits) - 1;
  timestamp_ = (timestamp_ & ~mask) | (k.value & mask);
  const size_t marker = std::exchange(marker_, SIZE_MAX);
  if (timestamp_ == 0) return;  // the counter does not run
  Element e;
  e.kind = El::kTime;
  e.offset = at;
  e.value = timestamp_;
  if (marker == SIZE_MAX) push(e);  // its number is that of the timestamps before it
  times_.push_back(timestamp_);
  if (marker == SIZE_MAX) return;
  // The marker is where the time was taken: what follows it ran later.
  list_[marker].kind = El::kTime;
  list_[marker].value = timestamp_;
  for (size_t i = marker + 1; i < list_.size(); ++i) ++list_[i].time;
}

// A sync point after the segment: its flow goes on to where the next one's starts.
void ElementParser::on_sync(uint32_t at) {
  if (draining_) {
    done_ = true;
    return;
  }
  const SyncGroup g = read_sync_group(bytes_.subspan(at), format_);
  if (!g.has_start) return;
  // Up to its start address the packets are this segment's.
  tail_ = SIZE_MAX;
  const size_t stop = at + g.start_offset;
  while (at_ < stop && !done_) parse_one();
  if (done_) return;
  const Packet k = read_packet(bytes_.data() + stop, bytes_.data() + bytes_.size(), format_, cc_threshold_);
  uint8_t isa = 0;
  const Addr start = decompress(k, isa);
  end_with(El::kEnd, static_cast<uint32_t>(stop), start);
  at_ = stop + k.size;
}

// Nothing after this is of the segment. With speculation, what is not committed yet may be so further on.
void ElementParser::end_with(El kind, uint32_t at, uint64_t value) {
  if (exception_ != SIZE_MAX) {  // never complete
    list_.erase(list_.begin() + static_cast<ptrdiff_t>(exception_));
    exception_ = SIZE_MAX;
  }
  if (kind == El::kEnd && depth_ > 0 && format_.max_spec != 0) {
    draining_ = true;
  } else {
    if (format_.max_spec != 0 && depth_ > 0) {  // speculative elements that nothing committed
      const auto first =
          std::find_if(list_.begin() + static_cast<ptrdiff_t>(ready_), list_.end(), is_executed);
      list_.erase(first, list_.end());
      depth_ = 0;
    }
    done_ = true;
  }
  Element e;
  e.kind = kind;
  e.offset = at;
  e.value = value;
  push(e);
  if (kind == El::kEos || done_) ready_ = list_.size();
}

}  // namespace asof::arm64
