// The packet reader against libipt's packet decoder: random packets, random bytes and damaged packets.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <intel-pt.h>

#include <algorithm>
#include <vector>

#include "arch/x86/packet.h"
#include "tests/support/pt_writer.h"
#include "tests/support/sim_random.h"

namespace asof::x86 {
namespace {

using asof::test::ExecMode;
using asof::test::IpForm;
using asof::test::PtWriter;
using asof::test::SimRandom;
using Bytes = std::vector<uint8_t>;

struct Seen {
  Pk type = Pk::kBad;
  uint64_t size = 0;
  uint64_t value = 0, value2 = 0;
  unsigned ipc = 0;
  bool operator==(const Seen&) const = default;
};

std::ostream& operator<<(std::ostream& o, const Seen& s) {
  return o << fmt::format("type {} size {} value {:#x} {:#x} ipc {}", static_cast<int>(s.type), s.size,
                          s.value, s.value2, s.ipc);
}

Seen of_ip(Pk type, const pt_packet& p) { return {type, p.size, p.payload.ip.ip, 0, p.payload.ip.ipc}; }

// libipt's packet in our terms. Fields that libipt splits and we do not are recombined.
Seen translate(const pt_packet& p) {
  const auto& l = p.payload;
  switch (p.type) {
    case ppt_pad:
      return {Pk::kPad, p.size};
    case ppt_psb:
      return {Pk::kPsb, p.size};
    case ppt_psbend:
      return {Pk::kPsbend, p.size};
    case ppt_ovf:
      return {Pk::kOvf, p.size};
    case ppt_stop:
      return {Pk::kStop, p.size};
    case ppt_fup:
      return of_ip(Pk::kFup, p);
    case ppt_tip:
      return of_ip(Pk::kTip, p);
    case ppt_tip_pge:
      return of_ip(Pk::kPge, p);
    case ppt_tip_pgd:
      return of_ip(Pk::kPgd, p);
    case ppt_tnt_8:
    case ppt_tnt_64:
      return {Pk::kTnt, p.size, l.tnt.payload, 0, l.tnt.bit_size};
    case ppt_mode:
      if (l.mode.leaf == pt_mol_exec)
        return {Pk::kModeExec, p.size, uint64_t{l.mode.bits.exec.csl} | uint64_t{l.mode.bits.exec.csd} << 1};
      return {Pk::kModeTsx, p.size, uint64_t{l.mode.bits.tsx.intx} | uint64_t{l.mode.bits.tsx.abrt} << 1};
    case ppt_pip:
      return {Pk::kPip, p.size, l.pip.cr3, l.pip.nr};
    case ppt_vmcs:
      return {Pk::kVmcs, p.size, l.vmcs.base};
    case ppt_cbr:
      return {Pk::kCbr, p.size, l.cbr.ratio};
    case ppt_tsc:
      return {Pk::kTsc, p.size, l.tsc.tsc};
    case ppt_tma:
      return {Pk::kTma, p.size, l.tma.ctc, l.tma.fc};
    case ppt_mtc:
      return {Pk::kMtc, p.size, l.mtc.ctc};
    case ppt_cyc:
      return {Pk::kCyc, p.size, l.cyc.value};
    case ppt_mnt:
      return {Pk::kMnt, p.size, l.mnt.payload};
    case ppt_exstop:
      return {Pk::kExstop, p.size, 0, l.exstop.ip};
    case ppt_mwait:
      return {Pk::kMwait, p.size, l.mwait.hints, l.mwait.ext};
    case ppt_pwre:
      // The HW bit is left out: bit 7 in the SDM and in perf, bit 3 in libipt.
      return {Pk::kPwre, p.size, uint64_t{l.pwre.state} << 4 | l.pwre.sub_state};
    case ppt_pwrx:
      return {Pk::kPwrx, p.size, uint64_t{l.pwrx.last} << 4 | l.pwrx.deepest,
              uint64_t{l.pwrx.interrupt} | uint64_t{l.pwrx.store} << 1 | uint64_t{l.pwrx.autonomous} << 2};
    case ppt_ptw:
      return {Pk::kPtw, p.size, l.ptw.payload, l.ptw.ip, l.ptw.plc == 0 ? 4U : 8U};
    default:
      return {Pk::kBad, p.size};
  }
}

Seen translate(const Packet& k) {
  Seen s{k.type, k.size, k.value, k.value2, k.ipc};
  switch (k.type) {
    case Pk::kModeExec:
      s.value &= 3;  // libipt 2.0.5 does not know the interrupt flag
      break;
    case Pk::kModeTsx:
      s.value &= 3;
      break;
    case Pk::kExstop:
    case Pk::kPtw:
      s.value2 = k.ip_bit;
      break;
    case Pk::kPwre:
      s.value = (k.value >> 8) & 0xff;
      break;
    case Pk::kPwrx: {
      const uint64_t v = k.value;
      s.value = v & 0xff;
      s.value2 = ((v >> 8) & 1) | ((v >> 10) & 1) << 1 | ((v >> 11) & 1) << 2;
      break;
    }
    default:
      break;
  }
  return s;
}

// Newer than libipt 2.0.5: BBP, BEP, CFE, EVD and TRIG (it reads BIP as a TNT; only the context distinguishes
// them).
bool libipt_does_not_know(std::span<const uint8_t> b) {
  if (b[0] == 0xd9) return true;
  if (b[0] != 0x02 || b.size() < 2) return false;
  return b[1] == 0x63 || b[1] == 0x33 || b[1] == 0xb3 || b[1] == 0x13 || b[1] == 0x53;
}

class LibiptPackets {
 public:
  explicit LibiptPackets(Bytes& b) {
    pt_config c;
    pt_config_init(&c);
    c.begin = b.data();
    c.end = b.data() + b.size();
    decoder_ = pt_pkt_alloc_decoder(&c);
    pt_pkt_sync_set(decoder_, 0);
  }
  ~LibiptPackets() { pt_pkt_free_decoder(decoder_); }
  LibiptPackets(const LibiptPackets&) = delete;
  LibiptPackets& operator=(const LibiptPackets&) = delete;
  int at(uint64_t offset, pt_packet& p) {
    pt_pkt_sync_set(decoder_, offset);
    return pt_pkt_next(decoder_, &p, sizeof p);
  }

 private:
  pt_packet_decoder* decoder_ = nullptr;
};

// Reads both from `bytes` until one stops; returns how many packets agreed.
size_t compare_with_libipt(Bytes& bytes) {
  LibiptPackets lib(bytes);
  size_t n = 0;
  for (uint64_t offset = 0; offset < bytes.size(); ++n) {
    pt_packet p;
    const int status = lib.at(offset, p);
    const Packet k = read_packet(bytes.data() + offset, bytes.data() + bytes.size());
    const std::string where = fmt::format(
        "offset {} bytes {:02x} libipt {}", offset,
        fmt::join(std::span(bytes).subspan(offset, std::min<size_t>(16, bytes.size() - offset)), " "),
        status < 0 ? pt_errstr(pt_errcode(status)) : "reads a packet");
    if (libipt_does_not_know(std::span(bytes).subspan(offset))) {
      EXPECT_LT(status, 0) << where;
      return n;
    }
    if (status < 0) {
      // Of a PSB truncated by the end, libipt does not check the bytes that are present.
      const bool psb_like = bytes[offset] == 0x02 && offset + 1 < bytes.size() && bytes[offset + 1] == 0x82;
      if (status == -pte_eos && psb_like && k.type == Pk::kBad) return n;
      EXPECT_EQ(k.type, status == -pte_eos ? Pk::kEnd : Pk::kBad) << where;
      return n;
    }
    const Seen want = translate(p);
    const Seen got = translate(k);
    EXPECT_EQ(got, want) << where;
    if (got != want) return n;
    offset += k.size;
  }
  return n;
}

void random_packet(PtWriter& w, SimRandom& r) {
  const uint64_t v = r.next();
  const uint64_t ip = r.chance(50) ? 0xffffffff81000000 + (v & 0xffffff) : v & 0x7fffffffffff;
  constexpr IpForm kForms[] = {IpForm::kAuto,   IpForm::kNone, IpForm::k16,  IpForm::k32,
                               IpForm::kSext48, IpForm::k48,   IpForm::kFull};
  const IpForm form = kForms[r.below(7)];
  switch (r.below(26)) {
    case 0:
      return w.pad(1 + r.below(3));
    case 1:
      return w.psb();
    case 2:
      return w.psbend();
    case 3:
    case 4:
      for (uint64_t i = r.between(1, 60); i != 0; --i) w.tnt(r.chance(50));
      return w.flush();
    case 5:
    case 6:
      return w.tip(ip, form);
    case 7:
      return w.tip_pge(ip, form);
    case 8:
      return w.tip_pgd(ip, form);
    case 9:
      return w.fup(ip, form);
    case 10:
      return w.mode_exec(static_cast<ExecMode>(r.below(3)));
    case 11:
      return w.mode_tsx(r.chance(50), r.chance(50));
    case 12:
      return w.pip(v & 0xfffffffffffe0, r.chance(50));
    case 13:
      return w.vmcs(v & 0xffffffffff000);
    case 14:
      return w.cbr(static_cast<uint8_t>(v));
    case 15:
      return w.tsc(v & 0xffffffffffffff);
    case 16:
      return w.tma(static_cast<uint16_t>(v), static_cast<uint16_t>((v >> 20) & 0x1ff));
    case 17:
      return w.mtc(static_cast<uint8_t>(v));
    case 18:
      return w.cyc(v >> r.between(4, 63));
    case 19:
      return w.stop();
    case 20:
      return w.ovf();
    case 21:
      return w.mnt(v);
    case 22:
      return r.chance(50) ? w.ptw(v, true, r.chance(50)) : w.ptw(v & 0xffffffff, false, r.chance(50));
    case 23:
      return r.chance(50) ? w.exstop(r.chance(50))
                          : w.mwait(static_cast<uint32_t>(v), static_cast<uint32_t>(v >> 32));
    case 24:
      return w.pwre(static_cast<uint8_t>(v & 15), static_cast<uint8_t>((v >> 4) & 15), r.chance(50));
    default:
      return w.pwrx(static_cast<uint8_t>(v & 15), static_cast<uint8_t>((v >> 4) & 15),
                    static_cast<uint8_t>((v >> 8) & 7));
  }
}

TEST(PacketDifferential, RandomSequencesOfValidPackets) {
  size_t packets = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SimRandom r(seed);
    PtWriter w(PtWriter::Options{.long_tnt = r.chance(50)});
    for (int i = 0; i < 300; ++i) random_packet(w, r);
    w.flush();
    Bytes bytes = w.bytes();
    const size_t n = compare_with_libipt(bytes);
    EXPECT_EQ(n, w.packets().size()) << "seed " << seed;
    packets += n;
    if (HasFailure()) return;
  }
  EXPECT_GT(packets, 60'000U);
}

TEST(PacketDifferential, RandomBytes) {
  for (uint64_t seed = 0; seed < 60'000; ++seed) {
    SimRandom r(seed);
    Bytes bytes(r.between(1, 24));
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(r.next());
    // Most first bytes are not packets; steer half of the tries to the packets with more than one byte.
    static constexpr uint8_t kStarts[] = {0x02, 0x02, 0x02, 0x19, 0x59, 0x99,
                                          0x0d, 0x11, 0x01, 0x1d, 0x03, 0x07};
    if (r.chance(60)) bytes[0] = kStarts[r.below(std::size(kStarts))];
    compare_with_libipt(bytes);
    if (HasFailure()) return;
  }
}

TEST(PacketDifferential, FlippedBitsAndTruncations) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SimRandom r(seed);
    PtWriter w;
    for (int i = 0; i < 40; ++i) random_packet(w, r);
    w.flush();
    Bytes bytes = w.bytes();
    for (int i = 0; i < 3; ++i) bytes[r.below(bytes.size())] ^= static_cast<uint8_t>(1U << r.below(8));
    bytes.resize(r.between(1, bytes.size()));
    compare_with_libipt(bytes);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace asof::x86
