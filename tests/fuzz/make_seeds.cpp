// Writes inputs from which the fuzzers start, a folder for each target: make_fuzz_seeds TESTS_DATA DIRECTORY [FOLDERS]
// FOLDERS: what tests wrote (ASOF_TEST_KEEP, temp_dir.h).
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>

#include "tests/fuzz/flow_capture.h"
#include "tests/fuzz/seeds.h"
#include "tests/support/etm_asm.h"
#include "tests/support/etm_frames.h"
#include "tests/support/etm_writer.h"
#include "tests/support/jitdump_writer.h"
#include "tests/support/module_writer.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/pt_writer.h"

namespace asof::test {

SeedBytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

SeedBytes joined(std::initializer_list<SeedBytes> parts) {
  SeedBytes out;
  for (const SeedBytes& p : parts) out.insert(out.end(), p.begin(), p.end());
  return out;
}

SeedBytes folder(const SeedFiles& files) {
  SeedBytes out;
  for (const auto& [name, bytes] : files) {
    const SeedBytes mark = bytes_of("\n=== " + name + "\n");
    out.insert(out.end(), mark.begin(), mark.end());
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

void Seeds::add(const std::string& target, const std::string& name, const SeedBytes& bytes) const {
  std::filesystem::create_directories(to_ / target);
  write_bytes(to_ / target / name, bytes);
}

namespace {

namespace fs = std::filesystem;
using Bytes = SeedBytes;
using Files = SeedFiles;

Bytes number(uint64_t n, unsigned size) {
  Bytes out;
  for (unsigned i = 0; i < size; ++i) out.push_back(static_cast<uint8_t>(n >> (8 * i)));
  return out;
}

// xor eax,eax; jnz .-2; call f; nopl 0(%rax,%rax); jmp *%rax; int3; f: nop; ret
constexpr uint8_t kX86[] = {0x31, 0xc0, 0x75, 0xfc, 0xe8, 0x08, 0x00, 0x00, 0x00, 0x0f,
                            0x1f, 0x44, 0x00, 0x00, 0xff, 0xe0, 0xcc, 0x90, 0xc3};
constexpr uint64_t kX86Nop = 9;

Bytes pt_trace(bool compressed, bool timed) {
  constexpr Addr kText = fuzz::FlowCapture::kText;
  PtWriter w;
  PsbPlus psb;
  if (timed) psb.tsc = 0x10000, psb.tma = PsbPlus::Tma{0x10, 0}, psb.cbr = 24;
  w.psb_plus(psb);
  w.tip_pge(kText);
  for (int i = 0; i < 4; ++i) {
    if (timed) w.mtc(static_cast<uint8_t>(i)), w.cyc(40);
    w.tnt(true), w.tnt(false);
    compressed ? w.tnt(true) : w.tip(kText + kX86Nop);
    w.tip(kText);
  }
  w.fup(kText), w.tip(kText + 17), w.tip(kText);  // an interrupt, and IRET as it looks to a decoder
  w.ptw(1, true, false);
  w.ovf();
  w.fup(kText + 2);
  w.tnt(false);
  w.tip_pgd();
  return {w.bytes().begin(), w.bytes().end()};
}

// What FlowCapture takes off the front.
Bytes flow_head(uint8_t choice, const Bytes& text, const std::vector<Bytes>& changes) {
  Bytes out{static_cast<uint8_t>(choice | changes.size() << 6U)};
  for (const Bytes& c : changes) out.insert(out.end(), c.begin(), c.end());
  return joined({out, number(text.size(), 2), text});
}

Bytes change(uint64_t at, uint64_t time, const Bytes& bytes) {
  return joined({number(at, 2), number(time, 2), {static_cast<uint8_t>(bytes.size() - 1)}, bytes});
}

void pt_flow(const Seeds& seeds) {
  const Bytes text(std::begin(kX86), std::end(kX86));
  const std::vector<Bytes> on_off = {change(kX86Nop, 17, {0xcc}), change(kX86Nop, 18, {0xe9, 3, 0, 0, 0}),
                                     change(kX86Nop, 20, {0x0f, 0x1f, 0x44, 0, 0})};
  for (const bool compressed : {true, false}) {
    for (const bool timed : {true, false}) {
      const auto choice = static_cast<uint8_t>((compressed ? 0 : 4) | (timed ? 0 : 16));
      const std::string name = std::to_string(choice);
      const Bytes trace = pt_trace(compressed, timed);
      for (const char* target : {"pt_flow", "pt_reference"})
        seeds.add(target, "plain-" + name, joined({flow_head(choice, text, {}), trace}));
      seeds.add("pt_flow", "poked-" + name, joined({flow_head(choice, text, on_off), trace}));
      seeds.add("packets", "pt-" + name, joined({{2}, trace}));
    }
  }
}

Bytes etm_text() {
  A64Assembler a(fuzz::FlowCapture::kText);
  a.label("f").straight(1).cbz(0, "f").bl("g").nop().word(a64::br(3));
  a.label("g").straight(2).word(a64::kRet);
  return a64::bytes_of(a.finish());
}

Bytes etm_trace(bool ete) {
  constexpr Addr kText = fuzz::FlowCapture::kText;
  EtmWriter w;
  w.async();
  w.trace_info({});
  w.trace_on();
  w.address_with_context(kText, {});
  for (unsigned i = 0; i < 3; ++i) {
    w.atoms("ENE");
    w.atom(true);
    w.address(kText + 12);
    w.timestamp(0x1000 + 16 * i);
    w.atom(true);
    w.address(kText);
  }
  w.exception(etm_exception::kTrap, kText + 4);
  w.address(kText + 20);
  if (ete) w.source_address(kText + 20), w.transaction_start();
  w.flush();
  w.overflow();
  return w.take();
}

void etm_flow(const Seeds& seeds) {
  const Bytes text = etm_text();
  const std::vector<Bytes> on = {
      change(12, 1, a64::bytes_of(a64::b(fuzz::FlowCapture::kText + 12, fuzz::FlowCapture::kText)))};
  for (const uint8_t choice : std::initializer_list<uint8_t>{0, 4, 8, 16}) {
    const std::string name = std::to_string(choice);
    const Bytes trace = etm_trace((choice & 4) != 0);
    for (const char* target : {"etm_flow", "etm_reference"})
      seeds.add(target, "plain-" + name, joined({flow_head(choice, text, {}), trace}));
    seeds.add("etm_flow", "poked-" + name, joined({flow_head(choice, text, on), trace}));
    seeds.add("packets", "etm-" + name, joined({{static_cast<uint8_t>((choice & 4) != 0 ? 1 : 0)}, trace}));
  }
}

Bytes framed(bool sync) {
  EtmFrames frames(sync, 2);
  const Bytes trace = etm_trace(false);
  for (const uint8_t id : std::initializer_list<uint8_t>{0x10, 0x11, 0x10}) frames.write(id, trace);
  frames.flush();
  return frames.bytes();
}

void coresight(const Seeds& seeds) {
  seeds.add("frames", "memory", joined({{0}, framed(false)}));
  seeds.add("frames", "two-sections", joined({{2 | 4 | 8}, framed(false)}));
  seeds.add("frames", "port", joined({{1}, framed(true)}));
  Files f;
  f["snapshot.ini"] = bytes_of(
      "[snapshot]\nversion=1.0\n[device_list]\ndevice0=cpu_0.ini\ndevice1=etm_0.ini\n[trace]\nmetadata=trace."
      "ini\n");
  f["trace.ini"] = bytes_of(
      "[trace_buffers]\nbuffers=b0,b1\n[b0]\nname=ETB_0\nfile=frames.bin\nformat=coresight\n[b1]\nname=ETB_"
      "1\nfile=raw.bin\n"
      "format=source_data\n[source_buffers]\nETM_0=ETB_0,ETB_1\n[core_trace_sources]\ncpu_0=ETM_0\n");
  f["cpu_0.ini"] = bytes_of(
      "[device]\nname=cpu_0\nclass=core\ntype=Cortex-A57\n[dump1]\nfile=mem.bin\naddress=0xffffffff81000000\n"
      "[dump2]\nfile=mem.bin\naddress=0x1000\nlength=0x10\noffset=4\nspace=EL1N\n");
  f["etm_0.ini"] = bytes_of(
      "[device]\nname=ETM_0\nclass=trace_source\ntype=ETM4\n[regs]\nTRCCONFIGR(0x004)=0x801\nTRCTRACEIDR("
      "0x010)=0x10\n"
      "TRCIDR0(0x078)=0x28000EA1\nTRCIDR1=0x4100F403\nTRCIDR2(0x07A)=0x488\n");
  f["frames.bin"] = framed(false);
  f["raw.bin"] = etm_trace(false);
  f["mem.bin"] = etm_text();
  seeds.add("capture", "snapshot", folder(f));
}

void bundles(const Seeds& seeds) {
  Files f;
  f["bundle.json"] = bytes_of(
      R"({"format": "asof-bundle", "version": 1, "arch": "x86-64", "streams": [{"file": "t.pt", "cpu": 0}],)"
      R"("text": [{"file": "t.img", "address": "0xffffffff81000000", "size": "0x13", "offset": 0}],)"
      R"("cpu": {"family": 6, "model": 94, "stepping": 3}, "pt": {"mtc_freq": 3, "tsc_ctc": [2, 1],)"
      R"("max_nonturbo": 36, "time_shift": 31, "time_mult": 827188715, "time_zero": "0x19"}})");
  f["t.pt"] = pt_trace(true, true);
  f["t.img"] = Bytes(std::begin(kX86), std::end(kX86));
  seeds.add("capture", "bundle", folder(f));
  Files l;
  l["trace.json"] = bytes_of(
      R"({"type": "intel-pt", "cpuInfo": {"vendor": "GenuineIntel", "family": 6, "model": 79, "stepping": 1},)"
      R"("processes": [{"pid": 12, "triple": "x86_64-*-linux", "threads": [{"tid": 13, "iptTrace": "t.pt"}],)"
      R"("modules": [{"file": "t.img", "systemPath": "a.out", "loadAddress": 4194304, "uuid": "6AA9A4E2"}]}]})");
  l["t.pt"] = pt_trace(true, false);
  l["t.img"] = f["t.img"];
  seeds.add("capture", "lldb", folder(l));
}

// The demos, as directories and as one file, with what lies beside them.
void demos(const Seeds& seeds, const fs::path& data) {
  for (const char* demo : {"demo", "demo-arm64"}) {
    const fs::path from = data / demo;
    const Bytes perf = read_bytes(from / "perf.data" / "data");
    seeds.add("perf_data", demo, joined({{0}, perf}));
    seeds.add("packets", demo,
              joined({{static_cast<uint8_t>(std::string_view(demo) == "demo" ? 2 : 0)},
                      {perf.end() - std::min<std::ptrdiff_t>(8192, std::ssize(perf)), perf.end()}}));
    Files f;
    f["perf.data/data"] = perf;
    for (const char* name : {"kcore", "kallsyms", "modules"})
      f[std::string("perf.data/kcore_dir/") + name] = read_bytes(from / "perf.data" / "kcore_dir" / name);
    if (fs::exists(from / "symfs")) f["symfs/opt/demo/worker"] = read_bytes(from / "symfs/opt/demo/worker");
    seeds.add("capture", demo, folder(f));
    const Bytes names = f["perf.data/kcore_dir/kallsyms"];
    seeds.add("symbols", demo, joined({number(names.size(), 2), names, f["perf.data/kcore_dir/modules"]}));
    seeds.add("elf", demo, f["perf.data/kcore_dir/kcore"]);
  }
  seeds.add("elf", "program", read_bytes(data / "demo/symfs/opt/demo/worker"));
  seeds.add("symbols", "names",
            joined({number(0xffff, 2),
                    bytes_of("ffffffff81000000 T _ZN3foo3barERKSt6vectorIiSaIiEE\n"
                             "ffffffff81000010 t _RNvCs1234_7mycrate3foo\t[mod]\n"
                             "ffffffff81000020 t _ZN4core3fmt9Formatter3pad17h0123456789abcdefE\n"
                             "ffffffff81000030 t main.(*T).Do\t[bpf]\n")}));
}

// Records of every kind that the writer knows, as a file and as a pipe.
void records(const Seeds& seeds) {
  PerfDataWriter w;
  AttrSpec attr;
  attr.name = "dummy:u";
  w.add_attr(attr);
  const Trailer t;
  w.comm(7, 7, "worker", true, t);
  w.fork(8, 7, 8, 7, t);
  w.lost(1, 2, t);
  w.context_switch(true, false, t);
  w.itrace_start(7, 7, t);
  w.aux(0, 64, 1, t);
  w.finished_round();
  w.exit(8, 7, 8, 7, t);
  const Bytes pipe = w.pipe_bytes();
  seeds.add("perf_data", "file", joined({{0}, w.file_bytes()}));
  seeds.add("perf_data", "pipe", joined({{0}, pipe}));
  seeds.add("perf_data", "compressed", joined({{1}, pipe}));
}

void code_files(const Seeds& seeds) {
  ModuleWriter m;
  m.section(".text", ModuleWriter::kAlloc | ModuleWriter::kExec, Bytes(64, 0x90));
  m.section(".modinfo", ModuleWriter::kAlloc, bytes_of(std::string_view("vermagic=6.1\0name=m", 19)), 1);
  m.symbol("f", ".text", 16);
  m.symbol("kfree", "", 0);
  m[".text"].bytes[8] = 0xe8;
  m[".text"].relocations.push_back({9, 4, "kfree", -4});
  m.places(".return_sites", ".text", {20});
  seeds.add("elf", "module", m.bytes());
  for (const bool big : {false, true}) {
    JitDumpWriter w({.pid = 77, .big_endian = big});
    w.load(10, 0x7f0000001000, Bytes(20, 0x90), 5, "f");
    w.debug_info(11, 0x7f0000001000, 3, "f.js");
    w.unwinding_info(12, Bytes(24, 1));
    w.move(20, 0x7f0000001000, 0x7f0000001100, 20, 5);
    w.close(30);
    seeds.add("jitdump", big ? "big" : "little", w.bytes());
  }
}

void disassembly(const Seeds& seeds) {
  const Bytes ip = number(0xffffffff81000000, 8);
  int n = 0;
  for (const std::string_view code :
       {std::string_view("\x0f\x1f\x44\0\0", 5), std::string_view("\xe8\1\0\0\0", 5),
        std::string_view("\x0f\x82\1\0\0\0", 6), std::string_view("\x48\xb8\1\2\3\4\5\6\7\x08", 10),
        std::string_view("\x62\xf1\x7c\x48\x10\x07", 6), std::string_view("\xc5\xf8\x77", 3),
        std::string_view("\xf0\x48\x0f\xb1\x0b", 5), std::string_view("\x1f\x20\x03\xd5", 4),
        std::string_view("\xc0\x03\x5f\xd6", 4)}) {
    for (const uint8_t choice : std::initializer_list<uint8_t>{6, 7, 8, 3, 0, 5, 2})
      seeds.add("disassembly", std::to_string(n++), joined({{choice}, ip, bytes_of(code)}));
  }
}

// A-sync, I-sync, branches, atoms, a timestamp: as PTM and as ETMv3 have them.
void etm3(const Seeds& seeds) {
  const Bytes head = joined({number(0x1000, 4), number(0xf30f, 2), number(0x34c0'1ac2, 4)});
  const Bytes ptm = {0,    0,    0,    0,    0,    0x80, 0x08, 0x00, 0x10, 0x00,
                     0x80, 0x21, 0x95, 0x01, 0x84, 0x86, 0x42, 0x85, 0x12, 0x76,
                     0x66, 0x0c, 0x6e, 0x11, 0x22, 0x33, 0x44, 0x3c, 0x05, 0x9a};
  const Bytes etm = {0,    0,    0,    0,    0,    0x80, 0x08, 0x20, 0x10, 0x00,
                     0x80, 0x84, 0x88, 0x91, 0x03, 0x95, 0x81, 0x04, 0xc0, 0x7e,
                     0x76, 0x42, 0x85, 0x12, 0x70, 0x01, 0x05, 0x6e, 0x01, 0x0c};
  for (const uint8_t more : std::initializer_list<uint8_t>{0, 2, 0xf4}) {
    const std::string name = std::to_string(more);
    seeds.add("etm3_packets", "ptm-" + name, joined({{static_cast<uint8_t>(more | 1), 20}, head, ptm, ptm}));
    seeds.add("etm3_packets", "etm-" + name, joined({{more, 20}, head, etm, etm}));
  }
}

void words(const Seeds& seeds) {
  int n = 0;
  for (const char* text :
       {"0,2-5,7", "1.5,2", "10%-20%", "ffff800008010000-ffff800008010100", "+disasm,-comm", "sched_*",
        "31,827188715,0x19", "0x1f", "12.345678901", "f?o[a-c]*"})
    seeds.add("expressions", std::to_string(n++), bytes_of(text));
  for (const std::string_view line :
       {std::string_view("decode\0-i\0x\0--time\0"
                         "1,2",
                         22),
        std::string_view("report\0--strict", 15), std::string_view("perf.data\0-C0-3\0--itrace=i100us", 31),
        std::string_view("script\0-F+flags,-comm\0--ns", 25), std::string_view("query\0select 1", 14),
        std::string_view("text\0schedule@1.5\0-k\0v", 22)})
    seeds.add("arguments", std::to_string(n++), bytes_of(line));
  for (const char* sql : {"select count(*) from pokes",
                          "with c as (select * from calls) select name, sum(dur) from c group by 1 limit 3",
                          "create temp table x as select * from blocks; select * from x",
                          "pragma table_info(calls)", "attach 'x.db' as y", "select load_extension('x')",
                          "explain query plan select * from gaps order by 1"})
    seeds.add("sql", std::to_string(n++), bytes_of(sql));
  seeds.add("perf_map", "names",
            bytes_of("7f0000001c00 40 _ZN4core3ptr13drop_in_place17h0123456789abcdefE\n\n7f0000001d00\n"
                     "7f0000001e00 20 LazyCompile:~f /a b.js:1\n7f0000001e10 0 x\nffffffffffffffff ff y\n"));
  seeds.add("text_store", "zeros", Bytes(64, 0));
}

}  // namespace
}  // namespace asof::test

int main(int argc, char** argv) {
  using namespace asof::test;
  if (argc != 3 && argc != 4) {
    std::cerr << "usage: make_fuzz_seeds TESTS_DATA DIRECTORY [FOLDERS]\n";
    return 1;
  }
  const Seeds seeds(argv[2]);
  pt_flow(seeds);
  etm_flow(seeds);
  coresight(seeds);
  bundles(seeds);
  demos(seeds, argv[1]);
  records(seeds);
  code_files(seeds);
  disassembly(seeds);
  etm3(seeds);
  words(seeds);
  if (argc == 4) add_kept(seeds, argv[3]);
  return 0;
}
