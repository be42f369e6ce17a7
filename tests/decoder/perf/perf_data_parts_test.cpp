// A file read in parts by several threads gives what one thread gives that reads it as one part: records, lists,
// facts and notices, each in the same order, of sound files and of damaged ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "decoder/io/sideband_notices.h"
#include "decoder/io/threads_here.h"
#include "decoder/perf/records.h"
#include "decoder/sideband/sideband.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/temp_dir.h"

namespace asof::test {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr Addr kText = 0xffffffff81000000;
constexpr unsigned kCpus = 3;
constexpr uint64_t kTracepoint = 316;

// Of everything that reading distinguishes something, in rounds as perf drains its rings: CPU by CPU, so that
// times of different CPUs are not in order.
class Mixed {
 public:
  explicit Mixed(const PerfDataWriter::Options& options, bool switches) : w_(options), switches_(switches) {
    w_.add_attr({.type = 8, .ids = {11, 12, 13}, .name = "intel_pt//"});
    w_.add_attr({.ids = {21, 22, 23}, .name = "dummy"});
    w_.add_attr(
        {.type = 2,
         .config = kTracepoint,
         .sample_type = sample::kIdentifier | sample::kTid | sample::kTime | sample::kCpu | (1U << 10U),
         .ids = {31},
         .name = "sched:sched_switch"});
    w_.arch("x86_64");
    w_.event_desc();
    w_.feature(1, formats());
    w_.auxtrace_info(PtInfoSpec{});
    w_.mmap(
        {.addr = kText, .len = 0x2000, .pgoff = kText, .filename = "[kernel.kallsyms]_text", .kernel = true});
    w_.comm(100, 100, "first", false);
    for (unsigned round = 0; round < 6; ++round) {
      for (unsigned cpu = 0; cpu < kCpus; ++cpu) fill(cpu, 1000 + round * 1000 + cpu * 10);
      w_.finished_round();
    }
    w_.lost_samples(40, at(9000, 1));
  }
  const PerfDataWriter& writer() const { return w_; }

 private:
  static Trailer at(uint64_t time, uint32_t cpu, int32_t pid = 100) {
    return {.time = time, .cpu = cpu, .pid = pid, .tid = pid, .attr = 1, .has_id = true};
  }

  static Bytes formats() {
    ByteSink b;
    const auto name = [&](std::string_view text) { b.text(std::string(text)), b.u8(0); };
    const std::string format =
        "name: sched_switch\nID: 316\nformat:\n"
        "\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n"
        "\tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n";
    b.u8(0x17), b.u8(0x08), b.u8(0x44), b.text("tracing");
    name("0.6");
    b.u8(0), b.u8(8), b.u32(4096);
    name("header_page"), b.u64(0);
    name("header_event"), b.u64(0);
    b.u32(0), b.u32(1), name("sched"), b.u32(1), b.u64(format.size()), b.text(format);
    return std::move(b).take();
  }

  void fill(unsigned cpu, uint64_t time) {
    const Bytes nop = {0x90, 0x90}, jump = {0xeb, 0x10};
    const auto pid = static_cast<int32_t>(100 + time % 7);
    if (time < 2000) w_.itrace_start(-1, -1, at(time, cpu));
    if (switches_) {
      w_.context_switch_cpu_wide(true, false, pid, pid, at(time + 1, cpu));
      w_.context_switch_cpu_wide(false, false, 100, 100, at(time + 2, cpu, pid));
    }
    sampled_switch(cpu, time + 2);
    w_.text_poke(kText + 16 * (time % 5), nop, jump, at(time + 3, cpu));
    w_.text_poke(kText + 16 * (time % 5), nop, jump, at(2500, cpu));  // the same time everywhere
    w_.comm(pid, pid, fmt::format("task-{}", pid), cpu == 2, at(time + 4, cpu, pid));
    w_.fork(pid + 50, pid, pid + 50, pid, at(time + 5, cpu, pid));
    w_.mmap2({.pid = pid,
              .tid = pid,
              .addr = 0x400000 + time,
              .len = 0x1000,
              .filename = fmt::format("/bin/{}", pid)},
             at(time + 6, cpu, pid));
    w_.lost(21, cpu + 1, at(time + 7, cpu));
    w_.exit(pid + 50, pid, pid + 50, pid, at(time + 8, cpu, pid));
    w_.ksymbol(kText + 0x100000, 64, 1, cpu & 1U, "bpf_prog", at(time + 9, cpu));
    w_.bpf_event(1, cpu, {}, at(time + 9, cpu));
    w_.aux(time, 8, 1, {.time = time + 10, .cpu = cpu, .attr = 0, .has_id = true});
    w_.auxtrace({.offset = time, .idx = cpu, .cpu = static_cast<int32_t>(cpu)}, Bytes(24, 0x11));
    malformed(cpu, time);
  }

  void malformed(unsigned cpu, uint64_t time) {
    const Trailer t = at(time + 11, cpu);
    const Bytes few(4), some(16);
    if (cpu == 0) w_.record(20, 1, few, &t);  // TEXT_POKE
    if (cpu == 1) w_.record(15, 0, few, &t);  // SWITCH_CPU_WIDE
    if (cpu == 2) w_.record(3, 4, some, &t);  // COMM of a guest
    if (cpu == 0) w_.record(11, 0, few, &t);  // AUX
    if (cpu == 1) w_.record(45, 0, some, &t);
  }

  void sampled_switch(unsigned cpu, uint64_t time) {
    ByteSink b;
    b.u64(31), b.u32(100), b.u32(100), b.u64(time), b.u32(cpu), b.u32(0), b.u32(64);
    b.zeros(24), b.u32(100), b.zeros(28), b.u32(static_cast<uint32_t>(time % 9)), b.zeros(4);
    b.align(8);
    w_.record(9, 1, b.bytes());
  }

  PerfDataWriter w_;
  bool switches_;
};

std::string text_of(const SampleId& id) {
  return fmt::format("{}/{} {} cpu {} id {} {}", id.pid, id.tid, id.time.value_or(-7), id.cpu, id.id,
                     id.attr == nullptr ? "-" : id.attr->name);
}

std::string text_of(std::span<const Notice> notices) {
  std::string out;
  for (const Notice& n : notices) {
    out += fmt::format("notice {} {} {} {} {} {} x{}\n", static_cast<int>(n.severity),
                       static_cast<int>(n.code), n.where, n.offset, n.time, n.reason, n.count);
  }
  return out;
}

std::string text_of(const Record& r) {
  return fmt::format("record {} {} {} at {} {} {}: {}\n", r.type, r.misc, r.bytes.size(), r.file_offset,
                     r.unpacked_offset, text_of(r.id), describe_record(r));
}

std::string facts_of(const PerfData& data) {
  NoticeBook book;
  const SideBand side = read_side_band(data, book);
  std::string out = text_of(book.take());
  for (const Poke& p : side.pokes)
    out += fmt::format("poke {} {} {} {} {}\n", p.addr, p.time, p.source, p.file_offset, p.new_bytes.size());
  for (const LostRecords& l : side.lost)
    out += fmt::format("lost {} {} {} {}\n", l.source, l.after, l.until, l.count);
  for (const KsymbolFact& k : side.ksymbols)
    out += fmt::format("ksymbol {} {} {} {}\n", k.time, k.range.begin, k.name, k.file_offset);
  for (const BpfFact& b : side.bpf_events) out += fmt::format("bpf {} {} {}\n", b.time, b.id, b.file_offset);
  for (const KernelMapFact& m : side.kernel_maps) out += fmt::format("map {} {}\n", m.range.begin, m.name);
  for (const TaskFact& t : side.tasks) {
    out += fmt::format("task {} {} {}/{} of {}/{} {} {} {}\n", static_cast<int>(t.kind), t.time, t.pid, t.tid,
                       t.parent_pid, t.parent_tid, t.range.begin, t.name, t.file);
  }
  for (const auto& [cpu, switches] : side.switches) {
    for (const SwitchFact& s : switches) {
      out += fmt::format("switch {} {} {} {}/{} from {}/{} {}\n", cpu, s.cpu, s.time, s.pid, s.tid,
                         s.before_pid, s.before_tid, s.trace_start);
    }
  }
  for (const auto& [tid, pid] : std::map<int32_t, int32_t>(side.pid_of_tid.begin(), side.pid_of_tid.end()))
    out += fmt::format("tid {} of {}\n", tid, pid);
  for (const std::string& name : side.names) out += name + "\n";
  return out + fmt::format("{} {} {}\n", side.first_time, side.last_time, side.trace_start);
}

// All that can be asked of it.
std::string transcript(const std::string& path, uint64_t part_bytes, size_t jobs) {
  const ThreadsHere threads(jobs);
  const auto opened = PerfData::open(path, part_bytes);
  if (!opened)
    return fmt::format("{} {} {}", opened.error().where, opened.error().offset, opened.error().reason);
  const PerfData& data = **opened;
  std::string out = text_of(data.notices()), parts, some;
  const auto add_to = [](std::string& to) {
    return [&to](const Record& record) {
      to += text_of(record);
      return true;
    };
  };
  data.for_each(add_to(out));
  for (size_t part = 0; part < data.parts(); ++part) data.for_each_in(part, add_to(parts));
  EXPECT_NE(out.find(parts), std::string::npos) << "parts are not the whole";
  data.for_each({9U, 12U, 20U}, add_to(some));
  out += some;
  for (const auto& [type, count] : data.record_counts()) out += fmt::format("{} of {}\n", count, type);
  for (const AuxRecord& a : data.aux_records())
    out += fmt::format("aux {} {} {} {} {}\n", a.offset, a.size, a.flags, a.file_offset, text_of(a.id));
  for (const AuxBuffer& b : data.aux_buffers())
    out += fmt::format("buffer {} {} {} {} {}\n", b.idx, b.cpu, b.offset, b.file_offset, b.bytes.size());
  return out + facts_of(data);
}

struct Variant {
  const char* name;
  PerfDataWriter::Options options;
  bool pipe, switches;
};
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }
const Variant kVariants[] = {
    {"file", {}, false, true},
    {"no switches but samples", {}, false, false},
    {"pipe", {}, true, true},
    {"other byte order", {.big_endian = true}, false, true},
    // Records of an odd size cross the packed ones.
    {"packed", {.compression = Compression::kRecord81, .compressed_block = 217}, false, true},
    {"packed pipe", {.compression = Compression::kRecord83, .compressed_block = 1000}, true, true},
};

class Parts : public ::testing::TestWithParam<Variant> {
 protected:
  Parts() {
    const Mixed mixed(GetParam().options, GetParam().switches);
    whole_ = GetParam().pipe ? mixed.writer().pipe_bytes() : mixed.writer().file_bytes();
  }
  void expect_same(const Bytes& bytes, const std::string& what) {
    const std::string path = (dir_ / "perf.data").string();
    write_bytes(path, bytes);
    const std::string serial = transcript(path, UINT64_MAX, 1);
    for (const uint64_t part_bytes : {uint64_t{1}, uint64_t{150}, uint64_t{3000}}) {
      EXPECT_EQ(transcript(path, part_bytes, 1), serial) << what << ", parts of " << part_bytes;
      EXPECT_EQ(transcript(path, part_bytes, 4), serial)
          << what << ", parts of " << part_bytes << ", threads";
      if (HasFailure()) return;
    }
  }
  Bytes whole_;
  TempDir dir_;
};

TEST_P(Parts, OfASoundFile) {
  const std::string path = (dir_ / "perf.data").string();
  write_bytes(path, whole_);
  const std::string serial = transcript(path, UINT64_MAX, 1);
  for (const char* word : {"\nlost", "\npoke", "\nswitch", "\ntask", "\nbuffer", "notice"})
    EXPECT_NE(serial.find(word), std::string::npos) << word;
  expect_same(whole_, "whole");
}

TEST_P(Parts, OfFilesThatWereCut) {
  for (size_t length = whole_.size(); length > 600 && !HasFailure(); length -= 331)
    expect_same(Bytes(whole_.begin(), whole_.begin() + static_cast<std::ptrdiff_t>(length)),
                fmt::format("cut at {}", length));
}

TEST_P(Parts, OfFilesWithFalseSizesAndFlippedBits) {
  std::mt19937_64 random(24);
  for (int round = 0; round < 60 && !HasFailure(); ++round) {
    Bytes bytes = whole_;
    for (int n = 0; n <= round % 4; ++n)
      bytes[random() % bytes.size()] ^= static_cast<uint8_t>(1U << (random() % 8));
    if (round % 3 == 0) {  // a size, or what lies where one could be
      const size_t at = 600 + random() % (bytes.size() - 700);
      bytes[(at & ~size_t{7}) + 6] = static_cast<uint8_t>(random());
      bytes[(at & ~size_t{7}) + 7] = static_cast<uint8_t>(random() % 3);
    }
    expect_same(bytes, fmt::format("round {}", round));
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Parts, ::testing::ValuesIn(kVariants), [](const auto& info) {
  std::string name = info.param.name;
  std::erase(name, ' ');
  return name;
});

}  // namespace
}  // namespace asof::test
