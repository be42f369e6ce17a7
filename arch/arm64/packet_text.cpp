#include "arch/arm64/packet_text.h"

#include <algorithm>

namespace asof::arm64 {
namespace {

enum Type : uint8_t {
  kAsync = kFirstPacketType,
  kDiscard,
  kOverflow,
  kTraceInfo,
  kTimestamp,
  kTraceOn,
  kFunctionReturn,
  kException,
  kExceptionReturn,
  kCycleCountF1,
  kCycleCountF2,
  kCycleCountF3,
  kInstrumentation,
  kTransStart,
  kTransCommit,
  kDataSync,
  kCommit,
  kCancelF1,
  kCancelF2,
  kCancelF3,
  kMispredict,
  kConditional,
  kIgnore,
  kEvent,
  kContext,
  kExactMatch,
  kShort,
  kLong32,
  kLong64,
  kLong32Context,
  kLong64Context,
  kSourceExactMatch,
  kSourceShort,
  kSource32,
  kSource64,
  kTimestampMarker,
  kQ,
  kAtomF1,
  kAtomF2,
  kAtomF3,
  kAtomF4,
  kAtomF5,
  kAtomF6,
  kOlder,  // ETMv3 and PTM from here on, by name
  kTypes = kOlder + 18,
};

constexpr std::array<std::string_view, kTypes> kNames = [] {
  std::array<std::string_view, kTypes> out{};
  for (size_t i = 0; i < kLineNames.size(); ++i) out[i] = kLineNames[i];
  constexpr std::array<std::string_view, size_t{kTypes} - size_t{kFirstPacketType}> names = {
      "A-Sync",
      "Discard",
      "Overflow",
      "Trace-Info",
      "Timestamp",
      "Trace-On",
      "Function-Return",
      "Exception",
      "Exception-Return",
      "Cycle-Count.F1",
      "Cycle-Count.F2",
      "Cycle-Count.F3",
      "Instrumentation",
      "Transaction-Start",
      "Transaction-Commit",
      "Data-Sync-Marker",
      "Commit",
      "Cancel.F1",
      "Cancel.F2",
      "Cancel.F3",
      "Mispredict",
      "Conditional",
      "Ignore",
      "Event",
      "Context",
      "Address.Exact",
      "Address.Short",
      "Address.32",
      "Address.64",
      "Address.32.Context",
      "Address.64.Context",
      "Source-Address.Exact",
      "Source-Address.Short",
      "Source-Address.32",
      "Source-Address.64",
      "Timestamp-Marker",
      "Q",
      "Atom.F1",
      "Atom.F2",
      "Atom.F3",
      "Atom.F4",
      "Atom.F5",
      "Atom.F6",
      "Branch-Address",
      "I-Sync",
      "I-Sync-Cycle",
      "Trigger",
      "Waypoint-Update",
      "Context-ID",
      "VMID",
      "Atom",
      "P-Header",
      "Cycle-Count",
      "Store-Fail",
      "OOO-Data",
      "OOO-Placeholder",
      "Data",
      "Data-Suppressed",
      "Value-Not-Traced",
      "Exception-Entry",
      "Exception-Exit"};
  for (size_t i = 0; i < names.size(); ++i) out[kFirstPacketType + i] = names[i];
  return out;
}();

uint8_t address_type(const Packet& k) {
  switch (k.form) {
    case AddrForm::kExact:
      return kExactMatch;
    case AddrForm::kShort:
      return kShort;
    case AddrForm::kLong32:
      return k.context.present ? kLong32Context : kLong32;
    default:
      return k.context.present ? kLong64Context : kLong64;
  }
}

uint8_t source_type(const Packet& k) {
  switch (k.form) {
    case AddrForm::kExact:
      return kSourceExactMatch;
    case AddrForm::kShort:
      return kSourceShort;
    case AddrForm::kLong32:
      return kSource32;
    default:
      return kSource64;
  }
}

uint8_t atom_type(uint8_t h) {
  if (h == 0xf6 || h == 0xf7) return kAtomF1;
  if (h >= 0xd8 && h <= 0xdb) return kAtomF2;
  if (h >= 0xf8) return kAtomF3;
  if (h >= 0xdc && h <= 0xdf) return kAtomF4;
  return h == 0xf5 || (h >= 0xd5 && h <= 0xd7) ? kAtomF5 : kAtomF6;
}

std::string_view exception_name(uint32_t type, const PacketFormat& f) {
  if (f.m_profile) return {};
  switch (type) {
    case 0x00:
      return "PE reset";
    case 0x01:
      return "debug halt";
    case 0x02:
      return "call";
    case 0x03:
      return "trap";
    case 0x04:
      return "system error";
    case 0x06:
      return "instruction debug";
    case 0x07:
      return "data debug";
    case 0x0a:
      return "alignment";
    case 0x0b:
      return "instruction fault";
    case 0x0c:
      return "data fault";
    case 0x0e:
      return "IRQ";
    case 0x0f:
      return "FIQ";
    case 0x18:
      return f.ete ? "transaction failure" : "";
    default:
      return {};
  }
}

void describe_context(const ContextInfo& c, PacketFields& out) {
  if (!c.present) return;
  out.number("el", c.el);
  out.text("state", c.sf ? "AArch64" : "AArch32", true);
  out.number("ns", c.ns ? 1 : 0);
  if (c.nse) out.flag("nse", true);
  if (c.has_vmid) out.hex("vmid", c.vmid);
  if (c.has_cid) out.hex("cid", c.cid);
}

void describe_address(const Packet& k, const PacketState& s, PacketFields& out) {
  if (k.form == AddrForm::kNone) return;
  const PacketState::Place& at = s.history[0];
  out.hex("address", at.address, true);
  out.number("is", at.isa);
  if (k.form == AddrForm::kExact) out.number("entry", k.isa);
  if (k.form == AddrForm::kShort || k.form == AddrForm::kLong32) {
    out.number("address_bits", k.form == AddrForm::kShort ? k.addr_bits : 32U);
    out.hex("payload", k.value);
  }
}

void describe_atoms(const Packet& k, PacketFields& out) {
  if (k.atom_count == 0) return;
  uint32_t oldest_first = 0;
  for (unsigned i = 0; i < k.atom_count; ++i) oldest_first = oldest_first << 1 | (k.atoms >> i & 1);
  out.letters("atoms", oldest_first, k.atom_count, 'E', 'N');
  out.number("count", k.atom_count);
}

// Arm IHI 0064, "Trace Info instruction trace packet".
void describe_trace_info(const Packet& k, PacketFields& out) {
  out.hex("info", k.value);
  out.number("cc_enabled", k.value & 1);
  if ((k.value >> 1 & 7) != 0) out.number("cond_enabled", k.value >> 1 & 7);
  if ((k.value >> 4 & 1) != 0) out.flag("p0_load", true);
  if ((k.value >> 5 & 1) != 0) out.flag("p0_store", true);
  if ((k.value >> 6 & 1) != 0) out.flag("in_transaction", true);
  out.number("spec_depth", k.commit);
  out.hex("cc_threshold", k.count);
}

}  // namespace

std::span<const std::string_view> packet_names() { return kNames; }

uint8_t type_named(std::string_view name) {
  return static_cast<uint8_t>(std::ranges::find(kNames, name) - kNames.begin());
}

uint8_t type_of(const Packet& k, uint8_t header) {
  switch (k.type) {
    case Pk::kAtoms:
      return atom_type(header);
    case Pk::kAddress:
      return address_type(k);
    case Pk::kSourceAddress:
      return source_type(k);
    case Pk::kCycleCount:
      return header >= 0x10 ? kCycleCountF3 : header <= 0x0d ? kCycleCountF2 : kCycleCountF1;
    case Pk::kCancel:
      return header <= 0x2f ? kCancelF1 : header <= 0x37 ? kCancelF2 : kCancelF3;
    case Pk::kAsync:
      return kAsync;
    case Pk::kDiscard:
      return kDiscard;
    case Pk::kOverflow:
      return kOverflow;
    case Pk::kTraceInfo:
      return kTraceInfo;
    case Pk::kTimestamp:
      return kTimestamp;
    case Pk::kTraceOn:
      return kTraceOn;
    case Pk::kFunctionReturn:
      return kFunctionReturn;
    case Pk::kException:
      return kException;
    case Pk::kExceptionReturn:
      return kExceptionReturn;
    case Pk::kInstrumentation:
      return kInstrumentation;
    case Pk::kTransStart:
      return kTransStart;
    case Pk::kTransCommit:
      return kTransCommit;
    case Pk::kDataSync:
      return kDataSync;
    case Pk::kCommit:
      return kCommit;
    case Pk::kMispredict:
      return kMispredict;
    case Pk::kConditional:
      return kConditional;
    case Pk::kIgnore:
      return kIgnore;
    case Pk::kEvent:
      return kEvent;
    case Pk::kContext:
      return kContext;
    case Pk::kTimestampMarker:
      return kTimestampMarker;
    case Pk::kQ:
      return kQ;
    default:
      return kPacketBad;
  }
}

void PacketState::take(const Packet& k) {
  switch (k.type) {
    case Pk::kTraceInfo:
      cc_threshold = k.count;
      return;
    case Pk::kTimestamp: {
      const uint64_t mask = k.value_bits >= 64 ? ~0ULL : (1ULL << k.value_bits) - 1;
      timestamp = (timestamp & ~mask) | (k.value & mask);
      return;
    }
    default:
      break;
  }
  if (k.form == AddrForm::kNone) return;
  Place r{k.value, k.isa};
  if (k.form == AddrForm::kExact) {
    r = history[std::min<size_t>(k.isa, 2)];
  } else if (k.form != AddrForm::kLong64) {
    const uint64_t mask = (1ULL << (k.form == AddrForm::kShort ? k.addr_bits : 32U)) - 1;
    r.address = (history[0].address & ~mask) | (k.value & mask);
  }
  history = {r, history[0], history[1]};
}

void describe_packet(const Packet& k, std::span<const uint8_t> bytes, const PacketFormat& f,
                     const PacketState& s, PacketFields& out) {
  switch (k.type) {
    case Pk::kAtoms:
      return describe_atoms(k, out);
    case Pk::kAddress:
    case Pk::kSourceAddress:
      describe_address(k, s, out);
      return describe_context(k.context, out);
    case Pk::kContext:
      if (!k.context.present) out.text("context", "as before", true);
      return describe_context(k.context, out);
    case Pk::kQ:
      if (k.has_count) out.number("instructions", k.count);
      return describe_address(k, s, out);
    case Pk::kTraceInfo:
      return describe_trace_info(k, out);
    case Pk::kTimestamp:
      out.hex("timestamp", s.timestamp, true);
      out.number("timestamp_bits", k.value_bits);
      if (k.has_count) out.number("cycles", k.count);
      return;
    case Pk::kException:
      out.hex("type", k.count);
      if (const auto name = exception_name(k.count, f); !name.empty()) out.text("name", name, true);
      if (k.target) out.flag("branch_target", true);
      if (k.no_address) out.flag("no_address", true);
      return;
    case Pk::kCycleCount:
      if (k.has_count)
        out.number("cycles", k.count);
      else
        out.text("cycles", "unknown");
      if (!f.commit_opt) out.number("commit", k.commit);
      return;
    case Pk::kInstrumentation:
      out.number("el", k.count);
      return out.hex("value", k.value);
    case Pk::kCommit:
      return out.number("elements", k.count);
    case Pk::kCancel:
      out.number("elements", k.count);
      if (k.mispredict) out.flag("mispredict", true);
      return describe_atoms(k, out);
    case Pk::kMispredict:
      return describe_atoms(k, out);
    case Pk::kEvent:
      return out.hex("events", k.count);
    case Pk::kConditional:
    case Pk::kDataSync:
      return out.hex("header", bytes[0]);
    default:
      return;
  }
}

}  // namespace asof::arm64
