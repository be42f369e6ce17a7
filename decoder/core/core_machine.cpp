// One function per structure names its fields once, for both directions.
#include "decoder/core/core_machine.h"

#include <type_traits>

namespace asof::core {
namespace {

struct Putter {
  Writer& w;
  template <class T>
  void number(const T& v) {
    if constexpr (std::is_signed_v<T>)
      w.signed_varint(v);
    else
      w.varint(static_cast<uint64_t>(v));
  }
  void text(const std::string& s) { w.text(s); }
  template <class T, class Each>
  void list(const std::vector<T>& v, Each each) {
    w.varint(v.size());
    for (const T& one : v) each(one);
  }
  template <class T, class Each>
  void maybe(const std::optional<T>& v, Each each) {
    w.u8(v ? 1 : 0);
    if (v) each(*v);
  }
};

struct Taker {
  Source& in;
  template <class T>
  void number(T& v) {
    if constexpr (std::is_signed_v<T>)
      v = static_cast<T>(in.signed_varint());
    else
      v = static_cast<T>(in.varint());
  }
  void text(std::string& s) { s = in.text(); }
  template <class T, class Each>
  void list(std::vector<T>& v, Each each) {
    for (uint64_t i = 0, n = in.count(); i < n && in.ok(); ++i) each(v.emplace_back());
  }
  template <class T, class Each>
  void maybe(std::optional<T>& v, Each each) {
    if (in.u8() != 0) each(v.emplace());
  }
};

template <class F, class R>
void range(F& f, R& r) {
  f.number(r.begin);
  f.number(r.end);
}

template <class F, class B>
void bounds(F& f, B& b) {
  f.number(b.lo);
  f.number(b.hi);
}

template <class F, class C>
void conversion(F& f, C& c) {
  f.number(c.shift);
  f.number(c.mult);
  f.number(c.zero);
  f.number(c.cycles);
  f.number(c.mask);
  f.number(c.cap_short);
}

template <class F, class C>
void x86_config(F& f, C& c) {
  f.number(c.cpu.intel);
  f.number(c.cpu.family);
  f.number(c.cpu.model);
  f.number(c.cpu.stepping);
  f.number(c.mtc_freq);
  f.number(c.tsc_ctc_n);
  f.number(c.tsc_ctc_d);
  f.number(c.max_nonturbo);
  f.number(c.has_cyc);
  f.number(c.guest_text);
  f.number(c.no_tnt);
  f.number(c.no_ret_compression);
  f.number(c.no_branches);
  f.number(c.cr3_filter);
  f.list(c.filter, [&](auto& r) { range(f, r); });
  f.maybe(c.time, [&](auto& t) { conversion(f, t); });
  f.number(c.perf_event_text_poke);
  f.number(c.do_sync_core);
}

template <class F, class S>
void arm64_source(F& f, S& s) {
  f.number(s.protocol);
  f.number(s.trace_id);
  f.number(s.armv7);
  f.number(s.m_profile);
  for (auto* reg : {&s.configr, &s.traceidr, &s.idr0, &s.idr1, &s.idr2, &s.idr8, &s.idr9, &s.idr10, &s.idr11,
                    &s.idr12, &s.idr13, &s.devarch, &s.etmcr, &s.etmidr, &s.etmccer})
    f.number(*reg);
}

template <class F, class C>
void arm64_config(F& f, C& c) {
  f.list(c.sources, [&](auto& s) { arm64_source(f, s); });
  f.maybe(c.time, [&](auto& t) { conversion(f, t); });
  f.number(c.time_error);
  f.number(c.unrecorded_changes);
  range(f, c.complete_text);
  f.number(c.patch_text_cb);
}

template <class F, class C>
void code_map(F& f, C& c) {
  f.list(c.files, [&](auto& file) {
    f.text(file.path);
    f.text(file.recorded);
    f.text(file.build_id);
  });
  f.list(c.mappings, [&](auto& m) {
    f.number(m.space);
    range(f, m.range);
    f.number(m.from);
    f.number(m.until);
    f.number(m.file);
    f.number(m.slide);
    f.number(m.rank);
  });
  f.list(c.debug_dirs, [&](auto& s) { f.text(s); });
  f.list(c.caches, [&](auto& s) { f.text(s); });
}

template <class F, class C>
void code(F& f, C& c) {
  code_map(f, c.code);
  f.list(c.copies, [&](auto& copy) {
    f.number(copy.kind);
    f.text(copy.name);
    range(f, copy.range);
    bounds(f, copy.time);
  });
  f.list(c.modules, [&](auto& m) {
    f.text(m.name);
    range(f, m.range);
    f.number(m.from);
    f.number(m.until);
    bounds(f, m.seen);
  });
}

}  // namespace

void put_machine(Writer& out, const Capture& c) {
  Putter f{out};
  x86_config(f, c.x86);
  arm64_config(f, c.arm64);
  if (c.x86.event_trace) f.number(c.x86.event_trace);  // cores made before it end here
}

void take_machine(Source& in, Capture& c) {
  Taker f{in};
  x86_config(f, c.x86);
  arm64_config(f, c.arm64);
  if (in.ok() && in.left() != 0) f.number(c.x86.event_trace);
  // What a shift by them would need.
  for (const auto* time : {&c.x86.time, &c.arm64.time}) {
    if (*time && (*time)->shift > 63) in.take(UINT64_MAX);
  }
  if (c.x86.mtc_freq > 15) in.take(UINT64_MAX);
  for (const arm64::Source& s : c.arm64.sources) {
    if (s.protocol > arm64::Protocol::kPtm) in.take(UINT64_MAX);
  }
}

void put_code(Writer& out, const Capture& c) {
  Putter f{out};
  code(f, c);
}

void take_code(Source& in, Capture& c) {
  Taker f{in};
  code(f, c);
  for (const CodeMapping& m : c.code.mappings) {
    if (m.file >= c.code.files.size()) in.take(UINT64_MAX);
  }
  for (const TextCopy& copy : c.copies) {
    if (copy.kind > OriginKind::kPoke) in.take(UINT64_MAX);
  }
}

}  // namespace asof::core
