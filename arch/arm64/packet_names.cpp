#include <algorithm>
#include <array>

#include "arch/arm64/packet_text.h"

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

// By Pk, of packets with one form.
constexpr std::array<uint8_t, static_cast<size_t>(Pk::kBad) + 1> kOfOneForm = [] {
  std::array<uint8_t, static_cast<size_t>(Pk::kBad) + 1> out{};
  out.fill(kPacketBad);
  const auto set = [&out](Pk pk, Type type) { out[static_cast<size_t>(pk)] = type; };
  set(Pk::kAsync, kAsync);
  set(Pk::kDiscard, kDiscard);
  set(Pk::kOverflow, kOverflow);
  set(Pk::kTraceInfo, kTraceInfo);
  set(Pk::kTimestamp, kTimestamp);
  set(Pk::kTraceOn, kTraceOn);
  set(Pk::kFunctionReturn, kFunctionReturn);
  set(Pk::kException, kException);
  set(Pk::kExceptionReturn, kExceptionReturn);
  set(Pk::kInstrumentation, kInstrumentation);
  set(Pk::kTransStart, kTransStart);
  set(Pk::kTransCommit, kTransCommit);
  set(Pk::kDataSync, kDataSync);
  set(Pk::kCommit, kCommit);
  set(Pk::kMispredict, kMispredict);
  set(Pk::kConditional, kConditional);
  set(Pk::kIgnore, kIgnore);
  set(Pk::kEvent, kEvent);
  set(Pk::kContext, kContext);
  set(Pk::kTimestampMarker, kTimestampMarker);
  set(Pk::kQ, kQ);
  return out;
}();

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
    default:
      return kOfOneForm[static_cast<size_t>(k.type)];
  }
}

}  // namespace asof::arm64
