// Lists of packets that are made in children: what they give arrives as it was; one that dies, hangs or lies costs the part that
// it had in hand, and that is told.
#include "arch/forked_packets.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/listed_packets.h"

namespace asof::test {
namespace {

constexpr std::array<std::string_view, 7> kListNames = {"LOST",    "NOSYNC", "BAD", "CUT",
                                                        "PADDING", "One",    "Two"};
constexpr uint64_t kForeignPart = 8;

// What goes wrong when the library gets the byte at `at`.
struct PacketFault {
  enum Kind : uint8_t { kNone, kCrash, kAbort, kExit, kLoop, kFalse, kRefuse } kind = kNone;
  uint64_t at = 0;
};

// A packet of two bytes, one of one byte, ...; what is said of it is where it is.
class ForeignPackets final : public PacketReader {
 public:
  ForeignPackets(const Stream& stream, const PacketStart& start, BeforePart before, PacketFault fault)
      : stream_(stream), before_(std::move(before)), fault_(fault), at_(start.offset), time_(start.time) {
    while (piece_ < stream.pieces.size() && end() <= at_) ++piece_;
  }
  std::span<const std::string_view> names() const override { return kListNames; }
  bool next(TracePacket& out) override {
    if (piece_ < stream_.pieces.size() && at_ >= end()) ++piece_;
    if (piece_ == stream_.pieces.size()) return false;
    at_ = std::max(at_, stream_.pieces[piece_].offset);
    while (part_ < at_ + 2 && part_ < end()) {
      const uint64_t begin = std::max(at_, part_);
      part_ = std::min(begin + kForeignPart, end());
      before_(part_);
      if (fault_.at >= begin && fault_.at < part_) fail();
    }
    out = {};
    out.offset = at_;
    out.size = std::min<uint64_t>(at_ % 3 == 0 ? 2 : 1, end() - at_);
    out.type = at_ % 7 == 0 ? kPacketBad : at_ % 3 == 0 ? 5 : 6;
    out.time = ++time_;
    text_ = "at " + std::to_string(at_);
    if (out.type == kPacketBad) out.code = Code::kBadPacket, out.reason = text_;
    if (lies_) out.size = 1000;
    at_ += out.size;
    return true;
  }
  void describe(PacketFields& out) const override { out.text("meaning", text_, true); }

 private:
  uint64_t end() const { return stream_.pieces[piece_].offset + stream_.pieces[piece_].size(); }
  void fail() {
    if (fault_.kind == PacketFault::kCrash) raise(SIGSEGV);
    if (fault_.kind == PacketFault::kAbort) abort();
    if (fault_.kind == PacketFault::kExit) _exit(0);
    for (volatile uint64_t n = 0; fault_.kind == PacketFault::kLoop;) n = n + 1;
    lies_ = fault_.kind == PacketFault::kFalse;
  }

  const Stream& stream_;
  const BeforePart before_;
  const PacketFault fault_;
  uint64_t at_, part_ = 0;
  Time time_;
  size_t piece_ = 0;
  bool lies_ = false;
  std::string text_;
};

class ForkedPackets : public ::testing::Test {
 protected:
  // Bytes 0 to 29 in two pieces, nothing from 30 to 39, bytes 40 to 59.
  ForkedPackets() {
    for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = static_cast<uint8_t>(i);
    const std::span<const uint8_t> all(bytes_);
    stream_.pieces.push_back({.offset = 0, .bytes = all.subspan(0, 20)});
    stream_.pieces.push_back({.offset = 20, .bytes = all.subspan(20, 10)});
    stream_.pieces.push_back({.offset = 40, .bytes = all.subspan(40, 20), .discontinuity = true});
    stream_.losses.push_back(
        {.offset = 30, .bytes = 10, .time = 99, .code = Code::kAuxFull, .reason = "full"});
  }
  std::unique_ptr<PacketReader> reader(PacketFault fault, unsigned seconds = 20) const {
    return packets_in_children(
        stream_,
        [this, fault](const PacketStart& start, const BeforePart& before) -> std::unique_ptr<PacketReader> {
          if (fault.kind == PacketFault::kRefuse) return nullptr;
          return std::make_unique<ForeignPackets>(stream_, start, before, fault);
        },
        {.library = "It", .names = kListNames, .cpu_seconds = seconds});
  }
  // One line as text, for each.
  std::vector<std::string> lines(PacketReader& list) const {
    std::vector<std::string> out;
    PacketFields fields;
    for (TracePacket k; list.next(k);) {
      fields.clear();
      list.describe(fields);
      std::string bytes;
      for (const uint8_t b : k.bytes) bytes += " " + std::to_string(b);
      const std::string said(k.is_packet() ? fields.all()[0].text : k.reason);
      out.push_back(std::to_string(k.offset) + "+" + std::to_string(k.size) + " " +
                    std::string(kListNames[k.type]) + " t" + std::to_string(k.time) + " " +
                    std::string(code_text(k.code)) + bytes + " " + said);
    }
    return out;
  }
  std::vector<std::string> lines(PacketFault fault) const { return lines(*reader(fault)); }

  std::array<uint8_t, 60> bytes_{};
  Stream stream_;
};

constexpr const char* kOfThisPart = " on this part of the trace, which it had for itself";

TEST_F(ForkedPackets, GivesWhatTheLibraryGives) {
  const auto list = lines(PacketFault{});
  ASSERT_EQ(list.size(), 35U);  // 20 in the first stretch, the loss, 14 in the second
  EXPECT_EQ(list[0], "0+2 BAD t" + std::to_string(kTimeMin + 1) + " E-DATA-001 0 1 at 0");
  EXPECT_EQ(list[1], "2+1 Two t" + std::to_string(kTimeMin + 2) + "  2 at 2");
  EXPECT_EQ(list[2], "3+2 One t" + std::to_string(kTimeMin + 3) + "  3 4 at 3");
  EXPECT_EQ(list[20], "30+10 LOST t99 " + std::string(code_text(Code::kAuxFull)) + " full");
  EXPECT_TRUE(list[21].starts_with("40+1 Two t")) << list[21];
}

TEST_F(ForkedPackets, ADeathCostsThePartInHand) {
  const auto whole = lines(PacketFault{});
  for (const auto& [kind, why] : {std::pair(PacketFault::kCrash, "It crashed (signal 11)"),
                                  {PacketFault::kAbort, "It crashed (signal 6)"},
                                  {PacketFault::kExit, "It ended without an answer"},
                                  {PacketFault::kFalse, "It gave a false answer"}}) {
    const auto list = lines(PacketFault{kind, 10});
    // Lines up to byte 7 were given before the part of bytes 8 to 15 was handed over.
    const auto bad = std::ranges::find_if(
        list, [](const std::string& l) { return l.find(kOfThisPart) != std::string::npos; });
    ASSERT_NE(bad, list.end());
    EXPECT_TRUE(std::equal(list.begin(), bad, whole.begin()));
    EXPECT_TRUE(bad->starts_with("6+10 BAD ") || bad->starts_with("8+8 BAD ")) << *bad;
    EXPECT_NE(bad->find(" E-DATA-001 "), std::string::npos);
    EXPECT_NE(bad->find(std::string(why) + kOfThisPart), std::string::npos) << *bad;
    ASSERT_NE(bad + 1, list.end());
    EXPECT_TRUE((bad + 1)->starts_with("16+1 Two ")) << *(bad + 1);
    EXPECT_EQ(not_covered(stream_, listed_packets(*reader(PacketFault{kind, 10}))), "");
  }
}

TEST_F(ForkedPackets, WhatDoesNotEndIsStoppedByItsWork) {
  const auto list = lines(*reader(PacketFault{PacketFault::kLoop, 55}, 0));
  const auto bad = std::ranges::find_if(
      list, [](const std::string& l) { return l.find(kOfThisPart) != std::string::npos; });
  ASSERT_NE(bad, list.end());
  EXPECT_NE(bad->find("It does not come to an end" + std::string(kOfThisPart)), std::string::npos) << *bad;
  EXPECT_TRUE(bad->starts_with("47+9 BAD ")) << *bad;
  EXPECT_TRUE((bad + 1)->starts_with("56+1 BAD ")) << *(bad + 1);
}

// Each child dies of its first part: after the sixteenth, all that is left is one line.
TEST_F(ForkedPackets, ItIsNotAskedForEver) {
  std::vector<uint8_t> many(1000);
  stream_.pieces = {{.offset = 0, .bytes = many}};
  stream_.losses.clear();
  const auto list = packets_in_children(
      stream_,
      [this](const PacketStart& start, const BeforePart& before) -> std::unique_ptr<PacketReader> {
        return std::make_unique<ForeignPackets>(stream_, start, before,
                                                PacketFault{PacketFault::kCrash, start.offset});
      },
      {.library = "It", .names = kListNames});
  const auto all = listed_packets(*list);
  ASSERT_EQ(all.size(), 16U);
  for (size_t i = 0; i < 15; ++i) EXPECT_EQ(all[i].size, kForeignPart);
  EXPECT_EQ(all[15].offset, 15 * kForeignPart);
  EXPECT_EQ(all[15].size, 1000 - 15 * kForeignPart);
  EXPECT_EQ(all[15].code, Code::kBadPacket);
}

TEST_F(ForkedPackets, ARefusalIsNoList) { EXPECT_EQ(reader(PacketFault{PacketFault::kRefuse, 0}), nullptr); }

// A child must not end with the thread that asked for the first line.
TEST_F(ForkedPackets, AcrossThreads) {
  std::vector<uint8_t> many(200'000);  // more than a pipe holds
  stream_.pieces = {{.offset = 0, .bytes = many}};
  stream_.losses.clear();
  const auto list = reader(PacketFault{});
  TracePacket k;
  std::thread([&] { EXPECT_TRUE(list->next(k)); }).join();
  uint64_t end = k.size;
  while (list->next(k)) {
    ASSERT_EQ(k.offset, end);
    ASSERT_EQ(k.reason.find(kOfThisPart), std::string_view::npos) << k.reason;
    end += k.size;
  }
  EXPECT_EQ(end, many.size());
}

}  // namespace
}  // namespace asof::test
