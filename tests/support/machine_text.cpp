// Machine: text changes, and the records that the kernel writes for them.
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "tests/support/machine.h"

namespace asof::test {

namespace {

constexpr uint8_t kInt3Byte = 0xcc;
constexpr uint16_t kKsymBpf = 1, kKsymUnregister = 1, kKsymOutOfLine = 2, kBpfLoad = 1, kBpfUnload = 2;
constexpr uint64_t kSyncPoll = 50;     // TSC ticks
constexpr uint64_t kSyncDelay = 1500;  // without IPI handlers

}  // namespace

struct Machine::Batch {
  unsigned cpu = 0;
  std::vector<PokeSite> sites;
  std::vector<std::vector<uint8_t>> old_bytes;
  PokeTiming timing;
  unsigned stage = 0;
};

void Machine::record_poke(uint64_t tsc, unsigned cpu, Addr addr, std::vector<uint8_t> old_bytes,
                          std::vector<uint8_t> new_bytes) {
  side(tsc, cpu,
       [addr, o = std::move(old_bytes), n = std::move(new_bytes)](PerfDataWriter& w, const Trailer& t) {
         w.text_poke(addr, o, n, t);
       });
  side_.back().poke = true;
}

void Machine::write_text(uint64_t tsc, Addr addr, std::vector<uint8_t> bytes) {
  schedule(tsc, [this, tsc, addr, b = std::move(bytes)] { memory_.write(tsc, kKernelSpace, addr, b); });
}

// text_poke_sync(): an IPI to every other CPU; `next` runs when all have taken it.
void Machine::sync_then(uint64_t earliest, unsigned writer, std::function<void()> next) {
  if (config_.sync_entry == 0) {
    schedule(std::max(earliest, now_ + kSyncDelay), std::move(next));
    return;
  }
  for (const auto& c : cpus_) {
    if (c->id != writer && !c->halted) c->interrupts.push_back(config_.sync_entry);
  }
  auto poll = std::make_shared<std::function<void()>>();
  *poll = [this, earliest, next = std::move(next), weak = std::weak_ptr(poll)] {
    const bool waiting = std::any_of(cpus_.begin(), cpus_.end(), [this](const auto& c) {
      return std::find(c->interrupts.begin(), c->interrupts.end(), config_.sync_entry) != c->interrupts.end();
    });
    if (!waiting && now_ >= earliest) {
      next();
      return;
    }
    schedule(now_ + kSyncPoll, [again = weak.lock()] { (*again)(); });
  };
  schedule(now_ + kSyncPoll, [poll] { (*poll)(); });
}

void Machine::poke_batch(uint64_t tsc, unsigned cpu, std::vector<PokeSite> sites, const PokeTiming& timing) {
  auto batch = std::make_shared<Batch>();
  batch->cpu = cpu, batch->sites = std::move(sites), batch->timing = timing;
  std::sort(batch->sites.begin(), batch->sites.end(),
            [](const auto& a, const auto& b) { return a.addr < b.addr; });
  schedule(tsc, [this, batch] { poke_step(batch); });
}

void Machine::poke_step(const std::shared_ptr<Batch>& batch) {
  const auto again = [this, batch] { poke_step(batch); };
  switch (batch->stage++) {
    case 0:  // INT3 everywhere
      for (const PokeSite& s : batch->sites) {
        if (int3_sites_.contains(s.addr)) throw std::logic_error("two concurrent pokes of one site");
        batch->old_bytes.push_back(memory_.read(kKernelSpace, s.addr, s.new_bytes.size()));
        int3_sites_[s.addr] = s.emulate.empty() ? s.new_bytes : s.emulate;
        memory_.write(now_, kKernelSpace, s.addr, std::vector<uint8_t>{kInt3Byte});
      }
      sync_then(now_ + batch->timing.int3_to_tail, batch->cpu, again);
      return;
    case 1: {  // all but the first byte, and the records
      uint64_t at = now_;
      for (size_t i = 0; i < batch->sites.size(); ++i) {
        const PokeSite& s = batch->sites[i];
        const Addr tail = s.addr + 1;
        schedule(at, [this, at, tail, b = std::vector<uint8_t>(s.new_bytes.begin() + 1, s.new_bytes.end())] {
          memory_.write(at, kKernelSpace, tail, b);
        });
        record_poke(at, batch->cpu, s.addr, batch->old_bytes[i], s.new_bytes);
        at += batch->timing.between_records;
      }
      schedule(at,
               [this, batch, at, again] { sync_then(at + batch->timing.tail_to_head, batch->cpu, again); });
      return;
    }
    case 2:  // the first byte
      for (const PokeSite& s : batch->sites) {
        memory_.write(now_, kKernelSpace, s.addr, std::vector<uint8_t>{s.new_bytes[0]});
      }
      sync_then(now_, batch->cpu, again);
      return;
    default:
      for (const PokeSite& s : batch->sites) int3_sites_.erase(s.addr);
  }
}

void Machine::out_of_line(uint64_t tsc, unsigned cpu, Addr addr, uint32_t size, std::string name,
                          bool unregister) {
  side(tsc, cpu, [addr, size, n = std::move(name), unregister](PerfDataWriter& w, const Trailer& t) {
    w.ksymbol(addr, size, kKsymOutOfLine, unregister ? kKsymUnregister : 0, n, t);
  });
}

std::string Machine::bpf_symbol(const BpfProgSpec& program, size_t function) {
  std::string tag;
  for (const uint8_t b : program.functions[function].tag) tag += fmt::format("{:02x}", b);
  return function == 0 ? fmt::format("bpf_prog_{}_{}", tag, program.name) : fmt::format("bpf_prog_{}_F", tag);
}

void Machine::load_bpf(uint64_t tsc, unsigned cpu, const BpfProgSpec& program) {
  bpf_.push_back(program);
  bpf_.back().load_time = static_cast<uint64_t>(perf_time(tsc));
  schedule(tsc, [this, tsc, cpu, p = program] {
    uint64_t at = tsc;
    for (size_t i = 0; i < p.functions.size(); ++i) {
      const auto& f = p.functions[i];
      memory_.write(tsc, kKernelSpace, f.address, f.bytes);
      side(at += 100, cpu,
           [addr = f.address, len = f.bytes.size(), name = bpf_symbol(p, i)](PerfDataWriter& w,
                                                                             const Trailer& t) {
             w.ksymbol(addr, static_cast<uint32_t>(len), kKsymBpf, 0, name, t);
           });
    }
    side(at + 200, cpu, [id = p.id, tag = p.tag](PerfDataWriter& w, const Trailer& t) {
      w.bpf_event(kBpfLoad, id, tag, t);
    });
  });
}

void Machine::unload_bpf(uint64_t tsc, unsigned cpu, uint32_t id, uint64_t grace, bool record) {
  const auto it = std::find_if(bpf_.begin(), bpf_.end(), [id](const auto& p) { return p.id == id; });
  if (it == bpf_.end()) throw std::logic_error("unload of a program that was never loaded");
  schedule(tsc, [this, tsc, cpu, p = *it, record] {
    if (!record) return;
    uint64_t at = tsc;
    for (size_t i = 0; i < p.functions.size(); ++i) {
      const auto& f = p.functions[i];
      side(at += 100, cpu,
           [addr = f.address, len = f.bytes.size(), name = bpf_symbol(p, i)](PerfDataWriter& w,
                                                                             const Trailer& t) {
             w.ksymbol(addr, static_cast<uint32_t>(len), kKsymBpf, kKsymUnregister, name, t);
           });
    }
    side(at + 100, cpu, [id = p.id, tag = p.tag](PerfDataWriter& w, const Trailer& t) {
      w.bpf_event(kBpfUnload, id, tag, t);
    });
  });
  for (const auto& f : it->functions) {
    write_text(tsc + grace, f.address, std::vector<uint8_t>(f.bytes.size(), kInt3Byte));
  }
}

}  // namespace asof::test
