// The recording of an arm64 kernel of a few pages, shared by the tests of its changing text: jump labels,
// samples of the code that switches them, copies of kcore.
#pragma once
#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>

#include "decoder/patch_sites/arm64_words.h"
#include "tests/decoder/capture_test_util.h"
#include "tests/decoder/coresight/cs_test_util.h"

namespace asof::test {

inline constexpr Addr kText = 0xffff800008010000, kFunction = kText + 0x800, kTable = kText + 0x2000;
inline constexpr uint32_t kEntryId = 1308, kReturnId = 1309, kBpfId = 77;

// TRACING_DATA as perf writes it.
inline Bytes tracing_data(bool big_endian = false) {
  ByteSink s(big_endian);
  const auto text = [&](std::string_view t) {
    s.raw({reinterpret_cast<const uint8_t*>(t.data()), t.size()});
  };
  const auto event = [&](std::string_view t) {
    s.u64(t.size());
    text(t);
  };
  text(
      std::string_view("\x17\x08\x44tracing"
                       "0.6\0",
                       14));
  s.u8(big_endian ? 1 : 0);
  s.u8(8);
  s.u32(4096);
  text(std::string_view("header_page\0", 12));
  event("field: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n");
  text(std::string_view("header_event\0", 13));
  event("# compressed entry header\n");
  s.u32(1);
  event(
      "name: function\nID: 1\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n");
  s.u32(1);
  text(std::string_view("kprobes\0", 8));
  s.u32(2);
  event(
      "name: jl\nID: 1308\nformat:\n\tfield:unsigned long __probe_ip;\toffset:8;\tsize:8;\tsigned:0;\n"
      "\tfield:s32 code;\toffset:16;\tsize:4;\tsigned:1;\n\tfield:s32 tgt;\toffset:20;\tsize:4;\tsigned:1;\n"
      "\tfield:u64 e;\toffset:24;\tsize:8;\tsigned:0;\n\tfield:u32 t;\toffset:32;\tsize:4;\tsigned:0;\n");
  event(
      "name: jlr\nID: 1309\nformat:\n\tfield:unsigned long __probe_func;\toffset:8;\tsize:8;\tsigned:0;\n"
      "\tfield:unsigned long __probe_ret_ip;\toffset:16;\tsize:8;\tsigned:0;\n");
  return std::move(s).take();
}

inline uint32_t branch(Addr from, Addr to) { return *arm64::branch_word(from, to, false); }

// A recording of a kernel whose text has NOPs at the sites.
class JumpLabels {
 public:
  explicit JumpLabels(bool big_endian = false)
      : recording_(1, {etm4_block(0, 0x10)}, attr_flag::kSampleIdAll, {.big_endian = big_endian}),
        big_endian_(big_endian) {
    PerfDataWriter& w = recording_.writer;
    for (const uint32_t id : {kEntryId, kReturnId})
      w.add_attr({.type = 2, .config = id, .sample_type = 0x10486, .ids = {id}});
    w.add_attr({.type = 1, .config = 10, .sample_type = 0x10486, .ids = {kBpfId}});
    w.feature(1, tracing_data(big_endian));
    w.mmap({.addr = kText,
            .len = 0x10000,
            .pgoff = kText,
            .filename = "[kernel.kallsyms]_text",
            .kernel = true});
    recording_.aux(0, 5000, framed({{0x10, noise(1, 100)}}));
    text_.assign(0x4000, 0);
    for (size_t at = 0; at < text_.size(); at += 4) put(kText + at, arm64::kNop);
  }
  void put(Addr at, uint32_t word) {
    if (at - kText + 4 > text_.size()) return;  // the text ends before it
    const auto bytes = arm64::word_bytes(word);
    std::copy(bytes.begin(), bytes.end(), text_.begin() + static_cast<ptrdiff_t>(at - kText));
  }
  void entry(uint64_t time, Addr site, Addr target, uint32_t type, Addr at = kFunction) {
    ByteSink raw(big_endian_);
    raw.zeros(8);
    raw.u64(at);
    raw.u32(static_cast<uint32_t>(site - kTable));
    raw.u32(static_cast<uint32_t>(target - kTable - 4));
    raw.u64(kTable);
    raw.u32(type);
    sample(kEntryId, time, raw.bytes());
  }
  void leave(uint64_t time) {
    ByteSink raw(big_endian_);
    raw.zeros(8);
    raw.u64(kFunction);
    raw.u64(kText + 0x900);
    sample(kReturnId, time, raw.bytes());
  }
  // As a BPF program at the same function writes them; without `fields`, they are in the copy of memory.
  void bpf_entry(uint64_t time, Addr site, Addr target, uint32_t type, bool fields = true) {
    ByteSink raw(big_endian_);
    raw.c_string("asofjl1", 8);
    raw.u32(0);
    raw.u32(type);
    raw.u64(kTable);
    if (fields) raw.u32(static_cast<uint32_t>(site - kTable));
    if (fields) raw.u32(static_cast<uint32_t>(target - kTable - 4));
    raw.zeros(4);  // perf's padding
    sample(kBpfId, time, raw.bytes());
  }
  void bpf_leave(uint64_t time) {
    ByteSink raw(big_endian_);
    raw.c_string("asofjl1", 8);
    raw.u32(1);
    raw.u32(0);
    sample(kBpfId, time, raw.bytes());
  }
  void bpf_other(uint64_t time, const Bytes& raw) { sample(kBpfId, time, raw); }
  Capture open(CaptureOptions options = closed_options(), bool with_end = false) {
    DirectoryParts parts;
    parts.kcore = make_core({{kText, text_}}, 183);
    parts.kallsyms = symbols();
    recording_.writer.write_directory(dir_.path() / "x.data", parts);
    if (with_end) {
      write_bytes(dir_.path() / "kcore.end", make_core({{kText, end_}}, 183));
      write_text(dir_.path() / "kallsyms.end", symbols());
    }
    auto capture = open_capture((dir_.path() / "x.data").string(), options);
    EXPECT_TRUE(capture.has_value()) << capture.error().reason;
    return std::move(*capture);
  }
  // Another symbol of the kernel's kallsyms.
  void symbol(Addr addr, const std::string& name) { more_symbols_ += fmt_line(addr, name); }
  // `count` records of CPU 1, between `after` and `until`.
  void lost(uint64_t after, uint64_t until, uint64_t count) {
    recording_.writer.comm(7, 7, "task", false,
                           {.time = after, .cpu = 1, .pid = 7, .tid = 7, .attr = 0, .has_id = true});
    recording_.writer.lost(kEntryId, count,
                           {.time = until, .cpu = 1, .pid = 7, .tid = 7, .attr = 0, .has_id = true});
  }
  PerfDataWriter& writer() { return recording_.writer; }
  std::filesystem::path path(const std::string& name) const { return dir_.path() / name; }
  Bytes text_, end_;

 private:
  std::string symbols() const {
    return more_symbols_ + fmt_line(kText, "_text") + fmt_line(kText, "_stext") +
           fmt_line(kText + 0x400, "ftrace_caller") + fmt_line(kFunction, "arch_jump_label_transform_queue") +
           fmt_line(kFunction + 0x40, "next") + fmt_line(kText + 0x1000, "traced") +
           fmt_line(kText + 0x4000, "_etext");
  }
  static std::string fmt_line(Addr addr, const std::string& name) {
    char line[64];
    std::snprintf(line, sizeof line, "%016llx T ", static_cast<unsigned long long>(addr));
    return line + name + "\n";
  }
  void sample(uint64_t id, uint64_t time, std::span<const uint8_t> raw) {
    ByteSink s(big_endian_);
    s.u64(id);  // IDENTIFIER
    s.u32(7);
    s.u32(7);
    s.u64(time);
    s.u32(1);
    s.u32(0);
    s.u32(static_cast<uint32_t>(raw.size()));
    s.raw(raw);
    s.align(8);
    recording_.writer.record(9, 1, s.bytes());
  }
  CsRecording recording_;
  TempDir dir_;
  std::string more_symbols_;
  bool big_endian_;
};

inline Bytes bytes_of(uint32_t word) {
  const auto bytes = arm64::word_bytes(word);
  return {bytes.begin(), bytes.end()};
}
using Words = std::vector<Bytes>;
inline Words words(const Capture& capture, Addr at, Time t) {
  Words out = contents(*capture.text, kKernelSpace, at, 4, t);
  std::sort(out.begin(), out.end());
  return out;
}
inline Words sorted(Words all) {
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace asof::test
