#include "tests/support/etm_writer.h"

#include <algorithm>
#include <string_view>

namespace asof::test {

namespace {

constexpr size_t kMostAtoms = 24;  // of one packet

// Two bits of mispredict and cancel format 2 packets.
uint8_t few_atoms(std::string_view atoms) {
  if (atoms == "E") return 1;
  if (atoms == "EE") return 2;
  return atoms == "N" ? 3 : 0;
}

}  // namespace

void EtmWriter::begin(EtmKind kind) {
  if (kind != EtmKind::kAtoms) flush();
  kind_ = kind;
  start_ = bytes_.size();
}

void EtmWriter::end() {
  if (options_.keep_packets)
    packets_.push_back({start_, static_cast<uint32_t>(bytes_.size() - start_), kind_});
}

void EtmWriter::put(EtmKind kind, std::initializer_list<uint8_t> bytes) {
  begin(kind);
  bytes_.insert(bytes_.end(), bytes);
  end();
}

void EtmWriter::leb(uint64_t value) {
  do {
    const auto low = static_cast<uint8_t>(value & 0x7f);
    value >>= 7;
    bytes_.push_back(value != 0 ? low | 0x80 : low);
  } while (value != 0);
}

void EtmWriter::async() { put(EtmKind::kAsync, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80}); }
void EtmWriter::discard() { put(EtmKind::kDiscard, {0x00, 0x03}); }
void EtmWriter::overflow() { put(EtmKind::kOverflow, {0x00, 0x05}); }

void EtmWriter::trace_info(const EtmTraceInfo& info) {
  begin(EtmKind::kTraceInfo);
  const std::optional<uint32_t> sections[] = {info.info, info.key, info.spec, info.cycle_threshold};
  uint8_t present = 0;
  for (unsigned i = 0; i < 4; ++i) present |= static_cast<uint8_t>(sections[i].has_value() << i);
  bytes_.push_back(0x01);
  bytes_.push_back(present);
  for (const auto& s : sections) {
    if (s) leb(*s);
  }
  end();
  known_ = {};
  time_ = 0;
}

void EtmWriter::trace_on() { put(EtmKind::kTraceOn, {0x04}); }

// Bytes above the highest changed one are left out; the ninth byte holds eight bits.
void EtmWriter::timestamp(uint64_t value, std::optional<uint32_t> count) {
  begin(EtmKind::kTimestamp);
  bytes_.push_back(count ? 0x03 : 0x02);
  const uint64_t changed = value ^ time_;
  for (unsigned i = 0; i < 9; ++i) {
    const bool last = i == 8 || (changed >> (7 * (i + 1))) == 0;
    const uint64_t part = value >> (7 * i);
    bytes_.push_back(static_cast<uint8_t>(i == 8 ? part : (part & 0x7f) | (last ? 0 : 0x80)));
    if (last) break;
  }
  if (count) leb(*count);
  end();
  time_ = value;
}

void EtmWriter::context_payload(const EtmContext& c) {
  bytes_.push_back(static_cast<uint8_t>((c.el & 3U) | (c.nse ? 1U << 3 : 0U) | (c.aarch64 ? 1U << 4 : 0U) |
                                        (c.non_secure ? 1U << 5 : 0U) | (c.vmid ? 1U << 6 : 0U) |
                                        (c.context_id ? 1U << 7 : 0U)));
  for (unsigned i = 0; c.vmid && i < options_.vmid_bytes; ++i)
    bytes_.push_back(static_cast<uint8_t>(*c.vmid >> (8 * i)));
  for (unsigned i = 0; c.context_id && i < options_.context_id_bytes; ++i)
    bytes_.push_back(static_cast<uint8_t>(*c.context_id >> (8 * i)));
}

void EtmWriter::context(const EtmContext& c) {
  begin(EtmKind::kContext);
  bytes_.push_back(0x81);
  context_payload(c);
  end();
}
void EtmWriter::context_unchanged() { put(EtmKind::kContext, {0x80}); }

void EtmWriter::remember(uint64_t a, unsigned is) {
  known_[2] = known_[1];
  known_[1] = known_[0];
  known_[0] = {a, is, true};
}

// The lowest bits of an instruction's address are not sent: two for IS0 (A64, A32), one for IS1 (T32).
void EtmWriter::long_address(uint64_t a, unsigned is, unsigned bytes) {
  bytes_.push_back(static_cast<uint8_t>((a >> (is == 0 ? 2 : 1)) & 0x7f));
  bytes_.push_back(static_cast<uint8_t>(is == 0 ? (a >> 9) & 0x7f : (a >> 8) & 0xff));
  for (unsigned i = 2; i < bytes; ++i) bytes_.push_back(static_cast<uint8_t>(a >> (8 * i)));
}

// One or two bytes.
bool EtmWriter::short_address(uint64_t a, unsigned is) {
  const unsigned shift = is == 0 ? 2 : 1;
  const bool two = !known_[0].valid || ((a ^ known_[0].address) >> (7 + shift)) != 0;
  bytes_.push_back(static_cast<uint8_t>(((a >> shift) & 0x7f) | (two ? 0x80 : 0)));
  if (two) bytes_.push_back(static_cast<uint8_t>(a >> (7 + shift)));
  return two;
}

EtmAddressForm EtmWriter::shortest(uint64_t a, unsigned is, int& match) const {
  for (int i = 0; i < 3; ++i) {
    const Known& k = known_[static_cast<size_t>(i)];
    if (!k.valid || k.address != a || k.is != is) continue;
    match = i;
    return EtmAddressForm::kMatch;
  }
  if (!known_[0].valid) return EtmAddressForm::k64;
  const uint64_t changed = a ^ known_[0].address;
  if ((changed >> (is == 0 ? 17 : 16)) == 0) return EtmAddressForm::kShort;
  return (changed >> 32) == 0 ? EtmAddressForm::k32 : EtmAddressForm::k64;
}

void EtmWriter::address_as(uint64_t a, unsigned is, EtmAddressForm form, uint8_t match, uint8_t brief,
                           uint8_t long32, uint8_t long64) {
  int index = 0;
  const EtmAddressForm best = shortest(a, is, index);
  switch (form == EtmAddressForm::kAuto ? best : form) {
    case EtmAddressForm::kMatch:
      bytes_.push_back(static_cast<uint8_t>(match + index));
      break;
    case EtmAddressForm::kShort:
      bytes_.push_back(static_cast<uint8_t>(brief + is));
      short_address(a, is);
      break;
    case EtmAddressForm::k32:
      bytes_.push_back(static_cast<uint8_t>(long32 + is));
      long_address(a, is, 4);
      break;
    default:
      bytes_.push_back(static_cast<uint8_t>(long64 + is));
      long_address(a, is, 8);
  }
  remember(a, is);
}

void EtmWriter::address(uint64_t a, unsigned is, EtmAddressForm form) {
  begin(EtmKind::kAddress);
  address_as(a, is, form, 0x90, 0x95, 0x9a, 0x9d);
  end();
}

void EtmWriter::source_address(uint64_t a, unsigned is, EtmAddressForm form) {
  begin(EtmKind::kSourceAddress);
  address_as(a, is, form, 0xb0, 0xb4, 0xb6, 0xb8);
  end();
}

void EtmWriter::address_with_context(uint64_t a, const EtmContext& c, unsigned is, bool wide) {
  begin(EtmKind::kAddressContext);
  bytes_.push_back(static_cast<uint8_t>((wide ? 0x85 : 0x82) + is));
  long_address(a, is, wide ? 8 : 4);
  context_payload(c);
  end();
  remember(a, is);
}

void EtmWriter::atom(bool e) {
  atoms_.push_back(e);
  if (atoms_.size() <= kMostAtoms) return;
  const size_t n = put_atoms(0);
  atoms_.erase(atoms_.begin(), atoms_.begin() + static_cast<std::ptrdiff_t>(n));
}

void EtmWriter::atoms(const char* pattern) {
  for (const char c : std::string_view(pattern)) atom(c == 'E');
}

void EtmWriter::flush() {
  for (size_t at = 0; at < atoms_.size();) at += put_atoms(at);
  atoms_.clear();
}

// Writes one packet for the atoms from `at` on and returns how many are in it.
size_t EtmWriter::put_atoms(size_t at) {
  const size_t left = atoms_.size() - at;
  const auto one = [this](uint8_t byte, size_t count) {
    put(EtmKind::kAtoms, {byte});
    if (options_.keep_packets) packets_.back().atoms = static_cast<uint32_t>(count);
    return count;
  };
  const auto is = [this, at, left](std::string_view pattern) {
    if (left < pattern.size()) return false;
    for (size_t i = 0; i < pattern.size(); ++i) {
      if (atoms_[at + i] != (pattern[i] == 'E')) return false;
    }
    return true;
  };
  size_t run = 0;
  while (run < left && run < kMostAtoms && atoms_[at + run]) ++run;
  // Format 6: three to 23 E, then one more atom of either kind.
  if (run >= 3 && run < kMostAtoms && run < left) return one(static_cast<uint8_t>(0xe0 + run - 3), run + 1);
  if (run >= 4) return one(static_cast<uint8_t>(0xc0 + run - 4), run);
  if (is("NEEEE")) return one(0xf5, 5);
  if (is("NNNNN")) return one(0xd5, 5);
  if (is("NENEN")) return one(0xd6, 5);
  if (is("ENENE")) return one(0xd7, 5);
  if (is("NEEE")) return one(0xdc, 4);
  if (is("NNNN")) return one(0xdd, 4);
  if (is("NENE")) return one(0xde, 4);
  if (is("ENEN")) return one(0xdf, 4);
  const size_t n = std::min<size_t>(left, 3);
  uint8_t bits = 0;
  for (size_t i = 0; i < n; ++i) bits |= static_cast<uint8_t>(atoms_[at + i] << i);
  constexpr std::array<uint8_t, 4> kHeaders = {0, 0xf6, 0xd8, 0xf8};
  return one(kHeaders[n] | bits, n);
}

void EtmWriter::exception_header(uint16_t type, EtmExceptionAddress what, bool pending) {
  begin(EtmKind::kException);
  bytes_.push_back(0x06);
  const auto e = static_cast<unsigned>(what);
  const bool more = type > 31 || pending;
  bytes_.push_back(static_cast<uint8_t>((e & 1U) | (type & 31U) << 1 | (e & 2U) << 5 | (more ? 0x80U : 0U)));
  if (more) bytes_.push_back(static_cast<uint8_t>((type >> 5 & 31U) | (pending ? 0x20U : 0U)));
  end();
}

void EtmWriter::exception(uint16_t type, uint64_t return_address, EtmExceptionAddress what, unsigned is) {
  exception_header(type, what);
  address(return_address, is);
}

void EtmWriter::exception_return() { put(EtmKind::kExceptionReturn, {0x07}); }
void EtmWriter::function_return() { put(EtmKind::kFunctionReturn, {0x05}); }

void EtmWriter::q() { put(EtmKind::kQ, {0xaf}); }

void EtmWriter::q(uint32_t count) {
  begin(EtmKind::kQ);
  bytes_.push_back(0xac);
  leb(count);
  end();
}

void EtmWriter::q_address(uint32_t count, uint64_t a, unsigned is, EtmAddressForm form) {
  begin(EtmKind::kQ);
  int index = 0;
  const EtmAddressForm best = shortest(a, is, index);
  // There is no 64-bit form; the upper half stays that of the last address.
  address_as(a, is, form == EtmAddressForm::kAuto && best == EtmAddressForm::k64 ? EtmAddressForm::k32 : form,
             0xa0, 0xa5, 0xaa, 0xaa);
  leb(count);
  end();
}

void EtmWriter::cycle_count_f1(std::optional<uint32_t> count, uint32_t commit) {
  begin(EtmKind::kCycleCount);
  bytes_.push_back(count ? 0x0e : 0x0f);
  if (options_.commit_in_count) leb(commit);
  if (count) leb(*count - options_.cycle_threshold);
  end();
}

void EtmWriter::cycle_count_f2(uint32_t count, int32_t commit) {
  begin(EtmKind::kCycleCount);
  const bool near = commit >= 1 && commit <= 16;
  const int32_t offset = near ? 1 : static_cast<int32_t>(options_.max_spec_depth) - 15;
  bytes_.push_back(near ? 0x0c : 0x0d);
  // Bit 0 of the header determines what the commit count is relative to.
  bytes_.push_back(
      static_cast<uint8_t>(((commit - offset) & 15) << 4 | ((count - options_.cycle_threshold) & 15U)));
  end();
}

void EtmWriter::cycle_count_f3(uint32_t count, uint32_t commit) {
  put(EtmKind::kCycleCount,
      {static_cast<uint8_t>(0x10U | ((commit - 1) & 3U) << 2 | ((count - options_.cycle_threshold) & 3U))});
}

void EtmWriter::commit(uint32_t elements) {
  begin(EtmKind::kCommit);
  bytes_.push_back(0x2d);
  leb(elements);
  end();
}

void EtmWriter::cancel_f1(uint32_t elements, bool mispredict) {
  begin(EtmKind::kCancel);
  bytes_.push_back(mispredict ? 0x2f : 0x2e);
  leb(elements);
  end();
}

void EtmWriter::cancel_f2(const char* atoms) {
  put(EtmKind::kCancel, {static_cast<uint8_t>(0x34 | few_atoms(atoms))});
}
void EtmWriter::cancel_f3(uint32_t elements, bool then_atom) {
  put(EtmKind::kCancel, {static_cast<uint8_t>(0x38U | ((elements - 2) & 3U) << 1 | (then_atom ? 1U : 0U))});
}
void EtmWriter::mispredict(const char* atoms) {
  put(EtmKind::kMispredict, {static_cast<uint8_t>(0x30 | few_atoms(atoms))});
}

void EtmWriter::event(unsigned bits) { put(EtmKind::kEvent, {static_cast<uint8_t>(0x70U | (bits & 15U))}); }
void EtmWriter::ignore() { put(EtmKind::kIgnore, {0x70}); }
void EtmWriter::transaction_start() { put(EtmKind::kTransactionStart, {0x0a}); }
void EtmWriter::transaction_commit() { put(EtmKind::kTransactionCommit, {0x0b}); }
void EtmWriter::timestamp_marker() { put(EtmKind::kTimestampMarker, {0x88}); }

void EtmWriter::instrumentation(unsigned el, uint64_t value) {
  begin(EtmKind::kInstrumentation);
  bytes_.push_back(0x09);
  bytes_.push_back(static_cast<uint8_t>(el & 3U));
  for (unsigned i = 0; i < 8; ++i) bytes_.push_back(static_cast<uint8_t>(value >> (8 * i)));
  end();
}

void EtmWriter::raw(std::span<const uint8_t> bytes) {
  begin(EtmKind::kRaw);
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  end();
}

}  // namespace asof::test
