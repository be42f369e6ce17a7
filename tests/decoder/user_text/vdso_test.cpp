// The vDSO if no copy of it was kept with the recording.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/auxv.h>

#include <algorithm>

#include "decoder/user_text/vdso_image.h"
#include "tests/decoder/capture_test_util.h"

namespace asof {
namespace {

using namespace test;

constexpr Addr kAt = 0x7fff00000000;  // of the mapping
const std::vector<Bytes> kUnknown = {{}};

// As in the kernel: an ELF file with its soname somewhere in it. Its code is one page after its beginning.
Bytes vdso_file(uint8_t fill, uint8_t id) {
  const std::string name = "linux-vdso.so.1";
  Bytes text(80, fill);
  std::copy(name.begin(), name.end(), text.end() - 16);
  return make_executable(
      {.address = 0x1000, .text = text, .symbols = {{"__vdso_time", 0x1000, 16}}, .build_id = Bytes(20, id)});
}

// Kernel memory with an image on its second page, after an ELF header that belongs to no image.
Bytes rodata(const Bytes& vdso) {
  Bytes out = {0x7f, 'E', 'L', 'F', 2, 1, 1};
  out.resize(0x1000);
  out.insert(out.end(), vdso.begin(), vdso.end());
  out.resize((out.size() + 0xfff) / 0x1000 * 0x1000);
  return out;
}

class Vdso : public ::testing::Test {
 protected:
  void map(const Bytes& id) {
    r.writer.mmap2({.pid = 7, .tid = 7, .addr = kAt, .len = 0x2000, .filename = "[vdso]", .build_id = id});
    r.writer.itrace_start(7, 7, Recording::at(10));
  }
  void open(const CaptureOptions& options = closed_options()) {
    auto opened = r.open(options);
    ASSERT_TRUE(opened.has_value()) << opened.error().reason;
    capture.emplace(std::move(*opened));
    space = capture->streams.at(0).context_at(100)->space;
  }
  std::vector<Bytes> at(Addr a) { return contents(*capture->text, space, a, 1, 100); }
  bool unsure() { return capture->text->cell(space, kAt + 0x1000).versions[0].unsure; }
  Recording r;
  std::optional<Capture> capture;
  Space space = kNoSpace;
};

TEST_F(Vdso, IsTakenFromACopyOfTheKernelsData) {
  r.segment(Recording::kText + 0x100000, rodata(vdso_file(0x11, 0xaa)));
  map({});
  open();
  EXPECT_EQ(at(kAt + 0x1000), std::vector<Bytes>{{0x11}});
  EXPECT_FALSE(unsure());
  EXPECT_EQ(find_notice(*capture, Code::kFileNotFound), nullptr);
  const auto symbol = capture->symbols.find(space, kAt + 0x1004, 100);
  ASSERT_TRUE(symbol.has_value());
  EXPECT_EQ(symbol->symbol->name, "__vdso_time");
}

TEST_F(Vdso, OfAnotherBuildIsNotTaken) {
  r.segment(Recording::kText + 0x100000, rodata(vdso_file(0x11, 0xaa)));
  map(Bytes(20, 0xbb));
  open();
  EXPECT_EQ(at(kAt + 0x1000), kUnknown);
  const Notice* notice = find_notice(*capture, Code::kFileNotFound);
  ASSERT_NE(notice, nullptr);
  EXPECT_EQ(notice->where, "[vdso]");
  EXPECT_NE(notice->hint.find("vDSO"), std::string::npos) << notice->hint;
  EXPECT_NE(notice->hint.find("--vmlinux"), std::string::npos) << notice->hint;
}

// The kernel patches its image at boot, like the rest of its text.
TEST_F(Vdso, OfTheKernelsFileIsNotCertain) {
  const Bytes data = rodata(vdso_file(0x22, 0xaa));
  const ExecutableSpec vmlinux{.address = Recording::kText, .text = data, .build_id = Bytes(20, 0xcc)};
  write_bytes(r.dir / "vmlinux", make_executable(vmlinux));
  r.writer.build_ids(std::vector{PerfDataWriter::BuildIdSpec{
      .pid = -1, .misc = 1, .id = Bytes(20, 0xcc), .filename = "[kernel.kallsyms]"}});
  map(Bytes(20, 0xaa));
  CaptureOptions options = closed_options();
  options.vmlinux = (r.dir / "vmlinux").string();
  open(options);
  EXPECT_EQ(at(kAt + 0x1000), std::vector<Bytes>{{0x22}});
  EXPECT_TRUE(unsure());
}

TEST_F(Vdso, OfTheRunningKernelIfItIsTheRecordedOne) {
  const auto own = own_vdso();
  if (!own || own->file.build_id.empty()) GTEST_SKIP() << "this process has no vDSO with a build-id";
  Bytes id;
  for (size_t i = 0; i < own->file.build_id.size(); i += 2)
    id.push_back(static_cast<uint8_t>(std::stoul(own->file.build_id.substr(i, 2), nullptr, 16)));
  map(id);
  CaptureOptions options = closed_options();
  options.host_files = true;
  setenv("HOME", (r.dir / "").c_str(), 1);  // perf's cache may have it, which would be certain
  open(options);
  const auto* memory = reinterpret_cast<const uint8_t*>(getauxval(AT_SYSINFO_EHDR));
  EXPECT_EQ(bytes_at(*capture->text, space, kAt, 64, 100), Bytes(memory, memory + 64));
  EXPECT_TRUE(capture->text->cell(space, kAt).versions[0].unsure);
}

TEST_F(Vdso, OfTheRunningKernelNeedsProof) {
  map({});
  CaptureOptions options = closed_options();
  options.host_files = true;
  open(options);
  EXPECT_EQ(at(kAt), kUnknown);
}

}  // namespace
}  // namespace asof
