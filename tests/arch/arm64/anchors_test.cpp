// Anchors of arm64: what visits to the code that patches under stop_machine show about time, where the trace
// has a time only at its start.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>

#include "arch/arm64/patch_rules.h"
#include "tests/arch/arm64/random_simulation.h"

namespace asof::test {
namespace {

constexpr Addr kCallback = kMain + 0x100, kProbed = kMain + 0x200;
constexpr uint32_t kBrk4 = 0xd4200080;
constexpr Addr kFirst = kMain + 4, kSecond = kMain + 0x10;  // words that change without synchronisation

// main: isb; first; b.cond +8 (both paths lead to the same address and prove nothing); blr callback; second;
// ...; b main
class Anchored : public testing::Test {
 protected:
  Anchored() {
    text.assign(0x300, 0);
    for (size_t at = 0; at < text.size(); at += 4) put(kMain + at, a64::kNop);
    put(kMain, a64::kIsb);
    put(kMain + 0xc, a64::blr(1));
    put(kMain + 0x20, a64::b(kMain + 0x20, kMain));
    put(kCallback, a64::kIsb);
    put(kCallback + 4, a64::kRet);
  }
  void put(Addr at, uint32_t word) {
    const auto bytes = a64::bytes_of(word);
    std::copy(bytes.begin(), bytes.end(), text.begin() + static_cast<std::ptrdiff_t>(at - kMain));
  }
  void poke(Addr at, uint32_t before, uint32_t after, Time t) {
    words.push_back(a64::bytes_of(before));
    words.push_back(a64::bytes_of(after));
    pokes.push_back({.addr = at, .time = t, .old_bytes = words[words.size() - 2], .new_bytes = words.back()});
  }
  void kprobe(Time t) {
    const bool armed = kprobes++ % 2 != 0;
    poke(kProbed, armed ? kBrk4 : a64::kNop, armed ? a64::kNop : kBrk4, t);
  }
  // A branch over nothing: both words give the same path, so the trace cannot distinguish them.
  static uint32_t over(Addr at) { return a64::b(at, at + 4); }
  void start(uint64_t time) {
    w.async();
    w.trace_info({});
    w.timestamp(time);
    w.trace_on();
    w.address_with_context(kMain, {});
  }
  void visit() {
    w.atoms("E");
    w.address(kCallback);
    w.atoms("EE");
    w.address(kMain + 0x10);
  }
  std::vector<EtmRan> decode(bool anchors = true, Time until = 1'000'000) {
    w.flush();
    Builder builder;
    builder.set_patch_rules(arm64::kPatchRules);
    builder.add_layer({.range = range_of(kMain, text.size()), .bytes = text, .observed = 0});
    for (const Poke& p : pokes) builder.add_poke(p);
    for (const LostRecords& l : lost) builder.add_lost(l);
    store.emplace(std::move(builder).build());
    StreamPiece piece;
    piece.bytes = w.bytes();
    piece.time = {0, until};
    Stream stream;
    stream.cpu = 0;
    stream.pieces = {piece};
    stream.bounds = piece.time;
    arm64::Config config;
    config.sources = {etm4_source()};
    config.time = TimeConversion{};
    config.patch_text_cb = anchors ? kCallback : 0;
    const auto arch = arm64::make_arch(config);
    const auto decoder = arch->decoder({&stream, 1}, *store, {.clock_error = 0});
    EtmDecoded out;
    for (const Segment& s : arch->split(stream, 0)) decoder->decode(s, out);
    EXPECT_TRUE(out.gaps.empty()) << out.gaps[0].reason;
    return out.ran;
  }
  static Confidence at(const std::vector<EtmRan>& ran, Addr ip, size_t visit = 0) {
    for (const EtmRan& r : ran) {
      if (r.ip == ip && visit-- == 0) return r.confidence;
    }
    ADD_FAILURE() << fmt::format("{:#x} did not run", ip);
    return Confidence::kContradiction;
  }

  EtmWriter w;
  std::vector<uint8_t> text;
  std::deque<std::vector<uint8_t>> words;
  std::vector<Poke> pokes;
  std::vector<LostRecords> lost;
  std::optional<TextStore> store;
  unsigned kprobes = 0;
};

// The visit is the kprobe's: changes before it are over after it, though no timestamp shows that.
TEST_F(Anchored, AfterAVisitChangesBeforeItAreOver) {
  poke(kSecond, a64::kNop, a64::kMovX9X30, 3'000);
  kprobe(5'000);
  start(1'000);
  w.atoms("E");
  visit();
  w.atoms("EE");
  const auto with = decode();
  EXPECT_EQ(at(with, kSecond), Confidence::kCertain);
  const auto hit = std::ranges::find(with, kSecond, &EtmRan::ip);
  ASSERT_NE(hit, with.end());
  EXPECT_EQ(hit->word, a64::kMovX9X30);
  const auto without = decode(false);
  EXPECT_NE(at(without, kSecond), Confidence::kCertain);
}

// A change has not been made before its visit begins. One may have been in progress at the start.
TEST_F(Anchored, BeforeAVisitItsChangeIsNotMade) {
  kprobe(4'000);
  kprobe(5'000);
  poke(kFirst, a64::kNop, a64::kMovX9X30, 7'000);
  start(1'000);
  w.atoms("E");
  visit();
  w.atoms("EE");
  const auto with = decode();
  EXPECT_EQ(at(with, kFirst), Confidence::kCertain);
  EXPECT_EQ(std::ranges::find(with, kFirst, &EtmRan::ip)->word, a64::kNop);
  EXPECT_NE(at(decode(false), kFirst), Confidence::kCertain);
  kprobes = 0;
  pokes.erase(pokes.begin());  // the remaining one may have been made before anything here ran
  EXPECT_NE(at(decode(), kFirst), Confidence::kCertain);
}

TEST_F(Anchored, NothingIsCountedWhereRecordsAreLost) {
  poke(kSecond, a64::kNop, a64::kMovX9X30, 3'000);
  kprobe(5'000);
  lost.push_back({0, 1'500, 2'000, 1});
  start(1'000);
  w.atoms("E");
  visit();
  w.atoms("EE");
  EXPECT_NE(at(decode(), kSecond), Confidence::kCertain);
}

// A record that the clock rules out: the visit was for something else.
TEST_F(Anchored, NeverAgainstTheClock) {
  poke(kSecond, a64::kNop, a64::kMovX9X30, 3'000);
  kprobe(5'000);
  start(1'000);
  w.atoms("E");
  visit();
  w.atoms("E");
  w.timestamp(2'000);
  w.atoms("E");
  const auto ran = decode();
  EXPECT_EQ(std::ranges::find(ran, kSecond, &EtmRan::ip)->word, a64::kNop);
  EXPECT_EQ(at(ran, kSecond), Confidence::kCertain);
}

// Visits may also be in missing trace.
TEST_F(Anchored, UntracedVisits) {
  kprobe(4'000);
  kprobe(5'000);
  poke(kFirst, a64::kNop, a64::kMovX9X30, 7'000);
  start(1'000);
  w.atoms("E");
  w.trace_on();
  w.address(kMain + 4);
  w.atoms("E");
  w.address(kCallback);
  w.atoms("EE");
  w.address(kMain + 0x10);
  w.atoms("E");
  EXPECT_NE(at(decode(), kFirst), Confidence::kCertain);
}

}  // namespace
}  // namespace asof::test
