// Callbacks from translated code and from interruptions.
#include "tools/board/pt_plugin/plugin.h"

namespace asof::pt {

namespace {

constexpr uint64_t kIf = 1 << 9;

// The kernel's code segments: 0x23 is the one of 32-bit user code (Linux); kernel code is 64-bit code.
Place place(Cpu& c, uint64_t ip) {
  Place p{ip, ip >> 63 == 0, Exec::k64, false};
  if (p.user && c.regs.get(kCs) == 0x23) p.exec = Exec::k32;
  if (c.unit.ctl() & kEventEn) p.interrupts = c.regs.get(kEflags) & kIf;
  return p;
}

// The vector whose handler is at `handler`. The table is read again when it is not known.
std::optional<uint8_t> vector_of(Cpu& c, uint64_t handler) {
  auto found = c.vectors.find(handler);
  if (found != c.vectors.end()) return found->second;
  c.vectors.clear();
  for (unsigned i = 0; i < 256 && c.idt_base != 0; ++i) {
    uint64_t gate[2];
    if (!read_guest(c.idt_base + uint64_t{16} * i, gate, sizeof gate)) break;
    const uint64_t at = (gate[0] & 0xffff) | (gate[0] >> 32 & 0xffff0000) | gate[1] << 32;
    if (gate[0] >> 47 & 1) c.vectors.emplace(at, static_cast<uint8_t>(i));
  }
  found = c.vectors.find(handler);
  if (found == c.vectors.end()) return {};
  return found->second;
}

}  // namespace

void on_vcpu(unsigned vcpu, void*) {
  if (vcpu >= plugin->cpus()) die("more CPUs than announced");
  plugin->cpu(vcpu).regs.find();
  plugin->add_cpu(vcpu);
}

// The emulator shares the translation of a page between all addresses at which it is mapped: user code may run
// elsewhere than where it was translated. RIP is right at the start of a block only.
void on_block_ip(unsigned, void* data) {
  Cpu& c = plugin->running();
  const auto& block = *static_cast<const CodeBlock*>(data);
  c.block_ip = block.address >> 63 ? block.address : c.regs.get(kRip);
}

void on_block(unsigned, void* data) {
  Cpu& c = plugin->running();
  if (!c.follower.follows()) return;
  const auto& block = *static_cast<const CodeBlock*>(data);
  const uint64_t ip = block.address >> 63 ? block.address : c.regs.get(kRip);
  c.follower.block(block, place(c, ip), c.begun, plugin->tsc());
  plugin->after(c);
}

void on_discontinuity(unsigned, qemu_plugin_discon_type type, uint64_t from, uint64_t to, void*) {
  // Host calls are none of the guest's business. The same address: the APIC was looked at, nothing else happened.
  if (type == QEMU_PLUGIN_DISCON_HOSTCALL || from == to) return;
  Cpu& c = plugin->running();
  plugin->clock.interruption(plugin->counters.begun, static_cast<uint64_t>(icount_get()));
  if (!c.follower.follows()) return;
  Interruption i{from, {}, {}};
  const bool exception = type == QEMU_PLUGIN_DISCON_EXCEPTION;
  if (c.unit.ctl() & kEventEn) {
    i.vector = vector_of(c, to);
    if (i.vector == 14) i.fault_address = c.regs.get(kCr2);
  }
  c.follower.interruption(i, place(c, to), exception, c.begun, plugin->tsc());
  plugin->after(c);
}

// Before the instruction that follows STI, CLI or POPF.
void on_flags(unsigned, void* data) {
  Cpu& c = plugin->running();
  if (!c.events) return;  // another CPU wants it
  const auto& s = *static_cast<const Special*>(data);
  c.follower.interrupt_flag(place(c, c.follower.ip() + s.offset() + s.size()), plugin->tsc());
  plugin->after(c);
}

void on_sleep(unsigned, void* data) {
  Cpu& c = plugin->running();
  if (!c.follower.follows()) return;
  const auto& s = *static_cast<const Special*>(data);
  const bool mwait = s.kind.kind == Insn::kMwait;
  c.follower.sleep(mwait ? Sleep::kMwait : Sleep::kHlt, c.follower.ip() + s.offset(),
                   mwait ? static_cast<uint32_t>(c.regs.get(kRax)) : 0,
                   mwait ? static_cast<uint32_t>(c.regs.get(kRcx)) : 0, plugin->tsc());
  plugin->after(c);
}

void on_mov_cr3(unsigned, void* data) {
  Cpu& c = plugin->running();
  c.follower.mov_cr3(c.regs.get(static_cast<const Special*>(data)->kind.reg));
}

void on_lidt(unsigned, qemu_plugin_meminfo_t info, uint64_t address, void*) {
  if (qemu_plugin_mem_size_shift(info) != 1) return;  // the limit; the base follows it
  Cpu& c = plugin->running();
  read_guest(address + 2, &c.idt_base, sizeof c.idt_base);
  c.vectors.clear();
}

}  // namespace asof::pt
