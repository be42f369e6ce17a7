// The writers of ETM packets and CoreSight frames against OpenCSD: every packet is read with its values.
#include "tests/support/etm_writer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "tests/support/etm_frames.h"
#include "tests/support/etm_opencsd.h"
#include "tests/support/sim_random.h"

namespace asof::test {
namespace {

// One packet of OpenCSD for each of the writer's, at the same offset.
std::vector<CsdPacket> read_back(const EtmWriter& w, const arm64::Source& source) {
  std::vector<CsdPacket> got = csd_packets(source, w.bytes());
  EXPECT_EQ(got.size(), w.packets().size());
  for (size_t i = 0; i < std::min(got.size(), w.packets().size()); ++i)
    EXPECT_EQ(got[i].offset, w.packets()[i].offset) << i << " " << got[i].text;
  return got;
}

void sync(EtmWriter& w) {
  w.async();
  w.trace_info({.info = 0, .cycle_threshold = 0});
}

TEST(EtmWriter, EveryPacketHasItsTypeAndValues) {
  arm64::Source source = etm4_source();
  source.idr0 |= 1U << 14 | 3U << 15;  // Q elements
  struct Case {
    const char* name;
    std::function<void(EtmWriter&)> write;
    std::function<bool(const ocsd_etmv4_i_pkt&)> right;
  };
  const std::vector<Case> cases = {
      {"trace info",
       [](EtmWriter& w) { w.trace_info({.info = 1, .key = {}, .spec = 3, .cycle_threshold = 300}); },
       [](const auto& p) {
         return p.type == ETM4_PKT_I_TRACE_INFO && p.trace_info.val == 1 && p.curr_spec_depth == 3 &&
                p.cc_threshold == 300;
       }},
      {"trace on", [](EtmWriter& w) { w.trace_on(); },
       [](const auto& p) { return p.type == ETM4_PKT_I_TRACE_ON; }},
      {"timestamp with count", [](EtmWriter& w) { w.timestamp(0x123456789, 77); },
       [](const auto& p) {
         return p.type == ETM4_PKT_I_TIMESTAMP && p.ts.timestamp == 0x123456789 && p.cycle_count == 77;
       }},
      {"context",
       [](EtmWriter& w) {
         w.context({.el = 2, .aarch64 = true, .non_secure = true, .vmid = 7, .context_id = 0x12345678});
       },
       [](const auto& p) {
         return p.type == ETM4_PKT_I_CTXT && p.context.EL == 2 && p.context.SF == 1 && p.context.NS == 1 &&
                p.context.VMID == 7 && p.context.ctxtID == 0x12345678;
       }},
      {"context unchanged", [](EtmWriter& w) { w.context_unchanged(); },
       [](const auto& p) { return p.type == ETM4_PKT_I_CTXT && p.context.updated == 0; }},
      {"address with context", [](EtmWriter& w) { w.address_with_context(0xffff800008001234, {.el = 1}); },
       [](const auto& p) {
         return p.type == ETM4_PKT_I_ADDR_CTXT_L_64IS0 && p.v_addr.val == 0xffff800008001234 &&
                p.context.EL == 1;
       }},
      {"32-bit address with context, T32",
       [](EtmWriter& w) { w.address_with_context(0x80123456, {.el = 0, .aarch64 = false}, 1, false); },
       [](const auto& p) {
         return p.type == ETM4_PKT_I_ADDR_CTXT_L_32IS1 && (p.v_addr.val & 0xffffffff) == 0x80123456 &&
                p.context.SF == 0;
       }},
      {"exception header",
       [](EtmWriter& w) { w.exception_header(etm_exception::kInstDebug, EtmExceptionAddress::kReturn); },
       [](const auto& p) {
         return p.type == ETM4_PKT_I_EXCEPT && p.exception_info.exceptionType == 6 &&
                p.exception_info.addr_interp == 1;
       }},
      {"exception at a target, long type",
       [](EtmWriter& w) { w.exception_header(0x155, EtmExceptionAddress::kTarget); },
       [](const auto& p) {
         return p.type == ETM4_PKT_I_EXCEPT && p.exception_info.exceptionType == 0x155 &&
                p.exception_info.addr_interp == 2;
       }},
      {"exception return", [](EtmWriter& w) { w.exception_return(); },
       [](const auto& p) { return p.type == ETM4_PKT_I_EXCEPT_RTN; }},
      {"q", [](EtmWriter& w) { w.q(); },
       [](const auto& p) { return p.type == ETM4_PKT_I_Q && p.Q_pkt.q_type == 15; }},
      {"q with count", [](EtmWriter& w) { w.q(1000); },
       [](const auto& p) {
         return p.type == ETM4_PKT_I_Q && p.Q_pkt.q_count == 1000 && !p.Q_pkt.addr_present;
       }},
      {"cycle count 1", [](EtmWriter& w) { w.cycle_count_f1(345678); },
       [](const auto& p) { return p.type == ETM4_PKT_I_CCNT_F1 && p.cycle_count == 345678; }},
      {"cycle count 1, unknown", [](EtmWriter& w) { w.cycle_count_f1({}); },
       [](const auto& p) { return p.type == ETM4_PKT_I_CCNT_F1 && p.cycle_count == 0; }},
      {"cycle count 2", [](EtmWriter& w) { w.cycle_count_f2(8, 3); },
       [](const auto& p) {
         return p.type == ETM4_PKT_I_CCNT_F2 && p.cycle_count == 8 && p.commit_elements == 3;
       }},
      {"cycle count 3", [](EtmWriter& w) { w.cycle_count_f3(2); },
       [](const auto& p) { return p.type == ETM4_PKT_I_CCNT_F3 && p.cycle_count == 2; }},
      {"commit", [](EtmWriter& w) { w.commit(200); },
       [](const auto& p) { return p.type == ETM4_PKT_I_COMMIT && p.commit_elements == 200; }},
      {"cancel 1", [](EtmWriter& w) { w.cancel_f1(130, false); },
       [](const auto& p) { return p.type == ETM4_PKT_I_CANCEL_F1 && p.cancel_elements == 130; }},
      {"cancel 1, mispredict", [](EtmWriter& w) { w.cancel_f1(2, true); },
       [](const auto& p) { return p.type == ETM4_PKT_I_CANCEL_F1_MISPRED && p.cancel_elements == 2; }},
      {"cancel 2", [](EtmWriter& w) { w.cancel_f2("EE"); },
       [](const auto& p) {
         return p.type == ETM4_PKT_I_CANCEL_F2 && p.cancel_elements == 1 && p.atom.num == 2 &&
                p.atom.En_bits == 3;
       }},
      {"cancel 3", [](EtmWriter& w) { w.cancel_f3(4, true); },
       [](const auto& p) {
         return p.type == ETM4_PKT_I_CANCEL_F3 && p.cancel_elements == 4 && p.atom.num == 1;
       }},
      {"mispredict", [](EtmWriter& w) { w.mispredict("N"); },
       [](const auto& p) {
         return p.type == ETM4_PKT_I_MISPREDICT && p.atom.num == 1 && p.atom.En_bits == 0;
       }},
      {"event", [](EtmWriter& w) { w.event(5); },
       [](const auto& p) { return p.type == ETM4_PKT_I_EVENT && p.event_val == 5; }},
      {"discard", [](EtmWriter& w) { w.discard(); },
       [](const auto& p) { return p.type == ETM4_PKT_I_DISCARD; }},
      {"overflow", [](EtmWriter& w) { w.overflow(); },
       [](const auto& p) { return p.type == ETM4_PKT_I_OVERFLOW; }},
      {"async", [](EtmWriter& w) { w.async(); }, [](const auto& p) { return p.type == ETM4_PKT_I_ASYNC; }},
  };
  EtmWriter w;
  sync(w);
  for (const Case& c : cases) {
    c.write(w);
    // The threshold of a trace info applies to the packets after it.
    if (std::string_view(c.name) == "trace info") w.trace_info({.info = 1, .cycle_threshold = 0});
  }
  const std::vector<CsdPacket> got = read_back(w, source);
  size_t at = 2;
  for (const Case& c : cases) {
    ASSERT_LT(at, got.size()) << c.name;
    EXPECT_TRUE(c.right(got[at].packet)) << c.name << ": " << got[at].text;
    at += std::string_view(c.name) == "trace info" ? 2 : 1;
  }
}

// In format 2 OpenCSD 1.3.3 takes bit 0 of the count for the header's F bit: even counts with small commits
// here, odd counts with large ones.
TEST(EtmWriter, CycleCountsThatCommit) {
  arm64::Source source = etm4_source();
  source.idr0 &= ~(1U << 29);  // COMMOPT 0
  source.idr8 = 20;
  EtmWriter w({.commit_in_count = true, .max_spec_depth = 20, .cycle_threshold = 4});
  w.async();
  w.trace_info({.info = 1, .spec = 9, .cycle_threshold = 4});
  w.cycle_count_f1(100, 300);
  w.cycle_count_f2(6, 16);
  w.cycle_count_f2(5, 19);
  w.cycle_count_f3(6, 4);
  const std::vector<CsdPacket> got = read_back(w, source);
  ASSERT_EQ(got.size(), 6U);
  const uint32_t want[][2] = {{100, 300}, {6, 16}, {5, 19}, {6, 4}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(got[2 + i].packet.cycle_count, want[i][0]) << got[2 + i].text;
    EXPECT_EQ(got[2 + i].packet.commit_elements, want[i][1]) << got[2 + i].text;
  }
}

TEST(EtmWriter, EteHasPacketsOfItsOwn) {
  EtmWriter w;
  sync(w);
  w.transaction_start();
  w.transaction_commit();
  w.timestamp_marker();
  w.source_address(0xffff800008123450);
  w.source_address(0xffff800008123450);
  w.source_address(0xffff800008123474);
  w.source_address(0xffff80000f123470);
  const std::vector<CsdPacket> got = read_back(w, ete_source());
  ASSERT_EQ(got.size(), 9U);
  const char* const want[] = {"I_TRANS_ST ",         "I_TRANS_COMMIT ",   "I_TS_MARKER ",
                              "I_SRC_ADDR_L_64IS0 ", "I_SRC_ADDR_MATCH ", "I_SRC_ADDR_S_IS0 ",
                              "I_SCR_ADDR_L_32IS0 " /* sic */};
  for (size_t i = 0; i < 7; ++i) EXPECT_TRUE(got[2 + i].text.starts_with(want[i])) << got[2 + i].text;
  EXPECT_NE(got[7].text.find("Addr=0xFFFF800008123474"), std::string::npos) << got[7].text;
  EXPECT_NE(got[8].text.find("0F123470"), std::string::npos) << got[8].text;
}

// FEAT_ITE is younger than OpenCSD 1.3.3: header, exception level, eight bytes of value (IHI 0064H,
// "Instrumentation Trace packet").
TEST(EtmWriter, InstrumentationPacket) {
  EtmWriter w;
  w.instrumentation(1, 0x1122334455667788);
  EXPECT_EQ(w.bytes(), (std::vector<uint8_t>{0x09, 0x01, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11}));
}

TEST(EtmWriter, AtomsComeBackInOrderAndFewBytes) {
  SimRandom random(3);
  for (int n = 0; n < 300; ++n) {
    EtmWriter w;
    sync(w);
    std::string want;
    const uint64_t bias = random.below(101);
    for (uint64_t i = random.between(1, 120); i != 0; --i) {
      const bool e = random.chance(bias);
      w.atom(e);
      want += e ? 'E' : 'N';
    }
    w.flush();
    std::string got;
    for (const CsdPacket& p : read_back(w, etm4_source())) {
      if (p.packet.type == ETM4_PKT_I_ASYNC || p.packet.type == ETM4_PKT_I_TRACE_INFO) continue;
      for (unsigned i = 0; i < p.packet.atom.num; ++i)
        got += (p.packet.atom.En_bits >> i & 1) != 0 ? 'E' : 'N';
    }
    ASSERT_EQ(got, want);
  }
}

TEST(EtmWriter, EveryAtomFormatIsUsed) {
  const std::map<std::string, uint8_t> formats = {{"E", 0xf7},
                                                  {"N", 0xf6},
                                                  {"EN", 0xd9},
                                                  {"NE", 0xda},
                                                  {"NNE", 0xfc},
                                                  {"EEE", 0xff},
                                                  {"NEEE", 0xdc},
                                                  {"NNNN", 0xdd},
                                                  {"NENE", 0xde},
                                                  {"ENEN", 0xdf},
                                                  {"NEEEE", 0xf5},
                                                  {"NNNNN", 0xd5},
                                                  {"NENEN", 0xd6},
                                                  {"ENENE", 0xd7},
                                                  {"EEEE", 0xc0},
                                                  {"EEEN", 0xe0},
                                                  {"EEEEEEEN", 0xe4},
                                                  {std::string(24, 'E'), 0xd4},
                                                  {std::string(23, 'E') + "N", 0xf4}};
  for (const auto& [pattern, byte] : formats) {
    EtmWriter w;
    w.atoms(pattern.c_str());
    w.flush();
    EXPECT_EQ(w.bytes(), std::vector<uint8_t>{byte}) << pattern;
  }
}

TEST(EtmWriter, AddressesOfEveryFormComeBack) {
  SimRandom random(7);
  std::map<int, int> forms;
  for (int n = 0; n < 40; ++n) {
    EtmWriter w;
    sync(w);
    w.context({});  // else OpenCSD takes 32 bits for the whole address
    std::vector<std::pair<uint64_t, unsigned>> want;
    uint64_t a = 0xffff800008000000;
    for (int i = 0; i < 200; ++i) {
      const unsigned bits[] = {6, 9, 10, 16, 17, 18, 31, 33, 63};
      const uint64_t mask = (uint64_t{2} << bits[random.below(std::size(bits))]) - 1;
      if (random.chance(30) && want.size() >= 3)
        a = want[want.size() - random.between(1, 3)].first;
      else
        a = (a & ~mask) | (random.next() & mask);
      const unsigned is = random.chance(20) ? 1 : 0;
      a &= is == 0 ? ~uint64_t{3} : ~uint64_t{1};
      w.address(a, is);
      want.emplace_back(a, is);
    }
    const std::vector<CsdPacket> got = read_back(w, etm4_source());
    ASSERT_EQ(got.size(), want.size() + 3);
    for (size_t i = 0; i < want.size(); ++i) {
      const ocsd_etmv4_i_pkt& p = got[i + 3].packet;
      ++forms[p.type];
      ASSERT_EQ(p.v_addr.val, want[i].first) << i << " " << got[i + 3].text;
      ASSERT_EQ(p.v_addr_ISA, want[i].second) << i;
    }
  }
  EXPECT_EQ(forms.size(), 7U);
}

TEST(EtmWriter, QAddresses) {
  arm64::Source source = etm4_source();
  source.idr0 |= 1U << 14 | 3U << 15;
  EtmWriter w;
  sync(w);
  w.address_with_context(0xffff800008000100, {});
  w.q_address(3, 0xffff800008000100);
  w.q_address(400, 0xffff800008000200);
  w.q_address(5, 0xffff800048000204, 1);
  const std::vector<CsdPacket> got = read_back(w, source);
  ASSERT_EQ(got.size(), 6U);
  const std::pair<uint32_t, uint64_t> want[] = {
      {3, 0xffff800008000100}, {400, 0xffff800008000200}, {5, 0xffff800048000204}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(got[3 + i].packet.Q_pkt.q_count, want[i].first);
    EXPECT_EQ(got[3 + i].packet.v_addr.val, want[i].second) << got[3 + i].text;
  }
}

TEST(EtmWriter, TimestampsComeBack) {
  SimRandom random(9);
  EtmWriter w;
  sync(w);
  std::vector<uint64_t> want;
  uint64_t t = 0;
  for (int i = 0; i < 500; ++i) {
    // OpenCSD 1.3.3 reads seven of the ninth byte's eight bits.
    t = (t + (uint64_t{1} << random.below(62))) & (UINT64_MAX >> 1);
    want.push_back(t);
    w.timestamp(t);
  }
  const std::vector<CsdPacket> got = read_back(w, etm4_source());
  ASSERT_EQ(got.size(), want.size() + 2);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i + 2].packet.ts.timestamp, want[i]) << i;
}

TEST(EtmFrames, BytesOfEverySourceComeBack) {
  SimRandom random(11);
  for (int n = 0; n < 200; ++n) {
    const bool with_sync = n % 2 == 0;
    EtmFrames frames(with_sync, 3);
    std::map<uint8_t, std::vector<uint8_t>> sent;
    for (uint64_t i = random.between(1, 40); i != 0; --i) {
      const auto id = static_cast<uint8_t>(0x10 + 2 * random.below(3));
      std::vector<uint8_t> bytes(random.between(1, random.chance(50) ? 3 : 40));
      for (uint8_t& b : bytes) b = random.chance(5) ? 0xff : static_cast<uint8_t>(random.next());
      frames.write(id, bytes);
      sent[id].insert(sent[id].end(), bytes.begin(), bytes.end());
      if (random.chance(10)) frames.flush();
      if (random.chance(10)) frames.forget_id();
    }
    frames.flush();
    ASSERT_EQ(frames.bytes().size() % (with_sync ? 4 : 16), 0U);
    for (const auto& [id, bytes] : sent)
      ASSERT_EQ(csd_unformat(etm4_source(id), frames.bytes(), with_sync), bytes) << n << " id " << id;
  }
}

}  // namespace
}  // namespace asof::test
