// Instructions that the emulator does not know, or answers as a CPU without Intel PT.
#include <cinttypes>
#include <utility>

#include "tools/board/pt_plugin/plugin.h"

namespace asof::pt {

namespace {

const Special& special(void* data) { return *static_cast<const Special*>(data); }
uint64_t ip_of(const Cpu& c, const Special& s) { return c.block_ip + s.offset(); }

// The table that a trace begins to write to, each entry's size and flags, as Linux lays it out (one page).
void note_table(const Cpu& c) {
  std::fprintf(stderr, "cpu %u trace base %" PRIx64 " index %u offset %" PRIx64 ":", c.index, c.output.base,
               static_cast<unsigned>((c.output.mask & 0xffffffff) >> 7), c.output.mask >> 32);
  for (unsigned i = 0; i < 512; ++i) {
    const std::optional<uint64_t> e = c.output.entry(i);
    if (!e) break;
    const char* flags = *e & 1            ? "/end"
                        : (*e & 20) == 20 ? "/int/stop"
                        : *e & 16         ? "/stop"
                        : *e & 4          ? "/int"
                                          : "";
    std::fprintf(stderr, " %llx%s", 4096ULL << (*e >> 6 & 15), flags);
    if (*e & 1) break;
  }
  std::fprintf(stderr, "\n");
}

[[noreturn]] void skip(const Cpu& c, const Special& s) { qemu_plugin_set_pc(ip_of(c, s) + s.size()); }

void want_patch(Cpu& c, Insn kind) {
  if (c.patch == Insn::kPlain) ++plugin->counters.patches;
  c.patch = kind;
}

std::optional<uint64_t> ptwrite_value(Cpu& c, const PtwriteOperand& o, uint64_t next_ip) {
  uint64_t value = 0;
  if (!o.memory) {
    value = c.regs.get(o.base);
  } else {
    uint64_t at = static_cast<uint64_t>(o.displacement);
    if (o.base == PtwriteOperand::kNextIp) {
      at += next_ip;
    } else if (o.base != PtwriteOperand::kNone) {
      at += c.regs.get(o.base);
    }
    if (o.index != PtwriteOperand::kNone) at += c.regs.get(o.index) << o.scale;
    if (o.address32) at &= 0xffffffff;
    if (o.segment == PtwriteOperand::Segment::kFs) at += c.regs.get(kFsBase);
    if (o.segment == PtwriteOperand::Segment::kGs) at += c.regs.get(kGsBase);
    if (!read_guest(at, &value, o.eight_bytes ? 8 : 4)) return {};
  }
  return o.eight_bytes ? value : value & 0xffffffff;
}

}  // namespace

void on_wrmsr(unsigned, void* data) {
  Cpu& c = plugin->running();
  const Special& s = special(data);
  const auto number = static_cast<uint32_t>(c.regs.get(kRcx));
  const uint64_t value = c.regs.pair(), ip = ip_of(c, s);
  if (number == kMsrRtitCtl) {
    if (plugin->options().verbose && (value & kTraceEn) && (value & kToPa)) note_table(c);
    c.follower.write_ctl(value, ip, {ip + s.size(), false, Exec::k64, false}, c.regs.get(kCr3), c.begun,
                         plugin->tsc());
    plugin->after(c);
    if (value & kTraceEn) plugin->start_following();
  } else if (!c.msrs.write(number, value)) {
    return;
  }
  if (plugin->options().verbose)
    std::fprintf(stderr, "cpu %u wrmsr %x %" PRIx64 "\n", c.index, number, value);
  skip(c, s);
}

void on_rdmsr(unsigned, void* data) {
  Cpu& c = plugin->running();
  const auto number = static_cast<uint32_t>(c.regs.get(kRcx));
  const std::optional<uint64_t> value = c.msrs.read(number);
  if (!value) return;
  if (plugin->options().verbose)
    std::fprintf(stderr, "cpu %u rdmsr %x %" PRIx64 "\n", c.index, number, *value);
  c.regs.set_pair(*value);
  skip(c, special(data));
}

void on_rdpmc(unsigned, void* data) {
  Cpu& c = plugin->running();
  c.regs.set_pair(c.msrs.counter(static_cast<uint32_t>(c.regs.get(kRcx))) & 0xffffffffffff);
  skip(c, special(data));
}

// PTWRITE is unknown to the emulator. Where its operand is not mapped the emulator raises #UD, not a page fault.
void on_ptwrite(unsigned, void* data) {
  Cpu& c = plugin->running();
  const Special& s = special(data);
  const bool code64 = !s.user() || c.regs.get(kCs) != 0x23;
  const auto operand = ptwrite_operand(s.bytes, code64);
  if (!operand) return;
  const uint64_t ip = ip_of(c, s);
  const auto value = ptwrite_value(c, *operand, ip + s.size());
  if (!value) return;
  if (c.follower.follows()) {
    c.follower.ptwrite(ip, *value, operand->eight_bytes, plugin->tsc());
    plugin->after(c);
  }
  skip(c, s);
}

void on_cpuid(unsigned, void*) {
  Cpu& c = plugin->running();
  c.leaf = static_cast<uint32_t>(c.regs.get(kRax));
  c.subleaf = static_cast<uint32_t>(c.regs.get(kRcx));
  want_patch(c, Insn::kCpuid);
}

void on_rdtsc(unsigned, void*) {
  Cpu& c = plugin->running();
  c.rdtsc_count = plugin->counters.begun;
  want_patch(c, Insn::kRdtsc);
}

void on_after(unsigned, void*) {
  Cpu& c = plugin->running();
  const Insn patch = std::exchange(c.patch, Insn::kPlain);
  if (patch == Insn::kPlain) return;  // another CPU wants it
  --plugin->counters.patches;
  if (patch == Insn::kRdtsc) {
    plugin->clock.rdtsc(c.rdtsc_count, c.regs.pair());
  } else if (patch == Insn::kCpuid) {
    const auto get = [&](Reg r) { return static_cast<uint32_t>(c.regs.get(r)); };
    CpuidResult r{get(kRax), get(kRbx), get(kRcx), get(kRdx)};
    if (!change_cpuid(c.leaf, c.subleaf, plugin->options().unit, r)) return;
    c.regs.set(kRax, r.eax);
    c.regs.set(kRbx, r.ebx);
    c.regs.set(kRcx, r.ecx);
    c.regs.set(kRdx, r.edx);
  }
}

}  // namespace asof::pt
