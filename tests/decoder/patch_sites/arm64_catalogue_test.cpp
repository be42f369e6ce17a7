// The catalogue of an arm64 kernel: jump labels by a table in memory or in a vmlinux that was linked for
// another address, entries of functions, and tables with faults.
#include "decoder/patch_sites/arm64_catalogue.h"

#include <gtest/gtest.h>

#include "tests/decoder/patch_sites/arm64_test_util.h"
#include "tests/support/sim_random.h"

namespace asof::test {
namespace {

constexpr Addr kSlide = 0x3a0000;  // KASLR
constexpr uint64_t kTableAt = 0x5000;
const Bytes kId(20, 0xab);

struct Label {
  Addr site = 0, target = 0;
};

// struct jump_entry: offsets from the address of each field, and the key.
Bytes table_of(const std::vector<Label>& labels, Addr begin) {
  ByteSink s;
  for (const Label& label : labels) {
    const Addr at = begin + s.size();
    s.u32(static_cast<uint32_t>(label.site - at));
    s.u32(static_cast<uint32_t>(label.target - at - 4));
    s.u64(0x1000 + at);
  }
  return std::move(s).take();
}

// A vmlinux linked `slide` below the address at which the kernel runs, with that table.
Bytes vmlinux(const std::vector<Label>& labels, Addr slide = kSlide, const Bytes& id = kId) {
  const Addr linked = kText - slide;
  const Bytes table = table_of(labels, kText + kTableAt);
  ExecutableSpec spec{.address = linked, .text = Bytes(kTableAt, 0), .build_id = id, .machine = 183};
  spec.text.insert(spec.text.end(), table.begin(), table.end());
  spec.symbols = {{"_text", linked, 0},
                  {"__start___jump_table", linked + kTableAt, 0},
                  {"__stop___jump_table", linked + kTableAt + table.size(), 0}};
  return make_executable(spec);
}

class Arm64Catalogue : public testing::Test {
 protected:
  Arm64Catalogue() {
    const std::vector<PerfDataWriter::BuildIdSpec> ids = {{.id = kId, .filename = "[kernel.kallsyms]"}};
    kernel.writer().build_ids(ids);
  }
  Capture open(const Bytes& file = {}) {
    CaptureOptions options = closed_options();
    options.catalogue = true;
    if (!file.empty()) {
      write_bytes(kernel.path("vmlinux"), file);
      options.vmlinux = kernel.path("vmlinux").string();
    }
    return kernel.open(options);
  }
  static Words both(Addr site, Addr target) {
    return sorted({bytes_of(arm64::kNop), bytes_of(branch(site, target))});
  }
  static void expect_no_labels(const Capture& capture, Addr site) {
    EXPECT_EQ(words(capture, site, 1000), Words{bytes_of(arm64::kNop)});
    EXPECT_TRUE(capture.arm64.complete_text.empty());
    EXPECT_TRUE(capture.arm64.unrecorded_changes);
    EXPECT_NE(find_notice(capture, Code::kCatalogueWithoutJumpLabels), nullptr);
  }
  // Gives the kernel function entries as ftrace makes them.
  void add_entry() { kernel.put(kText + 0x1000, arm64::kMovX9Lr); }
  JumpLabels kernel;
  const Label a{kText + 0x1100, kText + 0x1180}, b{kText + 0x1104, kText + 0x1040};
};

// The vmlinux was linked for a different address than the kernel runs at: the table moves with it.
TEST_F(Arm64Catalogue, TableInAVmlinuxLinkedElsewhere) {
  add_entry();
  kernel.put(b.site, branch(b.site, b.target));  // switched on when kcore was copied
  for (const Addr slide : {kSlide, Addr{0}, Addr{0} - kSlide}) {
    const Capture capture = open(vmlinux({a, b}, slide));
    EXPECT_EQ(words(capture, a.site, 1000), both(a.site, a.target));
    EXPECT_EQ(words(capture, b.site, 1000), both(b.site, b.target));
    EXPECT_EQ(words(capture, b.site + 4, 1000), Words{bytes_of(arm64::kNop)});
    EXPECT_EQ(words(capture, a.target, 1000), Words{bytes_of(arm64::kNop)});
    EXPECT_EQ(capture.arm64.complete_text, (AddrRange{kText, kText + 0x4000}));
    EXPECT_EQ(find_notice(capture, Code::kCatalogueWithoutJumpLabels), nullptr);
    // Neighbouring sites change separately.
    EXPECT_EQ(capture.text->cell(kKernelSpace, a.site).range, range_of(a.site, 4));
  }
}

TEST_F(Arm64Catalogue, TableInTheCopyOfMemory) {
  add_entry();
  const Addr begin = kText + 0x3000;
  const Bytes table = table_of({a, b}, begin);
  std::copy(table.begin(), table.end(), kernel.text_.begin() + 0x3000);
  kernel.symbol(begin, "__start___jump_table");
  kernel.symbol(begin + table.size(), "__stop___jump_table");
  const Capture capture = open();
  EXPECT_EQ(words(capture, a.site, 1000), both(a.site, a.target));
  EXPECT_EQ(words(capture, b.site, 1000), both(b.site, b.target));
  EXPECT_FALSE(capture.arm64.complete_text.empty());
}

// What a kprobe hides is still one of the two.
TEST_F(Arm64Catalogue, BreakpointAtASite) {
  std::vector<Label> labels = {a};
  for (Addr at = kText + 0x1200; labels.size() < 20; at += 8) labels.push_back({at, at + 0x100});
  constexpr uint32_t kBrk = 0xd4200080;
  kernel.put(a.site, kBrk);
  const Capture capture = open(vmlinux(labels));
  EXPECT_EQ(words(capture, a.site, 1000),
            sorted({bytes_of(kBrk), bytes_of(arm64::kNop), bytes_of(branch(a.site, a.target))}));
}

TEST_F(Arm64Catalogue, VmlinuxOfAnotherKernel) {
  const Capture capture = open(vmlinux({a, b}, kSlide, Bytes(20, 0xcd)));
  EXPECT_NE(find_notice(capture, Code::kOtherBuildId), nullptr);
  expect_no_labels(capture, a.site);
}

// No build-id identifies the vmlinux; its sites hold words that are not those of a jump label.
TEST_F(Arm64Catalogue, TableThatDoesNotFitTheText) {
  kernel.writer().build_ids({});
  std::vector<Label> labels = {a};
  for (Addr at = kText + 0x1200; labels.size() < 10; at += 8) {
    labels.push_back({at, at + 0x100});
    kernel.put(at, 0xd65f03c0);
  }
  expect_no_labels(open(vmlinux(labels)), a.site);
}

TEST_F(Arm64Catalogue, NoTable) {
  expect_no_labels(open(), a.site);
  ExecutableSpec bare{.address = kText, .text = Bytes(64, 0), .build_id = kId, .machine = 183};
  expect_no_labels(open(make_executable(bare)), a.site);
}

// Impossible entries: odd addresses, sites outside the text, targets beyond the reach of a branch.
TEST_F(Arm64Catalogue, ImpossibleEntries) {
  std::vector<Label> labels = {
      {a.site + 2, a.target}, {kText - 0x100, a.target}, {0x1000, a.target}, {a.site + 8, a.target + 2}};
  for (Addr at = kText + 0x1200; labels.size() < 30; at += 8) labels.push_back({at, at + 0x100});
  labels.push_back({a.site + 12, a.site + 12 + (Addr{1} << 27U)});
  labels.push_back(labels.back());
  const Capture capture = open(vmlinux(labels));
  for (const Addr at : {a.site, a.site + 4, a.site + 8, a.site + 12})
    EXPECT_EQ(words(capture, at, 1000), Words{bytes_of(arm64::kNop)}) << at;
  EXPECT_EQ(words(capture, kText + 0x1200, 1000), both(kText + 0x1200, kText + 0x1300));
}

// A vmlinux that is truncated or has wrong bytes anywhere gives a catalogue or none.
TEST_F(Arm64Catalogue, DamagedVmlinux) {
  const Bytes whole = vmlinux({a, b});
  const auto sound = [&](const Bytes& file) {
    const Capture capture = open(file);
    const Words now = words(capture, kText + 0x2000, 1000);
    EXPECT_FALSE(now.empty());
  };
  for (size_t size = kTableAt; size < whole.size(); size += 13)
    sound(Bytes(whole.begin(), whole.begin() + size));
  SimRandom random(7);
  for (unsigned i = 0; i < 300; ++i) {
    Bytes file = whole;
    const unsigned changes = 1 + static_cast<unsigned>(random.below(4));
    for (unsigned k = 0; k < changes; ++k) {
      // The header, or what follows the text: symbols, names, section headers, the table.
      const size_t at = random.chance(30) ? random.below(0xc0) : random.between(kTableAt, file.size() - 1);
      file[at] = static_cast<uint8_t>(random.chance(30) ? 0xff : random.below(256));
    }
    sound(file);
  }
}

// All of its text is accounted for only if function entries are known, too.
TEST_F(Arm64Catalogue, TextWhoseEntriesAreNotKnown) {
  const Capture older = open(vmlinux({a, b}));  // none looks like an entry of this ftrace
  EXPECT_TRUE(older.arm64.complete_text.empty());
  EXPECT_NE(find_notice(older, Code::kCatalogueWithoutJumpLabels), nullptr);
  add_entry();
  kernel.symbol(kText + 0x3f00, "bpf_trampoline_update");  // the kernel's own
  EXPECT_FALSE(open(vmlinux({a, b})).arm64.complete_text.empty());
  kernel.symbol(kText + 0x9000000, "bpf_trampoline_6442506293");  // entries may call it themselves
  const Capture direct = open(vmlinux({a, b}));
  EXPECT_TRUE(direct.arm64.complete_text.empty());
  EXPECT_NE(find_notice(direct, Code::kCatalogueWithoutJumpLabels), nullptr);
}

// Samples report jump labels, so those of the table that were not switched are as they were.
TEST_F(Arm64Catalogue, WithSamples) {
  add_entry();
  const Addr sampled = kText + 0x100, target = kText + 0x180;
  kernel.entry(1000, sampled, target, 1);
  kernel.leave(1100);
  for (const bool lost : {false, true}) {
    SCOPED_TRACE(lost);
    if (lost) kernel.lost(1200, 3000, 4);
    for (const bool with_table : {false, true}) {
      const Capture capture = open(with_table ? vmlinux({a, b}) : Bytes());
      EXPECT_EQ(capture.arm64.complete_text, (AddrRange{kText, kText + 0x4000}));
      EXPECT_EQ(words(capture, a.site, 1000), Words{bytes_of(arm64::kNop)});
      EXPECT_EQ(words(capture, a.site, 4000),
                lost && with_table ? both(a.site, a.target) : Words{bytes_of(arm64::kNop)});
      EXPECT_EQ(words(capture, sampled, 4000).size(), lost ? 2U : 1U);
      EXPECT_EQ(words(capture, kText + 0x1004, 1000).size(), 2U);  // an entry, which no sample reports
      EXPECT_EQ(capture.text->unsure_from(), lost ? 1201 : kTimeMax);
    }
  }
}

TEST_F(Arm64Catalogue, EntriesOfFunctions) {
  const Addr plain = kText + 0x1000, with_bti = kText + 0x1400, other = kText + 0x1800;
  const Addr caller = kText + 0x400, regs_caller = kText + 0x440;
  kernel.symbol(regs_caller, "ftrace_regs_caller");
  kernel.symbol(with_bti, "with_bti");
  kernel.symbol(other, "other");
  kernel.put(plain, arm64::kMovX9Lr);
  kernel.put(with_bti, arm64::kBtiC);
  kernel.put(with_bti + 4, arm64::kMovX9Lr);
  kernel.put(with_bti + 8,
             *arm64::branch_word(with_bti + 8, regs_caller, true));  // traced when kcore was copied
  kernel.put(other, arm64::kMovX9Lr);
  kernel.put(other + 4, 0x14000010);  // a jump that belongs to the function
  const Capture capture = open();
  for (const Addr at : {plain + 4, with_bti + 8}) {
    EXPECT_EQ(words(capture, at, 1000),
              sorted({bytes_of(arm64::kNop), bytes_of(*arm64::branch_word(at, caller, true)),
                      bytes_of(*arm64::branch_word(at, regs_caller, true))}));
  }
  EXPECT_EQ(words(capture, plain + 8, 1000), Words{bytes_of(arm64::kNop)});
  EXPECT_EQ(words(capture, other + 4, 1000), Words{bytes_of(0x14000010)});
  EXPECT_NE(find_notice(capture, Code::kCatalogueWithoutJumpLabels), nullptr);  // no jump table
}

}  // namespace
}  // namespace asof::test
