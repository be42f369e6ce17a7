#include "decoder/bundle/bundle_etm.h"

#include <fmt/format.h>

#include <array>
#include <limits>

namespace asof {
namespace {

using arm64::Protocol;
using arm64::Source;

// TRCIDR2: 64-bit addresses, 32-bit context IDs; TRCIDR1: ETMv4.0.
constexpr uint32_t kUsualIdr2 = 0x488, kUsualIdr1 = 0x4100f403;

struct Register {
  std::string_view name;
  uint32_t Source::*field;
};
constexpr std::array<Register, 15> kRegisters = {{{"configr", &Source::configr},
                                                  {"idr0", &Source::idr0},
                                                  {"idr1", &Source::idr1},
                                                  {"idr2", &Source::idr2},
                                                  {"idr8", &Source::idr8},
                                                  {"idr9", &Source::idr9},
                                                  {"idr10", &Source::idr10},
                                                  {"idr11", &Source::idr11},
                                                  {"idr12", &Source::idr12},
                                                  {"idr13", &Source::idr13},
                                                  {"devarch", &Source::devarch},
                                                  {"etmcr", &Source::etmcr},
                                                  {"etmidr", &Source::etmidr},
                                                  {"etmccer", &Source::etmccer},
                                                  {"traceidr", &Source::traceidr}}};

Result<void> read_protocol(const JsonView& etm, Source& out) {
  const auto member = etm.find("protocol");
  if (!member) return {};
  const auto name = member->string();
  if (!name) return std::unexpected(name.error());
  constexpr std::array<std::pair<std::string_view, Protocol>, 4> kProtocols = {{{"etm4", Protocol::kEtm4},
                                                                                {"ete", Protocol::kEte},
                                                                                {"etm3", Protocol::kEtm3},
                                                                                {"ptm", Protocol::kPtm}}};
  for (const auto& [known, protocol] : kProtocols) {
    if (*name != known) continue;
    out.protocol = protocol;
    return {};
  }
  return member->error(fmt::format("protocol \"{}\" is not known", *name),
                       "known are \"etm4\", \"ete\", \"etm3\" and \"ptm\"");
}

Result<void> read_into(const JsonView& etm, Source& out) {
  if (auto ok = etm.only_keys({"protocol", "trace_id",   "a32_only",  "m_profile", "configr", "idr0",
                               "idr1",     "idr2",       "idr8",      "idr9",      "idr10",   "idr11",
                               "idr12",    "idr13",      "devarch",   "etmcr",     "etmidr",  "etmccer",
                               "traceidr", "time_shift", "time_mult", "time_zero"});
      !ok) {
    return ok;
  }
  if (auto ok = read_protocol(etm, out); !ok) return ok;
  for (const Register& r : kRegisters) {
    const auto member = etm.find(r.name);
    if (!member) continue;
    const auto value = member->unsigned_number(UINT32_MAX);
    if (!value) return std::unexpected(value.error());
    out.*r.field = static_cast<uint32_t>(*value);
  }
  if (out.traceidr != 0) out.trace_id = out.traceidr & 0x7fU;
  if (const auto id = etm.find("trace_id")) {
    const auto value = id->unsigned_number(0x6f);
    if (!value) return std::unexpected(value.error());
    out.trace_id = static_cast<uint8_t>(*value);
  }
  const std::pair<std::string_view, bool Source::*> flags[] = {{"a32_only", &Source::armv7},
                                                               {"m_profile", &Source::m_profile}};
  for (const auto& [name, field] : flags) {
    const auto member = etm.find(name);
    if (!member) continue;
    const auto value = member->boolean();
    if (!value) return std::unexpected(value.error());
    out.*field = *value;
  }
  return {};
}

template <class T>
Result<void> read_number(const JsonView& object, std::string_view key, T& out) {
  const auto value = object.get_number(key, std::numeric_limits<T>::max());
  if (!value) return std::unexpected(value.error());
  out = static_cast<T>(*value);
  return {};
}

}  // namespace

Result<Source> read_bundle_etm(const std::optional<JsonView>& bundle, const JsonView& stream) {
  Source out;
  out.idr1 = kUsualIdr1;
  out.idr2 = kUsualIdr2;
  if (bundle) {
    if (auto ok = read_into(*bundle, out); !ok) return std::unexpected(ok.error());
  }
  if (const auto own = stream.find("etm")) {
    if (auto ok = read_into(*own, out); !ok) return std::unexpected(ok.error());
  }
  return out;
}

Result<std::optional<TimeConversion>> read_bundle_time(const JsonView& object) {
  if (!object.find("time_mult") && !object.find("time_shift") && !object.find("time_zero"))
    return std::nullopt;
  TimeConversion time;
  if (auto ok = read_number(object, "time_mult", time.mult); !ok) return std::unexpected(ok.error());
  if (auto ok = read_number(object, "time_shift", time.shift); !ok) return std::unexpected(ok.error());
  if (auto ok = read_number(object, "time_zero", time.zero); !ok) return std::unexpected(ok.error());
  if (time.mult == 0) return object.error("time_mult is 0");
  if (time.shift > 63)
    return object.error(fmt::format("time_shift {} is too big, the limit is 63", time.shift));
  return time;
}

}  // namespace asof
