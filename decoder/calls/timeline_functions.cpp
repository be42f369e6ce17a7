#include "decoder/calls/timeline_functions.h"

#include <fmt/format.h>

#include <algorithm>

#include "decoder/calls/call_stack.h"
#include "decoder/calls/switcher.h"
#include "decoder/model/function_text.h"

namespace asof {
namespace {

using Kind = TimelineFunction::Kind;

// kernel/kprobes.c, kernel/trace/ftrace.c, kernel/bpf: names of KSYMBOL records.
Kind kind_of(const Symbol& s) {
  const std::string_view n = s.name;
  if (n.starts_with("bpf_prog_")) return Kind::kBpf;
  if (n.starts_with("bpf_trampoline_") || n.starts_with("bpf_dispatcher_") ||
      n.starts_with("ftrace_trampoline"))
    return Kind::kTrampoline;
  if (n.starts_with("kprobe_insn_page") || n.starts_with("kprobe_optinsn_page")) return Kind::kSlot;
  if (!is_kernel_address(s.range.begin)) return Kind::kUser;
  return s.dso.starts_with("[kernel") || s.dso.find("vmlinux") != std::string::npos ? Kind::kKernel
                                                                                    : Kind::kModule;
}

// "foo" of "foo.cold" and "foo.cold.7"; empty for others.
std::string_view hot_part(std::string_view name) {
  const size_t at = name.find(".cold");
  return at == std::string_view::npos ? std::string_view() : name.substr(0, at);
}

}  // namespace

FunctionTable::FunctionTable(const Capture& capture, Announce announce)
    : capture_(capture), announce_(std::move(announce)) {
  TimelineFunction untraced;
  untraced.kind = Kind::kUntraced;
  untraced.name = "(not traced)";
  add(std::move(untraced), nullptr);
  switcher_ = stack_switcher(capture);
}

void FunctionTable::fill_bpf(TimelineFunction& f, const Symbol* symbol) const {
  if (f.kind != Kind::kBpf) return;
  for (const BpfProgram& p : capture_.bpf_programs) {
    const bool here =
        std::ranges::any_of(p.functions, [&](const AddrRange& r) { return r.contains(f.range.begin); });
    if (!here || p.loaded > symbol->until || p.unloaded < symbol->from) continue;
    f.bpf_id = p.id;
    f.bpf_tag = p.tag;
  }
}

uint32_t FunctionTable::add(TimelineFunction f, const Symbol* symbol) {
  f.id = static_cast<uint32_t>(functions_.size());
  if (symbol != nullptr) f.key = symbol->number;
  Traits t;
  t.kernel = f.kind != Kind::kUntraced && is_kernel_address(f.range.begin);
  t.jump_thunk = f.name.starts_with("__x86_indirect_") && f.name.find("_thunk_") != std::string::npos;
  t.return_thunk = f.name == "__x86_return_thunk" || f.name.ends_with("_return_thunk");
  t.slot = f.kind == Kind::kSlot;
  if (symbol != nullptr) fill_bpf(f, symbol);
  t.changes = !f.changes.empty();
  functions_.push_back(std::move(f));
  traits_.push_back(t);
  symbols_.push_back(symbol);
  announce_(functions_.back());
  return functions_.back().id;
}

FunctionTable::Named FunctionTable::named(const Symbol* symbol) {
  const auto known = by_symbol_.find(symbol);
  if (known != by_symbol_.end()) return known->second;
  if (const std::string_view hot = hot_part(symbol->name); !hot.empty()) {
    const Symbol* whole = nullptr;
    for (const Symbol* s : capture_.symbols.named(hot)) {
      if (s->space == symbol->space && s->dso == symbol->dso) whole = whole == nullptr ? s : symbol;
    }
    if (whole != nullptr && whole != symbol) {
      const Named n{named(whole).id, true, false};
      by_symbol_.emplace(symbol, n);
      return n;
    }
  }
  TimelineFunction f;
  f.kind = kind_of(*symbol);
  f.name = symbol->shown();
  f.linkage_name = symbol->name;
  f.dso = symbol->dso;
  f.space = symbol->space;
  f.range = symbol->range;
  FunctionText text = function_text(capture_, *symbol);
  f.changes = std::move(text.changes);
  const Named n{add(std::move(f), symbol), false, text.landing_pad};
  by_symbol_.emplace(symbol, n);
  return n;
}

uint64_t FunctionTable::unnamed_key(const AddrKey& at) {
  constexpr uint64_t kFirst = TimelineFunction::kUnnamedKey;
  uint64_t key = (at.ip ^ uint64_t{at.space} << 48U) * kHashFactor % kFirst;
  while (!unnamed_keys_.insert(key).second) key = (key + 1) % kFirst;
  return kFirst + key;
}

uint32_t FunctionTable::unnamed(Space space, Addr at) {
  if (is_kernel_address(at)) space = kKernelSpace;
  const auto known = by_address_.find(AddrKey{space, at});
  if (known != by_address_.end()) return known->second;
  TimelineFunction f;
  f.kind = Kind::kUnnamed;
  f.name = fmt::format("{:#x}", at);
  f.space = space;
  f.range = {at, at};
  f.key = unnamed_key({space, at});
  const uint32_t id = add(std::move(f), nullptr);
  by_address_.emplace(AddrKey{space, at}, id);
  return id;
}

Landing FunctionTable::landing(const Symbol* symbol, Space space, Addr at, OriginRef origin) {
  if (symbol == nullptr) return {unnamed(space, at), at, origin, false};
  const Named n = named(symbol);
  const uint64_t offset = at - symbol->range.begin;
  return {n.id, at, origin, !n.part && (offset == 0 || (n.pad && offset == kLandingPad))};
}

uint32_t FunctionTable::version_at(uint32_t id, Time t) const {
  const auto& changes = functions_[id].changes;
  return static_cast<uint32_t>(std::ranges::upper_bound(changes, t) - changes.begin()) + 1;
}

}  // namespace asof
