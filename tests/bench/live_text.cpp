// live_text [--rounds N] [--keep FOLDER] BUNDLE...: what changing text costs. The trace of a raw bundle of
// user code is moved to kernel addresses and decoded as
//   * a bundle: text that is known never to change,
//   * a recording with a copy of kcore and side-band records, in which nothing changes,
//   * the same with changes of code that is not run, and of code that is: at five-byte NOPs that the trace
//     visits, from one encoding to another and back, so the flow stays the same,
// alternately, in one thread. Times of opening and of decoding are shown separately. The rate of changes is
// that of x86-board-storm (about 1,800 a second), then ten and a hundred times that.
// Then whether a change costs more when more code is known: the same changes, all in the last part of the
// trace, with that part alone and with the whole trace decoded before it. FOLDER keeps the recordings, for
// counting instructions (callgrind) instead of time.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>

#include "arch/x86/packet.h"
#include "decoder/model/capture.h"
#include "decoder/pipeline/pipeline.h"
#include "tests/bench/peer.h"
#include "tests/support/elf_writer.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/pt_writer.h"
#include "tests/support/temp_dir.h"

namespace asof::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Bytes = std::vector<uint8_t>;

constexpr uint64_t kUp = 0xffff800000000000;  // added to user addresses
constexpr uint32_t kPtType = 8;
constexpr uint64_t kPokesPerSecond = 1800;
constexpr size_t kSites = 100;
constexpr test::TimeConvSpec kClock{.shift = 0, .mult = 1, .zero = 0};
constexpr std::array<uint8_t, 5> kNop = {0x0f, 0x1f, 0x44, 0x00, 0x00},
                                 kOtherNop = {0x66, 0x0f, 0x1f, 0x40, 0x00};

uint64_t number(const json& value) {
  return value.is_string() ? std::stoull(value.get<std::string>(), nullptr, 0) : value.get<uint64_t>();
}

// pt-cc1's MTCs: one every 1000 TSC ticks, counted from its first TSC. Its TMAs are empty, so they are
// rewritten as hardware would write them: without them and the ratio, MTCs give no time.
constexpr uint8_t kMtcFreq = 3;
constexpr uint32_t kTicksPerCtc = 1000 >> kMtcFreq;

// A trace of user code as one of kernel code: addresses that are sign-extended from bit 47 get that bit.
// Addresses compressed to their lower part stay, since the upper part is the same for all; but the first one
// after a sync point is written in full, because no address precedes it.
struct Trace {
  Bytes bytes;
  Time first = kTimeMax, last = kTimeMin;  // by TSC
};
// `origin`: the TSC from which MTCs are counted; none: the first.
Trace moved(const Bytes& from, std::optional<uint64_t> origin = {}) {
  using x86::Pk;
  constexpr uint8_t kSext48 = 3, kPayload = 6;
  Trace t;
  bool synced = false;
  uint64_t tsc = 0;
  for (size_t at = 0; at < from.size();) {
    const x86::Packet p = x86::read_packet(from.data() + at, from.data() + from.size());
    if (p.type == Pk::kEnd) break;
    if (p.type == Pk::kBad) throw std::runtime_error("the trace is damaged");
    const bool address = p.type == Pk::kTip || p.type == Pk::kPge || p.type == Pk::kPgd || p.type == Pk::kFup;
    if (p.type == Pk::kPsb) synced = true;
    if (address && p.ipc != 0 && (p.ipc == kSext48 || synced)) {
      t.bytes.push_back(static_cast<uint8_t>((from[at] & 0x1f) | kSext48 << 5));
      for (unsigned i = 0; i < kPayload; ++i)
        t.bytes.push_back(static_cast<uint8_t>((p.value | kUp) >> (8 * i)));
      synced = false;
    } else if (p.type == Pk::kTma) {
      const uint64_t ticks = tsc - origin.value_or(tsc);
      test::PtWriter tma;
      tma.tma(static_cast<uint16_t>(ticks / kTicksPerCtc), static_cast<uint16_t>(ticks % kTicksPerCtc));
      t.bytes.insert(t.bytes.end(), tma.bytes().begin(), tma.bytes().end());
    } else {
      t.bytes.insert(t.bytes.end(), from.begin() + static_cast<std::ptrdiff_t>(at),
                     from.begin() + static_cast<std::ptrdiff_t>(at + p.size));
    }
    if (p.type == Pk::kTsc) {
      tsc = p.value;
      if (!origin) origin = tsc;
      t.first = std::min(t.first, static_cast<Time>(p.value));
      t.last = std::max(t.last, static_cast<Time>(p.value));
    }
    at += p.size;
  }
  return t;
}

struct Text {
  Addr address = 0;
  Bytes bytes;
};

struct Input {
  Trace trace;
  std::vector<Text> text;
};

Input read_input(const fs::path& bundle) {
  const json manifest = json::parse(std::ifstream(bundle));
  const fs::path folder = bundle.parent_path();
  Input in;
  in.trace = moved(test::read_bytes(folder / manifest["streams"][0]["file"].get<std::string>()));
  for (const json& piece : manifest["text"]) {
    const Bytes file = test::read_bytes(folder / piece["file"].get<std::string>());
    const auto begin = file.begin() + static_cast<std::ptrdiff_t>(number(piece["offset"]));
    in.text.push_back({number(piece["address"]) | kUp,
                       Bytes(begin, begin + static_cast<std::ptrdiff_t>(number(piece["size"])))});
  }
  return in;
}

void write_bundle(const Input& in, const fs::path& folder) {
  test::write_bytes(folder / "trace", in.trace.bytes);
  json manifest = {{"format", "asof-bundle"},
                   {"version", 1},
                   {"arch", "x86-64"},
                   {"pt",
                    {{"time_shift", 0},
                     {"time_mult", 1},
                     {"time_zero", 0},
                     {"mtc_freq", kMtcFreq},
                     {"tsc_ctc", {kTicksPerCtc, 1}}}},
                   {"streams", json::array({{{"file", "trace"}, {"cpu", 0}}})},
                   {"text", json::array()}};
  for (const Text& t : in.text) {
    const std::string name = fmt::format("{:x}", t.address);
    test::write_bytes(folder / name, t.bytes);
    manifest["text"].push_back({{"file", name}, {"address", fmt::format("{:#x}", t.address)}});
  }
  test::write_text(folder / "bundle.json", manifest.dump());
}

struct Change {
  Addr at;
  Time time;
  bool back;
};

// `count` changes at these sites, in rotation, spread over the trace's time.
std::vector<Change> changes_at(const std::vector<Addr>& sites, uint64_t count, const Trace& trace) {
  std::vector<Change> out;
  const auto span = static_cast<uint64_t>(trace.last - trace.first);
  for (uint64_t i = 0; i < count && !sites.empty(); ++i)
    out.push_back({sites[i % sites.size()], trace.first + static_cast<Time>(span / (count + 1) * (i + 1)),
                   i / sites.size() % 2 != 0});
  return out;
}

void write_recording(const Input& in, const std::vector<Change>& changes, const fs::path& folder) {
  namespace bit = test::pt_config_bit;
  namespace flag = test::attr_flag;
  test::PerfDataWriter w;
  w.add_attr({.type = kPtType,
              .config = bit::kPt | bit::kTsc | bit::kMtc | bit::kBranch | uint64_t{kMtcFreq} << 14,
              .flags = flag::kSampleIdAll,
              .ids = {101},
              .name = "intel_pt//"});
  w.add_attr({.flags = flag::kSampleIdAll | flag::kMmap | flag::kKsymbol | flag::kTextPoke,
              .ids = {201},
              .name = "dummy:HG"});
  w.arch("x86_64");
  w.nr_cpus(1);
  w.event_desc();
  w.time_conv(kClock);
  w.auxtrace_info({.pmu_type = kPtType, .time = kClock, .tsc_ctc_n = kTicksPerCtc, .tsc_ctc_d = 1});
  for (const Text& t : in.text)
    w.mmap({.addr = t.address,
            .len = t.bytes.size(),
            .pgoff = t.address,
            .filename = "[kernel.kallsyms]_text",
            .kernel = true});
  w.finished_init();
  const auto at = [](Time time, size_t attr) {
    return test::Trailer{.time = static_cast<uint64_t>(time), .attr = attr, .has_id = true};
  };
  w.auxtrace({.reference = 1, .idx = 0, .cpu = 0}, in.trace.bytes);
  w.itrace_start(1, 1, at(1, 0));
  for (const Change& c : changes) {
    const auto& from = c.back ? kOtherNop : kNop;
    const auto& to = c.back ? kNop : kOtherNop;
    w.text_poke(c.at, from, to, at(c.time, 1));
  }
  w.aux(0, in.trace.bytes.size(), 0, at(in.trace.last + 1'000'000, 0));
  w.finished_round();
  test::DirectoryParts parts;
  std::vector<test::CoreSegment> core;
  for (const Text& t : in.text) core.push_back({t.address, t.bytes});
  parts.kcore = test::make_core(core);
  parts.kallsyms = fmt::format("{0:016x} T _text\n{0:016x} T _stext\n{1:016x} T _etext\n",
                               in.text.front().address, in.text.back().address + in.text.back().bytes.size());
  w.write_directory(folder, parts);
}

// Five-byte NOPs that are run.
struct Nops : ChunkConsumer {
  void deliver(Chunk& chunk, const Stream&, Prepared*) override {
    for (const Step& step : chunk.steps) {
      if (!seen.insert(step.block).second) continue;
      Addr ip = step.block->ip;
      for (uint32_t i = 0; i < step.block->count; ++i) {
        const uint8_t* bytes = step.block->bytes + (ip - step.block->ip);
        if (step.block->lengths[i] == kNop.size() && std::equal(kNop.begin(), kNop.end(), bytes))
          found.insert(ip);
        ip += step.block->lengths[i];
      }
    }
  }
  std::set<const Block*> seen;
  std::set<Addr> found;
};

std::vector<Addr> some_of(const std::set<Addr>& all) {
  const std::vector<Addr> list(all.begin(), all.end());
  std::vector<Addr> out;
  const size_t step = std::max<size_t>(1, list.size() / kSites);
  for (size_t i = 0; i < list.size() && out.size() < kSites; i += step) out.push_back(list[i]);
  return out;
}

// Five-byte NOPs in the text that are not run.
std::set<Addr> idle_nops(const Input& in, const std::set<Addr>& running) {
  std::set<Addr> out;
  for (const Text& t : in.text) {
    for (auto at = t.bytes.begin();;) {
      at = std::search(at, t.bytes.end(), kNop.begin(), kNop.end());
      if (at == t.bytes.end()) break;
      const Addr a = t.address + static_cast<uint64_t>(at - t.bytes.begin());
      if (!running.contains(a)) out.insert(a);
      at += kNop.size();
    }
  }
  return out;
}

struct Count : ChunkConsumer {
  void deliver(Chunk& chunk, const Stream&, Prepared*) override {
    instructions += chunk.steps.instructions_in_runs();
    for (const Step& step : chunk.steps.loose()) instructions += step.count;
    gaps += chunk.gaps.size();
  }
  uint64_t instructions = 0, gaps = 0;
};

struct Variant {
  std::string name, path;
  uint64_t pokes = 0;
  std::vector<double> open{}, decode{};
  uint64_t instructions = 0, gaps = 0;
};

void run(Variant& v) {
  std::optional<Capture> capture;
  v.open.push_back(cpu_seconds_of([&] {
    auto opened = open_capture(v.path, {});
    if (!opened) throw std::runtime_error(opened.error().reason);
    capture = std::move(*opened);
  }));
  if (capture->text->pokes().size() != v.pokes) throw std::runtime_error("not all changes were read");
  Count count;
  v.decode.push_back(cpu_seconds_of([&] {
    PipelineOptions options;
    options.jobs = 1;
    if (const auto ok = run_pipeline(*capture, options, ChunkOrder::kByStream, count); !ok)
      throw std::runtime_error(ok.error().reason);
  }));
  v.instructions = count.instructions;
  v.gaps = count.gaps;
}

Nops visited(const fs::path& bundle) {
  const auto opened = open_capture(bundle.string(), {});
  if (!opened) throw std::runtime_error(opened.error().reason);
  Nops nops;
  PipelineOptions options;
  options.jobs = 1;
  if (!run_pipeline(*opened, options, ChunkOrder::kByStream, nops)) throw std::runtime_error("no decoder");
  return nops;
}

std::vector<Variant> make_variants(const Input& in, const fs::path& folder) {
  write_bundle(in, folder / "static");
  std::vector<Variant> out = {{"bundle, text that never changes", (folder / "static/bundle.json").string()}};
  const Nops nops = visited(out[0].path);
  const auto running = some_of(nops.found), idle = some_of(idle_nops(in, nops.found));
  fmt::print("  {} places of {} that run, {} that do not\n", running.size(), nops.found.size(), idle.size());
  const auto add = [&](std::string name, const std::vector<Addr>& sites, uint64_t count) {
    const fs::path path = folder / std::to_string(out.size());
    const auto changes = changes_at(sites, count, in.trace);
    write_recording(in, changes, path);
    out.push_back({std::move(name), path.string(), changes.size()});
  };
  const auto per_second =
      static_cast<uint64_t>(in.trace.last - in.trace.first) * kPokesPerSecond / 1'000'000'000;
  add("recording, no change", {}, 0);
  add("changes elsewhere", idle, per_second);
  add("changes of what runs", running, per_second);
  add("changes of what runs, x 10", running, 10 * per_second);
  add("changes of what runs, x 100", running, 100 * per_second);
  return out;
}

void run_by_turns(std::vector<Variant>& variants, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    for (Variant& v : variants) run(v);
  }
}

// The trace from the first sync point of its last part.
Input last_part(const Input& in) {
  const size_t from = x86::find_psb(in.trace.bytes, in.trace.bytes.size() / 16 * 15);
  if (from == SIZE_MAX) throw std::runtime_error("no sync point in the last part");
  Input part{moved(Bytes(in.trace.bytes.begin() + static_cast<std::ptrdiff_t>(from), in.trace.bytes.end()),
                   static_cast<uint64_t>(in.trace.first)),
             in.text};
  return part;
}

void compare_cache_sizes(const Input& in, const fs::path& folder, int rounds) {
  const Input part = last_part(in);
  write_bundle(part, folder / "part");
  const Nops nops = visited(folder / "part");
  const auto sites = some_of(nops.found);
  // Compared with one change of each site, because sites that change at all are walked with more care.
  const auto few = changes_at(sites, sites.size(), part.trace), many = changes_at(sites, 20'000, part.trace);
  std::vector<Variant> variants;
  for (const Input* input : {&part, &in}) {
    const std::string name = input == &part ? "last part alone" : "whole trace";
    for (const auto& c : {few, many}) {
      const fs::path path = folder / fmt::format("{}-{}", input == &part ? "part" : "whole", c.size());
      write_recording(*input, c, path);
      variants.push_back({name, path.string(), c.size()});
    }
  }
  run_by_turns(variants, rounds);
  for (size_t i = 1; i < variants.size(); i += 2) {
    const Variant &less = variants[i - 1], &more = variants[i];
    fmt::print(
        "  {} changes instead of {}, all in the last part; {}, {} instructions: {:.0f} ns a change\n",
        more.pokes, less.pokes, more.name, more.instructions,
        (median(more.decode) - median(less.decode)) * 1e9 / static_cast<double>(more.pokes - less.pokes));
  }
}

void compare(const std::string& bundle, int rounds, const std::string& keep) {
  const Input in = read_input(bundle);
  const test::TempDir temporary;
  const fs::path work = keep.empty() ? temporary.path() : fs::path(keep);
  fmt::print("{}, {:.3f} s of trace\n", bundle, static_cast<double>(in.trace.last - in.trace.first) * 1e-9);
  std::vector<Variant> variants = make_variants(in, work);
  run_by_turns(variants, rounds);
  const double base = median(variants[0].decode);
  fmt::print("  {:<34}{:>9}{:>14}{:>9}{:>10}{:>9}{:>12}  {}\n", "", "changes", "instructions", "open s",
             "decode s", "ratio", "ns a change", "losses");
  for (const Variant& v : variants) {
    const double s = median(v.decode);
    fmt::print("  {:<34}{:>9}{:>14}{:>9.3f}{:>10.3f}{:>9.3f}{:>12.0f}  {}\n", v.name, v.pokes, v.instructions,
               median(v.open), s, s / base,
               v.pokes == 0 ? 0 : (s - median(variants[1].decode)) * 1e9 / static_cast<double>(v.pokes),
               v.gaps);
  }
  compare_cache_sizes(in, work, rounds);
  std::fflush(stdout);
}

}  // namespace
}  // namespace asof::bench

int main(int argc, char** argv) {
  int rounds = 5;
  std::string keep;
  try {
    for (int i = 1; i < argc; ++i) {
      if (std::string_view(argv[i]) == "--rounds" && i + 1 < argc)
        rounds = std::max(1, std::atoi(argv[++i]));
      else if (std::string_view(argv[i]) == "--keep" && i + 1 < argc)
        keep = argv[++i];
      else
        asof::bench::compare(argv[i], rounds, keep);
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 2;
  }
  return 0;
}
