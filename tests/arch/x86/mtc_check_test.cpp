// MTCs are compared with the TSC packets between them.
#include "arch/x86/mtc_check.h"

#include <gtest/gtest.h>

#include "tests/support/pt_writer.h"

namespace asof::x86::test {
namespace {

using asof::test::PtWriter;

// A TSC of 100 ticks per CTC tick, an MTC each 8 CTC ticks; a TSC packet in front of every tenth, somewhere in its
// period. `pauses`: the trace pauses for three periods now and then.
struct Trace {
  explicit Trace(uint64_t periods, bool pauses = false, bool guest = false) {
    PtWriter w;
    w.psb_plus({});
    if (guest) w.pip(0x1000, true);
    for (uint64_t i = 1; i <= periods; ++i) {
      if (pauses && i % 35 == 0) i += 3;
      if (i % 10 == 0) w.tsc(i * 800 - 1 - (i * 37) % 799);
      w.mtc(static_cast<uint8_t>(i));
    }
    bytes = w.bytes();
    stream.pieces.push_back({.bytes = bytes});
    config.mtc_freq = 3;
    config.tsc_ctc_n = 100;
    config.tsc_ctc_d = 1;
  }
  MtcFit fit() const { return check_mtc(stream, config, 1 << 20, 1000); }

  std::vector<uint8_t> bytes;
  Stream stream;
  Config config;
};

TEST(MtcCheck, RightConfigurationFits) {
  for (const bool pauses : {false, true}) {
    const MtcFit fit = Trace(1000, pauses).fit();
    EXPECT_GT(fit.checked, 50U);
    EXPECT_EQ(fit.wrong, 0U);
    EXPECT_FALSE(fit.contradicts());
  }
}

TEST(MtcCheck, WrongOnesContradict) {
  for (const unsigned freq : {0U, 2U, 4U, 11U}) {
    Trace t(1000);
    t.config.mtc_freq = static_cast<uint8_t>(freq);
    EXPECT_TRUE(t.fit().contradicts()) << freq;
  }
  for (const uint32_t n : {1U, 50U, 98U, 102U, 200U, 1U << 31}) {
    Trace t(1000);
    t.config.tsc_ctc_n = n;
    EXPECT_TRUE(t.fit().contradicts()) << n;
  }
}

TEST(MtcCheck, NothingIsSaidWhereNothingShowsIt) {
  Trace few(12), guest(1000, false, true), no_ratio(1000);
  few.config.mtc_freq = guest.config.mtc_freq = 9;
  no_ratio.config.tsc_ctc_d = 0;
  for (const Trace* t : {&few, &guest, &no_ratio}) {
    EXPECT_EQ(t->fit().checked, 0U);
    EXPECT_FALSE(t->fit().contradicts());
  }
}

TEST(MtcCheck, ReadsOverWhatIsNoPacket) {
  Trace t(1000);
  const MtcFit whole = t.fit();
  PtWriter w;
  w.psb_plus({});
  std::vector<uint8_t> bytes = w.bytes();
  bytes.insert(bytes.end(), {0x02, 0xff, 0x02, 0xff});
  bytes.insert(bytes.end(), t.bytes.begin(), t.bytes.end());
  t.bytes = std::move(bytes);
  t.stream.pieces[0].bytes = t.bytes;
  EXPECT_EQ(t.fit().checked, whole.checked);
  EXPECT_EQ(t.fit().wrong, 0U);
}

}  // namespace
}  // namespace asof::x86::test
