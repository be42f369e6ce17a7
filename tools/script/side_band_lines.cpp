// The forms are those of perf's tools/perf/util/event.c, as seen in its output.
#include "tools/script/side_band_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <utility>

#include "decoder/perf/record_types.h"
#include "decoder/perf/records.h"
#include "textstore/plain_text.h"
#include "tools/output/format.h"
#include "tools/script/script_event_names.h"

namespace asof {
namespace {

std::string hash_number(uint64_t n) { return n == 0 ? "0" : fmt::format("{:#x}", n); }

std::string mapping(const Record& r) {
  const auto m = parse_mmap(r);
  if (!m) return {};
  const std::string where = fmt::format("{}/{}: [{}({}) @ {}", m->pid, m->tid, hash_number(m->addr),
                                        hash_number(m->len), hash_number(m->pgoff));
  const std::string name = plain_text(m->filename);
  if (!m->is_mmap2) return fmt::format("PERF_RECORD_MMAP {}]: {} {}", where, m->executable ? 'x' : 'r', name);
  const std::string identity =
      m->build_id.empty() ? fmt::format("{:02x}:{:02x} {} {}", m->maj, m->min, m->inode, m->inode_generation)
                          : fmt::format("<{}>", m->build_id);
  constexpr uint32_t kRead = 1, kWrite = 2, kExec = 4, kShared = 1;
  return fmt::format("PERF_RECORD_MMAP2 {} {}]: {}{}{}{} {}", where, identity,
                     (m->prot & kRead) != 0 ? 'r' : '-', (m->prot & kWrite) != 0 ? 'w' : '-',
                     (m->prot & kExec) != 0 ? 'x' : '-', (m->flags & kShared) != 0 ? 's' : 'p', name);
}

std::string task(const Record& r) {
  if (r.type == perf::kComm) {
    const auto c = parse_comm(r);
    return c ? fmt::format("PERF_RECORD_COMM{}: {}:{}/{}", c->exec ? " exec" : "", plain_text(c->comm),
                           c->pid, c->tid)
             : std::string();
  }
  const auto t = parse_task(r);
  if (!t) return {};
  return fmt::format("PERF_RECORD_{}({}:{}):({}:{})", r.type == perf::kFork ? "FORK" : "EXIT", t->pid, t->tid,
                     t->ppid, t->ptid);
}

std::string task_switch(const Record& r) {
  const auto s = parse_switch(r);
  if (!s) return {};
  const std::string_view how = !s->out ? "IN         " : s->preempted ? "OUT preempt" : "OUT        ";
  if (!s->cpu_wide) return fmt::format("PERF_RECORD_SWITCH {}", how);
  return fmt::format("PERF_RECORD_SWITCH_CPU_WIDE {}  {} pid/tid: {:5}/{:<5}", how, s->out ? "next" : "prev",
                     s->next_prev_pid, s->next_prev_tid);
}

std::string symbol_event(const Record& r) {
  if (r.type == perf::kKsymbol) {
    const auto k = parse_ksymbol(r);
    return k ? fmt::format("PERF_RECORD_KSYMBOL addr {:x} len {} type {} flags {:#x} name {}", k->addr,
                           k->len, k->kind, k->unregister ? 1 : 0, plain_text(k->name))
             : std::string();
  }
  const auto b = parse_bpf_event(r);
  return b ? fmt::format("PERF_RECORD_BPF_EVENT type {}, flags {}, id {}", b->kind, b->flags, b->id)
           : std::string();
}

std::string namespaces(const Record& r) {
  constexpr std::array<std::string_view, 7> kNames{"net", "uts", "ipc", "pid", "user", "mnt", "cgroup"};
  constexpr size_t kInLine = 4;
  const auto n = parse_namespaces(r);
  if (!n) return {};
  std::string out =
      fmt::format("PERF_RECORD_NAMESPACES {}/{} - nr_namespaces: {}\n\t\t[", n->pid, n->tid, n->links.size());
  for (size_t i = 0; i < n->links.size(); ++i) {
    if (i != 0) out += i % kInLine == 0 ? ", \n\t\t " : ", ";
    fmt::format_to(std::back_inserter(out), "{}/{}: {}/{}", i, i < kNames.size() ? kNames[i] : "unknown",
                   n->links[i].dev, hash_number(n->links[i].inode));
  }
  return out + "]";
}

std::string cgroup(const Record& r) {
  const auto c = parse_cgroup(r);
  return c ? fmt::format("PERF_RECORD_CGROUP cgroup: {} {}", c->id, plain_text(c->path)) : std::string();
}

std::string poke(const Record& r, ScriptNames& names) {
  const auto p = parse_text_poke(r);
  if (!p) return {};
  const ScriptName n = names.at(kKernelSpace, p->addr, r.time());
  std::string out = fmt::format("PERF_RECORD_TEXT_POKE {:x} ", p->addr);
  if (n.symbol != nullptr) fmt::format_to(std::back_inserter(out), "{}+{:#x}", n.symbol->shown(), n.offset);
  fmt::format_to(std::back_inserter(out), " old len {} new len {}", p->old_bytes.size(), p->new_bytes.size());
  constexpr size_t kInLine = 16;
  const auto lines = [&](std::string_view what, std::span<const uint8_t> bytes) {
    for (size_t at = 0; at < bytes.size(); at += kInLine)
      fmt::format_to(std::back_inserter(out), "\n            {} bytes: {}", what,
                     format_bytes(bytes.subspan(at, std::min(kInLine, bytes.size() - at))));
  };
  lines("Old", p->old_bytes);
  lines("New", p->new_bytes);
  return out;
}

// The thread of a record without one: perf was told by itself. A new thread has its parent's name.
int32_t thread_in(const Record& r) {
  if (r.type == perf::kFork) {
    const auto t = parse_task(r);
    return t ? t->ptid : -1;
  }
  if (r.type == perf::kMmap || r.type == perf::kMmap2) {
    const auto m = parse_mmap(r);
    return m ? m->tid : -1;
  }
  if (r.type != perf::kComm) return -1;
  const auto c = parse_comm(r);
  return c ? c->tid : -1;
}

}  // namespace

SideBandLines::SideBandLines(const Capture& capture, const SideBandChoice& choice) {
  if (!capture.perf || !choice.any()) return;
  capture.perf->for_each([&](const Record& r) {
    const bool wanted =
        (choice.mappings && (r.type == perf::kMmap || r.type == perf::kMmap2)) ||
        (choice.tasks && (r.type == perf::kComm || r.type == perf::kFork || r.type == perf::kExit)) ||
        (choice.switches && (r.type == perf::kSwitch || r.type == perf::kSwitchCpuWide)) ||
        (choice.losses && (r.type == perf::kLost || r.type == perf::kLostSamples)) ||
        ((choice.bpf || choice.pokes) && r.type == perf::kKsymbol) ||
        (choice.bpf && r.type == perf::kBpfEvent) || (choice.namespaces && r.type == perf::kNamespaces) ||
        (choice.cgroups && r.type == perf::kCgroup) || (choice.pokes && r.type == perf::kTextPoke) ||
        (choice.samples && r.type == perf::kSample && r.id.attr != nullptr);
    const bool here = choice.cpus.empty() || (r.type == perf::kSample && r.id.cpu < 0) ||
                      std::ranges::find(choice.cpus, std::max(r.id.cpu, 0)) != choice.cpus.end();
    if (wanted && here) records_.push_back(r);
    return true;
  });
  std::ranges::stable_sort(records_, {}, [](const Record& r) { return r.time(); });
  if (!choice.samples) return;
  periods_ = recorded_periods(*capture.perf);
  first_event_ = capture.perf->attrs().data();
  find_spaces(capture);
}

// A space lasts until the process has another one.
void SideBandLines::find_spaces(const Capture& capture) {
  for (const Stream& stream : capture.streams) {
    for (const ContextChange& c : stream.contexts) {
      if (c.pid > 0 && c.space != kNoSpace) spaces_[c.pid].try_emplace(c.time, c.space);
    }
  }
}

Space SideBandLines::space_of(int32_t pid, Time t) const {
  const auto process = spaces_.find(pid);
  if (process == spaces_.end()) return kNoSpace;
  const auto next = process->second.upper_bound(t);
  return next == process->second.begin() ? next->second : std::prev(next)->second;
}

ScriptRecord SideBandLines::line_of(const Record& r) const {
  ScriptRecord line;
  line.time = r.time();
  if (r.type == perf::kSample) {
    line.kind = ScriptRecord::Kind::kSample;
    line.cpu = r.id.cpu;
    line.pid = r.id.pid;
    line.tid = r.id.tid;
    line.space = line.to_space = space_of(r.id.pid, line.time);
    if (const auto sample = parse_sample(r)) {
      line.ip = sample->ip.value_or(0);
      line.addr = sample->addr.value_or(0);
      line.period = sample->period.value_or(periods_[static_cast<size_t>(r.id.attr - first_event_)]);
    }
    return line;
  }
  line.kind = ScriptRecord::Kind::kSideBand;
  line.cpu = std::max(r.id.cpu, 0);
  line.pid = std::max(r.id.pid, 0);
  line.tid = std::max(r.id.tid, 0);
  line.b = static_cast<uint64_t>(int64_t{line.time == kTimeMin ? thread_in(r) : line.tid});
  return line;
}

TimedText SideBandLines::take(Time before) {
  TimedText out;
  for (; next_ < records_.size() && records_[next_].time() < before; ++next_) {
    ScriptRecord line = line_of(records_[next_]);
    line.a = next_;
    if (line.time != kTimeMin) out.at(line.time);
    line.append_to(out.text);
  }
  return out;
}

void SideBandLines::add_to(Merger& merger, size_t number, Time before) {
  TimedText lines = take(before);
  if (!lines.text.empty()) merger.add(number, std::move(lines), before);
}

std::string SideBandLines::text(const ScriptRecord& r, ScriptNames& names) const {
  const Record& record = records_[r.a];
  switch (record.type) {
    case perf::kMmap:
    case perf::kMmap2:
      return mapping(record);
    case perf::kComm:
    case perf::kFork:
    case perf::kExit:
      return task(record);
    case perf::kSwitch:
    case perf::kSwitchCpuWide:
      return task_switch(record);
    case perf::kKsymbol:
    case perf::kBpfEvent:
      return symbol_event(record);
    case perf::kNamespaces:
      return namespaces(record);
    case perf::kCgroup:
      return cgroup(record);
    case perf::kTextPoke:
      return poke(record, names);
    default: {
      const auto lost = parse_lost(record);
      return lost ? fmt::format("PERF_RECORD_{} lost {}",
                                record.type == perf::kLost ? "LOST" : "LOST_SAMPLES", lost->lost)
                  : std::string();
    }
  }
}

// perf tests each mode by its bits, so that the hypervisor's is K and U as well.
std::string SideBandLines::misc(const ScriptRecord& r) const {
  constexpr unsigned kKernel = 1, kUser = 2, kHypervisor = 3, kGuestKernel = 4, kGuestUser = 5;
  constexpr unsigned kBit13 = 1U << 13U, kBit14 = 1U << 14U;
  const Record& record = records_[r.a];
  std::string out;
  for (const auto& [mode, letter] :
       {std::pair{kKernel, 'K'}, {kUser, 'U'}, {kHypervisor, 'H'}, {kGuestKernel, 'G'}, {kGuestUser, 'g'}}) {
    if ((record.misc & mode) == mode) out += letter;
  }
  const bool marked = (record.misc & kBit13) != 0;
  if (record.type == perf::kMmap || record.type == perf::kMmap2) {
    if (marked) out += 'M';  // of data
  } else if (record.type == perf::kComm) {
    if (marked) out += 'E';  // by exec
  } else if (record.type == perf::kSwitch || record.type == perf::kSwitchCpuWide) {
    if (marked) out += (record.misc & kBit14) != 0 ? "Sp" : "S";  // out, preempted
  }
  return out;
}

uint32_t SideBandLines::event_type(const ScriptRecord& r) const {
  const PerfAttr* const attr = records_[r.a].id.attr;
  return attr == nullptr ? UINT32_MAX : attr->type;
}

}  // namespace asof
