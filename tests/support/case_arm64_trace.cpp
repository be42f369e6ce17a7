// The trace of one CPU of a case, and how perf stores it (tools/perf/util/cs-etm.h, arch/arm/util/cs-etm.c).
#include <fmt/format.h>

#include <map>

#include "tests/support/case_arm64.h"
#include "tests/support/etm_frames.h"
#include "tests/support/etm_opencsd.h"
#include "tests/support/etm_writer.h"

namespace asof::test {

namespace {

uint8_t trace_id(unsigned cpu) { return static_cast<uint8_t>(0x10 + 2 * cpu); }

class Encoder {
 public:
  explicit Encoder(const CaseFile& c) : case_(c) {}
  void packet(const CasePacket& p);
  CaseTrace finish() {
    writer_.flush();
    out_.bytes = writer_.bytes();
    return std::move(out_);
  }

 private:
  Addr ip(const CasePacket& p, size_t i) const { return case_.program.address(p.args.at(i)); }
  void note(Time t) {
    out_.first = std::min(out_.first, t);
    out_.last = std::max(out_.last, t);
  }
  void timestamp(const std::string& word);
  void exception(const CasePacket& p);

  const CaseFile& case_;
  EtmWriter writer_;
  CaseTrace out_;
};

// "zero": the generator does not run. "-": no packet.
void Encoder::timestamp(const std::string& word) {
  if (word == "-") return;
  if (word == "zero") {
    writer_.timestamp(0);
    return;
  }
  const Time t = case_time(word);
  note(t);
  writer_.timestamp(static_cast<uint64_t>(t + case_.arm64.counter_offset));
}

// exc TYPE RETURN [VECTOR]
void Encoder::exception(const CasePacket& p) {
  static const std::map<std::string, uint16_t> types = {{"irq", etm_exception::kIrq},
                                                        {"debug", etm_exception::kInstDebug},
                                                        {"call", etm_exception::kCall},
                                                        {"fault", etm_exception::kDataFault}};
  const auto type = types.find(p.args.at(0));
  if (type == types.end()) throw CaseError(fmt::format("'{}' is not a kind of exception", p.args[0]));
  writer_.exception(type->second, ip(p, 1));
  if (p.args.size() > 2) writer_.address(ip(p, 2));
}

void Encoder::packet(const CasePacket& p) {
  if (p.kind == "sync") {
    writer_.async();
    writer_.trace_info({});
    timestamp(p.args.at(0));
    writer_.trace_on();
    writer_.address_with_context(ip(p, 1), {});
  } else if (p.kind == "resync") {
    writer_.async();
    writer_.trace_info({});
    timestamp(p.args.at(0));
    writer_.address_with_context(ip(p, 1), {});
  } else if (p.kind == "on") {
    writer_.trace_on();
    writer_.address_with_context(ip(p, 0), {});
  } else if (p.kind == "ts") {
    timestamp(p.args.at(0));
  } else if (p.kind == "atoms") {
    if (p.args.at(0).find_first_not_of("EN") != std::string::npos) throw CaseError("atoms are E and N");
    writer_.atoms(p.args[0].c_str());
  } else if (p.kind == "addr") {
    writer_.address(ip(p, 0));
  } else if (p.kind == "exc") {
    exception(p);
  } else if (p.kind == "overflow") {
    writer_.overflow();
  } else if (p.kind == "end") {
    note(case_time(p.args.at(0)));  // of the AUX record
  } else {
    throw CaseError(fmt::format("unknown packet '{}'", p.kind));
  }
}

}  // namespace

CaseTrace encode_arm64_trace(const CaseFile& c, std::span<const CasePacket> packets) {
  return encode_packets<Encoder>(c, packets);
}

AttrSpec arm64_attr(const CaseFile& c) {
  constexpr uint64_t kTimestamps = 1ULL << 28, kReturnStack = 1ULL << 29;
  return {.type = 8,
          .config = kTimestamps | (c.arm64.return_stack ? kReturnStack : 0),
          .flags = attr_flag::kSampleIdAll,
          .name = "cs_etm//"};
}

std::vector<uint64_t> arm64_trace_units(const CaseFile& c, unsigned cpus) {
  constexpr uint64_t kVersion = 1, kEtm4Magic = 0x4040404040404040, kValues = 8, kVirtual = 1;
  std::vector<uint64_t> out = {kVersion, uint64_t{8} << 32 | cpus, 0};
  for (unsigned cpu = 0; cpu < cpus; ++cpu) {
    const arm64::Source s = etm4_source(trace_id(cpu), c.arm64.return_stack);
    out.insert(out.end(), {kEtm4Magic, cpu, kValues, s.configr, s.trace_id, s.idr0, s.idr1, s.idr2, s.idr8,
                           0xccU, c.arm64.counter_unknown ? UINT64_MAX : kVirtual});
  }
  return out;
}

std::vector<uint8_t> arm64_frames(unsigned cpu, std::span<const uint8_t> trace) {
  EtmFrames frames;
  frames.write(trace_id(cpu), trace);
  frames.flush();
  return frames.bytes();
}

}  // namespace asof::test
