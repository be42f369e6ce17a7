#include "tests/support/case_capture.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "tests/support/bytes.h"
#include "tests/support/case_arm64.h"
#include "tests/support/case_trace.h"
#include "tests/support/elf_writer.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/sim_random.h"

namespace asof::test {

namespace {

constexpr Addr kPage = 0x1000;
constexpr uint32_t kPtType = 8;
constexpr size_t kPt = 0, kSideband = 1;  // attrs
constexpr unsigned kRings = 4;
constexpr std::array<uint8_t, 8> kTag = {1, 2, 3, 4, 5, 6, 7, 8};  // of every program: no tag is distinctive
constexpr TimeConvSpec kClock{.shift = 0, .mult = 1, .zero = 0};

bool in_start_copy(CaseArea a) {
  return a == CaseArea::kKernel || a == CaseArea::kModule || a == CaseArea::kGenerated ||
         a == CaseArea::kUnclaimed;
}
bool is_user(CaseArea a) { return a == CaseArea::kUser || a == CaseArea::kLateUser; }
bool in_end_copy(CaseArea a) { return a != CaseArea::kHidden && !is_user(a); }
bool is_module(CaseArea a) { return a == CaseArea::kModule || a == CaseArea::kLateModule; }
bool is_generated(CaseArea a) { return a == CaseArea::kGenerated || a == CaseArea::kLateGenerated; }

// A user text is the code of /bin/<name>, after one page of headers.
std::vector<uint8_t> build_id_of(const CaseText& t) {
  std::vector<uint8_t> id(20, 0x5a);
  std::copy_n(t.name.begin(), std::min(t.name.size(), id.size()), id.begin());
  return id;
}

MmapSpec map_of(const CaseText& t, uint32_t prot) {
  return {.pid = t.process,
          .tid = t.process,
          .addr = t.begin,
          .len = (t.size() + kPage - 1) / kPage * kPage,
          .pgoff = kPage,
          .filename = "/bin/" + t.name,
          .build_id = build_id_of(t),
          .prot = prot};
}

struct Copy {
  DirectoryParts parts;
  std::vector<CoreSegment> segments;
};

void patch(std::vector<CoreSegment>& segments, const CasePatch& p) {
  for (size_t i = 0; i < p.bytes.size(); ++i) {
    for (CoreSegment& s : segments) {
      if (p.addr + i >= s.address && p.addr + i - s.address < s.bytes.size())
        s.bytes[p.addr + i - s.address] = p.bytes[i];
    }
  }
}

// Whole pages, as in kcore, and no two texts on one page.
std::vector<CoreSegment> segments_of(const CaseFile& c, const CaseCopy& copy, bool end) {
  std::vector<CoreSegment> out;
  for (const CaseText& t : c.program.texts()) {
    if (!(end ? in_end_copy(t.area) : in_start_copy(t.area))) continue;
    CoreSegment s{t.begin, c.memory(t, copy.time)};
    s.bytes.resize((s.bytes.size() + kPage - 1) / kPage * kPage, 0xcc);
    out.push_back(std::move(s));
  }
  for (const CasePatch& p : copy.patches) patch(out, p);
  for (size_t i = 0; i < out.size(); ++i) {
    if (c.kcore_split <= out[i].address || c.kcore_split >= out[i].address + out[i].bytes.size()) continue;
    const auto at = static_cast<std::ptrdiff_t>(c.kcore_split - out[i].address);
    CoreSegment tail{c.kcore_split, {out[i].bytes.begin() + at, out[i].bytes.end()}};
    out[i].bytes.resize(static_cast<size_t>(at));
    out.push_back(std::move(tail));
    break;
  }
  return out;
}

DirectoryParts make_copy(const CaseFile& c, const CaseCopy& copy, bool end) {
  DirectoryParts parts;
  constexpr uint16_t kX86 = 62, kAarch64 = 183;
  parts.kcore = make_core(segments_of(c, copy, end), c.program.is_arm64() ? kAarch64 : kX86);
  std::vector<std::pair<Addr, std::string>> symbols;
  const auto add = [&symbols](Addr a, const std::string& name, const std::string& module) {
    symbols.emplace_back(
        a, fmt::format("{:016x} t {}{}\n", a, name, module.empty() ? "" : "\t[" + module + "]"));
  };
  for (const CaseText& t : c.program.texts()) {
    if (!(end ? in_end_copy(t.area) : in_start_copy(t.area))) continue;
    if (t.area == CaseArea::kUnclaimed) {
      // Data that is found by name, such as the jump table.
      for (const auto& [name, addr] : c.program.labels()) {
        if (name.starts_with("__") && addr >= t.begin && addr <= t.begin + t.size()) add(addr, name, "");
      }
      continue;
    }
    if (t.area == CaseArea::kKernel) {
      add(t.begin, "_text", "");
      add(t.begin, "_stext", "");
      add(t.begin + t.size(), "_etext", "");
      // Kernel functions that a decoder knows by name.
      for (const auto& [name, addr] : c.program.labels()) {
        if (name.find('_') != std::string::npos && addr >= t.begin && addr < t.begin + t.size())
          add(addr, name, "");
      }
    } else {
      add(t.begin, t.name, is_generated(t.area) ? "bpf" : t.name);
      add(t.begin + t.size(), t.name + "_end", is_generated(t.area) ? "bpf" : t.name);
    }
    if (is_module(t.area))
      parts.modules +=
          fmt::format("{} {} 0 - Live {:#018x}\n", t.name, (t.size() + kPage - 1) / kPage * kPage, t.begin);
  }
  std::ranges::sort(symbols);
  for (const auto& s : symbols) parts.kallsyms += s.second;
  return parts;
}

// One record of a ring.
struct Item {
  Time time = 0;
  unsigned ring = 0;
  size_t place = 0;  // in its ring: equal times stay in the order of the file
  std::function<void(PerfDataWriter&, const Trailer&)> emit;
};

class CaseWriter {
 public:
  explicit CaseWriter(const CaseFile& c)
      : case_(c),
        writer_({.big_endian = c.arm64.big_endian,
                 .compression = c.compressed ? Compression::kRecord81 : Compression::kNone}) {}

  PerfDataWriter write(RecordOrder order);
  // As `perf record --threads`: the records of one ring alone, without a header.
  std::vector<uint8_t> ring_file(unsigned ring);

 private:
  void attrs();
  void head();
  void traces(bool frames = false);
  void collect();
  void add_event(const CaseEvent& e);
  void put(const Item& item);
  void put_all(std::vector<Item> items, RecordOrder order);
  std::vector<BpfProgSpec> programs() const;

  const CaseFile& case_;
  PerfDataWriter writer_;
  std::vector<Item> items_, aux_;
};

void CaseWriter::attrs() {
  namespace bit = pt_config_bit;
  AttrSpec pt{.type = kPtType,
              .config = (bit::kPt | bit::kTsc | bit::kBranch | bit::kMtc |
                         static_cast<uint64_t>(kCaseMtcFreq) << 14) ^
                        case_.pt_config,
              .flags = attr_flag::kSampleIdAll,
              .name = "intel_pt//"};
  AttrSpec side{.flags = attr_flag::kSampleIdAll | attr_flag::kMmap | attr_flag::kMmap2 | attr_flag::kComm |
                         attr_flag::kKsymbol | attr_flag::kBpfEvent |
                         (case_.no_poke_attr ? 0 : attr_flag::kTextPoke) | case_.more_attr_flags,
                .name = "dummy:HG"};
  if (case_.program.is_arm64()) pt = arm64_attr(case_);
  for (unsigned i = 0; i < kRings; ++i) pt.ids.push_back(101 + i), side.ids.push_back(201 + i);
  writer_.add_attr(pt);
  writer_.add_attr(side);
}

std::vector<BpfProgSpec> CaseWriter::programs() const {
  std::vector<BpfProgSpec> out;
  for (const CaseEvent& e : case_.events) {
    if (e.kind != CaseEvent::Kind::kImage) continue;
    BpfProgSpec p{.id = static_cast<uint32_t>(e.number), .tag = kTag};
    for (const std::string& name : e.texts) {
      const CaseText& t = case_.program.text(name);
      p.functions.push_back({t.begin, case_.memory(t, e.time), kTag});
    }
    out.push_back(std::move(p));
  }
  return out;
}

void CaseWriter::head() {
  writer_.hostname("case");
  writer_.os_release("6.1.0-case");
  const bool arm64 = case_.program.is_arm64();
  writer_.arch(arm64 ? "aarch64" : "x86_64");
  if (case_.cpus != 0) writer_.nr_cpus(case_.cpus);
  writer_.cpu_id(arm64 ? "0x00000000410fd083" : "GenuineIntel,6,142,10");
  writer_.event_desc();
  const std::pair<uint32_t, std::string> pmus[] = {{1, "software"}, {kPtType, arm64 ? "cs_etm" : "intel_pt"}};
  writer_.pmu_mappings(pmus);
  if (const auto p = programs(); !p.empty()) writer_.bpf_prog_info(p);
  writer_.time_conv(kClock);
  if (arm64)
    writer_.auxtrace_info(kCsEtmInfo, arm64_trace_units(case_, kRings));
  else
    writer_.auxtrace_info({.pmu_type = kPtType,
                           .time = kClock,
                           .tsc_ctc_n = kCaseTscPerCtc,
                           .tsc_ctc_d = 1,
                           .max_nonturbo = case_.max_nonturbo});
  for (const CaseText& t : case_.program.texts()) {
    MmapSpec m{.addr = t.begin, .len = (t.size() + kPage - 1) / kPage * kPage, .kernel = true};
    if (t.area == CaseArea::kKernel) {
      m.len = t.size(), m.pgoff = t.begin, m.filename = "[kernel.kallsyms]_text";
      writer_.mmap(m);
    } else if (t.area == CaseArea::kModule) {
      m.filename = fmt::format("/lib/modules/6.1.0-case/kernel/{}.ko", t.name);
      writer_.mmap(m);
    } else if (t.area == CaseArea::kUser) {
      writer_.mmap2(map_of(t, 5), {.attr = kSideband});
    }
  }
  for (const CaseEvent& e : case_.events) {
    if (!e.at_start || e.kind == CaseEvent::Kind::kImage || e.kind == CaseEvent::Kind::kWatch) continue;
    add_event(e);
    items_.back().emit(writer_, {.attr = kSideband});
    items_.pop_back();
  }
  writer_.finished_init();
}

void CaseWriter::traces(bool frames) {
  for (const auto& [cpu, packets] : case_.traces) {
    const bool arm64 = case_.program.is_arm64();
    CaseTrace trace = arm64 ? encode_arm64_trace(case_, packets) : encode_trace(case_, packets);
    if (arm64 && frames) trace.bytes = arm64_frames(cpu, trace.bytes);
    const Time last = trace.last == kTimeMin ? case_.trace_start : trace.last;
    const uint64_t size = arm64 ? trace.bytes.size() : (trace.bytes.size() + 7) / 8 * 8;
    const uint64_t flags = arm64 && !frames ? kAuxFlagRaw : 0;
    writer_.auxtrace(
        {.offset = 0, .reference = static_cast<uint64_t>(last), .idx = cpu, .cpu = static_cast<int32_t>(cpu)},
        trace.bytes);
    aux_.push_back({case_.trace_start, cpu, 0, [](PerfDataWriter& w, const Trailer& t) {
                      Trailer pt = t;
                      pt.attr = kPt;
                      w.itrace_start(1, 1, pt);
                    }});
    aux_.push_back({last, cpu, 0, [size, flags](PerfDataWriter& w, const Trailer& t) {
                      Trailer pt = t;
                      pt.attr = kPt;
                      w.aux(0, size, flags, pt);
                    }});
  }
}

void CaseWriter::add_event(const CaseEvent& e) {
  using Kind = CaseEvent::Kind;
  std::function<void(PerfDataWriter&, const Trailer&)> emit;
  switch (e.kind) {
    case Kind::kPoke:
      emit = [&e](PerfDataWriter& w, const Trailer& t) {
        w.text_poke(e.addr, bytes_of(e.old_insns), bytes_of(e.new_insns), t);
      };
      break;
    case Kind::kKsymbol:
      emit = [&e](PerfDataWriter& w, const Trailer& t) {
        w.ksymbol(e.addr, e.length, e.type, e.unregister ? 1 : 0, e.name, t);
      };
      break;
    case Kind::kLoad:
    case Kind::kUnload:
      emit = [&e](PerfDataWriter& w, const Trailer& t) {
        w.bpf_event(e.kind == Kind::kLoad ? 1 : 2, static_cast<uint32_t>(e.number), kTag, t);
      };
      break;
    case Kind::kLost:
      emit = [&e](PerfDataWriter& w, const Trailer& t) { w.lost(201 + e.ring, e.number, t); };
      break;
    case Kind::kRecord:
      emit = [&e](PerfDataWriter& w, const Trailer& t) { w.record(e.type, e.misc, e.body, &t); };
      break;
    case Kind::kMap: {
      const auto prot = static_cast<uint32_t>(e.number);
      MmapSpec map{.pid = 1, .tid = 1, .addr = e.addr, .len = e.length, .filename = e.name, .prot = prot};
      if (!e.texts.empty()) map = map_of(case_.program.text(e.texts[0]), prot);
      emit = [map = std::move(map)](PerfDataWriter& w, const Trailer& t) { w.mmap2(map, t); };
      break;
    }
    case Kind::kSwitch:
      emit = [&e](PerfDataWriter& w, const Trailer& t) {
        Trailer in = t;
        in.pid = in.tid = static_cast<int32_t>(e.number);
        const int32_t before = in.pid == 1 ? 2 : 1;
        w.context_switch_cpu_wide(false, false, before, before, in);
      };
      break;
    case Kind::kImage:
    case Kind::kWatch:
      return;
  }
  items_.push_back({e.time, e.ring, 0, std::move(emit)});
}

void CaseWriter::put(const Item& i) {
  i.emit(writer_, {.time = static_cast<uint64_t>(i.time),
                   .cpu = i.ring,
                   .pid = 1,
                   .tid = 1,
                   .attr = kSideband,
                   .has_id = true});
}

// Each ring keeps its own order, because the kernel writes it so.
void CaseWriter::put_all(std::vector<Item> items, RecordOrder order) {
  for (size_t i = 0; i < items.size(); ++i) items[i].place = i;
  std::ranges::sort(items, {}, [order](const Item& i) {
    const unsigned ring = order == RecordOrder::kRingByRing ? kRings - i.ring : 0;
    return std::tuple(ring, i.time, i.place);
  });
  if (order == RecordOrder::kInterleaved) {
    std::map<unsigned, std::vector<Item>> rings;
    for (Item& i : items) rings[i.ring].push_back(std::move(i));
    SimRandom random(items.size());
    for (size_t left = items.size(); left > 0;) {
      auto it = rings.begin();
      std::advance(it, random.below(rings.size()));
      put(it->second.front());
      it->second.erase(it->second.begin());
      if (it->second.empty()) rings.erase(it);
      --left;
    }
  } else {
    for (const Item& i : items) put(i);
  }
  writer_.finished_round();
}

std::vector<uint8_t> CaseWriter::ring_file(unsigned ring) {
  attrs();
  traces();  // for the AUX records; the buffers themselves stay in `data`
  writer_ = PerfDataWriter({.compression = Compression::kNone});
  attrs();
  for (const CaseEvent& e : case_.events) {
    if (!e.at_start) add_event(e);
  }
  items_.insert(items_.end(), aux_.begin(), aux_.end());
  std::erase_if(items_, [ring](const Item& i) { return i.ring != ring; });
  put_all(items_, RecordOrder::kSorted);
  // The data section, as described by the header of a whole file: offset and size at byte 40.
  const std::vector<uint8_t> file = writer_.file_bytes();
  const auto word = [&file](size_t at) {
    uint64_t v = 0;
    for (size_t i = 8; i-- > 0;) v = v << 8 | file[at + i];
    return v;
  };
  const auto begin = file.begin() + static_cast<std::ptrdiff_t>(word(40));
  return {begin, begin + static_cast<std::ptrdiff_t>(word(48))};
}

PerfDataWriter CaseWriter::write(RecordOrder order) {
  attrs();
  head();
  traces(order == RecordOrder::kLate || order == RecordOrder::kRingByRing);
  if (case_.data_files) {
    constexpr int kDirFormat = 24;  // HEADER_DIR_FORMAT; version 1: files per ring
    writer_.feature(kDirFormat, {1, 0, 0, 0, 0, 0, 0, 0});
    return std::move(writer_);
  }
  for (const CaseEvent& e : case_.events) {
    if (!e.at_start) add_event(e);
  }
  if (order == RecordOrder::kLate) {
    put_all(aux_, RecordOrder::kSorted);
    put_all(items_, RecordOrder::kSorted);
  } else if (order == RecordOrder::kRingByRing) {
    std::ranges::for_each(aux_, [this](const Item& i) { put(i); });
    put_all(items_, order);
  } else {
    items_.insert(items_.end(), aux_.begin(), aux_.end());
    put_all(items_, order);
  }
  return std::move(writer_);
}

// See docs/bundle.md, "ksym_text.bin".
std::vector<uint8_t> watched_texts(const CaseFile& c) {
  ByteSink s(false);
  for (const CaseEvent& e : c.events) {
    if (e.kind != CaseEvent::Kind::kWatch) continue;
    const CaseText& t = c.program.text(e.texts.at(0));
    const std::vector<uint8_t> bytes = c.memory(t, e.time);
    s.u64(static_cast<uint64_t>(e.time)), s.u64(t.begin);
    s.u32(static_cast<uint32_t>(bytes.size())), s.u32(e.type);
    s.raw(bytes);
  }
  return std::move(s).take();
}

}  // namespace

std::string_view name_of(RecordOrder order) {
  switch (order) {
    case RecordOrder::kSorted:
      return "sorted";
    case RecordOrder::kRingByRing:
      return "ring by ring";
    case RecordOrder::kInterleaved:
      return "interleaved";
    case RecordOrder::kLate:
      return "late";
  }
  return "";
}

void write_case(const CaseFile& c, RecordOrder order, const std::filesystem::path& directory) {
  const DirectoryParts start = c.start.present ? make_copy(c, c.start, false) : DirectoryParts{};
  CaseWriter(c).write(order).write_directory(directory, start);
  for (unsigned ring = 0; c.data_files && ring < kRings; ++ring)
    write_bytes(directory / fmt::format("data.{}", ring), CaseWriter(c).ring_file(ring));
  if (c.end.present) {
    const DirectoryParts end = make_copy(c, c.end, true);
    write_bytes(directory / "kcore.end", end.kcore);
    write_text(directory / "kallsyms.end", end.kallsyms);
    write_text(directory / "modules.end", end.modules);
  }
  for (const CaseText& t : c.program.texts()) {
    if (is_user(t.area))
      write_bytes(directory / "symfs/bin" / t.name,
                  make_executable({.address = t.begin, .text = t.bytes(), .build_id = build_id_of(t)}));
  }
  if (const auto watched = watched_texts(c); !watched.empty())
    write_bytes(directory / "ksym_text.bin", watched);
}

}  // namespace asof::test
