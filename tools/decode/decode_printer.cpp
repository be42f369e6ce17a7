#include "tools/decode/decode_printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "decoder/model/task_of.h"
#include "tools/cli/matches.h"
#include "tools/output/chunk_window.h"
#include "tools/output/diagnostics.h"
#include "tools/output/format.h"
#include "tools/output/tally.h"

namespace asof {
namespace {

constexpr size_t kMaxCachedBytes = 128 << 20;  // of block text, for each thread

// The pieces of a line are mostly shorter than this: copying whole vectors, and letting the next piece
// overwrite what is too much, is twice as fast as memcpy of the exact size. Both sides have this many more
// bytes.
constexpr size_t kSlack = 32;

char* put_short(char* to, const char* from, size_t size) {
  for (size_t done = 0; done < size; done += kSlack) std::memcpy(to + done, from + done, kSlack);
  return to + size;
}

// Kinds of output a branch belongs to; perf's c has interrupts, too.
uint32_t kinds_of(BranchKind kind) {
  switch (kind) {
    case BranchKind::kCall:
    case BranchKind::kCallInd:
    case BranchKind::kFarCall:
      return kKindBranches | kKindCalls;
    case BranchKind::kRet:
    case BranchKind::kFarRet:
      return kKindBranches | kKindReturns;
    default:
      return is_branch(kind) ? uint32_t{kKindBranches} : 0U;
  }
}

uint32_t kind_of(EventKind kind) {
  switch (kind) {
    case EventKind::kTsxBegin:
    case EventKind::kTsxCommit:
    case EventKind::kTsxAbort:
      return kKindTransactions;
    case EventKind::kPtwrite:
    case EventKind::kTraceEvent:
      return kKindPtwrite;
    case EventKind::kMwait:
    case EventKind::kPwre:
    case EventKind::kExstop:
    case EventKind::kPwrx:
    case EventKind::kCbr:
    case EventKind::kPsb:
    case EventKind::kContext:
      return kKindPower;
    case EventKind::kCycles:
      return kKindCycles;
    case EventKind::kExecMode:
    case EventKind::kCfe:
    case EventKind::kEvd:
      return kKindInterrupts;
    case EventKind::kBbp:
    case EventKind::kBip:
    case EventKind::kBep:
      return kKindPebs;
    default:
      return 0;
  }
}

}  // namespace

DecodePrinter::DecodePrinter(const DecodeJob& job)
    : job_(job),
      style_(job.format.json ? make_json_style(job.format) : make_text_style(job.format)),
      disassembler_(job.format.syntax, code_machine(job.capture.machine)),
      texts_(job.capture),
      names_(job.capture) {
  for (size_t c = 0; c < suffixes_.size(); ++c) {
    style_->suffix(suffixes_[c], static_cast<Confidence>(c));
    suffixes_[c].append(kSlack, ' ');
  }
}

void DecodePrinter::move_to(const Stream& stream, Time t, Space space) {
  Context& c = context_;
  const bool same_time = c.stream == &stream && c.who.time == t;
  const ContextChange* task = nullptr;
  if (walk_ && walk_->flows()) {
    task = walk_->task(space);
  } else {
    if (same_time && c.by_records && c.space == space) return;
    if (c.looked_in != &stream || t >= c.until || t < c.looked) {
      const auto& all = stream.contexts;
      const auto after =
          std::upper_bound(all.begin(), all.end(), t,
                           [](Time time, const ContextChange& change) { return time < change.time; });
      c.by_time = stream.context_at(t);
      c.looked_in = &stream;
      c.looked = t;
      c.until = after == all.end() ? kTimeMax : after->time;
    }
    task = task_of(stream, t, space, c.by_time);
  }
  c.by_records = !walk_ || !walk_->flows();
  c.space = space;
  if (same_time && task == c.task) return;
  c.task = task;
  c.stream = &stream;
  c.who.time = t;
  c.who.cpu = stream.cpu;
  c.who.pid = c.task == nullptr ? -1 : c.task->pid;
  c.who.tid = c.task == nullptr ? stream.tid : c.task->tid;
  const Selection& s = job_.selection;
  c.wanted = t == kTimeMin || (t >= s.time.lo && t <= s.time.hi);
  if (c.wanted && s.tasks.any()) c.wanted = s.tasks.has(job_.capture.tasks, c.who.pid, c.who.tid, t);
  c.prefix_made = false;
  if (c.wanted && job_.format.has(kFieldComm)) c.who.comm = job_.capture.tasks.comm(c.who.tid, t);
}

const std::string& DecodePrinter::prefix() {
  if (!context_.prefix_made) {
    context_.prefix.clear();
    style_->prefix(context_.prefix, context_.who);
    context_.prefix.append(kSlack, ' ');
    context_.prefix_made = true;
  }
  return context_.prefix;
}

At DecodePrinter::name(Space space, Addr a, Time t) {
  At at{.ip = a};
  if (a == 0) return at;
  if (const auto found = job_.capture.symbols.find(is_kernel_address(a) ? kKernelSpace : space, a, t)) {
    at.symbol = found->symbol;
    at.offset = found->offset;
    at.dso = found->symbol->dso;
  } else if (job_.format.has(kFieldDso) || !job_.selection.dsos.empty()) {
    at.dso = names_.at(space, a, t).dso;
  }
  return at;
}

bool DecodePrinter::symbol_selected(const Symbol* symbol) {
  if (symbol == nullptr) return false;
  if (symbol != last_symbol_) {
    last_symbol_ = symbol;
    last_selected_ = std::ranges::any_of(
        job_.selection.symbols, [&](const std::string& pattern) { return matches_symbol(pattern, *symbol); });
  }
  return last_selected_;
}

bool DecodePrinter::place_selected(const At& at) {
  const Selection& s = job_.selection;
  if (!s.symbols.empty() && !symbol_selected(at.symbol)) return false;
  if (!s.addresses.empty() && std::none_of(s.addresses.begin(), s.addresses.end(),
                                           [&](const AddrRange& r) { return r.contains(at.ip); })) {
    return false;
  }
  if (s.dsos.empty()) return true;
  // As in perf, the file name alone is enough.
  return std::ranges::any_of(
      s.dsos, [&](const std::string& dso) { return at.dso == dso || at.dso.ends_with("/" + dso); });
}

Addr DecodePrinter::last_instruction(const Block& block) const {
  return block.end() - block.lengths[block.count - 1];
}

const DecodePrinter::BlockText& DecodePrinter::text_of(const Block& block, Time t) {
  if (cached_bytes_ > kMaxCachedBytes) {
    blocks_.clear();
    cached_bytes_ = 0;
  }
  auto it = blocks_.find(&block);
  if (it == blocks_.end()) it = blocks_.emplace(&block, BlockText{}).first;
  BlockText& text = it.value();
  if (text.ends.empty() || t < text.valid.lo || t > text.valid.hi) {
    cached_bytes_ -= text.text.capacity();
    make_text(block, t, text);
    cached_bytes_ += text.text.capacity();
  }
  return text;
}

void DecodePrinter::make_text(const Block& b, Time t, BlockText& out) {
  out = BlockText{};
  out.valid = job_.epochs.around(is_kernel_address(b.ip) ? kKernelSpace : b.space, {b.ip, b.end()}, t);
  const DecodeFormat& f = job_.format;
  uint32_t offset = 0;
  std::span<const TextPiece> text;
  if (f.has(kFieldTextver | kFieldTextsrc)) text = texts_.of(b);
  for (uint32_t i = 0, of_text = 0; i < b.count; ++i, ++of_text) {
    if (!text.empty() && of_text == text.front().instructions) {
      text = text.subspan(1);
      of_text = 0;
    }
    InsnText insn;
    insn.at = name(b.space, b.ip + offset, t);
    insn.bytes = {b.bytes + offset, b.lengths[i]};
    const bool wanted = place_selected(insn.at);
    out.selected.push_back(wanted);
    out.all_selected = out.all_selected && wanted;
    if (wanted) {
      if (i + 1 == b.count) insn.kind = b.kind;
      if (f.has(kFieldDisasm)) insn.disasm = disassembler_.text(insn.bytes, insn.at.ip, b.mode);
      if (f.has(kFieldTextver | kFieldTextsrc)) {
        insn.version = text.front().version;
        insn.source = format_origin(*job_.capture.text, text.front().origin);
      }
      if (f.has(kFieldSrcline)) insn.line = job_.lines->at(b.space, insn.at.ip, t);
      if (f.has(kFieldInline)) insn.frames = job_.lines->frames_at(b.space, insn.at.ip, t);
      style_->body(out.text, insn);
    }
    out.ends.push_back(static_cast<uint32_t>(out.text.size()));
    offset += b.lengths[i];
  }
  out.text.append(kSlack, ' ');
}

void DecodePrinter::print_step(const Step& step, TimedText& out) {
  if (!context_.wanted || step.count == 0 || !job_.format.wants(kKindInstructions)) return;
  const BlockText& text = text_of(*step.block, step.time);
  printed_ +=
      text.all_selected
          ? step.count
          : static_cast<uint64_t>(std::count_if(text.selected.begin(), text.selected.begin() + step.count,
                                                [](uint8_t s) { return s != 0; }));
  const std::string& head = prefix();
  const std::string& tail = suffixes_[std::min(static_cast<size_t>(step.confidence), suffixes_.size() - 1)];
  const size_t head_size = head.size() - kSlack, tail_size = tail.size() - kSlack;
  out.at(step.time);
  std::string& to = out.text;
  const size_t need = text.ends[step.count - 1] + step.count * (head_size + tail_size);
  const size_t old = to.size();
  to.resize_and_overwrite(old + need + kSlack, [&](char* p, size_t) {
    char* at = p + old;
    uint32_t begin = 0;
    for (uint32_t i = 0; i < step.count; ++i) {
      const uint32_t end = text.ends[i];
      if (text.all_selected || text.selected[i] != 0) {
        at = put_short(at, head.data(), head_size);
        at = put_short(at, text.text.data() + begin, end - begin);
        at = put_short(at, tail.data(), tail_size);
      }
      begin = end;
    }
    return static_cast<size_t>(at - p);
  });
}

void DecodePrinter::print_branch(const Stream& stream, Time t, Space space, At from, At to,
                                 std::string_view flags, TimedText& out) {
  move_to(stream, t, space);
  if (!context_.wanted || (job_.selection.by_place() && !place_selected(from))) return;
  out.at(t);
  style_->branch(out.text, context_.who, {from, to, flags});
}

void DecodePrinter::print_exit(const Step& step, const Stream& stream, Space space, Addr to,
                               std::string_view flags, TimedText& out) {
  const Block& b = *step.block;
  if (!took_branch(step) || !job_.format.wants(kinds_of(b.kind))) return;
  print_branch(stream, step.time, b.space, name(b.space, last_instruction(b), step.time),
               name(space, to, step.time), flags.empty() ? branch_flags(b) : flags, out);
}

void DecodePrinter::print_event(const Event& e, const Stream& stream, Space space, TimedText& out) {
  move_to(stream, e.time, is_kernel_address(e.ip) || e.ip == 0 ? kKernelSpace : space);
  const At at = name(space, e.ip, e.time);
  if (!context_.wanted || (job_.selection.by_place() && !place_selected(at))) return;
  out.at(e.time);
  style_->event(out.text, context_.who, e, at);
}

// Without a place in the code: filters by place pass no counts.
void DecodePrinter::print_cycles(const Event& e, size_t index, const Stream& stream, TimedText& out) {
  if (!job_.format.wants(kKindCycles) || job_.selection.by_place()) return;
  move_to(stream, e.time);
  if (!context_.wanted) return;
  out.at(e.time);
  const auto span = std::ranges::lower_bound(spans_, index, {}, &CycleSpan::event);
  style_->cycles(out.text, context_.who, e, span != spans_.end() && span->event == index ? &*span : nullptr);
}

// Of one that reaches into the time that was asked for, the part within it.
Time DecodePrinter::time_of(const Gap& gap) const {
  const Time t = known_time(gap.time);
  const TimeBounds& wanted = job_.selection.time;
  return t == kTimeMin || !is_within(gap, wanted) ? t : std::clamp(t, wanted.lo, wanted.hi);
}

bool DecodePrinter::selected(const Gap& gap, const Stream& stream) {
  move_to(stream, time_of(gap));
  return context_.wanted;
}

void DecodePrinter::print_gap(const Gap& gap, const Stream& stream, TimedText& out) {
  if (!job_.format.wants(kKindErrors) || !selected(gap, stream)) return;
  const Time t = time_of(gap);
  if (t != kTimeMin) out.at(t);
  style_->gap(out.text, context_.who, gap, gap_text(job_.capture, stream, gap));
}

namespace {

// An interrupt whose handler is not traced: it is one with the end of the trace, as in perf.
bool leaves_trace(const Chunk& chunk, size_t event) {
  const Event& e = chunk.events[event];
  if (e.kind != EventKind::kAsync || e.a != 0 || event + 1 == chunk.events.size()) return false;
  const Event& next = chunk.events[event + 1];
  return next.kind == EventKind::kTraceStop && next.step == e.step;
}

}  // namespace

void DecodePrinter::event_between(Last& last, const Chunk& chunk, size_t index, const Stream& stream,
                                  Space space, TimedText& out) {
  const Event& e = chunk.events[index];
  const bool edges = job_.format.wants(kKindBranches);
  if (walk_) walk_->event(e);
  if (e.kind == EventKind::kCycles) {
    print_cycles(e, index, stream, out);
  } else if (job_.format.wants(kind_of(e.kind)) &&
             (e.kind != EventKind::kExecMode || job_.capture.x86.event_trace)) {
    print_event(e, stream, space, out);
  }
  if (!job_.format.wants_flow()) return;
  if (e.kind == EventKind::kTraceStart) {
    if (edges) print_branch(stream, e.time, space, {}, name(space, e.ip, e.time), "tr strt", out);
    last.reset();
  } else if (e.kind == EventKind::kTraceStop) {
    if (last && took_branch(*last)) {
      print_exit(*last, stream, space, 0, fmt::format("tr end  {}", branch_flags(*last->block)), out);
    } else if (edges) {
      const Event* left = index > 0 && leaves_trace(chunk, index - 1) ? &chunk.events[index - 1] : nullptr;
      print_branch(stream, e.time, space, name(space, left != nullptr ? left->ip : e.ip, e.time), {},
                   left != nullptr ? "tr end  async" : "tr end", out);
    }
    if (walk_) walk_->interrupt();
    last.reset();
  } else if (e.kind == EventKind::kAsync) {
    const Space from = last ? last->block->space : space;
    if (last) print_exit(*last, stream, from, e.ip, {}, out);
    if (!leaves_trace(chunk, index) && job_.format.wants(kKindBranches | kKindCalls)) {
      print_branch(stream, e.time, from, name(from, e.ip, e.time), name(kKernelSpace, e.a, e.time), "hw int",
                   out);
    }
    last.reset();
  }
}

DecodePrinter::Last DecodePrinter::between(Last last, const Chunk& chunk, const Stream& stream, size_t index,
                                           const Step* next, ChunkItems& items, TimedText& out) {
  const Space space = next != nullptr ? next->block->space : last ? last->block->space : kKernelSpace;
  items.before(
      index,
      [&](const Gap& gap) {
        if (walk_) walk_->interrupt();
        print_gap(gap, stream, out);
        last.reset();
      },
      [&](const Event&) { event_between(last, chunk, items.events_taken() - 1, stream, space, out); });
  if (next == nullptr) return last;
  if (job_.format.wants_flow() && last && (next->flags & (Step::kAfterGap | Step::kAsyncEntry)) == 0) {
    print_exit(*last, stream, next->block->space, next->block->ip, {}, out);
  }
  return *next;
}

DecodePrinter::Last DecodePrinter::seam(const Last& last, const Chunk& chunk, const Stream& stream,
                                        TimedText& out) {
  spans_.clear();  // what is before the first step ends none of this chunk
  ChunkItems items(chunk);
  const auto first = chunk.steps.begin();
  return between(last, chunk, stream, 0, first == chunk.steps.end() ? nullptr : &*first, items, out);
}

DecodePrinter::Last DecodePrinter::print(const Chunk& chunk, const Stream& stream, TimedText& out) {
  if (chunk.steps.empty()) return std::nullopt;
  if (job_.format.wants(kKindCycles)) spans_ = cycle_spans(chunk);
  ChunkItems items(chunk);
  items.skip_first();
  const bool flow = job_.format.wants_flow();
  Last last;
  walk_.emplace(job_.capture, stream);
  for (auto step = chunk.steps.begin(); step != chunk.steps.end(); ++step) {
    const size_t i = step.position();
    if (last && (flow || items.has_before(i))) between(last, chunk, stream, i, &*step, items, out);
    walk_->step(*step);
    move_to(stream, step->time, step->block->space);
    print_step(*step, out);
    last = *step;
  }
  last = between(last, chunk, stream, chunk.steps.size(), nullptr, items, out);
  walk_.reset();
  return last;
}

}  // namespace asof
