// damage_campaign --asof PROGRAM --data tests/data [--runs N] [--first N] [--memory MIB] [--peak MIB] [--keep FOLDER]: runs
// first ... first + runs - 1 of the damage campaign (damage.h). Prints what came of them; status 1 if something is wrong.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>

#include "tests/fuzz/corpus.h"
#include "tests/fuzz/damage.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/perf_data_writer.h"
#include "tests/support/temp_dir.h"

namespace asof::fuzz {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string program, data, keep;
  uint64_t runs = 1000, first = 0;
  Limits limits;
};

// What is between single quotes is one word.
std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words(1);
  bool quoted = false;
  for (const char c : text) {
    if (c == '\'') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

std::map<std::string, std::vector<uint8_t>> files_of(const fs::path& path) {
  std::map<std::string, std::vector<uint8_t>> files;
  if (fs::is_regular_file(path)) return {{path.filename(), test::read_bytes(path)}};
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file())
      files[entry.path().lexically_relative(path)] = test::read_bytes(entry.path());
  }
  return files;
}

class Campaign {
 public:
  explicit Campaign(const Options& options) : options_(options) {
    recordings();
    made_by_asof();
    corpus();
    ::setenv("TMPDIR", (work_ / "run/tmp").c_str(), 1);
  }

  bool run_all();

 private:
  struct Outcomes {
    std::map<int, uint64_t> by_status;
    double most_cpu = 0;
    uint64_t most_memory = 0, slowest = 0, largest = 0;  // numbers of runs
  };

  void recordings();
  void made_by_asof();
  void corpus();
  void make(const std::vector<std::string>& arguments) const;
  void run(uint64_t number);
  std::vector<std::string> arguments_for(const std::string& command, const fs::path& input,
                                         const fs::path& folder) const;
  // What must not differ, and does; empty: nothing. `first`: of the command.
  std::string difference(const std::string& command, const Sample& sample, const Usage& first);
  Usage run_command(const std::string& command, const Sample& sample) const;
  const std::string& undamaged(const Sample& sample, const std::string& command);
  void finding(uint64_t number, const std::string& what, const std::vector<std::string>& arguments,
               const std::string& done);
  void print() const;

  const Options& options_;
  std::vector<Sample> samples_;
  std::map<std::string, Outcomes> verbs_;
  std::map<std::pair<std::string, std::string>, std::string> undamaged_;  // by sample and command
  test::TempDir work_;
  uint64_t findings_ = 0;
};

void Campaign::recordings() {
  for (const char* name : {"demo", "demo-arm64"})
    samples_.push_back({name, "", files_of(fs::path(options_.data) / name / "perf.data"), false});
}

void Campaign::make(const std::vector<std::string>& arguments) const {
  std::vector<std::string> all = {options_.program};
  all.insert(all.end(), arguments.begin(), arguments.end());
  const Usage usage = run_program(all, work_.path(), {});
  if (usage.status == 0) return;
  fmt::print(stderr, "cannot make a sample: {}\n{}", fmt::join(all, " "), usage.err);
  std::exit(1);
}

// Packs, block streams, plans with their parts.
void Campaign::made_by_asof() {
  for (const char* name : {"demo", "demo-arm64"}) {
    const std::string capture = fs::path(options_.data) / name / "perf.data", out = work_ / "made";
    // A tar has no checksum of what is in it.
    for (const char* suffix : {"", ".tar.zst"}) {
      make({"pack", "-q", "-i", capture, "-o", out + suffix});
      samples_.push_back({fmt::format("{} packed{}", name, suffix), std::string("made") + suffix,
                          files_of(out + suffix), false, *suffix != 0});
    }
    make({"decode", "-q", "-i", capture, "--format", "blocks", "-o", out});
    samples_.push_back({std::string(name) + " as blocks", "made", files_of(out), false, true});
    const fs::path folder = work_ / "planned";  // then it is gone: damaged copies find their own trace
    fs::create_directory(folder);
    fs::copy_file(fs::path(capture) / "data", folder / "perf.data");
    const std::string kcore = fs::path(capture) / "kcore_dir" / "kcore", plan = folder / "plan";
    make({"plan", "-q", "--kcore", kcore, "-o", plan, folder / "perf.data"});
    for (const char* shard : {"0/2", "1/2"})
      make({"decode", "-q", "--plan", plan, "--shard", shard, "-o", plan + "/parts"});
    samples_.push_back({std::string(name) + " planned", "plan", files_of(folder), true});
    fs::remove_all(folder);
  }
}

// Small captures of every format.
void Campaign::corpus() {
  for (const auto& [name, bytes] : read_corpus(ASOF_FUZZ_CORPUS "/capture.tar.zst")) {
    Sample sample;
    sample.name = "corpus " + name;
    for (const auto& [file, part] : split_files(bytes)) sample.files[file].assign(part.begin(), part.end());
    for (const char* argument : {"perf.data", "bundle.json", "trace.json", "snapshot.ini"}) {
      const bool there =
          sample.files.contains(argument) || sample.files.contains(std::string(argument) + "/data");
      if (sample.argument.empty() && there) sample.argument = argument;
    }
    if (!sample.argument.empty()) samples_.push_back(std::move(sample));
  }
}

std::vector<std::string> Campaign::arguments_for(const std::string& command, const fs::path& input,
                                                 const fs::path& folder) const {
  std::vector<std::string> all = words_of(command);
  for (std::string& word : all) {
    if (word == "IN") word = input;
    if (word == "OUT") word = folder / "out";
    if (word.starts_with("DIR/")) word = folder / word.substr(4);
  }
  all.insert(all.begin(), options_.program);
  return all;
}

void Campaign::finding(uint64_t number, const std::string& what, const std::vector<std::string>& arguments,
                       const std::string& done) {
  ++findings_;
  fmt::print("run {}: {}\n  {}\n  {}\n", number, what, fmt::join(arguments, " "), done);
  if (options_.keep.empty()) return;
  const fs::path kept = fs::path(options_.keep) / std::to_string(number);
  fs::create_directories(kept);
  fs::copy(work_ / "run", kept, fs::copy_options::recursive | fs::copy_options::overwrite_existing);
}

void write_files(const Sample& sample, const fs::path& folder) {
  fs::remove_all(folder);
  for (const auto& [name, bytes] : sample.files) {
    fs::create_directories((folder / "in" / name).parent_path());
    test::write_bytes(folder / "in" / name, bytes);
  }
  fs::create_directories(folder / "tmp");
}

// What the command prints of the sample as it was.
const std::string& Campaign::undamaged(const Sample& sample, const std::string& command) {
  const auto [known, fresh] = undamaged_.try_emplace({sample.name, command});
  if (fresh) {
    const fs::path folder = work_ / "run";
    write_files(*std::ranges::find(samples_, sample.name, &Sample::name), folder);
    known->second = run_command(command, sample).out;
  }
  return known->second;
}

void Campaign::run(uint64_t number) {
  test::SimRandom random(number);
  Sample sample = samples_[random.below(samples_.size())];
  // Half of the runs have the captures that asof decodes whole, or what it wrote itself.
  if (random.chance(50)) sample = samples_[random.below(std::min<size_t>(samples_.size(), 10))];
  const auto& commands = damage_commands();
  std::string command = commands[random.below(commands.size())];
  if (sample.is_plan && random.chance(50))
    command =
        random.chance(50) ? "merge IN DIR/in/plan/parts -o OUT" : "decode --plan IN --shard 1/3 -o DIR/parts";
  Damage damaged = damage(sample.files, sample.argument, random);
  if (sample.is_plan)
    damaged.must_be_told = false;  // who reads a plan may not read the parts, nor all of the trace
  const fs::path folder = work_ / "run", input = folder / "in";
  const std::string* const expected =
      sample.is_checked && prints_figures(command) ? &undamaged(sample, command) : nullptr;
  write_files(sample, folder);
  const auto arguments =
      arguments_for(command, sample.argument.empty() ? input : input / sample.argument, folder);
  const Usage usage = run_command(command, sample);
  std::string what = fault_of(usage, damaged, folder);
  if (what.empty() && expected != nullptr && usage.status == 0 && usage.out != *expected &&
      !tells_of_something(usage))
    what = "other figures, and not a word of damage";
  if (what.empty() && usage.peak > options_.limits.peak)
    what = fmt::format("takes {} MiB", usage.peak >> 20U);
  if (what.empty()) what = difference(command, sample, usage);
  if (!what.empty()) finding(number, what + " (" + sample.name + ")", arguments, damaged.done);
  Outcomes& o = verbs_[command.substr(0, command.find(' '))];
  ++o.by_status[usage.status];
  if (usage.cpu > o.most_cpu) o.most_cpu = usage.cpu, o.slowest = number;
  if (usage.peak > o.most_memory) o.most_memory = usage.peak, o.largest = number;
}

Usage Campaign::run_command(const std::string& command, const Sample& sample) const {
  const fs::path folder = work_ / "run", in = folder / "in";
  return run_program(arguments_for(command, sample.argument.empty() ? in : in / sample.argument, folder),
                     folder, options_.limits);
}

// Of each file that a command wrote, its content.
std::map<std::string, std::vector<uint8_t>> written(const fs::path& folder) {
  std::map<std::string, std::vector<uint8_t>> all;
  for (const char* name : {"out", "lake"}) {
    if (!fs::exists(folder / name)) continue;
    for (auto& [file, bytes] : files_of(folder / name))
      all[std::string(name) + "/" + file] = std::move(bytes);
  }
  return all;
}

// One worker and several give the same bytes; what was packed, planned or decoded to a block stream is the capture.
std::string Campaign::difference(const std::string& command, const Sample& sample, const Usage& first) {
  const auto same = [&](const char* of_input, const char* of_made) -> std::string {
    const Usage input = run_command(of_input, sample), made = run_command(of_made, sample);
    return input.out == made.out ? "" : fmt::format("other output of '{}' and '{}'", of_input, of_made);
  };
  const fs::path folder = work_ / "run";
  if (command == "pack -i IN -o OUT" && fs::exists(folder / "out"))
    return same("digest -i IN", "digest -i OUT");
  if (command == "plan IN -o DIR/plan" && fs::exists(folder / "plan/core.asof"))
    return same("digest -i IN", "digest -i DIR/plan");
  if (command == "decode -i IN --format blocks -o OUT" && fs::exists(folder / "out"))
    return same("timeline -i IN --format csv -o -", "timeline -i OUT --format csv -o -");
  if (command.starts_with("query") && first.status != 1) {
    for (const char* when : {"a query that fills the cache", "a query from the cache"}) {
      const Usage cached = run_command(command + " --cache always --cache-dir DIR/cache", sample);
      if (cached.status != first.status || cached.out != first.out)
        return fmt::format("other output of {}", when);
    }
  }
  constexpr std::array kOneThread = {"pack", "plan", "merge", "doctor", "events", "text", "decode --plan"};
  const auto begins = [&](const char* with) { return command.starts_with(with); };
  if (first.err.find("libopencsd") != std::string::npos) return {};  // a sanitizer's report, with addresses
  if (std::ranges::any_of(kOneThread, begins) || command.ends_with("-j1")) return {};
  const auto files = written(folder);
  for (const char* name : {"out", "lake"}) fs::remove_all(folder / name);
  const Usage one = run_command(command + " -j1", sample);
  if (one.status != first.status || one.out != first.out || one.err != first.err)
    return "other output with -j1";
  return written(folder) == files ? "" : "other files with -j1";
}

void Campaign::print() const {
  fmt::print("{:<10} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>9} {:>10}  slowest, largest run\n", "verb",
             "runs", "ok", "usage", "input", "errors", "no text", "CPU s", "MiB");
  for (const auto& [verb, o] : verbs_) {
    uint64_t runs = 0;
    for (const auto& [status, n] : o.by_status) runs += n;
    const auto with = [&](int status) { return o.by_status.contains(status) ? o.by_status.at(status) : 0; };
    fmt::print("{:<10} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>9.2f} {:>10}  {}, {}\n", verb, runs, with(0),
               with(1), with(2), with(3), with(5), o.most_cpu, o.most_memory >> 20U, o.slowest, o.largest);
  }
  fmt::print("{} runs on damaged forms of {} captures, {} findings\n", options_.runs, samples_.size(),
             findings_);
}

bool Campaign::run_all() {
  for (uint64_t i = 0; i < options_.runs; ++i) run(options_.first + i);
  print();
  return findings_ == 0;
}

}  // namespace
}  // namespace asof::fuzz

int main(int argc, char** argv) {
  asof::fuzz::Options o;
  uint64_t peak = o.limits.peak >> 20U;
  CLI::App app("runs asof on damaged captures");
  app.add_option("--asof", o.program)->required();
  app.add_option("--data", o.data)->required();
  app.add_option("--runs", o.runs);
  app.add_option("--first", o.first);
  app.add_option("--memory", o.limits.memory, "MiB of address space");
  app.add_option("--peak", peak, "MiB that no run may take; more with sanitizers")->capture_default_str();
  app.add_option("--keep", o.keep, "folder for what is found");
  CLI11_PARSE(app, argc, argv);
  o.limits.memory <<= 20U;
  o.limits.peak = peak << 20U;
  for (std::string* path : {&o.program, &o.data}) *path = std::filesystem::absolute(*path);
  ::setenv("ASOF_CACHE", "never", 1);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what is found is there if it is stopped
  asof::fuzz::Campaign campaign(o);
  return campaign.run_all() ? 0 : 1;
}
