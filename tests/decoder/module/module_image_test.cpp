// Kernel modules from their files: layout, relocations, and what the kernel rewrites; then the same for a
// recording without a copy of kcore.
#include "decoder/module/module_image.h"

#include <elf.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "decoder/kernel_text/kernel_text.h"
#include "tests/decoder/capture_test_util.h"
#include "tests/support/module_writer.h"

namespace asof {
namespace {

using namespace test;

constexpr Addr kBase = 0xffffffffc0300000, kKfree = 0xffffffff81123450, kThunk = 0xffffffff81200000,
               kTracer = 0xffffffff81300000;
constexpr uint64_t kAx = ModuleWriter::kAlloc | ModuleWriter::kExec, kA = ModuleWriter::kAlloc;

Bytes relative(uint8_t opcode, Addr at, Addr to) {
  const uint64_t d = to - at - 5;
  return {opcode, static_cast<uint8_t>(d), static_cast<uint8_t>(d >> 8), static_cast<uint8_t>(d >> 16),
          static_cast<uint8_t>(d >> 24)};
}

// .text (0x100, all 0x90), followed by .text.unlikely, with data on the next pages.
ModuleWriter plain() {
  ModuleWriter w;
  w.section(".text", kAx, Bytes(0x100, 0x90));
  w.section(".rodata", kA, Bytes(0x40, 1), 32);
  w.section(".text.unlikely", kAx, Bytes(0x20, 0x90), 1);
  w.section(".data", kA | ModuleWriter::kWrite, Bytes(0x40, 2), 32);
  w.section(".modinfo", kA, Bytes{'x', '=', '1', 0}, 1);
  w.symbol("demo_open", ".text", 0x10);
  w.symbol("demo_cold", ".text.unlikely", 0);
  w.symbol("demo_table", ".rodata", 0);
  w.symbol("kfree", "", 0);
  w.symbol("nobody", "", 0);
  return w;
}

void call(ModuleWriter& w, uint64_t at, const std::string& symbol, uint32_t type = R_X86_64_PLT32) {
  w[".text"].bytes[at] = 0xe8;
  for (size_t i = 1; i < 5; ++i) w[".text"].bytes[at + i] = 0;
  w[".text"].relocations.push_back({at + 1, type, symbol, -4});
}

class ModuleFile : public ::testing::Test {
 protected:
  ModuleFile() {
    line(kKfree, 'T', "kfree");
    line(kThunk, 'T', "__x86_return_thunk");
    line(kTracer, 'T', "ftrace_caller");
    line(kBase + 0x10, 't', "demo_open", "demo");
    line(kBase + 0x100, 't', "demo_cold", "demo");
    line(kBase + 0x1000, 'r', "demo_table", "demo");
  }
  void line(Addr a, char type, const std::string& name, const std::string& module = "") {
    kallsyms += Recording::line(a, type, name, module);
  }
  Result<ModuleImage> make(const ModuleWriter& w, bool with_symbols = true, bool one_cpu = false) {
    file = w.bytes();
    elf.emplace(*ModuleElf::parse(file, "demo.ko"));
    write_text(dir / "kallsyms", kallsyms);
    loaded.emplace(std::move(*Kallsyms::load((dir / "kallsyms").string())));
    symbols.emplace(*loaded);
    ModuleContext context{.name = "demo",
                          .range = {kBase, kBase + 0x4000},
                          .one_cpu = one_cpu,
                          .symbols = with_symbols ? &*symbols : nullptr};
    return make_module_image(*elf, context, "demo.ko");
  }
  static const ModuleImage::Text& text_at(const ModuleImage& image, Addr a) {
    for (const auto& t : image.text) {
      if (t.range.contains(a)) return t;
    }
    throw std::logic_error("no text at this address");
  }
  // The bytes; empty if one of them is unknown.
  static Bytes bytes(const ModuleImage& image, Addr a, size_t n) {
    const auto& t = text_at(image, a);
    Bytes out;
    for (size_t i = a - t.range.begin; n != 0; ++i, --n) {
      if (t.known[i] == 0) return {};
      out.push_back(t.bytes[i]);
    }
    return out;
  }
  static const ModuleImage::Site* site(const ModuleImage& image, Addr a) {
    for (const auto& s : image.sites) {
      if (s.addr == a) return &s;
    }
    return nullptr;
  }

  TempDir dir;
  std::string kallsyms;
  Bytes file;
  std::optional<ModuleElf> elf;
  std::optional<Kallsyms> loaded;
  std::optional<ExportedSymbols> symbols;
};

TEST_F(ModuleFile, SectionsLieWhereTheKernelPutsThem) {
  const auto image = make(plain());
  ASSERT_TRUE(image.has_value()) << image.error().reason;
  ASSERT_EQ(image->text.size(), 2U);
  EXPECT_EQ(image->text[0].range, (AddrRange{kBase, kBase + 0x100}));
  EXPECT_EQ(image->text[1].range, (AddrRange{kBase + 0x100, kBase + 0x120}));
  EXPECT_EQ(image->unknown_bytes, 0U);
}

TEST_F(ModuleFile, EveryKindOfRelocation) {
  ModuleWriter w = plain();
  call(w, 0x20, "kfree");
  call(w, 0x28, "demo_cold", R_X86_64_PC32);
  auto& r = w[".text"].relocations;
  r.push_back({0x40, R_X86_64_64, "demo_table", 8});
  r.push_back({0x50, R_X86_64_32S, ".rodata", 4});
  r.push_back({0x60, R_X86_64_PC64, ".data", 0});
  r.push_back({0x70, R_X86_64_NONE, "nobody", 0});
  r.push_back({0x80, R_X86_64_PC32, "nobody", -4});
  const auto image = make(w);
  ASSERT_TRUE(image.has_value()) << image.error().reason;
  EXPECT_EQ(bytes(*image, kBase + 0x20, 5), relative(0xe8, kBase + 0x20, kKfree));
  EXPECT_EQ(bytes(*image, kBase + 0x28, 5), relative(0xe8, kBase + 0x28, kBase + 0x100));
  EXPECT_EQ(bytes(*image, kBase + 0x40, 8), (Bytes{0x08, 0x10, 0x30, 0xc0, 0xff, 0xff, 0xff, 0xff}));
  EXPECT_EQ(bytes(*image, kBase + 0x50, 4), (Bytes{0x04, 0x10, 0x30, 0xc0}));
  EXPECT_EQ(bytes(*image, kBase + 0x60, 8), (Bytes{0xa0, 0x1f, 0, 0, 0, 0, 0, 0}))
      << "data is on the next page";
  EXPECT_EQ(bytes(*image, kBase + 0x70, 1), Bytes{0x90});
  EXPECT_EQ(bytes(*image, kBase + 0x80, 1), Bytes()) << "that symbol is unknown";
  EXPECT_EQ(bytes(*image, kBase + 0x84, 1), Bytes{0x90});
  EXPECT_EQ(image->unknown_bytes, 4U);
}

TEST_F(ModuleFile, RelocationsTheKernelWouldRefuse) {
  for (const auto& [type, symbol] :
       {std::pair<uint32_t, std::string>{R_X86_64_32, "kfree"}, {R_X86_64_GOTPCREL, "kfree"}}) {
    ModuleWriter w = plain();
    w[".text"].relocations.push_back({0x40, type, symbol, 0});
    const auto image = make(w);
    ASSERT_FALSE(image.has_value()) << type;
    EXPECT_EQ(image.error().code, Code::kModuleFileMismatch);
  }
  ModuleWriter w = plain();
  w[".text"].relocations.push_back({0xfe, R_X86_64_PC32, "kfree", 0});
  EXPECT_FALSE(make(w).has_value()) << "past the end of its section";
}

TEST_F(ModuleFile, WithoutKallsymsOnlyReferencesToTextAreResolved) {
  ModuleWriter w = plain();
  call(w, 0x20, "kfree");
  call(w, 0x28, "demo_cold");
  w[".text"].relocations.push_back({0x50, R_X86_64_32S, ".rodata", 4});
  const auto image = make(w, false);
  ASSERT_TRUE(image.has_value());
  EXPECT_EQ(bytes(*image, kBase + 0x21, 1), Bytes());
  EXPECT_EQ(bytes(*image, kBase + 0x28, 5), relative(0xe8, kBase + 0x28, kBase + 0x100));
  EXPECT_EQ(bytes(*image, kBase + 0x50, 1), Bytes());
}

TEST_F(ModuleFile, OtherBuildIsRefused) {
  ModuleWriter w = plain();
  w.symbol("demo_close", ".text", 0x80);
  line(kBase + 0x84, 't', "demo_close", "demo");
  const auto image = make(w);
  ASSERT_FALSE(image.has_value());
  EXPECT_EQ(image.error().code, Code::kModuleFileMismatch);
  ModuleWriter big;
  big.section(".text", kAx, Bytes(0x5000, 0x90));
  EXPECT_FALSE(make(big, false).has_value()) << "larger than the module";
}

TEST_F(ModuleFile, ReturnsCallsOfTheTracerAndKeysHaveCandidates) {
  ModuleWriter w = plain();
  auto& text = w[".text"].bytes;
  text[0x10] = 0xe8;  // __fentry__
  w[".text"].relocations.push_back({0x11, R_X86_64_PLT32, "kfree", -4});
  text[0x30] = 0xe9;  // jmp __x86_return_thunk
  w[".text"].relocations.push_back({0x31, R_X86_64_PLT32, "kfree", -4});
  text[0x40] = 0xeb, text[0x41] = 0x10;
  w.places(".return_sites", ".text", {0x30});
  w.section("__mcount_loc", kA, Bytes(8), 8).relocations.push_back({0, R_X86_64_64, ".text", 0x10});
  auto& keys = w.section("__jump_table", kA | ModuleWriter::kWrite, Bytes(16), 8);
  keys.relocations.push_back({0, R_X86_64_PC32, ".text", 0x40});
  keys.relocations.push_back({4, R_X86_64_PC32, ".text", 0x52});
  const auto image = make(w);
  ASSERT_TRUE(image.has_value()) << image.error().reason;
  const auto* entry = site(*image, kBase + 0x10);
  ASSERT_NE(entry, nullptr);
  EXPECT_EQ(entry->variants,
            (std::vector<Bytes>{{0x0f, 0x1f, 0x44, 0, 0}, relative(0xe8, kBase + 0x10, kTracer)}));
  const auto* ret = site(*image, kBase + 0x30);
  ASSERT_NE(ret, nullptr);
  EXPECT_EQ(ret->variants,
            (std::vector<Bytes>{{0xc3, 0xcc, 0xcc, 0xcc, 0xcc}, relative(0xe9, kBase + 0x30, kThunk)}));
  const auto* key = site(*image, kBase + 0x40);
  ASSERT_NE(key, nullptr);
  EXPECT_EQ(key->variants, (std::vector<Bytes>{{0x66, 0x90}, {0xeb, 0x10}}));
  EXPECT_EQ(image->unknown_bytes, 12U) << "none is within a stretch of known bytes";
}

TEST_F(ModuleFile, AlternativesRetpolinesAndStaticCallsAreUnknown) {
  for (const uint64_t entry_size : {12U, 13U, 14U}) {
    ModuleWriter w = plain();
    w.section(".altinstr_replacement", kAx, Bytes(8, 0x90), 1);
    Bytes list(2 * entry_size);
    list[entry_size == 14 ? 12 : 10] = 3;
    list[entry_size + (entry_size == 14 ? 12 : 10)] = 7;
    auto& alternatives = w.section(".altinstructions", kA, list, 1);
    for (uint64_t i = 0; i < 2; ++i) {
      alternatives.relocations.push_back(
          {i * entry_size, R_X86_64_PC32, ".text", static_cast<int64_t>(0x40 + 0x10 * i)});
      alternatives.relocations.push_back({i * entry_size + 4, R_X86_64_PC32, ".altinstr_replacement", 4});
    }
    w[".text"].bytes[0x60] = 0xe8;
    w[".text"].bytes[0x70] = 0x0f, w[".text"].bytes[0x71] = 0x84;
    w.places(".retpoline_sites", ".text", {0x60, 0x70});
    auto& calls = w.section(".static_call_sites", kA, Bytes(8), 8);
    calls.relocations.push_back({0, R_X86_64_PC32, ".text", 0x80});
    calls.relocations.push_back({4, R_X86_64_PC32, "kfree", 0});
    w.places(".smp_locks", ".text", {0x90});
    const auto image = make(w);
    ASSERT_TRUE(image.has_value()) << image.error().reason;
    EXPECT_EQ(image->unknown_bytes, 3U + 7 + 5 + 6 + 5) << entry_size;
    EXPECT_EQ(bytes(*image, kBase + 0x43, 1), Bytes{0x90});
    EXPECT_EQ(bytes(*image, kBase + 0x42, 1), Bytes());
    EXPECT_EQ(bytes(*image, kBase + 0x56, 1), Bytes());
    EXPECT_EQ(bytes(*image, kBase + 0x90, 1), Bytes{0x90});
    EXPECT_EQ(bytes(*make(w, true, true), kBase + 0x90, 1), Bytes()) << "with one CPU, LOCK may be removed";
    for (const auto& t : image->text)
      EXPECT_FALSE(t.range.contains(kBase + 0x120)) << "replacements are not run at that address";
  }
}

TEST_F(ModuleFile, RewritingThatIsNotUnderstoodRefusesTheModule) {
  ModuleWriter w = plain();
  w.section(".altinstructions", kA, Bytes(40), 1).relocations = {{0, R_X86_64_PC32, ".text", 0},
                                                                 {4, R_X86_64_PC32, ".text", 0},
                                                                 {20, R_X86_64_PC32, ".text", 0},
                                                                 {24, R_X86_64_PC32, ".text", 0}};
  EXPECT_FALSE(make(w).has_value());
  ModuleWriter cfi = plain();
  cfi.places(".cfi_sites", ".text", {0});
  EXPECT_FALSE(make(cfi).has_value());
}

TEST_F(ModuleFile, DamagedFilesEndInAnErrorOrInAnImage) {
  ModuleWriter w = plain();
  call(w, 0x20, "kfree");
  w.places(".return_sites", ".text", {0x30});
  const Bytes whole = w.bytes();
  for (size_t size = 0; size < whole.size(); size += 7)
    EXPECT_FALSE(ModuleElf::parse(std::span(whole).first(size), "x").has_value()) << size;
  make(w);  // for kallsyms
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const uint8_t value : std::initializer_list<uint8_t>{0x00, 0xff, 0x80}) {
      Bytes damaged = whole;
      damaged[at] = value;
      const auto parsed = ModuleElf::parse(damaged, "x");
      if (!parsed) continue;
      const auto image = make_module_image(
          *parsed, {.name = "demo", .range = {kBase, kBase + 0x4000}, .symbols = &*symbols}, "x");
      EXPECT_LE(image ? image->text.size() : 0, 16U);
    }
  }
}

// A recording that maps the module and has kallsyms, but no copy of kcore.
class ModuleRecording : public ::testing::Test {
 protected:
  ModuleRecording() {
    r.with_kcore = false;
    r.writer.os_release("6.1.0-test");
    r.writer.nr_cpus(2);
    r.writer.mmap(
        {.addr = kBase, .len = 0x4000, .filename = "/lib/modules/6.1.0-test/kernel/demo.ko", .kernel = true});
    std::string kallsyms = r.kallsyms + Recording::line(kKfree, 'T', "kfree") +
                           Recording::line(kBase + 0x10, 't', "demo_open", "demo");
    write_text(r.dir / "kallsyms", kallsyms);
    options = closed_options();
    options.kallsyms = (r.dir / "kallsyms").string();
    options.modules_dir = (r.dir / "modules").string();
    module = plain();
    call(module, 0x20, "kfree");
  }
  Capture open() {
    write_bytes(r.dir / "modules/kernel/demo.ko", module.bytes());
    auto opened = r.open(options);
    EXPECT_TRUE(opened.has_value());
    return std::move(*opened);
  }
  void modinfo(const std::string& release) {
    const std::string text = "license=GPL" + std::string(1, '\0') + "vermagic=" + release +
                             " SMP mod_unload" + std::string(1, '\0');
    module[".modinfo"].bytes.assign(text.begin(), text.end());
  }
  void build_id(uint8_t in_file, uint8_t recorded) {
    Bytes note = {4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0, 'G', 'N', 'U', 0};
    note.insert(note.end(), 20, in_file);
    module.section(".note.gnu.build-id", kA, note, 4);
    const PerfDataWriter::BuildIdSpec id{.pid = -1,
                                         .misc = 1,
                                         .id = Bytes(20, recorded),
                                         .filename = "/lib/modules/6.1.0-test/kernel/demo.ko"};
    r.writer.build_ids(std::vector{id});
  }
  Recording r;
  CaptureOptions options;
  ModuleWriter module;
};

TEST_F(ModuleRecording, TextComesFromTheFile) {
  modinfo("6.1.0-test");
  const Capture c = open();
  EXPECT_EQ(bytes_at(*c.text, kKernelSpace, kBase + 0x20, 5, 100), relative(0xe8, kBase + 0x20, kKfree));
  EXPECT_NE(find_notice(c, Code::kModuleTextFromFile), nullptr);
  EXPECT_EQ(find_notice(c, Code::kModuleWithoutText), nullptr);
  const Cell cell = c.text->cell(kKernelSpace, kBase + 0x20);
  EXPECT_EQ(c.text->origin(cell.versions[0].origin).kind, OriginKind::kFile);
  EXPECT_EQ(c.symbols.find(kKernelSpace, kBase + 0x20, 100)->symbol->name, "demo_open");
}

TEST_F(ModuleRecording, BuildIdDecides) {
  build_id(0xaa, 0xaa);
  const Capture same = open();
  EXPECT_FALSE(bytes_at(*same.text, kKernelSpace, kBase, 1, 100).empty());
  EXPECT_EQ(find_notice(same, Code::kFileNotVerified), nullptr) << "it is verified";
}

TEST_F(ModuleRecording, ForeignBuildIdIsReportedAndNotUsed) {
  build_id(0xbb, 0xaa);
  const Capture c = open();
  EXPECT_TRUE(bytes_at(*c.text, kKernelSpace, kBase, 1, 100).empty());
  EXPECT_NE(find_notice(c, Code::kOtherBuildId), nullptr);
  const Notice* without = find_notice(c, Code::kModuleWithoutText);
  ASSERT_NE(without, nullptr);
  EXPECT_NE(without->reason.find("demo"), std::string::npos);
}

TEST_F(ModuleRecording, ModuleOfAnotherKernelIsNotUsed) {
  modinfo("6.1.0-other");
  const Capture c = open();
  EXPECT_TRUE(bytes_at(*c.text, kKernelSpace, kBase, 1, 100).empty());
  EXPECT_NE(find_notice(c, Code::kModuleOfOtherKernel), nullptr);
}

TEST_F(ModuleRecording, MissingFileIsReportedWithTheModulesName) {
  options.modules_dir.clear();
  const Capture c = open();
  const Notice* notice = find_notice(c, Code::kModuleWithoutText);
  ASSERT_NE(notice, nullptr);
  EXPECT_NE(notice->where.find("demo.ko"), std::string::npos);
}

// Debian's own modules compared with the memory of the kernel that ran them: unpack the package named below
// and set ASOF_TEST_MODULES to its lib/modules/<release>.
TEST(RealModules, AgreeWithACopyOfTheirKernel) {
  const char* root = std::getenv("ASOF_TEST_MODULES");
  const std::string board = ASOF_SHARED_DIR "/captures/x86-board-small/perf.data";
  if (root == nullptr || !std::filesystem::exists(board))
    GTEST_SKIP() << "ASOF_TEST_MODULES (of linux-image-6.1.0-56-amd64) is not set, or there is no " << board;
  const auto kcore = ElfImage::open(board + "/kcore_dir/kcore");
  const auto kallsyms = Kallsyms::load(board + "/kcore_dir/kallsyms");
  const auto modules = load_modules(board + "/kcore_dir/modules");
  ASSERT_TRUE(kcore && kallsyms && modules);
  const ExportedSymbols symbols(*kallsyms);
  size_t compared = 0;
  for (const KernelModule& m : *modules) {
    std::string path;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (module_of_map(entry.path().string()) == m.name) path = entry.path().string();
    }
    ASSERT_FALSE(path.empty()) << m.name;
    const auto bytes = MappedFile::open(path);
    const auto elf = ModuleElf::parse((*bytes)->bytes(), path);
    ASSERT_TRUE(elf.has_value());
    for (const bool with_symbols : {true, false}) {
      const auto image = make_module_image(
          *elf, {.name = m.name, .range = m.range, .symbols = with_symbols ? &symbols : nullptr}, path);
      ASSERT_TRUE(image.has_value()) << path << ": " << image.error().reason;
      size_t known = 0, wrong = 0, wrong_sites = 0;
      const auto in_memory = [&](Addr a) -> uint8_t {
        for (const ElfSegment& s : (*kcore)->segments()) {
          if (range_of(s.address, s.bytes.size()).contains(a)) return s.bytes[a - s.address];
        }
        return 0;
      };
      for (const auto& text : image->text) {
        for (size_t i = 0; i < text.bytes.size(); ++i) {
          if (text.known[i] == 0) continue;
          ++known;
          if (text.bytes[i] != in_memory(text.range.begin + i)) {
            ++wrong;
            if (wrong < 9) ADD_FAILURE() << m.name << " at " << std::hex << text.range.begin + i;
          }
        }
      }
      for (const auto& site : image->sites) {
        const bool fits = std::any_of(site.variants.begin(), site.variants.end(), [&](const Bytes& v) {
          for (size_t i = 0; i < v.size(); ++i) {
            if (v[i] != in_memory(site.addr + i)) return false;
          }
          return true;
        });
        wrong_sites += fits ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0U) << path;
      EXPECT_EQ(wrong_sites, 0U) << path << " of " << image->sites.size();
      std::printf("%-24s %s: %zu bytes as in memory, %zu sites with candidates, %zu bytes unknown\n",
                  m.name.c_str(), with_symbols ? "with kallsyms" : "without", known, image->sites.size(),
                  static_cast<size_t>(image->unknown_bytes));
      compared += known;
    }
  }
  EXPECT_GT(compared, 10'000U);
}

}  // namespace
}  // namespace asof
