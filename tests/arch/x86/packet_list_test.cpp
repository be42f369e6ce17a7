// The list of packets against libipt's packet decoder, which goes through whole streams by itself; and against the
// flow's own events. Captures that are not part of the project are skipped where they are absent.
#include "arch/x86/packet_list.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <intel-pt.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "arch/x86/packet.h"
#include "tests/support/decode_capture.h"
#include "tests/support/packet_stretches.h"
#include "tests/support/pt_writer.h"
#include "tests/support/sim_random.h"

namespace asof::x86 {
namespace {

using test::listed_packets;
using test::ListedPacket;
using test::PtWriter;

struct Compared {
  uint64_t packets = 0, bytes = 0, unknown = 0, bad = 0;
};

std::string_view name_of(pt_packet_type type, const pt_packet& p) {
  switch (type) {
    case ppt_pad:
      return "PAD";
    case ppt_psb:
      return "PSB";
    case ppt_psbend:
      return "PSBEND";
    case ppt_fup:
      return "FUP";
    case ppt_tip:
      return "TIP";
    case ppt_tip_pge:
      return "TIP.PGE";
    case ppt_tip_pgd:
      return "TIP.PGD";
    case ppt_tnt_8:
      return "TNT.8";
    case ppt_tnt_64:
      return "TNT.64";
    case ppt_mode:
      return p.payload.mode.leaf == pt_mol_exec ? "MODE.Exec" : "MODE.TSX";
    case ppt_pip:
      return "PIP";
    case ppt_vmcs:
      return "VMCS";
    case ppt_cbr:
      return "CBR";
    case ppt_tsc:
      return "TSC";
    case ppt_tma:
      return "TMA";
    case ppt_mtc:
      return "MTC";
    case ppt_cyc:
      return "CYC";
    case ppt_stop:
      return "TraceStop";
    case ppt_ovf:
      return "OVF";
    case ppt_mnt:
      return "MNT";
    case ppt_exstop:
      return "EXSTOP";
    case ppt_mwait:
      return "MWAIT";
    case ppt_pwre:
      return "PWRE";
    case ppt_pwrx:
      return "PWRX";
    case ppt_ptw:
      return "PTWRITE";
    default:
      return "?";
  }
}

// The IP that a packet says, written down from the SDM, "IP compression".
uint64_t whole_ip(const pt_packet_ip& p, uint64_t last) {
  switch (p.ipc) {
    case pt_ipc_update_16:
      return (last & ~0xffffULL) | p.ip;
    case pt_ipc_update_32:
      return (last & ~0xffffffffULL) | p.ip;
    case pt_ipc_update_48:
      return (last & ~0xffffffffffffULL) | p.ip;
    case pt_ipc_sext_48:
      return (p.ip & 1ULL << 47) != 0 ? p.ip | 0xffffULL << 48 : p.ip;
    case pt_ipc_full:
      return p.ip;
    default:
      return last;
  }
}

std::string letters(const pt_packet_tnt& t) {
  std::string out;
  for (unsigned i = t.bit_size; i-- > 0;) out += (t.payload >> i & 1) != 0 ? 'T' : 'N';
  return out;
}

using Numbers = std::vector<std::pair<const char*, uint64_t>>;

// The numbers that libipt gives, by our names.
Numbers numbers_of(const pt_packet& p, uint64_t ip) {
  const auto& l = p.payload;
  switch (p.type) {
    case ppt_fup:
    case ppt_tip:
    case ppt_tip_pge:
    case ppt_tip_pgd:
      return l.ip.ipc == pt_ipc_suppressed ? Numbers{} : Numbers{{"ip", ip}, {"payload", l.ip.ip}};
    case ppt_tnt_8:
    case ppt_tnt_64:
      return {{"count", l.tnt.bit_size}};
    case ppt_mode:
      if (l.mode.leaf == pt_mol_exec) return {{"cs.l", l.mode.bits.exec.csl}, {"cs.d", l.mode.bits.exec.csd}};
      return {{"intx", l.mode.bits.tsx.intx}, {"txabort", l.mode.bits.tsx.abrt}};
    case ppt_pip:
      return {{"cr3", l.pip.cr3}, {"nr", l.pip.nr}};
    case ppt_vmcs:
      return {{"base", l.vmcs.base}};
    case ppt_cbr:
      return {{"ratio", l.cbr.ratio}};
    case ppt_tsc:
      return {{"tsc", l.tsc.tsc}};
    case ppt_tma:
      return {{"ctc", l.tma.ctc}, {"fc", l.tma.fc}};
    case ppt_mtc:
      return {{"ctc", l.mtc.ctc}};
    case ppt_cyc:
      return {{"cycles", l.cyc.value}};
    case ppt_mnt:
      return {{"payload", l.mnt.payload}};
    case ppt_exstop:
      return {{"ip", l.exstop.ip}};
    case ppt_mwait:
      return {{"hints", l.mwait.hints}, {"extensions", l.mwait.ext}};
    case ppt_pwre:
      return {{"c_state", l.pwre.state}, {"sub_state", l.pwre.sub_state}};
    case ppt_pwrx:
      return {{"last_c_state", l.pwrx.last},
              {"deepest_c_state", l.pwrx.deepest},
              {"interrupt", l.pwrx.interrupt},
              {"store", l.pwrx.store},
              {"autonomous", l.pwrx.autonomous}};
    case ppt_ptw:
      return {{"payload", l.ptw.payload}, {"bytes", l.ptw.plc == 0 ? 4U : 8U}, {"ip", l.ptw.ip}};
    default:
      return {};
  }
}

// Newer than this libipt.
bool is_unknown_to_libipt(std::string_view name) {
  static const std::set<std::string_view> names{"BBP", "BIP", "BEP", "CFE", "EVD", "TRIG"};
  return names.contains(name);
}

// libipt goes through the bytes of a stretch from its first sync point on, by itself; where it cannot read on it looks
// for the next one.
class Libipt {
 public:
  explicit Libipt(std::vector<uint8_t>& bytes) {
    pt_config c;
    pt_config_init(&c);
    c.begin = bytes.data();
    c.end = bytes.data() + bytes.size();
    decoder_ = pt_pkt_alloc_decoder(&c);
  }
  ~Libipt() { pt_pkt_free_decoder(decoder_); }
  Libipt(const Libipt&) = delete;
  Libipt& operator=(const Libipt&) = delete;

  bool sync() { return pt_pkt_sync_forward(decoder_) >= 0; }
  void go_to(uint64_t offset) { pt_pkt_sync_set(decoder_, offset); }
  uint64_t offset() const {
    uint64_t at = 0;
    pt_pkt_get_offset(decoder_, &at);
    return at;
  }
  int next(pt_packet& p) { return pt_pkt_next(decoder_, &p, sizeof p); }

 private:
  pt_packet_decoder* decoder_ = nullptr;
};

// The lines of one stretch, whose bytes begin at `base`.
void compare_stretch(std::vector<uint8_t>& bytes, uint64_t base, std::span<const ListedPacket> lines,
                     Compared& out) {
  Libipt lib(bytes);
  uint64_t ip = 0;
  bool synced = false;
  for (const ListedPacket& line : lines) {
    if (line.is_lost()) continue;
    SCOPED_TRACE(fmt::format("offset {:#x}: {}", line.offset, line.name));
    if (line.name == "NOSYNC" || line.name == "BAD" || line.name == "CUT") {
      pt_packet p;
      if (synced && line.name != "CUT") {
        ASSERT_EQ(lib.offset(), line.offset - base);
        ASSERT_LT(lib.next(p), 0);
        ++out.bad;
      }
      if (line.name == "CUT") {
        ASSERT_EQ(lib.next(p), -pte_eos);
        return;
      }
      synced = lib.sync();
      ASSERT_EQ(synced ? lib.offset() : bytes.size(), line.offset + line.size - base)
          << "the next sync point";
      continue;
    }
    if (!synced) {  // the stretch starts with packets
      lib.go_to(line.offset - base);
      synced = true;
    }
    ASSERT_EQ(lib.offset(), line.offset - base);
    if (is_unknown_to_libipt(line.name)) {
      lib.go_to(line.offset + line.size - base);
      ++out.unknown;
      continue;
    }
    pt_packet p;
    ASSERT_GE(lib.next(p), 0);
    ASSERT_EQ(line.name, name_of(p.type, p));
    ASSERT_EQ(line.size, p.size);
    if (p.type == ppt_psb || p.type == ppt_ovf) ip = 0;
    if (p.type == ppt_tip || p.type == ppt_fup || p.type == ppt_tip_pge || p.type == ppt_tip_pgd)
      ip = whole_ip(p.payload.ip, ip);
    if (p.type == ppt_tnt_8 || p.type == ppt_tnt_64) {
      ASSERT_EQ(line.texts.at("tnt"), letters(p.payload.tnt));
    }
    for (const auto& [field, value] : numbers_of(p, ip)) ASSERT_EQ(line.number(field), value) << field;
    ++out.packets;
    out.bytes += p.size;
  }
}

Compared compare_capture(const std::string& path) {
  Compared out;
  test::each_listed_stream(
      path, [&](const Capture& capture, size_t index, std::span<const ListedPacket> lines) {
        test::each_stretch(
            capture.streams[index], lines,
            [&](std::span<const uint8_t> bytes, uint64_t begin, std::span<const ListedPacket> stretch) {
              std::vector<uint8_t> copy(bytes.begin(), bytes.end());  // libipt takes no const bytes
              compare_stretch(copy, begin, stretch, out);
            });
      });
  return out;
}

TEST(PtPacketList, OwnCapturesAsLibiptReadsThem) {
  Compared sum;
  for (const char* name : {"demo/perf.data", "board-x86/capture.tar.xz", "machine-6.1/kernel-tailcall.tar.xz",
                           "machine-6.12/kernel-tailcall.tar.xz", "machine-7.3/thread-user-uprobe.tar.xz"}) {
    const Compared c = compare_capture(fmt::format("{}/{}", ASOF_TEST_DATA, name));
    EXPECT_GT(c.packets, 9'000U) << name;
    EXPECT_EQ(c.unknown, 0U) << name;
    sum.packets += c.packets;
    sum.bytes += c.bytes;
  }
  RecordProperty("packets", std::to_string(sum.packets));
  EXPECT_GT(sum.packets, 400'000U);
}

// Every capture with Intel PT below the folders of captures that are not part of the project.
TEST(PtPacketList, CorpusAsLibiptReadsIt) {
  namespace fs = std::filesystem;
  if (!fs::exists(ASOF_SHARED_DIR "/corpus")) GTEST_SKIP() << "there is no corpus";
  Compared sum;
  size_t captures = 0;
  for (const char* folder : {"corpus", "captures"}) {
    for (const auto& entry : fs::directory_iterator(fs::path(ASOF_SHARED_DIR) / folder)) {
      fs::path path;
      for (const char* file : {"bundle.json", "trace.json", "perf.data"})
        if (path.empty() && fs::exists(entry.path() / file)) path = entry.path() / file;
      if (path.empty() || entry.path().filename() == "pt-cc1") continue;  // 21 million packets
      const auto capture = open_capture(path, {});
      if (!capture || capture->machine != "x86_64" || capture->streams.empty()) continue;
      const Compared c = compare_capture(path);
      if (HasFatalFailure()) return;
      ++captures;
      sum.packets += c.packets;
      sum.unknown += c.unknown;
      sum.bad += c.bad;
    }
  }
  fmt::print("{} captures, {} packets compared, {} unknown to libipt, {} places without a packet\n", captures,
             sum.packets, sum.unknown, sum.bad);
  EXPECT_GT(captures, 0U);
}

// Times are those of the flow: of each event, that of its packet.
TEST(PtPacketList, TimesAreThoseOfTheFlow) {
  uint64_t compared = 0;
  for (const char* name :
       {"demo/perf.data", "machine-6.1/kernel-tailcall.tar.xz", "machine-6.12/kernel-tailcall.tar.xz"}) {
    const auto decoded = test::decode_capture(fmt::format("{}/{}", ASOF_TEST_DATA, name));
    ASSERT_TRUE(decoded.has_value()) << decoded.error().reason;
    const auto arch = decoded->capture.arch();
    for (size_t i = 0; i < decoded->streams.size(); ++i) {
      std::map<uint64_t, Time> times;
      for (const ListedPacket& l : listed_packets(*(*arch)->packets(decoded->capture.streams[i], i)))
        times[l.offset] = l.time;
      for (const Event& e : decoded->streams[i].events) {
        if (e.kind != EventKind::kPsb && e.kind != EventKind::kTraceStart &&
            e.kind != EventKind::kTraceStop && e.kind != EventKind::kOverflow && e.kind != EventKind::kPaging)
          continue;
        ASSERT_TRUE(times.contains(e.offset)) << e.offset;
        ASSERT_EQ(times[e.offset], e.time)
            << name << " offset " << e.offset << " event " << static_cast<int>(e.kind);
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 100U);
}

std::vector<ListedPacket> list_bytes(std::vector<uint8_t> bytes, Stream& stream, const Config& config = {}) {
  static std::vector<std::vector<uint8_t>> keep;
  keep.push_back(std::move(bytes));
  stream.pieces = {StreamPiece{.bytes = keep.back()}};
  return listed_packets(*list_packets(stream, config));
}

// Damage: libipt must see the same packets, and the same places where there is none.
TEST(PtPacketList, DamagedTraceAsLibiptReadsIt) {
  Compared sum;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    test::SimRandom r(seed);
    PtWriter w;
    for (int group = 0; group < 6; ++group) {
      w.psb();
      w.tsc(r.next() & 0xffffffffffffff);
      w.psbend();
      for (int i = 0; i < 30; ++i) {
        w.tip(0xffffffff81000000 + r.below(1 << 20));
        for (uint64_t n = r.below(9); n != 0; --n) w.tnt(r.chance(50));
        w.flush();
        w.cyc(r.below(100'000));
      }
    }
    std::vector<uint8_t> bytes = w.bytes();
    for (int i = 0; i < 4; ++i) bytes[r.below(bytes.size())] = static_cast<uint8_t>(r.next());
    bytes.erase(bytes.end() - static_cast<std::ptrdiff_t>(r.below(20)), bytes.end());
    Stream stream;
    const auto lines = list_bytes(bytes, stream);
    ASSERT_EQ(test::not_covered(stream, lines), "") << seed;
    // A damaged packet may run over a sync point: libipt misses that one, and is not asked then.
    const bool over = std::ranges::any_of(lines, [&](const ListedPacket& l) {
      return l.name == "BAD" && read_packet(&bytes[l.offset], bytes.data() + bytes.size()).size != 0;
    });
    if (over) continue;
    compare_stretch(bytes, 0, lines, sum);
    if (HasFatalFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(sum.packets, 100'000U);
  EXPECT_GT(sum.bad, 100U);
}

// Windows, sync points over the border of pieces, and offsets at the end of all numbers.
TEST(PtPacketList, PiecesAndWindowsDoNotShow) {
  PtWriter w;
  for (int group = 0; group < 5'000; ++group) {
    w.psb();
    w.psbend();
    for (int i = 0; i < 60; ++i) w.tip(0xffffffff81000000 + static_cast<uint64_t>(group * 64 + i) * 0x10001);
  }
  const std::vector<uint8_t> bytes = w.bytes();
  ASSERT_GT(bytes.size(), 3U << 19) << "more than a window";
  Stream whole;
  whole.pieces = {StreamPiece{.bytes = bytes}};
  const auto want = listed_packets(*list_packets(whole, {}));
  for (const size_t size : {61U, 4096U, 100'003U}) {
    Stream cut;
    const uint64_t base = UINT64_MAX - bytes.size() - 3;
    for (size_t at = 0; at < bytes.size(); at += size) {
      StreamPiece& p = cut.pieces.emplace_back();
      p.offset = base + at;
      p.bytes = std::span(bytes).subspan(at, std::min(size, bytes.size() - at));
    }
    const auto got = listed_packets(*list_packets(cut, {}));
    ASSERT_EQ(test::not_covered(cut, got), "");
    ASSERT_EQ(got.size(), want.size()) << size;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].offset - base, want[i].offset);
      ASSERT_EQ(got[i].name, want[i].name);
      ASSERT_EQ(got[i].numbers, want[i].numbers);
    }
  }
}

}  // namespace
}  // namespace asof::x86
