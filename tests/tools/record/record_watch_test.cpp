// The watcher: rings as the kernel fills them, copies that are only kept if they are of what was announced,
// and a file that the decoder reads. With real rings, too, where this machine allows them.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <algorithm>

#include <cstring>
#include <deque>

#include "decoder/kernel_text/kernel_text_watch.h"
#include "tests/support/bytes.h"
#include "tests/support/elf_writer.h"
#include "tests/support/perf_data_writer.h"
#include "tests/tools/run_asof.h"
#include "tools/record/watcher.h"

namespace asof::record {
namespace {

using test::TempDir;
using Bytes = std::vector<uint8_t>;

Bytes with_header(uint32_t type, const Bytes& body, uint64_t time) {
  test::ByteSink out;
  Bytes padded = body;
  padded.resize((padded.size() + 7) / 8 * 8);
  out.u32(type), out.u16(0), out.u16(static_cast<uint16_t>(8 + padded.size() + 24));
  out.raw(padded);
  out.u64(0), out.u64(time), out.u64(0);  // TID, TIME, CPU
  return Bytes(out.bytes().begin(), out.bytes().end());
}

Bytes ksymbol(uint64_t addr, uint32_t len, bool unregister, const std::string& name, uint64_t time,
              uint16_t type = 1) {
  test::ByteSink body;
  body.u64(addr), body.u32(len), body.u16(type), body.u16(unregister ? 1 : 0);
  for (const char c : name) body.u8(static_cast<uint8_t>(c));
  body.u8(0);
  return with_header(PERF_RECORD_KSYMBOL, Bytes(body.bytes().begin(), body.bytes().end()), time);
}

Bytes text_poke(uint64_t addr, uint64_t time) {
  test::ByteSink body;
  body.u64(addr), body.u16(1), body.u16(1), body.u8(1), body.u8(2);
  return with_header(PERF_RECORD_TEXT_POKE, Bytes(body.bytes().begin(), body.bytes().end()), time);
}

Bytes lost(uint64_t count, uint64_t time) {
  test::ByteSink body;
  body.u64(7), body.u64(count);
  return with_header(PERF_RECORD_LOST, Bytes(body.bytes().begin(), body.bytes().end()), time);
}

// A ring in memory, written as the kernel does.
struct FakeRing {
  static constexpr uint64_t kSize = 4096;
  perf_event_mmap_page page{};
  Bytes data = Bytes(kSize);
  void put(const Bytes& record) {
    for (const uint8_t b : record) data[page.data_head++ % kSize] = b;
  }
  bool drain(std::vector<SideRecord>& out) { return RingReader(&page, data.data(), kSize).drain(out); }
};

TEST(WatchRing, ReadsRecordsAlsoWhereTheyWrap) {
  FakeRing ring;
  uint64_t time = 1;
  for (int round = 0; round < 200; ++round) {
    const std::string name = "bpf_prog_" + std::string(static_cast<size_t>(round % 40), 'x');
    ring.put(
        ksymbol(0xffffffffc0000000 + static_cast<uint64_t>(round) * 64, 60, round % 3 == 0, name, time++));
    ring.put(text_poke(0xffffffff81000000, time++));
    ring.put(with_header(PERF_RECORD_COMM, Bytes(16), time++));
    std::vector<SideRecord> out;
    ASSERT_TRUE(ring.drain(out));
    ASSERT_EQ(out.size(), 3U);
    EXPECT_EQ(out[0].kind, SideRecord::Kind::kKsymbol);
    EXPECT_EQ(out[0].addr, 0xffffffffc0000000 + static_cast<uint64_t>(round) * 64);
    EXPECT_EQ(out[0].len, 60U);
    EXPECT_EQ(out[0].unregister, round % 3 == 0);
    EXPECT_EQ(out[0].name, name);
    EXPECT_EQ(out[0].time, time - 3);
    EXPECT_EQ(out[1].kind, SideRecord::Kind::kTextPoke);
    EXPECT_EQ(ring.page.data_tail, ring.page.data_head);
  }
}

TEST(WatchRing, InvalidDataIsDroppedAndDoesNotHang) {
  for (const uint16_t size : {uint16_t{0}, uint16_t{4}, uint16_t{4000}}) {
    FakeRing ring;
    ring.put(ksymbol(0xffffffffc0000000, 60, false, "a", 1));
    Bytes bad = text_poke(1, 2);
    std::memcpy(bad.data() + 6, &size, 2);
    ring.put(bad);
    std::vector<SideRecord> out;
    EXPECT_FALSE(ring.drain(out)) << size;
    EXPECT_EQ(out.size(), 1U);
    EXPECT_EQ(ring.page.data_tail, ring.page.data_head);
  }
  FakeRing ring;
  ring.page.data_head = 1U << 20U;  // more than the ring holds
  std::vector<SideRecord> out;
  EXPECT_FALSE(ring.drain(out));
  EXPECT_TRUE(out.empty());
}

// With several listeners, the kernel makes records longer than what it writes into them.
TEST(WatchRing, LongerRecordsHaveTheirTimeWhereItIs) {
  for (const bool poke : {false, true}) {
    const Bytes whole =
        poke ? text_poke(0xffffffff81000000, 77) : ksymbol(0xffffffffc0000000, 60, false, "a_name", 77);
    for (const uint8_t stale : {uint8_t{0}, uint8_t{0xff}}) {
      Bytes longer = whole;
      longer.resize(whole.size() + 48, stale);
      const auto size = static_cast<uint16_t>(longer.size());
      std::memcpy(longer.data() + 6, &size, 2);
      const auto record = parse_record(longer.data(), longer.size());
      ASSERT_TRUE(record);
      EXPECT_EQ(record->time, 77U);
      EXPECT_EQ(record->name, poke ? "" : "a_name");
    }
  }
}

TEST(WatchRing, ShortRecordsAreNone) {
  const Bytes whole = ksymbol(0xffffffffc0000000, 60, false, "name", 5);
  ASSERT_TRUE(parse_record(whole.data(), whole.size()));
  for (size_t size = 0; size < 8 + 16 + 24; ++size) {
    Bytes cut(whole.begin(), whole.begin() + static_cast<long>(size));
    const auto size_field = static_cast<uint16_t>(size);
    if (size >= 8) std::memcpy(cut.data() + 6, &size_field, 2);
    EXPECT_FALSE(parse_record(cut.data(), cut.size())) << size;
  }
}

constexpr uint64_t kCode = 0xffffffffc0001000;

class Watch : public ::testing::Test {
 protected:
  void SetUp() override {
    memory_.resize(0x4000);
    for (size_t i = 0; i < memory_.size(); ++i) memory_[i] = static_cast<uint8_t>(i * 7 + i / 256);
    save();
    ASSERT_EQ(kcore_.open(path("kcore")), "");
    out_ = std::fopen(path("ksym_text.bin").c_str(), "wb");
  }
  void TearDown() override {
    if (out_ != nullptr) std::fclose(out_);
  }
  std::string path(const char* name) const { return (dir_.path() / name).string(); }
  void save() { test::write_bytes(path("kcore"), test::make_core({{kCode, memory_}})); }

  Watcher& watcher() {
    if (!watcher_)
      watcher_.emplace(
          kcore_,
          [this](std::vector<SideRecord>& r) {
            if (!between_.empty()) {
              for (const Bytes& b : between_.front()) ring_.put(b);
              between_.pop_front();
            }
            return ring_.drain(r);
          },
          [this] { return now_; }, out_);
    return *watcher_;
  }
  asof::WatchedTexts read_back() {
    std::fclose(out_);
    out_ = nullptr;
    asof::NoticeBook notices;
    auto texts = asof::read_watched_texts(path("ksym_text.bin"), std::nullopt, notices);
    EXPECT_TRUE(notices.take().empty());
    return texts;
  }

  TempDir dir_;
  Bytes memory_;
  KernelMemory kcore_;
  FakeRing ring_;
  std::deque<std::vector<Bytes>> between_;  // what arrives before each look at the rings
  std::optional<uint64_t> now_ = 1000;
  std::FILE* out_ = nullptr;
  std::optional<Watcher> watcher_;
};

TEST_F(Watch, CopiesWhatIsAnnouncedAsTheDecoderReadsIt) {
  between_ = {{ksymbol(kCode, 100, false, "bpf_prog_1", 500),
               ksymbol(kCode + 0x1000, 64, false, "bpf_trampoline_2", 600)}};
  ASSERT_TRUE(watcher().step());
  EXPECT_EQ(watcher().counts().copied, 2U);
  const auto texts = read_back();
  ASSERT_EQ(texts.texts.size(), 2U);
  EXPECT_EQ(texts.texts[0].range.begin, kCode);
  EXPECT_EQ(texts.texts[0].time, 1000);
  EXPECT_EQ(texts.texts[0].type, asof::WatchedText::kBpf);
  EXPECT_TRUE(std::ranges::equal(texts.texts[0].bytes, Bytes(memory_.begin(), memory_.begin() + 100)));
  EXPECT_EQ(texts.texts[1].range.size(), 64U);
}

TEST_F(Watch, WithoutAConversionTheTimeIsTheRecords) {
  now_ = std::nullopt;
  between_ = {{ksymbol(kCode, 100, false, "bpf_prog_1", 500)}};
  ASSERT_TRUE(watcher().step());
  EXPECT_EQ(read_back().texts.at(0).time, 500);
}

TEST_F(Watch, WhatWentWhileItWasReadIsNotKept) {
  between_ = {{ksymbol(kCode, 100, false, "bpf_prog_1", 500)},
              {ksymbol(kCode, 100, true, "bpf_prog_1", 700)}};
  ASSERT_TRUE(watcher().step());
  EXPECT_EQ(watcher().counts().copied, 0U);
  EXPECT_EQ(watcher().counts().gone, 1U);
  EXPECT_TRUE(read_back().texts.empty());
}

TEST_F(Watch, WhatAnotherOneReplacedIsNotTakenForTheFirst) {
  between_ = {
      {ksymbol(kCode, 100, false, "bpf_prog_1", 500)},
      {ksymbol(kCode, 100, true, "bpf_prog_1", 700), ksymbol(kCode + 50, 80, false, "bpf_prog_2", 800)}};
  ASSERT_TRUE(watcher().step());
  EXPECT_EQ(watcher().counts().copied, 1U);
  const auto texts = read_back();
  ASSERT_EQ(texts.texts.size(), 1U);
  EXPECT_EQ(texts.texts[0].range.begin, kCode + 50);
}

TEST_F(Watch, WhatIsNowhereIsCountedNotInvented) {
  between_ = {{ksymbol(kCode, 1U << 30U, false, "huge", 500), ksymbol(kCode, 0, false, "empty", 501),
               ksymbol(0xffffffffd0000000, 100, false, "bpf_prog_1", 502),
               ksymbol(kCode + 0x3ff0, 100, false, "bpf_prog_2", 503), lost(12, 504)}};
  ASSERT_TRUE(watcher().step());
  EXPECT_EQ(watcher().counts().symbols, 4U);
  EXPECT_EQ(watcher().counts().copied, 0U);
  EXPECT_EQ(watcher().counts().unreadable, 2U) << "outside kcore, and beyond its end";
  EXPECT_EQ(watcher().counts().lost, 12U);
  EXPECT_TRUE(read_back().texts.empty());
}

TEST_F(Watch, DispatcherIsReadAgainWhenTextChanged) {
  between_ = {{ksymbol(kCode, 64, false, "bpf_dispatcher_xdp", 500),
               ksymbol(kCode + 0x100, 64, false, "bpf_prog_1", 501)}};
  ASSERT_TRUE(watcher().step());
  between_ = {{text_poke(0xffffffff81000000, 600)}};
  ASSERT_TRUE(watcher().step());
  EXPECT_EQ(watcher().counts().copied, 2U) << "the bytes are the same as before";
  memory_[3] ^= 0xff;
  save();
  KernelMemory fresh;
  between_ = {{text_poke(0xffffffff81000000, 700)}};
  now_ = 2000;
  ASSERT_TRUE(watcher().step());
  EXPECT_EQ(watcher().counts().copied, 3U);
  between_ = {{ksymbol(kCode, 64, true, "bpf_dispatcher_xdp", 800), text_poke(0xffffffff81000000, 900)}};
  ASSERT_TRUE(watcher().step());
  EXPECT_EQ(watcher().counts().copied, 3U);
  const auto texts = read_back();
  ASSERT_EQ(texts.texts.size(), 3U);
  EXPECT_EQ(texts.texts[2].time, 2000);
  EXPECT_EQ(texts.texts[2].bytes[3], memory_[3]);
}

TEST_F(Watch, ModulesThatComeAreCopied) {
  test::write_bytes(path("modules"), std::vector<uint8_t>{});
  const auto list = [&](const std::string& text) {
    test::write_bytes(path("modules"), {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  };
  list("old 4096 0 - Live 0xffffffffc0001000\n");
  ASSERT_TRUE(watcher().look_at_modules(path("modules")));
  list(
      "old 4096 0 - Live 0xffffffffc0001000\nnew 512 1 old, Live 0xffffffffc0003000 (O)\n"
      "hidden 512 0 - Live 0x0000000000000000\nloading 512 0 - Loading 0xffffffffc0003200\n");
  ASSERT_TRUE(watcher().look_at_modules(path("modules")));
  EXPECT_EQ(watcher().counts().modules, 1U);
  const auto texts = read_back();
  ASSERT_EQ(texts.texts.size(), 1U);
  EXPECT_EQ(texts.texts[0].type, asof::WatchedText::kModule);
  EXPECT_EQ(texts.texts[0].range.begin, 0xffffffffc0003000);
  EXPECT_EQ(texts.texts[0].bytes[0], memory_[0x2000]);
}

TEST(WatchProgram, SaysWhatIsMissing) {
  const TempDir dir;
  const auto run = [&](const std::string& arguments) {
    const std::string err = (dir.path() / "err").string();
    const int raw = std::system((ASOF_WATCH " " + arguments + " >/dev/null 2>" + err).c_str());
    return std::pair(WEXITSTATUS(raw), test::read_file(err));
  };
  EXPECT_EQ(run("").first, 1);
  EXPECT_EQ(run("--seconds x -o y").first, 1);
  const auto [no_kcore, text] = run("-o " + (dir.path() / "k").string() + " --root " + dir.path().string());
  EXPECT_EQ(no_kcore, 3);
  EXPECT_NE(text.find("kcore is not there"), std::string::npos) << text;
  test::write_bytes(dir.path() / "kcore", Bytes(100, 'x'));
  EXPECT_EQ(run("-o /dev/null --kcore " + (dir.path() / "kcore").string()).first, 3);
}

// Real rings: loading and freeing of BPF programs is seen. Kcore is not read: not every machine has it.
TEST(WatchProgram, SeesARealProgramCome) {
  const TempDir dir;
  Rings rings;
  if (const std::string reason = rings.open(8); !reason.empty()) GTEST_SKIP() << reason;
  const auto listed = std::system(ASOF_TOGGLE " --list --only bpf --need bpf >/dev/null 2>&1");
  if (listed != 0) GTEST_SKIP() << "no BPF programs can be loaded here";
  ASSERT_EQ(std::system(ASOF_TOGGLE " --only bpf --rounds 1 --workers 0 --hold 1 >/dev/null"), 0);
  std::vector<SideRecord> records;
  // The kernel frees a program, and reports it, some time after its last use.
  const auto count = [&](bool unregister) {
    return std::ranges::count_if(records, [&](const SideRecord& r) {
      return r.kind == SideRecord::Kind::kKsymbol && r.unregister == unregister;
    });
  };
  for (int i = 0; i < 100 && count(true) == 0; ++i) {
    rings.wait(100);
    std::vector<SideRecord> more;
    ASSERT_TRUE(rings.drain(more));
    records.insert(records.end(), more.begin(), more.end());
    if (i == 0 && count(false) == 0) break;
  }
  for (const SideRecord& r : records) {
    if (r.kind != SideRecord::Kind::kKsymbol) continue;
    EXPECT_TRUE(r.name.starts_with("bpf_")) << r.name;
    EXPECT_GE(r.addr, uint64_t{1} << 63U);
    EXPECT_GT(r.time, 0U);
  }
  const auto came = count(false);
  const auto went = count(true);
  if (came == 0) GTEST_SKIP() << "this kernel compiles no BPF programs, or does not report them";
  EXPECT_GE(came, 5);
  EXPECT_GE(went, 1);
  if (const auto now = rings.now()) {
    EXPECT_GT(*now, records.front().time);
    EXPECT_LT(*now - records.back().time, 10'000'000'000U) << "perf's clock, as the page converts it";
  }
}

// The whole program with real BPF programs. Bytes come from a file of zeros instead of the kernel's memory:
// the test shows that each program is seen, read in time, and written so that the decoder finds it.
TEST(WatchProgram, WritesRealProgramsForTheDecoder) {
  Rings rings;
  if (const std::string reason = rings.open(8); !reason.empty()) GTEST_SKIP() << reason;
  if (std::system(ASOF_TOGGLE " --list --only bpf --need bpf >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "no BPF programs can be loaded here";
  const TempDir dir;
  const std::string kcore = (dir.path() / "kcore").string();
  constexpr uint64_t kModules = 0xffffffff80000000, kSize = 0x7f000000;
  Bytes header = test::make_core({{kModules, Bytes(4096, 0x90)}});
  header.resize(8192);
  const uint64_t size = kSize;
  std::memcpy(header.data() + 64 + 32, &size, 8);  // p_filesz
  std::memcpy(header.data() + 64 + 40, &size, 8);  // p_memsz
  test::write_bytes(kcore, header);
  std::filesystem::resize_file(kcore, 4096 + kSize);
  const std::string out = (dir.path() / "ksym_text.bin").string();
  const std::string command = ASOF_WATCH " -o " + out + " --kcore " + kcore +
                              " -- " ASOF_TOGGLE
                              " --only bpf --rounds 2 --workers 0 --hold 20 >/dev/null 2>" +
                              (dir.path() / "err").string();
  ASSERT_EQ(WEXITSTATUS(std::system(command.c_str())), 0) << test::read_file(dir.path() / "err");
  asof::NoticeBook notices;
  const auto texts = asof::read_watched_texts(out, std::nullopt, notices);
  EXPECT_TRUE(notices.take().empty());
  if (texts.texts.empty()) GTEST_SKIP() << test::read_file(dir.path() / "err");
  EXPECT_GE(texts.texts.size(), 5U) << test::read_file(dir.path() / "err");
  for (const auto& t : texts.texts) {
    EXPECT_EQ(t.type, asof::WatchedText::kBpf);
    EXPECT_GT(t.time, 0);
  }
}

}  // namespace
}  // namespace asof::record
