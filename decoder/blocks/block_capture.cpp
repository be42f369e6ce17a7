#include "decoder/blocks/block_capture.h"

#include <map>
#include <memory>
#include <string>

#include "decoder/blocks/changing_text.h"

namespace asof::blocks {
namespace {

// The trace itself is not in a block stream. Its pieces are, for sizes and offsets that messages name.
class AbsentTrace final : public TraceBytes {
 public:
  explicit AbsentTrace(uint64_t file_offset) : file_offset_(file_offset) {}
  void read(uint64_t, std::span<uint8_t> out) const override { std::ranges::fill(out, uint8_t{0}); }
  uint64_t file_offset(uint64_t at) const override { return file_offset_ + at; }
  void forget(uint64_t, uint64_t) const override {}

 private:
  uint64_t file_offset_;
};

void put_time(Writer& w, Time t) { w.signed_varint(t); }

}  // namespace

void put_stream(Writer& w, const Stream& s) {
  w.text(s.name);
  w.signed_varint(s.cpu);
  w.signed_varint(s.tid);
  put_time(w, s.bounds.lo);
  put_time(w, s.bounds.hi);
  w.varint(s.pieces.size());
  for (const StreamPiece& p : s.pieces) {
    w.varint(p.offset);
    w.varint(p.size());
    w.varint(p.file_offset);
    w.u8(p.discontinuity ? 1 : 0);
  }
  w.varint(s.losses.size());
  for (const StreamLoss& l : s.losses) {
    w.varint(l.offset);
    w.varint(l.bytes ? *l.bytes + 1 : 0);
    put_time(w, l.time);
    w.text(code_text(l.code));
    w.text(l.reason);
  }
  w.varint(s.contexts.size());
  Time last = 0;
  for (const ContextChange& c : s.contexts) {
    w.difference(static_cast<uint64_t>(last), static_cast<uint64_t>(c.time));
    last = c.time;
    w.signed_varint(c.pid);
    w.signed_varint(c.tid);
    w.varint(uint64_t{c.space} << 1U | (c.preempts ? 1U : 0U));
  }
}

Stream take_stream(Source& in) {
  Stream s;
  s.name = in.text();
  s.cpu = static_cast<int32_t>(in.signed_varint());
  s.tid = static_cast<int32_t>(in.signed_varint());
  s.bounds.lo = in.signed_varint();
  s.bounds.hi = in.signed_varint();
  uint64_t end = 0;
  for (uint64_t i = 0, n = in.count(4); i < n && in.ok(); ++i) {
    StreamPiece p;
    p.offset = in.varint();
    p.source_size = in.varint();
    p.file_offset = in.varint();
    p.discontinuity = in.u8() != 0;
    if (p.offset < end || p.source_size > UINT64_MAX - p.offset) {
      in.take(UINT64_MAX);
      break;
    }
    end = p.offset + p.source_size;
    p.source = std::make_shared<AbsentTrace>(p.file_offset);
    s.pieces.push_back(std::move(p));
  }
  for (uint64_t i = 0, n = in.count(5); i < n && in.ok(); ++i) {
    StreamLoss l;
    l.offset = in.varint();
    if (const uint64_t bytes = in.varint(); bytes != 0) l.bytes = bytes - 1;
    l.time = in.signed_varint();
    l.code = in.code();
    l.reason = in.text();
    s.losses.push_back(std::move(l));
  }
  Time last = 0;
  for (uint64_t i = 0, n = in.count(4); i < n && in.ok(); ++i) {
    ContextChange c;
    c.time = last = static_cast<Time>(in.difference(static_cast<uint64_t>(last)));
    c.pid = static_cast<int32_t>(in.signed_varint());
    c.tid = static_cast<int32_t>(in.signed_varint());
    const uint64_t space = in.varint();
    c.space = static_cast<Space>(space >> 1U);
    c.preempts = (space & 1U) != 0;
    s.contexts.push_back(c);
  }
  return s;
}

namespace {

void put_program(Writer& w, const BpfProgram& p) {
  w.varint(p.id);
  w.text(p.tag);
  w.text(p.name);
  put_time(w, p.loaded);
  put_time(w, p.unloaded);
  w.u8(p.has_image ? 1 : 0);
  w.varint(p.functions.size());
  for (const AddrRange& f : p.functions) {
    w.varint(f.begin);
    w.varint(f.size());
  }
}

BpfProgram take_program(Source& in) {
  BpfProgram p;
  p.id = static_cast<uint32_t>(in.varint());
  p.tag = in.text();
  p.name = in.text();
  p.loaded = in.signed_varint();
  p.unloaded = in.signed_varint();
  p.has_image = in.u8() != 0;
  for (uint64_t i = 0, n = in.count(2); i < n && in.ok(); ++i) {
    const Addr begin = in.varint();
    p.functions.push_back(range_of(begin, in.varint()));
  }
  return p;
}

void put_notice(Writer& w, const Notice& n) {
  w.u8(static_cast<uint8_t>(n.severity));
  w.text(code_text(n.code));
  w.text(n.where);
  w.varint(n.offset + 1);
  put_time(w, n.time);
  w.text(n.reason);
  w.text(n.hint);
  w.varint(n.count);
}

Notice take_notice(Source& in) {
  Notice n;
  n.severity = static_cast<Notice::Severity>(std::min<uint8_t>(in.u8(), 2));
  n.code = in.code();
  n.where = in.text();
  n.offset = in.varint() - 1;
  n.time = in.signed_varint();
  n.reason = in.text();
  n.hint = in.text();
  n.count = in.varint();
  return n;
}

}  // namespace

void put_origin(Writer& w, const Origin& o) {
  w.u8(static_cast<uint8_t>(o.kind));
  w.text(o.name);
  w.varint(o.id);
  w.text(o.build_id);
}

Origin take_origin(Source& in) {
  Origin o;
  o.kind = static_cast<OriginKind>(std::min<uint8_t>(in.u8(), static_cast<uint8_t>(OriginKind::kPoke)));
  o.name = in.text();
  o.id = in.varint();
  o.build_id = in.text();
  return o;
}

void put_head(Writer& w, const Capture& c) {
  for (const std::string* s :
       {&c.kind, &c.machine, &c.hostname, &c.os_release, &c.cpu_desc, &c.cpu_id, &c.command_line})
    w.text(*s);
  const bool has_time = c.x86.time || c.arm64.time || c.has_time;
  w.u8(static_cast<uint8_t>((c.exclude_kernel ? 1 : 0) | (c.exclude_user ? 2 : 0) | (has_time ? 4 : 0)));
}

void take_head(Source& in, Capture& c) {
  for (std::string* s :
       {&c.kind, &c.machine, &c.hostname, &c.os_release, &c.cpu_desc, &c.cpu_id, &c.command_line})
    *s = in.text();
  const uint8_t flags = in.u8();
  c.exclude_kernel = (flags & 1) != 0;
  c.exclude_user = (flags & 2) != 0;
  c.has_time = (flags & 4) != 0;
}

void put_tables(Writer& w, const Capture& c) {
  w.varint(c.record_counts.size());
  for (const auto& [type, count] : c.record_counts) {
    w.varint(type);
    w.varint(count);
  }
  w.varint(c.bpf_programs.size());
  for (const BpfProgram& p : c.bpf_programs) put_program(w, p);
  w.varint(c.notices.size());
  for (const Notice& n : c.notices) put_notice(w, n);
  uint64_t comms = 0;
  c.tasks.for_each([&](int32_t, const TaskTable::Comm&) { ++comms; });
  w.varint(comms);
  c.tasks.for_each([&](int32_t tid, const TaskTable::Comm& comm) {
    w.signed_varint(comm.pid);
    w.signed_varint(tid);
    put_time(w, comm.from);
    w.text(comm.comm);
  });
}

void take_tables(Source& in, Capture& c) {
  for (uint64_t i = 0, n = in.count(2); i < n && in.ok(); ++i) {
    const auto type = static_cast<uint32_t>(in.varint());
    c.record_counts[type] = in.varint();
  }
  for (uint64_t i = 0, n = in.count(7); i < n && in.ok(); ++i) c.bpf_programs.push_back(take_program(in));
  for (uint64_t i = 0, n = in.count(8); i < n && in.ok(); ++i) c.notices.push_back(take_notice(in));
  for (uint64_t i = 0, n = in.count(4); i < n && in.ok(); ++i) {
    const auto pid = static_cast<int32_t>(in.signed_varint());
    const auto tid = static_cast<int32_t>(in.signed_varint());
    const Time from = in.signed_varint();
    c.tasks.add_comm(pid, tid, from, in.text());
  }
  c.tasks.finish();
}

void put_range(Writer& w, const AddrRange& r) {
  w.varint(r.begin);
  w.difference(r.begin, r.end);
}

AddrRange take_range(Source& in) {
  AddrRange r;
  r.begin = in.varint();
  r.end = in.difference(r.begin);
  return r;
}

void put_lives(Writer& w, const Capture& c) {
  w.varint(c.modules.size());
  for (const ModuleLifetime& m : c.modules) {
    w.text(m.name);
    put_range(w, m.range);
    for (const Time t : {m.from, m.until, m.seen.lo, m.seen.hi}) put_time(w, t);
  }
  w.varint(c.copies.size());
  for (const TextCopy& copy : c.copies) {
    w.u8(static_cast<uint8_t>(copy.kind));
    w.text(copy.name);
    put_range(w, copy.range);
    for (const Time t : {copy.time.lo, copy.time.hi}) put_time(w, t);
  }
}

// False: damaged.
bool take_lives(Source& in, Capture& c) {
  for (uint64_t i = 0, n = in.count(7); i < n && in.ok(); ++i) {
    ModuleLifetime& m = c.modules.emplace_back();
    m.name = in.text();
    m.range = take_range(in);
    for (Time* t : {&m.from, &m.until, &m.seen.lo, &m.seen.hi}) *t = in.signed_varint();
    if (m.range.end < m.range.begin) return false;
  }
  for (uint64_t i = 0, n = in.count(6); i < n && in.ok(); ++i) {
    TextCopy& copy = c.copies.emplace_back();
    const uint8_t kind = in.u8();
    copy.kind = static_cast<OriginKind>(kind);
    copy.name = in.text();
    copy.range = take_range(in);
    for (Time* t : {&copy.time.lo, &copy.time.hi}) *t = in.signed_varint();
    if (kind > static_cast<uint8_t>(OriginKind::kPoke) || copy.range.end < copy.range.begin) return false;
  }
  return in.ok();
}

namespace {

std::vector<uint8_t> put_numbered(const Capture& c, std::span<const Origin> origins,
                                  const NumberOf& number_of) {
  Writer w;
  put_head(w, c);
  w.varint(c.streams.size());
  for (const Stream& s : c.streams) put_stream(w, s);
  put_tables(w, c);
  w.varint(origins.size());
  for (const Origin& origin : origins) put_origin(w, origin);
  put_pokes(w, *c.text);
  put_lives(w, c);
  put_changing_text(w, *c.text, number_of);
  return w.data();
}

}  // namespace

std::vector<uint8_t> put_capture(const Capture& c) {
  std::vector<Origin> origins;
  for (OriginRef i = 1; i <= c.text->origin_count(); ++i) origins.push_back(c.text->origin(i));
  return put_numbered(c, origins, [](OriginRef origin) { return origin; });
}

std::vector<uint8_t> put_capture(const Capture& c, const StableOrigins& origins) {
  return put_numbered(c, origins.all(), [&](OriginRef origin) { return origins.number_of(origin); });
}

bool take_capture(std::span<const uint8_t> body, Capture& c) {
  Source in(body);
  take_head(in, c);
  for (uint64_t i = 0, n = in.count(8); i < n && in.ok(); ++i) c.streams.push_back(take_stream(in));
  take_tables(in, c);
  ChangingText text;
  text.take_origins(in);
  text.take_pokes(in);
  // Versions before 6 end here, those before 8 behind what comes next.
  bool good = in.ok() && (in.left() == 0 || take_lives(in, c));
  if (good && in.left() != 0) {
    text.take_text(in);
    good = in.ok() && in.left() == 0;
  }
  c.text = std::move(text).finish();
  return good;
}

std::vector<uint8_t> put_symbols(const Capture& capture) {
  Writer w;
  const std::vector<const Symbol*> all = capture.symbols.all();
  std::map<std::string_view, uint64_t> dsos;
  std::vector<std::string_view> names;
  for (const Symbol* s : all) {
    if (dsos.try_emplace(s->dso, dsos.size()).second) names.push_back(s->dso);
  }
  w.varint(names.size());
  for (const std::string_view name : names) w.text(name);
  w.varint(all.size());
  Addr last = 0;
  for (const Symbol* s : all) {
    w.varint(s->space);
    w.difference(last, s->range.begin);
    last = s->range.begin;
    w.difference(s->range.begin, s->range.end);
    w.u8(static_cast<uint8_t>((s->from != kTimeMin ? 1 : 0) | (s->until != kTimeMax ? 2 : 0)));
    if (s->from != kTimeMin) put_time(w, s->from);
    if (s->until != kTimeMax) put_time(w, s->until);
    w.signed_varint(s->rank);
    w.varint(dsos[s->dso]);
    w.text(s->name);
  }
  return w.data();
}

bool take_symbols(std::span<const uint8_t> body, SymbolTable& out) {
  Source in(body);
  std::vector<std::string> dsos;
  for (uint64_t i = 0, n = in.count(); i < n && in.ok(); ++i) dsos.push_back(in.text());
  Addr last = 0;
  for (uint64_t i = 0, n = in.count(7); i < n && in.ok(); ++i) {
    Symbol s;
    s.space = static_cast<Space>(in.varint());
    s.range.begin = last = in.difference(last);
    s.range.end = in.difference(s.range.begin);
    const uint8_t flags = in.u8();
    if ((flags & 1) != 0) s.from = in.signed_varint();
    if ((flags & 2) != 0) s.until = in.signed_varint();
    s.rank = static_cast<int>(in.signed_varint());
    const uint64_t dso = in.varint();
    s.name = in.text();
    if (!in.ok() || dso >= dsos.size() || s.range.end < s.range.begin) return false;
    s.dso = dsos[dso];
    out.add(std::move(s));
  }
  return in.ok() && in.left() == 0;
}

std::vector<uint8_t> put_functions(const Capture& capture) {
  Writer w;
  uint64_t number = 0, last = 0;
  for (const Symbol* s : capture.symbols.all()) {
    ++number;
    const FunctionText text = function_text(capture, *s);
    if (text.changes.empty() && !text.landing_pad) continue;
    w.varint(number - last);
    last = number;
    w.u8(text.landing_pad ? 1 : 0);
    w.varint(text.changes.size());
    uint64_t time = 0;
    for (const Time t : text.changes) {
      w.difference(time, static_cast<uint64_t>(t));
      time = static_cast<uint64_t>(t);
    }
  }
  return w.data();
}

bool take_functions(std::span<const uint8_t> body, Capture& out) {
  const std::vector<const Symbol*> all = out.symbols.all();
  auto functions = std::make_shared<FunctionTexts>();
  Source in(body);
  uint64_t number = 0;
  while (in.left() != 0) {
    const uint64_t by = in.varint();
    if (by > all.size() - number || number + by == 0) return false;
    number += by;
    FunctionText& text = (*functions)[all[number - 1]];
    text.landing_pad = in.u8() != 0;
    uint64_t time = 0;
    for (uint64_t n = in.count(); n != 0 && in.ok(); --n)
      text.changes.push_back(static_cast<Time>(time = in.difference(time)));
    if (!in.ok() || !std::ranges::is_sorted(text.changes)) return false;
  }
  out.functions = std::move(functions);
  return true;
}

}  // namespace asof::blocks
