#include "decoder/patch_sites/x86_catalogue.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <vector>

namespace asof {
namespace {

constexpr size_t kEntrySize = 16;  // s32 code, s32 target, s64 key; each relative to its own address
constexpr std::array<uint8_t, 2> kNop2 = {0x66, 0x90};
constexpr std::array<uint8_t, 5> kNop5 = {0x0f, 0x1f, 0x44, 0x00, 0x00};
constexpr uint8_t kCall = 0xe8, kInt3 = 0xcc;
constexpr Addr kEndbrSize = 4;
constexpr size_t kMaxTracers = 8;  // besides the no-op; a machine has few

int32_t signed_at(std::span<const uint8_t> bytes, size_t at) {
  int32_t v = 0;
  std::memcpy(&v, bytes.data() + at, sizeof v);
  return v;
}

// JMP rel8 or rel32; empty: too far for its size.
std::vector<uint8_t> jump(Addr from, Addr to, size_t size) {
  const auto distance = static_cast<int64_t>(to - from - size);
  if (size == 2) {
    if (distance < INT8_MIN || distance > INT8_MAX) return {};
    return {0xeb, static_cast<uint8_t>(distance)};
  }
  if (distance < INT32_MIN || distance > INT32_MAX) return {};
  std::vector<uint8_t> out = {0xe9};
  for (unsigned i = 0; i < 4; ++i) out.push_back(static_cast<uint8_t>(distance >> (8 * i)));
  return out;
}

// What else the jump label whose present bytes begin `now` can hold; nothing: it is no jump label (init text
// that was freed, an address that holds something else). A copy can have caught the INT3 of a poke: then
// both.
std::vector<std::vector<uint8_t>> other_states(std::span<const uint8_t> now, Addr code, Addr target) {
  const auto begins = [&](std::span<const uint8_t> b, bool poked) {
    return now.size() >= b.size() && (poked ? now[0] == kInt3 : now[0] == b[0]) &&
           std::equal(b.begin() + 1, b.end(), now.begin() + 1);
  };
  for (const std::span<const uint8_t> nop :
       {std::span<const uint8_t>(kNop2), std::span<const uint8_t>(kNop5)}) {
    const std::vector<uint8_t> on = jump(code, target, nop.size()), off(nop.begin(), nop.end());
    if (on.empty()) continue;
    if (begins(off, false)) return {on};
    if (begins(on, false)) return {off};
    if (begins(off, true) || begins(on, true)) return {on, off};
  }
  return {};
}

// Collects sites; the bytes they can hold live as long as the store.
class CandidateSites {
 public:
  CandidateSites(const KernelSnapshot& copy, Builder& builder, const char* name, bool always)
      : copy_(copy), builder_(builder), always_(always) {
    origin_ = builder.add_origin({.kind = OriginKind::kRaw, .name = name, .id = 0, .build_id = {}});
    builder.keep(states_);
  }
  // What the copy shows at `addr`, as far as a site can extend; empty: it is no text.
  std::span<const uint8_t> now(Addr addr) const {
    const auto* piece = copy_.text_at(range_of(addr, kNop5.size()));
    if (piece == nullptr) return {};
    return piece->bytes.subspan(addr - piece->range.begin, kNop5.size());
  }
  void add(Addr addr, std::vector<uint8_t> other) {
    states_->push_back(std::move(other));
    const std::span<const uint8_t> bytes = states_->back();
    builder_.add_site(
        {.range = range_of(addr, bytes.size()), .bytes = bytes, .origin = origin_, .always = always_});
  }

 private:
  const KernelSnapshot& copy_;
  Builder& builder_;
  bool always_;
  OriginRef origin_;
  std::shared_ptr<std::deque<std::vector<uint8_t>>> states_ =
      std::make_shared<std::deque<std::vector<uint8_t>>>();
};

void add_jump_labels(const JumpTable& table, CandidateSites& sites) {
  Addr last = 0;
  for (size_t at = 0; at + kEntrySize <= table.bytes.size(); at += kEntrySize) {
    const Addr entry = table.begin + at;
    const Addr code = entry + static_cast<uint64_t>(int64_t{signed_at(table.bytes, at)});
    const Addr target = entry + 4 + static_cast<uint64_t>(int64_t{signed_at(table.bytes, at + 4)});
    if (code == last) continue;
    for (std::vector<uint8_t>& other : other_states(sites.now(code), code, target)) {
      last = code;
      sites.add(code, std::move(other));
    }
  }
}

std::vector<uint8_t> call(Addr from, Addr to) {
  std::vector<uint8_t> out = jump(from, to, kNop5.size());
  if (!out.empty()) out[0] = kCall;
  return out;
}

bool is_nop5(std::span<const uint8_t> bytes) { return std::ranges::equal(bytes, kNop5); }
bool is_call(std::span<const uint8_t> bytes) { return bytes.size() == kNop5.size() && bytes[0] == kCall; }

// What pokes made function entries call (arch/x86/kernel/ftrace.c: ftrace_caller, ftrace_regs_caller,
// trampolines).
std::vector<Addr> tracers(const std::vector<Poke>& pokes) {
  std::vector<Addr> out;
  const auto take = [&](const Poke& p, std::span<const uint8_t> bytes) {
    const Addr target = p.addr + kNop5.size() + static_cast<uint64_t>(int64_t{signed_at(bytes, 1)});
    if (out.size() < kMaxTracers && std::ranges::find(out, target) == out.end()) out.push_back(target);
  };
  for (const Poke& p : pokes) {
    if (is_nop5(p.old_bytes) && is_call(p.new_bytes)) take(p, p.new_bytes);
    if (is_call(p.old_bytes) && is_nop5(p.new_bytes)) take(p, p.old_bytes);
  }
  return out;
}

// Entries that were not poked but could have been: those that begin with the no-op, or a call of a tracer
// (after an ENDBR64, where there is one).
void add_function_entries(const Kallsyms& names, const std::vector<Addr>& tracers, CandidateSites& sites) {
  for (const KernelSymbol& symbol : names.symbols()) {
    if (!symbol.is_code() || symbol.is_generated()) continue;
    for (const Addr entry : {symbol.addr, symbol.addr + kEndbrSize}) {
      const std::span<const uint8_t> now = sites.now(entry);
      const bool traced = std::ranges::any_of(
          tracers, [&](Addr tracer) { return std::ranges::equal(now, call(entry, tracer)); });
      if (!is_nop5(now) && !traced) continue;
      if (traced) sites.add(entry, {kNop5.begin(), kNop5.end()});
      for (const Addr tracer : tracers) {
        std::vector<uint8_t> other = call(entry, tracer);
        if (!other.empty() && !std::ranges::equal(now, other)) sites.add(entry, std::move(other));
      }
      break;
    }
  }
}

}  // namespace

void add_x86_catalogue(const KernelText& kernel, const SideBand& side, const TextFile* vmlinux, bool always,
                       Builder& builder, NoticeBook& notices) {
  if (!always && side.lost.empty()) return;
  const KernelSnapshot* copy = kernel.start();
  if (copy == nullptr) {
    if (always)
      notices.info(Code::kCatalogueWithoutJumpLabels, "catalogue",
                   "without a copy of kcore the sites that may change are not known");
    return;
  }
  if (const auto table = find_jump_table(kernel, vmlinux)) {
    CandidateSites sites(*copy, builder, "catalogue of jump labels", always);
    add_jump_labels(*table, sites);
  } else if (always) {
    notices.info(Code::kCatalogueWithoutJumpLabels, "catalogue",
                 "the kernel's jump table is neither in the copy of kcore nor in a vmlinux that was given",
                 "give the vmlinux with its symbols: --vmlinux");
  }
  if (side.lost.empty() || copy->kallsyms() == nullptr) return;
  const std::vector<Addr> calls = tracers(side.pokes);
  if (calls.empty()) return;
  CandidateSites sites(*copy, builder, "catalogue of function entries", false);
  add_function_entries(*copy->kallsyms(), calls, sites);
}

}  // namespace asof
