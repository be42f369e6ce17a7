#include "arch/arm64/packet.h"

#include "arch/arm64/packet_reader.h"

namespace asof::arm64 {
namespace {

// 0x00: A-Sync, Discard, Overflow.
void extension(Reader& r, Packet& k) {
  switch (r.byte()) {
    case 0x03:
      k.type = Pk::kDiscard;
      return;
    case 0x05:
      k.type = Pk::kOverflow;
      return;
    case 0x00:
      break;
    default:
      k.type = r.ran_out() ? Pk::kEnd : Pk::kBad;
      return;
  }
  k.type = Pk::kAsync;
  for (unsigned i = 2; i < kAsyncSize && !r.ran_out(); ++i) {
    const uint8_t b = r.byte();
    if (!r.ran_out() && b != (i + 1 < kAsyncSize ? 0x00 : 0x80)) {
      k.type = Pk::kBad;
      return;
    }
  }
}

// Sections INFO, KEY, SPEC, CYCT (ETE: a further one) as the control bytes say.
void trace_info(Reader& r, Packet& k) {
  k.type = Pk::kTraceInfo;
  const uint8_t sections = r.byte();
  for (uint8_t more = sections; (more & 0x80) != 0 && !r.ran_out();) more = r.byte();
  if ((sections & 1) != 0) k.value = r.field(5);
  if ((sections & 2) != 0) r.field(5);
  if ((sections & 4) != 0) k.commit = static_cast<uint32_t>(r.field(5));
  if ((sections & 8) != 0) k.count = static_cast<uint32_t>(r.field(5));
  if ((sections & 16) != 0) r.field(5);
}

void timestamp(Reader& r, Packet& k, uint8_t header, const PacketFormat& f) {
  k.type = Pk::kTimestamp;
  unsigned bytes = 0;
  // Eight bytes of seven bits, then one of eight.
  uint64_t v = 0;
  for (; bytes < 9;) {
    const uint8_t b = r.byte();
    if (bytes == 8) {
      v |= static_cast<uint64_t>(b) << 56;
      ++bytes;
      break;
    }
    v |= static_cast<uint64_t>(b & 0x7f) << (7 * bytes++);
    if ((b & 0x80) == 0) break;
  }
  k.value = v;
  k.value_bits = static_cast<uint8_t>(bytes >= 9 ? 64 : 7 * bytes);
  k.has_count = (header & 1) != 0;
  if (k.has_count) k.count = static_cast<uint32_t>(r.field(3)) & ((1U << f.cycle_bits) - 1);
}

void exception(Reader& r, Packet& k, const PacketFormat& f) {
  k.type = Pk::kException;
  const uint8_t info = r.byte();
  k.count = bits(info, 5, 1);
  k.target = (info & 0x41) == 0x40;
  k.no_address = f.ete && (k.count == 0 || k.count == 0x18);
  if ((info & 0x80) != 0) {
    k.count |= bits(r.byte(), 4, 0) << 5;
  } else if (k.no_address) {
    r.byte();
  }
}

void cycle_count(Reader& r, Packet& k, uint8_t header, const PacketFormat& f, uint32_t threshold) {
  k.type = Pk::kCycleCount;
  k.has_count = true;
  if (header >= 0x10) {  // format 3
    k.count = threshold + (header & 3);
    if (!f.commit_opt) k.commit = bits(header, 3, 2) + 1;
  } else if (header <= 0x0d) {  // format 2
    const uint8_t b = r.byte();
    const int commit = (b >> 4) + ((header & 1) != 0 ? f.max_spec - 15 : 1);
    k.count = threshold + (b & 0xf);
    if (!f.commit_opt) k.commit = commit > 0 ? static_cast<uint32_t>(commit) : 0;
  } else {  // format 1
    if (!f.commit_opt) k.commit = static_cast<uint32_t>(r.field(5));
    k.has_count = (header & 1) == 0;
    if (k.has_count) k.count = threshold + static_cast<uint32_t>(r.field(3));
  }
}

// 0x2d to 0x3f.
void speculation(Reader& r, Packet& k, uint8_t header) {
  const auto one_field_of_atoms = [&] {
    constexpr uint8_t counts[] = {0, 1, 2, 1};
    constexpr uint8_t patterns[] = {0, 1, 3, 0};
    k.atom_count = counts[header & 3];
    k.atoms = patterns[header & 3];
  };
  if (header == 0x2d) {
    k.type = Pk::kCommit;
    k.count = static_cast<uint32_t>(r.field(5));
  } else if (header <= 0x2f) {
    k.type = Pk::kCancel;
    k.mispredict = header == 0x2f;
    k.count = static_cast<uint32_t>(r.field(5));
  } else if (header <= 0x33) {
    k.type = Pk::kMispredict;
    one_field_of_atoms();
  } else {
    k.type = Pk::kCancel;
    k.mispredict = true;
    if (header <= 0x37) {
      k.count = 1;
      one_field_of_atoms();
    } else {
      k.count = bits(header, 2, 1) + 2;
      k.atom_count = header & 1;
      k.atoms = header & 1;
    }
  }
}

// Conditional instruction and result packets are only measured.
void conditional(Reader& r, Packet& k, uint8_t header) {
  k.type = Pk::kConditional;
  const auto result = [&r] { r.field(6); };
  if (header >= 0x50 && header <= 0x5f) {
    r.byte();
  } else if (header == 0x6c) {
    r.field(5);
  } else if (header == 0x6d) {
    r.byte();
  } else if (header >= 0x68) {
    result();
    if ((header & 0xfc) != 0x6c) result();
  }
}

bool is_conditional(uint8_t h) {
  if (h >= 0x40 && h <= 0x4e) return h != 0x47 && h != 0x4b;
  return (h >= 0x50 && h <= 0x5f) || (h >= 0x68 && h <= 0x6f);
}

void q_element(Reader& r, Packet& k, uint8_t header) {
  k.type = Pk::kQ;
  const uint8_t form = header & 0xf;
  switch (form) {
    case 0x0:
    case 0x1:
    case 0x2:
      k.form = AddrForm::kExact;
      k.isa = form;
      break;
    case 0x5:
    case 0x6:
      k.isa = form == 0x5 ? 0 : 1;
      short_address(r, k);
      break;
    case 0xa:
    case 0xb:
      k.isa = form == 0xa ? 0 : 1;
      long_address(r, k, 4);
      break;
    case 0xc:
      break;
    case 0xf:
      return;
    default:
      k.type = Pk::kBad;
      return;
  }
  k.has_count = true;
  k.count = static_cast<uint32_t>(r.field(5));
}

void address(Reader& r, Packet& k, uint8_t header, const PacketFormat& f) {
  k.type = Pk::kAddress;
  switch (header) {
    case 0x80:
    case 0x81:
      k.type = Pk::kContext;
      if (header == 0x81) context(r, k, f);
      return;
    case 0x82:
    case 0x83:
    case 0x85:
    case 0x86:
      k.isa = header == 0x83 || header == 0x86 ? 1 : 0;
      long_address(r, k, header <= 0x83 ? 4 : 8);
      context(r, k, f);
      return;
    case 0x88:
      k.type = f.ete || f.version >= 0x46 ? Pk::kTimestampMarker : Pk::kBad;
      return;
    case 0x90:
    case 0x91:
    case 0x92:
      k.form = AddrForm::kExact;
      k.isa = header & 3;
      return;
    case 0x95:
    case 0x96:
      k.isa = header == 0x96 ? 1 : 0;
      short_address(r, k);
      return;
    case 0x9a:
    case 0x9b:
    case 0x9d:
    case 0x9e:
      k.isa = header == 0x9b || header == 0x9e ? 1 : 0;
      long_address(r, k, header <= 0x9b ? 4 : 8);
      return;
    default:
      k.type = Pk::kBad;
  }
}

void source_address(Reader& r, Packet& k, uint8_t header) {
  k.type = Pk::kSourceAddress;
  if (header <= 0xb2) {
    k.form = AddrForm::kExact;
    k.isa = header & 3;
  } else if (header == 0xb4 || header == 0xb5) {
    k.isa = header & 1;
    short_address(r, k);
  } else if (header >= 0xb6 && header <= 0xb9) {
    k.isa = header & 1;
    long_address(r, k, header <= 0xb7 ? 4 : 8);
  } else {
    k.type = Pk::kBad;
  }
}

// Headers below 0x40.
void low_packet(Reader& r, Packet& k, uint8_t h, const PacketFormat& f, uint32_t threshold) {
  if (h >= 0x2d) return speculation(r, k, h);
  if (h >= 0x20) {
    k.type = f.data ? Pk::kDataSync : Pk::kBad;
    return;
  }
  if (h >= 0x0c) return cycle_count(r, k, h, f, threshold);
  switch (h) {
    case 0x00:
      return extension(r, k);
    case 0x01:
      return trace_info(r, k);
    case 0x02:
    case 0x03:
      return timestamp(r, k, h, f);
    case 0x04:
      k.type = Pk::kTraceOn;
      return;
    case 0x05:
      k.type = f.m_profile && f.version >= 0x42 ? Pk::kFunctionReturn : Pk::kBad;
      return;
    case 0x06:
      return exception(r, k, f);
    case 0x07:
      k.type = f.ete ? Pk::kBad : Pk::kExceptionReturn;
      return;
    case 0x09:
      if (!f.ete || f.version < 0x53) break;
      k.type = Pk::kInstrumentation;
      k.count = r.byte() & 3;
      k.value = r.little_endian(8);
      return;
    case 0x0a:
    case 0x0b:
      if (!f.ete) break;
      k.type = h == 0x0a ? Pk::kTransStart : Pk::kTransCommit;
      return;
    default:
      break;
  }
  k.type = Pk::kBad;
}

}  // namespace

Packet read_packet(const uint8_t* p, const uint8_t* end, const PacketFormat& f, uint32_t cc_threshold) {
  Packet k;
  if (p == end) {
    k.type = Pk::kEnd;
    return k;
  }
  Reader r(p, end);
  const uint8_t h = r.byte();
  if (h >= 0xc0) {
    const uint32_t a = atoms_of(h);
    k.type = a != 0 ? Pk::kAtoms : Pk::kBad;
    k.atom_count = static_cast<uint8_t>(a >> 24);
    k.atoms = a & 0xffffff;
    k.size = 1;
    return k;
  }
  if (h < 0x40) {
    low_packet(r, k, h, f, cc_threshold);
  } else if (h < 0x70) {
    if (f.conditional && is_conditional(h)) conditional(r, k, h);
  } else if (h == 0x70) {
    k.type = Pk::kIgnore;  // defined since ETMv4.3, and what recorders fill up buffers with
  } else if (h < 0x80) {
    k.type = Pk::kEvent;
    k.count = h & 0xf;
  } else if (h < 0xa0) {
    address(r, k, h, f);
  } else if (h < 0xb0) {
    if (f.q) q_element(r, k, h);
  } else if (f.ete) {
    source_address(r, k, h);
  }
  if (r.ran_out()) k.type = Pk::kEnd;
  k.size = r.size();
  return k;
}

}  // namespace asof::arm64
