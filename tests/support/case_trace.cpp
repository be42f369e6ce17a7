#include "tests/support/case_trace.h"

#include <fmt/format.h>

#include <optional>

#include "tests/support/pt_writer.h"

namespace asof::test {

namespace {

class Encoder {
 public:
  explicit Encoder(const CaseFile& c) : case_(c), writer_(PtWriter::Options{}) {}

  void packet(const CasePacket& p);
  CaseTrace finish() {
    writer_.flush();
    out_.bytes = writer_.bytes();
    return std::move(out_);
  }

 private:
  Addr ip(const CasePacket& p, size_t i) const { return case_.program.address(p.args.at(i)); }
  uint64_t tsc(const std::string& word);
  static uint64_t offset(const CasePacket& p, size_t i) {
    return static_cast<uint64_t>(case_time(p.args.at(i)) - kCaseBase);
  }
  static PsbPlus::Tma tma(uint64_t tsc) {
    return {static_cast<uint16_t>(tsc / kCaseTscPerCtc), static_cast<uint16_t>(tsc % kCaseTscPerCtc)};
  }
  void psb(const CasePacket& p);
  void guest_psb(const CasePacket& p);
  bool other(const CasePacket& p);
  void tnt(const std::string& bits);

  const CaseFile& case_;
  PtWriter writer_;
  CaseTrace out_;
};

uint64_t Encoder::tsc(const std::string& word) {
  const Time t = case_time(word);
  if (out_.last != kTimeMin && t < out_.last && !case_.runs_back)
    throw CaseError("the trace goes backwards in time");
  out_.first = std::min(out_.first, t);
  out_.last = std::max(out_.last, t);
  return static_cast<uint64_t>(t);
}

// psb TIME|- [IP [cbr RATIO]]
void Encoder::psb(const CasePacket& p) {
  PsbPlus group;
  if (p.args.at(0) != "-") {
    group.tsc = tsc(p.args[0]);
    group.tma = tma(*group.tsc);
  }
  if (p.args.size() > 1) group.ip = ip(p, 1);
  if (p.args.size() > 3 && p.args[2] == "cbr") group.cbr = static_cast<uint8_t>(std::stoul(p.args[3]));
  writer_.psb_plus(group);
}

// gpsb TIME OFFSET IP: in a guest, whose TSC lags the host's by OFFSET.
void Encoder::guest_psb(const CasePacket& p) {
  const uint64_t host = tsc(p.args.at(0));
  PsbPlus group;
  group.tsc = host - offset(p, 1);
  group.tma = tma(host);
  group.cr3 = 0x100000;
  group.ip = ip(p, 2);
  group.non_root = true;
  writer_.psb_plus(group);
}

// Packets that are not bound to a position in the flow. False: it is not one of them.
bool Encoder::other(const CasePacket& p) {
  if (p.kind == "gtsc") {  // gtsc TIME OFFSET: as in gpsb. CTC is the host's also in a guest
    const uint64_t host = tsc(p.args.at(0));
    writer_.tsc(host - offset(p, 1));
    writer_.tma(tma(host).ctc, tma(host).fc);
  } else if (p.kind == "pip") {
    writer_.pip(std::stoull(p.args.at(0), nullptr, 0), p.args.size() > 1 && p.args[1] == "nr");
  } else if (p.kind == "vmcs") {
    writer_.vmcs(std::stoull(p.args.at(0), nullptr, 0));
  } else if (p.kind == "cyc") {
    writer_.cyc(std::stoull(p.args.at(0)));
  } else if (p.kind == "cbr") {
    writer_.cbr(static_cast<uint8_t>(std::stoul(p.args.at(0))));
  } else {
    return false;
  }
  return true;
}

void Encoder::tnt(const std::string& bits) {
  for (const char bit : bits) {
    if (bit != 'T' && bit != 'N') throw CaseError("TNT bits are T and N");
    writer_.tnt(bit == 'T');
  }
  writer_.flush();
}

void Encoder::packet(const CasePacket& p) {
  if (p.kind == "psb") {
    psb(p);
  } else if (p.kind == "tsc") {
    const uint64_t t = tsc(p.args.at(0));
    writer_.tsc(t);
    writer_.tma(tma(t).ctc, tma(t).fc);
  } else if (p.kind == "mtc") {
    writer_.mtc(static_cast<uint8_t>((tsc(p.args.at(0)) / kCaseTscPerCtc) >> kCaseMtcFreq));
  } else if (p.kind == "tnt") {
    tnt(p.args.at(0));
  } else if (p.kind == "tip") {
    writer_.tip(ip(p, 0));
  } else if (p.kind == "fup") {
    writer_.fup(ip(p, 0));
  } else if (p.kind == "pge") {
    writer_.tip_pge(ip(p, 0));
  } else if (p.kind == "pgd") {
    writer_.tip_pgd(p.args.empty() ? std::optional<uint64_t>() : ip(p, 0));
  } else if (p.kind == "stop") {
    writer_.fup(ip(p, 0));
    writer_.tip_pgd();
  } else if (p.kind == "ovf") {
    writer_.ovf();
  } else if (p.kind == "gpsb") {
    guest_psb(p);
  } else if (!other(p)) {
    throw CaseError(fmt::format("unknown packet '{}'", p.kind));
  }
}

}  // namespace

CaseTrace encode_trace(const CaseFile& c, std::span<const CasePacket> packets) {
  return encode_packets<Encoder>(c, packets);
}

}  // namespace asof::test
