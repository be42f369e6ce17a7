#include "decoder/blocks/block_items.h"

#include <algorithm>

namespace asof::blocks {

void put_event(Writer& out, const Event& e, Time& last) {
  out.u8(static_cast<uint8_t>(e.kind));
  out.difference(static_cast<uint64_t>(last), static_cast<uint64_t>(e.time));
  last = e.time;
  out.varint(e.ip);
  out.varint(e.a);
  out.varint(e.b);
  out.varint(e.offset);
}

Event take_event(Source& in, Time& last) {
  Event e{static_cast<EventKind>(std::min<uint8_t>(in.u8(), static_cast<uint8_t>(EventKind::kContext)))};
  e.time = last = static_cast<Time>(in.difference(static_cast<uint64_t>(last)));
  e.ip = in.varint();
  e.a = in.varint();
  e.b = in.varint();
  e.offset = in.varint();
  return e;
}

void put_gap(Writer& out, const Gap& g) {
  out.varint(g.begin);
  out.difference(g.begin, g.end);
  out.signed_varint(g.time.lo);
  out.signed_varint(g.time.hi);
  out.varint(g.ip);
  out.varint(g.resume_ip);
  out.text(code_text(g.code));
  out.text(g.reason);
}

Gap take_gap(Source& in) {
  Gap g;
  g.begin = in.varint();
  g.end = in.difference(g.begin);
  g.time.lo = in.signed_varint();
  g.time.hi = in.signed_varint();
  g.ip = in.varint();
  g.resume_ip = in.varint();
  g.code = in.code();
  g.reason = in.text();
  return g;
}

}  // namespace asof::blocks
