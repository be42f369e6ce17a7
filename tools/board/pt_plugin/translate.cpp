// What is asked of translated code.
#include <cstring>

#include "tools/board/pt_plugin/plugin.h"

namespace asof::pt {

CodeTable::CodeTable(const std::string& path) : file_(std::fopen(path.c_str(), "wb")) {
  if (file_ == nullptr) die("cannot create the log of code");
  std::setvbuf(file_.get(), nullptr, _IOFBF, 1 << 20);
}

CodeTable::Entry& CodeTable::find(uint64_t address, std::span<const uint8_t> sizes,
                                  std::span<const uint8_t> bytes) {
  std::string key(reinterpret_cast<const char*>(&address), sizeof address);
  key.append(sizes.begin(), sizes.end());
  key.append(bytes.begin(), bytes.end());
  auto& entry = entries_[key];
  if (entry == nullptr) {
    entry = std::make_unique<Entry>();
    add(*entry, address, sizes, bytes);
  }
  return *entry;
}

void CodeTable::add(Entry& e, uint64_t address, std::span<const uint8_t> sizes,
                    std::span<const uint8_t> bytes) {
  CodeBlock& block = e.block;
  block.address = address;
  block.number = static_cast<uint32_t>(entries_.size() - 1);
  const machine::CodeHead head{address, block.number, static_cast<uint32_t>(sizes.size())};
  if (std::fwrite(&head, sizeof head, 1, file_.get()) != 1 ||
      std::fwrite(sizes.data(), 1, sizes.size(), file_.get()) != sizes.size() ||
      std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) != bytes.size()) {
    die("cannot write the log of code");
  }
  uint16_t offset = 0;
  block.offsets.reserve(sizes.size() + 1);
  for (unsigned i = 0; i < sizes.size(); ++i) {
    const auto insn = bytes.subspan(offset, sizes[i]);
    const InsnClass kind = classify(insn);
    block.offsets.push_back(offset);
    block.last = kind;
    if (kind.kind != Insn::kPlain && kind.kind != Insn::kBranch) {
      e.specials.push_back(std::make_unique<Special>(
          Special{&block, i, kind, std::vector<uint8_t>(insn.begin(), insn.end())}));
    }
    offset = static_cast<uint16_t>(offset + sizes[i]);
  }
  block.offsets.push_back(offset);
}

namespace {

void call(qemu_plugin_insn* insn, qemu_plugin_vcpu_cb cb, qemu_plugin_cb_flags flags, Special& s) {
  qemu_plugin_register_vcpu_insn_exec_cb(insn, cb, flags, &s);
}

void call_if(uint64_t Inline::*member, qemu_plugin_insn* insn, qemu_plugin_vcpu_cb cb,
             qemu_plugin_cb_flags flags, void* data) {
  qemu_plugin_register_vcpu_insn_exec_cond_cb(insn, cb, flags, QEMU_PLUGIN_COND_NE, plugin->cell(member), 0,
                                              data);
}

// Does it go on at another instruction than the emulator would, so that its address must be known?
bool moves(const Special& s) {
  return s.kind.kind == Insn::kWrmsr || s.kind.kind == Insn::kRdmsr || s.kind.kind == Insn::kRdpmc ||
         s.kind.kind == Insn::kPtwrite;
}

// Returns whether its results are looked at before the next instruction.
bool add_special(qemu_plugin_insn* insn, Special& s) {
  switch (s.kind.kind) {
    case Insn::kCpuid:
      call(insn, on_cpuid, QEMU_PLUGIN_CB_R_REGS, s);
      return true;
    case Insn::kRdtsc:
      call(insn, on_rdtsc, QEMU_PLUGIN_CB_R_REGS, s);
      return true;
    case Insn::kRdpmc:
      call(insn, on_rdpmc, QEMU_PLUGIN_CB_RW_REGS_PC, s);
      return false;
    case Insn::kRdmsr:
      call(insn, on_rdmsr, QEMU_PLUGIN_CB_RW_REGS_PC, s);
      return false;
    case Insn::kWrmsr:
      call(insn, on_wrmsr, QEMU_PLUGIN_CB_RW_REGS_PC, s);
      return false;
    case Insn::kPtwrite:
      call(insn, on_ptwrite, QEMU_PLUGIN_CB_RW_REGS_PC, s);
      return false;
    case Insn::kMovCr3:
      call(insn, on_mov_cr3, QEMU_PLUGIN_CB_R_REGS, s);
      return false;
    case Insn::kHlt:
    case Insn::kMwait:
      call(insn, on_sleep, QEMU_PLUGIN_CB_R_REGS, s);
      return false;
    case Insn::kLidt:
      qemu_plugin_register_vcpu_mem_cb(insn, on_lidt, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_R, nullptr);
      return false;
    default:
      return false;
  }
}

void add_block(qemu_plugin_tb* tb, CodeTable::Entry& e) {
  bool needs_ip = false;
  for (const auto& s : e.specials) needs_ip = needs_ip || moves(*s);
  if (needs_ip) qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block_ip, QEMU_PLUGIN_CB_R_REGS, &e.block);
  if (plugin->following()) {
    qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, QEMU_PLUGIN_CB_R_REGS, &e.block);
  } else {
    qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_ADD_U64,
                                                      plugin->cell(&Inline::begun), e.block.count());
  }
}

}  // namespace

void on_translate(qemu_plugin_tb* tb, void*) {
  const size_t n = qemu_plugin_tb_n_insns(tb);
  static std::vector<uint8_t> sizes, bytes;
  sizes.resize(n);
  bytes.clear();
  for (size_t i = 0; i < n; ++i) {
    qemu_plugin_insn* insn = qemu_plugin_tb_get_insn(tb, i);
    sizes[i] = static_cast<uint8_t>(qemu_plugin_insn_size(insn));
    bytes.resize(bytes.size() + sizes[i]);
    qemu_plugin_insn_data(insn, bytes.data() + bytes.size() - sizes[i], sizes[i]);
  }
  CodeTable::Entry& e = plugin->code.find(qemu_plugin_tb_vaddr(tb), sizes, bytes);
  add_block(tb, e);
  bool patch = true;  // the instruction before this block may want it
  Special* flags = nullptr;
  auto next = e.specials.begin();
  for (unsigned i = 0; i < n; ++i) {
    qemu_plugin_insn* insn = qemu_plugin_tb_get_insn(tb, i);
    if (plugin->following()) {
      qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, QEMU_PLUGIN_INLINE_ADD_U64,
                                                          plugin->cell(&Inline::begun), 1);
    }
    if (patch) call_if(&Inline::patches, insn, on_after, QEMU_PLUGIN_CB_RW_REGS, nullptr);
    if (flags != nullptr) call_if(&Inline::events, insn, on_flags, QEMU_PLUGIN_CB_R_REGS, flags);
    patch = false;
    flags = nullptr;
    if (next == e.specials.end() || (*next)->index != i) continue;
    Special& s = **next++;
    patch = add_special(insn, s);
    if (s.kind.kind == Insn::kFlags) flags = &s;
  }
}

}  // namespace asof::pt
