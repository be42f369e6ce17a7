// A random program on simulated arm64 CPUs while its text changes, and what its capture gives a decoder.
#pragma once
#include <fmt/format.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arch/arm64/arm64.h"
#include "arch/arm64/patch_rules.h"
#include "tests/support/etm_machine.h"
#include "tests/support/etm_opencsd.h"
#include "tests/support/etm_program.h"
#include "tests/support/holes.h"
#include "textstore/builder.h"

namespace asof::test {

// Where tests with fixed code put it.
inline constexpr Addr kMain = 0xffff800008010000;

enum class EtmClock : uint8_t {
  kFine,     // timestamps every few elements
  kCoarse,   // at synchronisation only
  kNone,     // none at all: AUX records give the first and last time
  kZero,     // from a stopped generator
  kForeign,  // from a counter other than perf's
};

struct EtmSettings {
  uint64_t seed = 0;
  unsigned cpus = 1;
  uint64_t ns = 3'000;
  unsigned changes = 0;
  EtmClock clock = EtmClock::kFine;
  bool pauses = false;  // trace that stops, starts and overflows
  // Of some changes; these are then far apart, so that none is taken for a duplicate of another.
  bool lost_records = false;
  unsigned silent = 0;     // percent of the changing sites without records, so that their text is unsure
  bool reference = false;  // only what OpenCSD 1.3.3 decodes correctly
  unsigned kprobes = 0;    // armed and disarmed again
  uint64_t slow = 1;       // factor for the duration of instructions, but not of stores
  unsigned holes = 0;      // pieces of the text about which nothing is known
  unsigned processes = 0;  // code of a process; this many records show which one runs. 0: the kernel's
  Time clock_error = 200;
};

// One instruction as a decoder returned it.
struct EtmRan {
  Addr ip = 0;
  uint32_t word = 0;
  Time time = kTimeMin;
  Confidence confidence = Confidence::kCertain;
  bool after_gap = false;  // something before it is missing
};

struct EtmDecoded final : ChunkSink {
  std::vector<EtmRan> ran;
  std::vector<Gap> gaps;

  void take(Chunk&& c) override {
    for (const Step& s : c.steps) {
      const Block& b = *s.block;
      uint32_t at = 0;
      for (uint32_t i = 0; i < s.count; at += b.lengths[i++]) {
        ran.push_back({b.ip + at, a64::word_of({b.bytes + at, b.lengths[i]}), s.time, s.confidence,
                       i == 0 && (s.flags & Step::kAfterGap) != 0});
      }
    }
    gaps.insert(gaps.end(), c.gaps.begin(), c.gaps.end());
  }
};

class EtmSimulation {
 public:
  explicit EtmSimulation(const EtmSettings& settings)
      : settings_(settings),
        random_(settings.seed * 7919 + 1),
        program_(settings.seed, settings.kprobes != 0,
                 settings.processes != 0 ? kUserText : EtmProgram::kText) {
    configure();
    machine_ = std::make_unique<EtmMachine>(config_);
    program_.install(*machine_);
    change_text();
    probe();
    run();
    store();
    streams();
  }

  std::vector<Segment> segments(unsigned cpu) const { return arch_->split(streams_[cpu], cpu); }
  std::unique_ptr<SegmentDecoder> decoder(DecodeOptions o = {}) const {
    o.clock_error = settings_.clock_error;
    return arch_->decoder(streams_, *text_, o);
  }
  const EtmCpu& cpu(unsigned n) const { return *cpus_[n]; }
  const EtmProgram& program() const { return program_; }
  const arm64::Source& source(unsigned n) const { return decode_config_.sources[n]; }
  bool has_time() const { return decode_config_.time.has_value(); }
  const EtmMachineConfig& config() const { return config_; }
  const TextStore& text() const { return *text_; }
  const std::map<Addr, std::vector<EtmChange>>& changes() const { return machine_->changes(); }

  // Everything that OpenCSD's full decoder finds in a CPU's trace, with the text at the start.
  CsdDecode reference(unsigned cpu) const {
    const CsdRead read = [this](Addr a, std::span<uint8_t> out) -> uint32_t {
      if (a < program_.text() || a - program_.text() >= bytes_.size()) return 0;
      const size_t at = a - program_.text();
      const size_t n = std::min(out.size(), bytes_.size() - at);
      std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at), n, out.begin());
      return static_cast<uint32_t>(n);
    };
    return csd_decode(source(cpu), cpus_[cpu]->unit().writer().bytes(), read);
  }

  // Instructions that ran in a segment, among those that its trace can show.
  std::vector<A64Executed> truth(unsigned cpu, const Segment& segment) const {
    const std::vector<EtmSyncPoint>& points = cpus_[cpu]->sync_points();
    const std::vector<A64Executed>& all = cpus_[cpu]->executed();
    std::vector<A64Executed> out;
    for (size_t i = 0; i < points.size(); ++i) {
      if (points[i].offset != segment.begin) continue;
      const size_t end = i + 1 < points.size() ? points[i + 1].executed : all.size();
      for (size_t n = points[i].executed; n < end; ++n) {
        if (all[n].shown) out.push_back(all[n]);
      }
    }
    return out;
  }

 private:
  static constexpr Addr kUserText = 0x400000;

  void configure() {
    config_.seed = settings_.seed;
    config_.vector = program_.vector();
    if (settings_.kprobes != 0) {
      config_.stopper = program_.stopper();
      config_.stop_isb = program_.stop_isb();
      decode_config_.patch_text_cb = program_.callback();
    }
    if (settings_.lost_records) config_.min_cost = 20, config_.max_cost = 100;
    config_.min_cost *= static_cast<uint32_t>(settings_.slow);
    config_.max_cost *= static_cast<uint32_t>(settings_.slow);
    settings_.ns *= settings_.slow;
    EtmUnitConfig& u = config_.unit;
    u.return_stack = random_.chance(50);
    u.cycle_counts = random_.chance(20);
    u.sync_bytes = static_cast<unsigned>(random_.between(60, 500));
    u.spec_depth = random_.chance(20) ? static_cast<unsigned>(random_.between(2, 20)) : 0;
    u.timestamp_every = settings_.clock == EtmClock::kFine     ? static_cast<unsigned>(random_.between(1, 8))
                        : settings_.clock == EtmClock::kCoarse ? 1'000'000
                        : settings_.clock == EtmClock::kNone   ? 0
                                                               : 4;
    // An exception packet that gives a branch's target removes an entry from OpenCSD's return stack.
    u.merge_exceptions = !(settings_.reference && u.return_stack);
    u.zero_timestamps = settings_.clock == EtmClock::kZero;
    if (settings_.clock == EtmClock::kForeign) u.timestamp_offset = 3'000'000'000;
  }

  // Sites of one key one after the other, each complete before the next, without notice to other CPUs.
  void change_text() {
    const auto& sites = program_.sites();
    if (sites.empty()) return;
    std::vector<bool> on(sites.size());
    const uint64_t end = config_.start + settings_.ns;
    uint64_t t = config_.start + random_.below(settings_.ns / 4 + 1);
    for (unsigned i = 0; i < settings_.changes && t < end; ++i) {
      const int writer = random_.chance(30) ? static_cast<int>(random_.below(settings_.cpus)) : -1;
      for (size_t s = 0; s < sites.size(); ++s) {
        if (!random_.chance(50)) continue;
        const uint32_t off_word = a64::kNop, on_word = sites[s].on();
        const uint64_t complete = t + random_.between(1, 100);
        machine_->change(
            {sites[s].at, on[s] ? on_word : off_word, on[s] ? off_word : on_word, t, complete, writer});
        on[s] = !on[s];
        t = complete + random_.between(1, 40) * settings_.slow;
      }
      t += random_.below(settings_.ns / (settings_.changes + 1) + 1);
      if (settings_.lost_records) t += 6'000 * settings_.slow;
    }
  }

  // Kprobes one after another, each with a slot that no record shows.
  void probe() {
    constexpr Addr kSlots = 0xffff800009ae5000;
    constexpr uint32_t kBrk4 = 0xd4200080, kBrk6 = 0xd42000c0;
    const uint64_t arrival = 20ULL * config_.max_cost, apart = 100ULL * config_.max_cost;
    uint64_t t = config_.start + apart;
    for (unsigned i = 0; i < settings_.kprobes; ++i) {
      const Addr at = program_.probes()[random_.below(program_.probes().size())], slot = kSlots + 8 * i;
      const uint32_t word = machine_->word_at(at);
      machine_->load(slot, {word, kBrk6});
      machine_->on_brk(at, [slot](EtmCpu&) { return slot; });
      machine_->on_brk(slot + 4, [at](EtmCpu&) { return at + 4; });
      for (const bool arm : {true, false}) {
        t += apart + random_.below(settings_.ns / (2 * settings_.kprobes) + 1);
        machine_->stop_machine({at, arm ? word : kBrk4, arm ? kBrk4 : word, t, t + arrival});
        t += arrival;
      }
    }
  }

  void run() {
    const uint64_t start = config_.start, end = start + settings_.ns;
    for (unsigned i = 0; i < settings_.cpus; ++i) {
      cpus_.push_back(std::make_unique<EtmCpu>(*machine_, static_cast<int>(i)));
      EtmCpu& c = *cpus_.back();
      const uint64_t pace = random_.between(300, 4000) * settings_.slow;
      for (uint64_t t = start; (t += random_.between(1, pace)) < end;) c.interrupt_at(t);
      if (settings_.pauses) {
        const uint64_t from = start + random_.below(settings_.ns),
                       until = from + random_.between(10, 500) * settings_.slow;
        random_.chance(50) ? c.stop_at(from, until) : c.overflow_at(from, until);
      }
      c.start(program_.entry());
      c.run_until(end);
      c.finish();
    }
  }

  // The text before the run, and the records of its changes. With losses every lost record leaves a visible
  // break: the next one at the address does not fit.
  void store() {
    Builder b;
    b.set_patch_rules(arm64::kPatchRules);
    bytes_ = program_.bytes();
    Layer l;
    l.range = range_of(program_.text(), bytes_.size());
    if (settings_.processes != 0) l.space = space_ = b.add_space();
    l.bytes = bytes_;
    l.observed = static_cast<Time>(config_.start) - 1;
    add_with_holes(b, l, settings_.holes, random_);
    for (const auto& [addr, changes] : machine_->changes()) {
      if (settings_.silent != 0 && random_.chance(settings_.silent)) {
        Layer unsure = l;
        unsure.range = range_of(addr, 4);
        unsure.bytes = std::span(bytes_).subspan(addr - program_.text(), 4);
        unsure.rank = kRankWatched;
        unsure.unsure = true;
        b.add_layer(unsure);
        continue;
      }
      bool kept = false;  // the previous one
      for (size_t i = 0; i < changes.size(); ++i) {
        const EtmChange& c = changes[i];
        const bool lose = settings_.lost_records && kept && i + 1 < changes.size() && random_.chance(50);
        kept = !lose;
        if (lose)
          b.add_lost({7, static_cast<Time>(c.written) - 50, static_cast<Time>(c.complete) + 50, 1});
        else
          add(b, c);
      }
    }
    for (const EtmStop& s : machine_->stops())
      add(b, {s.addr, s.old_word, s.new_word, s.written, s.written, -1});
    text_.emplace(std::move(b).build());
  }
  void add(Builder& b, const EtmChange& c) {
    Poke p;
    p.addr = c.addr;
    p.time = static_cast<Time>(random_.between(c.written, c.complete));
    words_.push_back(a64::bytes_of(c.old_word));
    p.old_bytes = words_.back();
    words_.push_back(a64::bytes_of(c.new_word));
    p.new_bytes = words_.back();
    p.source = c.writer < 0 ? 99 : static_cast<uint32_t>(c.writer);
    b.add_poke(p);
  }

  void streams() {
    if (settings_.clock == EtmClock::kFine || settings_.clock == EtmClock::kCoarse)
      decode_config_.time = TimeConversion{};
    for (unsigned i = 0; i < settings_.cpus; ++i) {
      arm64::Source source = etm4_source(static_cast<uint8_t>(0x10 + 2 * i), config_.unit.return_stack);
      source.idr8 = config_.unit.spec_depth;
      if (config_.unit.cycle_counts) source.configr |= 1U << 4;
      decode_config_.sources.push_back(source);
      Stream s;
      s.name = fmt::format("cpu{}", i);
      s.cpu = static_cast<int32_t>(i);
      StreamPiece p;
      p.bytes = cpus_[i]->unit().writer().bytes();
      s.pieces = {p};
      for (unsigned n = 0; n < settings_.processes; ++n)
        s.contexts.push_back(
            {.time = static_cast<Time>(config_.start + n * settings_.ns / 4), .space = space_});
      s.bounds = {static_cast<Time>(config_.start), static_cast<Time>(cpus_[i]->now())};
      streams_.push_back(s);
    }
    arch_ = arm64::make_arch(decode_config_);
  }

  EtmSettings settings_;
  SimRandom random_;
  EtmProgram program_;
  EtmMachineConfig config_;
  std::unique_ptr<EtmMachine> machine_;
  std::vector<std::unique_ptr<EtmCpu>> cpus_;
  std::vector<uint8_t> bytes_;
  std::deque<std::vector<uint8_t>> words_;
  std::optional<TextStore> text_;
  Space space_ = kNoSpace;  // the process's
  arm64::Config decode_config_;
  std::vector<Stream> streams_;
  std::unique_ptr<Arch> arch_;
};

}  // namespace asof::test
