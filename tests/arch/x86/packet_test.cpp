// The packet reader: every packet written by hand from the SDM, and its truncations.
#include "arch/x86/packet.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/pt_writer.h"

namespace asof::x86 {
namespace {

using asof::test::PtWriter;
using Bytes = std::vector<uint8_t>;

Packet read(const Bytes& b, uint8_t block_bytes = 0) {
  return read_packet(b.data(), b.data() + b.size(), block_bytes);
}

struct Row {
  const char* name;
  Bytes bytes;
  Pk type;
  uint64_t value = 0;
  uint64_t value2 = 0;
  unsigned ipc = 0;
  bool ip_bit = false;
  uint8_t block_bytes = 0;
};

const Row kRows[] = {
    {"PAD", {0x00}, Pk::kPad},
    {"TNT, one bit, not taken", {0x04}, Pk::kTnt, 0, 0, 1},
    {"TNT, one bit, taken", {0x06}, Pk::kTnt, 1, 0, 1},
    {"TNT, six bits", {0b1101'0110}, Pk::kTnt, 0b101011, 0, 6},
    {"TNT long, 47 bits", {0x02, 0xa3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, Pk::kTnt, 0x7fffffffffff, 0, 47},
    {"TNT long, 2 bits", {0x02, 0xa3, 0x06, 0, 0, 0, 0, 0}, Pk::kTnt, 0b10, 0, 2},
    {"TIP suppressed", {0x0d}, Pk::kTip, 0, 0, 0},
    {"TIP 16", {0x2d, 0x34, 0x12}, Pk::kTip, 0x1234, 0, 1},
    {"TIP 32", {0x4d, 0x78, 0x56, 0x34, 0x12}, Pk::kTip, 0x12345678, 0, 2},
    {"TIP 48 sext", {0x6d, 1, 2, 3, 4, 5, 0x86}, Pk::kTip, 0x860504030201, 0, 3},
    {"TIP 48", {0x8d, 1, 2, 3, 4, 5, 0x86}, Pk::kTip, 0x860504030201, 0, 4},
    {"TIP full", {0xcd, 1, 2, 3, 4, 5, 6, 7, 8}, Pk::kTip, 0x0807060504030201, 0, 6},
    {"TIP.PGE", {0x31, 0x34, 0x12}, Pk::kPge, 0x1234, 0, 1},
    {"TIP.PGD suppressed", {0x01}, Pk::kPgd, 0, 0, 0},
    {"TIP.PGD 16", {0x21, 0x34, 0x12}, Pk::kPgd, 0x1234, 0, 1},
    {"FUP", {0x7d, 1, 2, 3, 4, 5, 6}, Pk::kFup, 0x060504030201, 0, 3},
    {"MODE.Exec 64, IF", {0x99, 0x05}, Pk::kModeExec, 5},
    {"MODE.Exec 32", {0x99, 0x02}, Pk::kModeExec, 2},
    {"MODE.TSX abort", {0x99, 0x22}, Pk::kModeTsx, 2},
    {"PSB", {2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82, 2, 0x82}, Pk::kPsb},
    {"PSBEND", {0x02, 0x23}, Pk::kPsbend},
    {"OVF", {0x02, 0xf3}, Pk::kOvf},
    {"TraceStop", {0x02, 0x83}, Pk::kStop},
    {"TSC", {0x19, 1, 2, 3, 4, 5, 6, 7}, Pk::kTsc, 0x07060504030201},
    {"TMA", {0x02, 0x73, 0x34, 0x12, 0, 0xff, 0x01}, Pk::kTma, 0x1234, 0x1ff},
    {"MTC", {0x59, 0x7f}, Pk::kMtc, 0x7f},
    {"CYC one byte", {0x1b}, Pk::kCyc, 3},
    {"CYC two bytes", {0xff, 0xfe}, Pk::kCyc, 0x1f | 0x7f << 5},
    {"CYC three bytes", {0x07, 0x03, 0x04}, Pk::kCyc, (1 << 5) | (2 << 12)},
    {"CBR", {0x02, 0x03, 0x24, 0x00}, Pk::kCbr, 0x24},
    {"PIP non-root", {0x02, 0x43, 0x03, 0, 0, 0, 0, 0}, Pk::kPip, 0x20, 1},
    {"PIP", {0x02, 0x43, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff}, Pk::kPip, 0xfffffffffffe0, 0},
    {"VMCS", {0x02, 0xc8, 1, 2, 3, 4, 5}, Pk::kVmcs, 0x0504030201000},
    {"MNT", {0x02, 0xc3, 0x88, 1, 2, 3, 4, 5, 6, 7, 8}, Pk::kMnt, 0x0807060504030201},
    {"PTW 4", {0x02, 0x12, 1, 2, 3, 4}, Pk::kPtw, 0x04030201, 0, 4},
    {"PTW 8 IP", {0x02, 0xb2, 1, 2, 3, 4, 5, 6, 7, 8}, Pk::kPtw, 0x0807060504030201, 0, 8, true},
    {"EXSTOP", {0x02, 0x62}, Pk::kExstop},
    {"EXSTOP IP", {0x02, 0xe2}, Pk::kExstop, 0, 0, 0, true},
    {"MWAIT", {0x02, 0xc2, 1, 2, 3, 4, 5, 6, 7, 8}, Pk::kMwait, 0x04030201, 0x08070605},
    {"PWRE", {0x02, 0x22, 0x80, 0x21}, Pk::kPwre, 0x2180},
    {"PWRX", {0x02, 0xa2, 0x21, 0x01, 0, 0, 0}, Pk::kPwrx, 0x0121},
    {"BBP, 4-byte items", {0x02, 0x63, 0x84}, Pk::kBbp, 4, 1},
    {"BBP, 8-byte items", {0x02, 0x63, 0x01}, Pk::kBbp, 1, 0},
    {"BIP 4", {0x0c, 1, 2, 3, 4}, Pk::kBip, 0x04030201, 1, 4, false, 4},
    {"BIP 8", {0xfc, 1, 2, 3, 4, 5, 6, 7, 8}, Pk::kBip, 0x0807060504030201, 31, 8, false, 8},
    {"the same byte outside a block is TNT", {0x0c}, Pk::kTnt, 0b10, 0, 2},
    {"BEP", {0x02, 0x33}, Pk::kBep},
    {"BEP IP", {0x02, 0xb3}, Pk::kBep, 0, 0, 0, true},
    {"CFE", {0x02, 0x13, 0x01, 0x0e}, Pk::kCfe, 1, 14},
    {"CFE IP", {0x02, 0x13, 0x89, 0x20}, Pk::kCfe, 9, 0x20, 0, true},
    {"EVD", {0x02, 0x53, 0x02, 1, 2, 3, 4, 5, 6, 7, 8}, Pk::kEvd, 2, 0x0807060504030201},
    {"TRIG without count", {0xd9, 0x00, 0x03}, Pk::kTrig, 3},
    {"TRIG with count and IP", {0xd9, 0xc0, 0x03, 0x10, 0x00}, Pk::kTrig, 3, 0, 0, true},
};

TEST(Packet, EveryTypeIsReadAndNeedsAllItsBytes) {
  for (const Row& r : kRows) {
    SCOPED_TRACE(r.name);
    const Packet k = read(r.bytes, r.block_bytes);
    EXPECT_EQ(k.type, r.type);
    EXPECT_EQ(k.size, r.bytes.size());
    EXPECT_EQ(k.value, r.value);
    EXPECT_EQ(k.ip_bit, r.ip_bit);
    EXPECT_EQ(k.ipc, r.ipc);
    if (r.type != Pk::kTnt) {
      EXPECT_EQ(k.value2, r.value2);
    }
    // A following byte changes nothing.
    Bytes more = r.bytes;
    more.push_back(0xff);
    EXPECT_EQ(read(more, r.block_bytes).type, r.type);
    EXPECT_EQ(read(more, r.block_bytes).size, r.bytes.size());
    for (size_t n = 0; n < r.bytes.size(); ++n) {
      // A heap block of exactly n bytes: ASan detects a read past its end.
      const Bytes part(r.bytes.begin(), r.bytes.begin() + static_cast<std::ptrdiff_t>(n));
      EXPECT_EQ(read(part, r.block_bytes).type, Pk::kEnd) << n << " bytes";
    }
  }
}

TEST(Packet, InvalidOnesAreBad) {
  const Bytes bad[] = {
      {0x02, 0xa3, 0, 0, 0, 0, 0, 0},        // long TNT without a stop bit
      {0x02, 0xa3, 1, 0, 0, 0, 0, 0},        // long TNT, stop bit alone
      {0xad, 0, 0, 0, 0, 0, 0, 0, 0},        // IPBytes 5
      {0xed, 0, 0, 0, 0, 0, 0, 0, 0},        // IPBytes 7
      {0x99, 0x40},                          // MODE leaf 2
      {0x02, 0x52, 0, 0, 0, 0, 0, 0, 0, 0},  // PTW, payload size 2
      {0x02, 0x82, 0x02, 0x83},              // PSB truncated
      {0x02, 0xc3, 0x00},                    // MNT without its third byte
      {0x02, 0x73, 0, 0, 1, 0, 0},           // TMA, reserved byte
      {0x02, 0x73, 0, 0, 0, 0, 2},           // TMA, reserved bits
      {0x02, 0xff},
      {0x05},
      {0xb9},
      {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},  // CYC above 64 bits
  };
  for (const Bytes& b : bad) EXPECT_EQ(read(b).type, Pk::kBad) << fmt::format("{:02x}", fmt::join(b, " "));
}

TEST(Packet, BlockContextFromBbpToBep) {
  EXPECT_EQ(next_block_bytes(read({0x02, 0x63, 0x84}), 0), 4);
  EXPECT_EQ(next_block_bytes(read({0x02, 0x63, 0x04}), 0), 8);
  EXPECT_EQ(next_block_bytes(read({0x02, 0x33}), 8), 0);
  EXPECT_EQ(next_block_bytes(read({0x02, 0xf3}), 4), 0);
  EXPECT_EQ(next_block_bytes(read({0x19, 1, 2, 3, 4, 5, 6, 7}), 4), 4);
  // Inside a block 0x02 still starts an extended packet, and other packets keep their meaning.
  EXPECT_EQ(read({0x02, 0x33}, 8).type, Pk::kBep);
  EXPECT_EQ(read({0x59, 1}, 8).type, Pk::kMtc);
}

TEST(Packet, LastIpByCompression) {
  uint64_t ip = 0xffff'8888'7777'6666;
  EXPECT_FALSE(update_ip(0, 0, ip));
  EXPECT_EQ(ip, 0xffff'8888'7777'6666);
  EXPECT_TRUE(update_ip(1, 0x1111, ip));
  EXPECT_EQ(ip, 0xffff'8888'7777'1111);
  EXPECT_TRUE(update_ip(2, 0x2222'2222, ip));
  EXPECT_EQ(ip, 0xffff'8888'2222'2222);
  EXPECT_TRUE(update_ip(4, 0x7333'3333'3333, ip));
  EXPECT_EQ(ip, 0xffff'7333'3333'3333);
  EXPECT_TRUE(update_ip(3, 0x7444'4444'4444, ip));
  EXPECT_EQ(ip, 0x0000'7444'4444'4444);
  EXPECT_TRUE(update_ip(3, 0x8444'4444'4444, ip));
  EXPECT_EQ(ip, 0xffff'8444'4444'4444);
  EXPECT_TRUE(update_ip(6, 0x1234'5678'9abc'def0, ip));
  EXPECT_EQ(ip, 0x1234'5678'9abc'def0);
}

TEST(PgeAhead, AfterStateAndTimeOfTheHost) {
  const auto is_ahead = [](bool non_root, bool guest_text) {
    PtWriter w;
    w.tsc(7);
    w.tma(5, 9);
    w.mtc(6);
    w.pip(0x1000, non_root);
    w.tip_pge(0x401000);
    const Bytes& b = w.bytes();
    return pge_ahead(b.data(), b.data() + b.size(), guest_text).has_value();
  };
  EXPECT_TRUE(is_ahead(false, false));
  EXPECT_FALSE(is_ahead(true, false));
  EXPECT_TRUE(is_ahead(true, true));
  EXPECT_FALSE(is_ahead(false, true));
}

}  // namespace
}  // namespace asof::x86
