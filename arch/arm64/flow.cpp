#include "arch/arm64/flow.h"

#include <fmt/format.h>

#include <algorithm>

namespace asof::arm64 {
namespace {

// Timestamps this far outside the recording's AUX records are of another counter.
constexpr Time kForeignClock = 200'000'000;

}  // namespace

Flow::Flow(const Config& config, std::span<const Stream> streams, const TextStore& text,
           const DecodeOptions& options, std::shared_ptr<SharedCode> code)
    : Hypotheses(text, options, trace_bytes(streams)),
      config_(config),
      streams_(streams),
      clock_error_(saturating_add(options.clock_error, config.time_error)),
      code_(std::move(code)) {
  for (int wfx = 0; wfx < 2; ++wfx)
    caches_[wfx].emplace(text_, options_.text_at, options_.block_cache,
                         Isa(text_, options_.text_at, wfx != 0));
  if (config_.patch_text_cb != 0 && options_.text_at == TextAt::kAsof) find_kprobe_pokes();
}

RunCache& Flow::runs_of(bool wfx) {
  const bool all_unsure = unsure_ == walk::Unsure::kAlways;
  std::unique_ptr<RunCache>& runs =
      run_caches_[(wfx ? 1 : 0) + (return_stack_ ? 2 : 0) + (all_unsure ? 4 : 0)];
  if (!runs) {
    RunRules rules;
    rules.text_at = options_.text_at;
    rules.wfx = wfx;
    rules.return_stack = return_stack_;
    rules.hook = kprobe_pokes_.empty() ? 0 : config_.patch_text_cb;
    rules.unrecorded_changes = config_.unrecorded_changes;
    rules.complete = config_.complete_text;
    rules.all_unsure = all_unsure;
    runs = std::make_unique<RunCache>(code_->map(text_, rules));
  }
  return *runs;
}

Time Flow::to_time(uint64_t counter) const { return has_clock_ ? config_.time->to_perf(counter) : kTimeMin; }

// Without a conversion, or with timestamps of another counter, only the order of things is known.
void Flow::choose_clock(const SyncGroup& group) {
  has_clock_ = config_.time.has_value();
  if (!has_clock_ || !group.timestamp) return;
  const Time t = to_time(*group.timestamp);
  const TimeBounds b = widen(bounds_, kForeignClock);
  has_clock_ = t >= b.lo && t <= b.hi;
}

void Flow::choose_doubt(const SyncGroup& group) {
  const Time from = text_.unsure_from();
  unsure_ = walk::Unsure::kNever;
  if (from == kTimeMax || options_.text_at != TextAt::kAsof) return;
  TimeBounds b = bounds_;
  if (has_clock_ && group.timestamp) b.lo = std::max(b.lo, to_time(*group.timestamp));
  b = widen(b, clock_error_);
  if (b.lo >= from)
    unsure_ = walk::Unsure::kAlways;
  else if (b.hi >= from)
    unsure_ = walk::Unsure::kLater;
}

// May the bytes of `b`, as they are to run now, have changed without a record of it?
bool Flow::is_unsure(const State& s, const Block& b) {
  if (s.space_unsure && b.space != kKernelSpace) return true;  // it is of another process, perhaps
  if (b.unsure || unsure_ == walk::Unsure::kAlways) return true;
  if (config_.unrecorded_changes && b.space == kKernelSpace &&
      !config_.complete_text.contains(AddrRange{b.ip, b.end()}))
    return true;
  return unsure_ == walk::Unsure::kLater && bounds(s).hi >= text_.unsure_from();
}

// The same of bytes at the place of the flow that are no instruction, and so in no block.
bool Flow::may_have_changed(const State& s) {
  constexpr uint64_t kWord = 4;  // bytes: an instruction at most
  Block b;
  b.ip = s.ip;
  b.size = kWord;
  b.space = is_kernel_address(s.ip) ? kKernelSpace : s.user_space;
  const TimeBounds when = bounds(s);
  for (const Addr a : {s.ip, s.ip + kWord - 1}) {
    for (const Version& v : text_.cell(b.space, a).possible_in(when)) b.unsure = b.unsure || v.unsure;
  }
  return is_unsure(s, b);
}

// The trace says where the flow is, whichever way it came.
void Flow::place_known(State& s) const {
  if (!s.unsure || unsure_ == walk::Unsure::kAlways) return;
  s.unsure = false;
  s.rets.doubt();
  s.calls_missing = true;
  stop_counting(s);
}

void Flow::decode(const Segment& segment, ChunkSink& sink) {
  start_log(segment, sink);
  stream_ = &streams_[segment.stream];
  work_.start(segment.end - segment.begin);
  if (segment.end > segment.begin) {
    const Source& source = config_.sources.at(segment.stream);
    format_ = PacketFormat::of(source);
    synced_before_.reset();
    last_event_.reset();
    const bool wfx = (source.idr2 >> 31) != 0;
    cache_ = &*caches_[wfx ? 1 : 0];
    return_stack_ = (source.configr & 0x1000) != 0;
    broadcast_ = (source.configr & 8) != 0;
    const auto bytes = stream_->bytes(segment.begin, segment.tail_end, scratch_);
    const SyncGroup group = read_sync_group(bytes, format_);
    bounds_ = recorded_bounds(*stream_, segment.begin, segment.tail_end);
    choose_clock(group);
    choose_doubt(group);
    // The fast walk does not doubt what it returns to.
    const bool doubtful = unsure_ == walk::Unsure::kLater || (return_stack_ && broadcast_);
    runs_ = code_ && !doubtful ? &runs_of(wfx) : nullptr;
    // An atom for each byte, or a few more.
    chunk_.steps.reserve(std::min(bytes.size() + bytes.size() / 2, options_.chunk_steps) + kFastRoom,
                         usual_times_);
    elements_.emplace(format_, options_.cycles);
    elements_->start(bytes, segment.end - segment.begin);

    State s;
    s.clockless = !has_clock_;
    s.unsure = unsure_ == walk::Unsure::kAlways;
    start_anchors(s, group);
    add_event(EventKind::kPsb, to_time(group.timestamp.value_or(0)), group.has_start ? group.start : 0, 0, 0,
              0);
    walk<true>(s, nullptr);
    close_gap(s, 0, segment.end - segment.begin);
    if (!s.assumed && format_.max_spec == 0 && !elements_->torn()) {
      last_sync_.walked(*stream_, {segment.begin, segment.end, bytes.first(segment.end - segment.begin),
                                   has_clock_, last_event_});
    }
  }
  flush(true);
}

void Flow::enter(State& s, Addr ip, uint8_t mode) {
  s.position = Position::kKnown;
  s.ip = ip;
  s.mode = mode;
  s.node = nullptr;
  s.forced = nullptr;
  s.idle_blocks = 0;
}

// The target of the indirect branch that was taken.
void Flow::go_indirect(State& s, Addr ip, uint8_t mode) {
  enter(s, ip, mode);
  Variant* const from = s.branch;
  s.branch = nullptr;
  if (!kprobe_pokes_.empty()) [[unlikely]] {
    if (in_doubt(s)) stop_counting(s);  // it may never have come here
    if (ip == config_.patch_text_cb) enter_patch(s, from);
    if (ip == s.patch_return) leave_patch(s);
  }
  if (from == nullptr || !options_.block_cache) return;
  const bool kernel = is_kernel_address(ip);
  if (!kernel && !s.in_user) return;  // whose address it is has to be asked
  const Space space = kernel ? kKernelSpace : s.user_space;
  Node* n = from->indirect;
  if (n == nullptr || n->ip != ip || n->mode != mode || n->space != space) {
    n = cache_->node(space, ip, mode);
    from->indirect = n;
  }
  if (kernel && s.in_user) return;
  s.node = n;
}

// A context synchronisation event: what is fetched from here on is the text of now (Arm DDI 0487, B2.2.5).
void Flow::synchronise(State& s) const {
  s.synced = std::max(s.lo == kTimeMin ? bounds_.lo : s.lo, s.anchor_lo);
}

// The text says that there was one, if the flow came this way.
void Flow::synchronise_by_text(State& s) const {
  if (!in_doubt(s)) synchronise(s);
}

// What `State::synced` is until then.
Time Flow::synced_before() {
  if (!synced_before_) {
    synced_before_ = last_sync_.before(*stream_, segment_->begin, format_,
                                       has_clock_ ? config_.time : std::optional<TimeConversion>());
  }
  return *synced_before_;
}

// An indirect branch without an address in the trace: to the newest call. Where branches are broadcast the unit keeps no
// calls (Arm DDI 0487, R_WRXCW), so with broadcasting of a part of the code it may be another.
template <bool Emit>
bool Flow::pop_target(State& s) {
  Addr to = 0;
  uint8_t mode = s.mode;
  if (Emit && return_stack_ && s.rets.is_before_gap(s.rets.newest())) return guess_target(s);
  const bool sure = s.rets.next_is_sure() && !broadcast_;
  if (!return_stack_ || !s.rets.pop(to, mode)) return false;
  s.unsure = s.unsure || !sure;
  go_indirect(s, to, mode);
  return true;
}

// Why an indirect branch without an address in the trace goes to no known place.
const char* Flow::no_target(const State& s) const {
  if (!return_stack_) return "the trace has no address for it";
  return s.calls_missing ? "it goes to a call in an earlier gap, or where the flow was not sure"
                         : "it has no call";
}

// An atom is next, and the flow is at no known address. kGo: now it is.
template <bool Emit>
Flow::Stop Flow::place_for_atom(State& s, Trial* trial) {
  if (s.position == Position::kTarget) {
    if (pop_target<Emit>(s)) return Stop::kGo;
    if constexpr (!Emit) return s.calls_missing ? Stop::kOut : Stop::kContradiction;
    lose(s, Code::kReturnWithoutItsCall, [&] {
      return fmt::format("the target of the branch before {:#x} is not known: {}", s.ip, no_target(s));
    });
  } else if constexpr (!Emit) {
    return Stop::kOut;
  } else if (s.position == Position::kWaiting) {
    // What ran before the segment's first address belongs to the segment before.
    if (segment_->before || segment_->index == 0) {
      open_gap(s, Code::kNoSyncPoint, "no address yet since the sync point", offset_in_use(s));
      s.position = Position::kLost;
    }
  } else if (s.position != Position::kLost) {
    lose(s, Code::kPacketOutOfPlace, "an atom where the trace has given no address");
  }
  s.atom_count = 0;
  static_cast<void>(trial);
  return Stop::kContradiction;
}

// The block's last instruction takes an atom: where does it lead?
template <bool Emit>
Flow::Stop Flow::use_atom(State& s, Variant& v, Trial* trial) {
  const Block& b = v.block;
  const bool taken = (s.atoms & 1) != 0;
  if (!taken && !v.may_skip) [[unlikely]] {
    if constexpr (Emit) {
      contradiction(s, Code::kTraceContradictsText, [&] {
        return fmt::format("an instruction that is never passed ends the block at {:#x}, but {}", b.ip,
                           describe(s));
      });
    }
    return Stop::kContradiction;
  }
  s.atoms >>= 1;
  --s.atom_count;
  emit<Emit>(s, v, b.count, taken && b.kind != BranchKind::kNone ? Step::kTaken : 0);
  if constexpr (!Emit) s.path = s.path * kHashFactor + (taken ? 1 : 2);
  if (v.waypoint == Waypoint::kDirect) {
    if (taken) {
      if (v.link && return_stack_) s.rets.push(b.end(), s.mode);
      s.ip = b.target;
      s.mode = v.target_mode;
      s.node = v.taken;
    } else {
      s.ip = b.end();
      s.node = v.fall;
    }
  } else if (v.waypoint == Waypoint::kIndirect && taken) {
    if (v.link && return_stack_) s.rets.push(b.end(), s.mode);
    if (v.exception_return) synchronise_by_text(s);
    s.position = Position::kTarget;
    s.ip = b.end();
    s.node = nullptr;
    s.branch = &v;
  } else {
    if (v.waypoint == Waypoint::kSync) synchronise_by_text(s);
    s.ip = b.end();
    s.node = v.fall;
  }
  return used(s, trial);
}

// Remembers where this block led, for the next visit.
void Flow::learn(State& s, Variant& v) {
  if (s.position != Position::kKnown || !options_.block_cache) return;
  Node* const n = cache_->node(is_kernel_address(s.ip) ? kKernelSpace : v.block.space, s.ip, s.mode);
  if (s.ip == v.block.end() && s.mode == v.block.mode)
    v.fall = n;
  else
    v.taken = n;
  s.node = n;
}

template <bool Emit>
Flow::Stop Flow::walk(State& s, Trial* trial) {
  for (;;) {
    if constexpr (Emit) {
      if (chunk_.steps.size() >= options_.chunk_steps && !gap_) [[unlikely]]
        flush(false);
      if (const RunId run = fast_start(s); run != RunId::kNone)
        return_stack_ ? fast_walk<true>(s, run) : fast_walk<false>(s, run);
      if (gap_ && s.position == Position::kLost) lost_walk(s);
    }
    if (s.atom_count == 0) {
      if (!elements_->has(s.e)) return Stop::kOut;
      const Element& d = (*elements_)[s.e];
      if (d.kind != El::kAtoms) {
        const Stop stop = element<Emit>(s, trial);
        if (stop == Stop::kGo || (Emit && stop >= Stop::kNoText)) continue;
        return stop;
      }
      s.lo = s.floor;
      s.atoms = static_cast<uint32_t>(d.value);
      s.atom_count = d.count;
      ++s.e;
      if constexpr (Emit) elements_->drop_before(s.e - 1);
    }
    if (s.position != Position::kKnown) [[unlikely]] {
      const Stop stop = place_for_atom<Emit>(s, trial);
      if (stop != Stop::kGo && !Emit) return stop;
      continue;
    }
    if constexpr (!Emit) {
      if (!take_trial_block()) return Stop::kOut;
    }
    Variant* v = nullptr;
    Stop stop = Stop::kGo;
    if (s.node != nullptr && s.node->state == TextState::kStable) [[likely]] {
      v = s.node->only;
    } else {
      v = text<Emit>(s, trial, stop);
      if (v == nullptr) {
        if constexpr (Emit) continue;  // the gap is open
        return stop;
      }
    }
    meet(s, v->block, trial);
    if (v->waypoint == Waypoint::kNone) {
      emit<Emit>(s, *v, v->block.count, 0);
      s.ip = v->block.end();
      s.node = v->fall;
      stop = idle<Emit>(s);
    } else if (v->waypoint == Waypoint::kTrap) {
      if constexpr (Emit) {
        contradiction(s, Code::kTraceContradictsText,
                      [&] { return fmt::format("a breakpoint is at {:#x}, but {}", s.ip, describe(s)); });
      }
      stop = Stop::kContradiction;
    } else {
      stop = use_atom<Emit>(s, *v, trial);
    }
    if (stop == Stop::kGo) {
      if (s.node == nullptr) learn(s, *v);
      continue;
    }
    if (Emit && stop >= Stop::kNoText) continue;
    return stop;
  }
}

template bool Flow::pop_target<true>(State&);
template bool Flow::pop_target<false>(State&);
template Flow::Stop Flow::walk<true>(State&, Trial*);
template Flow::Stop Flow::walk<false>(State&, Trial*);
template Flow::Stop Flow::use_atom<true>(State&, Variant&, Trial*);
template Flow::Stop Flow::use_atom<false>(State&, Variant&, Trial*);
template Flow::Stop Flow::place_for_atom<true>(State&, Trial*);
template Flow::Stop Flow::place_for_atom<false>(State&, Trial*);

}  // namespace asof::arm64
