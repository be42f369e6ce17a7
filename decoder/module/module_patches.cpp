#include "decoder/module/module_patches.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "decoder/io/reader.h"

namespace asof {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint8_t kCall = 0xe8, kJump32 = 0xe9, kJump8 = 0xeb, kSegmentPrefix = 0x2e;
const Bytes kNop5 = {0x0f, 0x1f, 0x44, 0x00, 0x00}, kNop2 = {0x66, 0x90},
            kReturn = {0xc3, 0xcc, 0xcc, 0xcc, 0xcc};
// ENDBR64, and what sealed ones become (gen_endbr_poison()) in kernels up to 6.15 and from 6.16 on.
const std::array<Bytes, 3> kEndbr = {
    Bytes{0xf3, 0x0f, 0x1e, 0xfa}, {0x66, 0x0f, 0x1f, 0x00}, {0x0f, 0x1f, 0x40, 0xd6}};

class PatchFinder {
 public:
  PatchFinder(const ModuleElf& elf, const ModuleLayout& layout, const ModuleContext& context)
      : elf_(elf), layout_(layout), context_(context) {
    if (context.symbols == nullptr) return;
    for (const char* tracer : {"ftrace_caller", "ftrace_regs_caller"}) {
      if (const auto at = kernel(tracer)) tracers_.push_back(*at);
    }
    for (const KernelSymbol* s : context.symbols->of_module("__builtin__ftrace")) tracers_.push_back(s->addr);
  }

  // Empty: all is understood.
  std::string run() {
    if (has("__cfi_sites") || has(".cfi_sites")) return "it is built with kernel control-flow integrity";
    if (!alternatives()) return "its .altinstructions have an unknown format";
    fixed(".parainstructions", 16, 9);
    if (context_.one_cpu) each(".smp_locks", [&](size_t s, uint64_t at) { add(s, at, 1, {}); });
    for (const char* calls : {".retpoline_sites", ".static_call_sites", ".call_sites"})
      each(calls, [&](size_t s, uint64_t at) { add(s, at, branch_size(s, at), {}); });
    each(".ibt_endbr_seal", [&](size_t s, uint64_t at) { add(s, at, 4, {kEndbr.begin(), kEndbr.end()}); });
    each(".return_sites", [&](size_t s, uint64_t at) { add(s, at, 5, returns(s, at)); });
    each("__mcount_loc", [&](size_t s, uint64_t at) { add(s, at, 5, tracer_calls(s, at)); });
    jump_labels();
    return {};
  }
  std::vector<ModulePatch> take() { return std::move(out_); }

 private:
  bool has(std::string_view name) const {
    const size_t i = elf_.find(name);
    return i < elf_.sections().size() && elf_.sections()[i].size != 0;
  }
  uint8_t byte(size_t section, uint64_t at) const {
    const auto bytes = elf_.sections()[section].bytes;
    return at < bytes.size() ? bytes[at] : 0;
  }
  // CALL and JMP rel32, Jcc rel32, with the prefix that pads them.
  uint64_t branch_size(size_t section, uint64_t at) const {
    const uint64_t prefix = byte(section, at) == kSegmentPrefix ? 1 : 0;
    return prefix + (byte(section, at + prefix) == 0x0f ? 6 : 5);
  }

  void add(size_t section, uint64_t offset, uint64_t size, std::vector<Bytes> variants) {
    const uint64_t end = elf_.sections()[section].bytes.size();
    if (offset >= end || size == 0) return;
    if (size > end - offset) {
      size = end - offset;
      variants.clear();
    }
    out_.push_back({section, offset, size, std::move(variants)});
  }

  // The site that a relocation refers to, as section and offset: what the kernel's lists hold is relative to
  // themselves or absolute, and in the file both are in the relocation alone.
  bool place(const ModuleRelocation& r, size_t& section, uint64_t& offset) const {
    if (r.symbol >= elf_.symbols().size()) return false;
    const ModuleSymbol& s = elf_.symbols()[r.symbol];
    if (s.section == 0 || s.section >= elf_.sections().size() || !elf_.sections()[s.section].is_text())
      return false;
    section = s.section;
    offset = s.value + static_cast<uint64_t>(r.addend);
    return true;
  }
  template <class Visit>
  void each(std::string_view list, Visit visit) {
    const size_t index = elf_.find(list);
    if (index >= elf_.sections().size()) return;
    size_t section = 0;
    uint64_t offset = 0;
    for (const ModuleRelocation& r : elf_.relocations(index)) {
      if (place(r, section, offset)) visit(section, offset);
    }
  }
  // Entries whose first field is the site and whose byte `length_at` is its length.
  void fixed(std::string_view list, uint64_t entry, uint64_t length_at) {
    const size_t index = elf_.find(list);
    if (index >= elf_.sections().size()) return;
    size_t section = 0;
    uint64_t offset = 0;
    for (const ModuleRelocation& r : elf_.relocations(index)) {
      if (r.offset % entry == 0 && place(r, section, offset))
        add(section, offset, byte(index, r.offset + length_at), {});
    }
  }
  // struct alt_instr: two addresses, then a feature and two lengths; 12 bytes, with a padding length 13,
  // since 6.3 with wider flags 14. The distance of entries shows which.
  bool alternatives() {
    const size_t index = elf_.find(".altinstructions");
    if (index >= elf_.sections().size() || elf_.sections()[index].size == 0) return true;
    const auto list = elf_.relocations(index);
    if (list.size() < 2) return false;
    const uint64_t entry = list.size() > 2 ? list[2].offset - list[0].offset : elf_.sections()[index].size;
    if (entry < 12 || entry > 14 || list.size() * entry != 2 * elf_.sections()[index].size) return false;
    fixed(".altinstructions", entry, entry == 14 ? 12 : 10);
    return true;
  }

  std::optional<Bytes> branch(uint8_t opcode, size_t section, uint64_t at, std::optional<Addr> target) const {
    const auto begin = layout_.section(section);
    if (!begin || !target) return std::nullopt;
    const uint64_t size = opcode == kJump8 ? 2 : 5;
    const uint64_t d = *target - (*begin + at + size);
    Bytes out = {opcode};
    for (uint64_t i = 1; i < size; ++i) out.push_back(static_cast<uint8_t>(d >> (8 * (i - 1))));
    return out;
  }
  std::optional<Addr> kernel(std::string_view name) const {
    return context_.symbols == nullptr ? std::nullopt : context_.symbols->find(name);
  }

  // apply_returns(): RET, or a jump to whichever thunk the machine needs. Without kallsyms not all of them
  // are known.
  std::vector<Bytes> returns(size_t section, uint64_t at) const {
    if (context_.symbols == nullptr || byte(section, at) != kJump32) return {};
    std::vector<Bytes> out = {kReturn};
    for (const char* thunk : {"__x86_return_thunk", "retbleed_return_thunk", "srso_return_thunk",
                              "srso_alias_return_thunk", "call_depth_return_thunk", "its_return_thunk"}) {
      if (const auto jump = branch(kJump32, section, at, kernel(thunk))) out.push_back(*jump);
    }
    return out;
  }
  // ftrace_init_nop(), and a tracer that was on before the recording began.
  std::vector<Bytes> tracer_calls(size_t section, uint64_t at) const {
    if (byte(section, at) != kCall && byte(section, at) != kNop5[0]) return {};
    if (context_.symbols == nullptr || tracers_.size() > kMostTracers) return {};
    std::vector<Bytes> out = {kNop5};
    for (const Addr tracer : tracers_) {
      if (const auto call = branch(kCall, section, at, tracer)) out.push_back(*call);
    }
    return out;
  }
  // __jump_table: site, target, key.
  void jump_labels() {
    const size_t index = elf_.find("__jump_table");
    if (index >= elf_.sections().size()) return;
    constexpr uint64_t kEntry = 16, kTarget = 4;
    const auto list = elf_.relocations(index);
    for (size_t i = 0; i + 1 < list.size(); ++i) {
      size_t section = 0, to = 0;
      uint64_t offset = 0, target = 0;
      if (list[i].offset % kEntry != 0 || list[i + 1].offset != list[i].offset + kTarget) continue;
      if (!place(list[i], section, offset) || !place(list[i + 1], to, target)) continue;
      const uint8_t first = byte(section, offset);
      const bool is_short = first == kJump8 || first == kNop2[0];
      const bool is_long = first == kJump32 || first == kNop5[0];
      const auto begin = layout_.section(to);
      std::vector<Bytes> variants;
      const auto jump = branch(is_short ? kJump8 : kJump32, section, offset,
                               begin ? std::optional(*begin + target) : std::nullopt);
      if (jump && (is_short || is_long)) variants = {is_short ? kNop2 : kNop5, *jump};
      add(section, offset, is_short ? 2 : 5, std::move(variants));
    }
  }

  static constexpr size_t kMostTracers = 8;  // with more candidates a site counts as unknown
  const ModuleElf& elf_;
  const ModuleLayout& layout_;
  const ModuleContext& context_;
  std::vector<Addr> tracers_;  // what a call at a function's entry may lead to
  std::vector<ModulePatch> out_;
};

}  // namespace

Result<std::vector<ModulePatch>> module_patches(const ModuleElf& elf, const ModuleLayout& layout,
                                                const ModuleContext& context, const std::string& path) {
  PatchFinder finder(elf, layout, context);
  if (const std::string why = finder.run(); !why.empty())
    return fail(Code::kModuleFileMismatch, path, Error::kNoOffset, why, "record with perf record --kcore");
  return finder.take();
}

}  // namespace asof
