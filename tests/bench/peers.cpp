// peers [--rounds N] [--only NAME] BUNDLE...: decodes raw PT bundles with asof and with libipt's block
// decoder by turns, in one process and thread, and prints medians of CPU time with their ratio. The machines
// we measure on are shared: ratios of one run mean something, figures of different runs do not.
#include <fmt/format.h>
#include <intel-pt.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "decoder/capture.h"
#include "decoder/pipeline.h"
#include "tools/tally.h"

namespace asof {
namespace {

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

struct Outcome {
  uint64_t instructions = 0;
  uint64_t hash = 0;    // asof only
  uint64_t errors = 0;  // gaps
};

// Counts what every chunk holds, by blocks; with `hash`, the hash over all addresses too.
class Count : public ChunkConsumer {
 public:
  explicit Count(bool hash) : hash_(hash) {}
  void deliver(Chunk& chunk, const Stream&, Prepared*) override {
    outcome.errors += chunk.gaps.size();
    if (hash_) {
      Tally tally;
      count_steps(chunk, tally);
      ips_.append(tally.ips);
      outcome.instructions = ips_.count;
      outcome.hash = ips_.hash;
      return;
    }
    outcome.instructions += chunk.steps.instructions_in_runs();
    for (const Step& step : chunk.steps.loose()) outcome.instructions += step.count;
  }
  Outcome outcome;

 private:
  bool hash_;
  IpHash ips_;
};

Outcome with_asof(const std::string& path, bool hash, unsigned jobs = 1) {
  const auto capture = open_capture(path, {});
  if (!capture) return {};
  PipelineOptions options;
  options.jobs = jobs;
  Count count(hash);
  if (!run_pipeline(*capture, options, ChunkOrder::kByStream, count)) return {};
  return count.outcome;
}

std::vector<uint8_t> read_all(const std::filesystem::path& path) {
  std::vector<uint8_t> bytes(std::filesystem::file_size(path));
  std::ifstream(path, std::ios::binary)
      .read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

uint64_t number(const nlohmann::json& value) {
  return value.is_string() ? std::stoull(value.get<std::string>(), nullptr, 0) : value.get<uint64_t>();
}

Outcome with_libipt(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const nlohmann::json manifest = nlohmann::json::parse(std::ifstream(path));
  std::vector<uint8_t> trace = read_all(folder / manifest["streams"][0]["file"].get<std::string>());
  pt_config config{};
  pt_config_init(&config);
  config.begin = trace.data();
  config.end = trace.data() + trace.size();
  // Sections stay mapped, and their block caches with them: libipt at its best.
  const std::unique_ptr<pt_image_section_cache, void (*)(pt_image_section_cache*)> sections(
      pt_iscache_alloc(nullptr), pt_iscache_free);
  pt_iscache_set_limit(sections.get(), UINT64_MAX);
  const std::unique_ptr<pt_image, void (*)(pt_image*)> image(pt_image_alloc(nullptr), pt_image_free);
  for (const auto& text : manifest["text"]) {
    const int section =
        pt_iscache_add_file(sections.get(), (folder / text["file"].get<std::string>()).c_str(),
                            number(text["offset"]), number(text["size"]), number(text["address"]));
    pt_image_add_cached(image.get(), sections.get(), section, nullptr);
  }
  const std::unique_ptr<pt_block_decoder, void (*)(pt_block_decoder*)> decoder(pt_blk_alloc_decoder(&config),
                                                                               pt_blk_free_decoder);
  pt_blk_set_image(decoder.get(), image.get());
  Outcome out;
  for (int status = pt_blk_sync_forward(decoder.get()); status >= 0;
       status = pt_blk_sync_forward(decoder.get())) {
    for (;;) {
      pt_event event{};
      while (status >= 0 && (status & pts_event_pending) != 0)
        status = pt_blk_event(decoder.get(), &event, sizeof(event));
      if (status < 0) break;
      pt_block block{};
      status = pt_blk_next(decoder.get(), &block, sizeof(block));
      out.instructions += block.ninsn;
      if (status < 0) break;
    }
    if (status == -pte_eos) break;
    ++out.errors;
  }
  return out;
}

double median(std::vector<double> v) {
  std::ranges::sort(v);
  return v[v.size() / 2];
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Work that needs nothing but a core.
void spin() {
  uint64_t x = 1;
  for (uint32_t i = 0; i < 300'000'000; ++i) x = x * 6364136223846793005ULL + 1;
  static std::atomic<uint64_t> sink;
  sink = x;
}

// How much faster two threads are than one, beside what two free cores would give at that time.
void scaling(const std::string& path, int rounds) {
  const auto wall = [](auto&& work) {
    const double start = wall_seconds();
    work();
    return wall_seconds() - start;
  };
  std::vector<double> decode, control;
  for (int round = 0; round < rounds; ++round) {
    const double one = wall([&] { with_asof(path, false, 1); });
    const double spin_one = wall(spin);
    const double spin_two = wall([] {
      std::thread other(spin);
      spin();
      other.join();
    });
    const double two = wall([&] { with_asof(path, false, 2); });
    decode.push_back(one / two);
    control.push_back(2 * spin_one / spin_two);
  }
  fmt::print("  two threads: {:.2f} x one; two spinning threads: {:.2f} x\n", median(decode),
             median(control));
}

void compare(const std::string& path, int rounds, const std::string& only) {
  struct Peer {
    const char* name;
    Outcome (*run)(const std::string&);
    std::vector<double> seconds{};
    Outcome outcome{};
  };
  Peer peers[] = {{"libipt blocks", with_libipt},
                  {"asof blocks", [](const std::string& p) { return with_asof(p, false); }},
                  {"asof blocks, hashed", [](const std::string& p) { return with_asof(p, true); }}};
  const auto wanted = [&](const Peer& peer) { return only.empty() || peer.name == only; };
  for (int round = 0; round < rounds; ++round) {
    for (Peer& peer : peers) {
      if (!wanted(peer)) continue;
      const double start = cpu_seconds();
      peer.outcome = peer.run(path);
      peer.seconds.push_back(cpu_seconds() - start);
    }
  }
  fmt::print("{}\n", path);
  const double base = wanted(peers[0]) ? median(peers[0].seconds) : 0;
  for (const Peer& peer : peers) {
    if (!wanted(peer)) continue;
    const double s = median(peer.seconds);
    fmt::print("  {:<22}{:>12} instructions{:>10.3f} s (best {:.3f}){:>9.1f} M/s{:>8.2f} x   {} errors",
               peer.name, peer.outcome.instructions, s, std::ranges::min(peer.seconds),
               static_cast<double>(peer.outcome.instructions) / s * 1e-6, base / s, peer.outcome.errors);
    if (peer.outcome.hash != 0) fmt::print(", hash {:016x}", peer.outcome.hash);
    fmt::print("\n");
  }
  if (only.empty()) scaling(path, rounds);
}

}  // namespace
}  // namespace asof

int main(int argc, char** argv) {
  int rounds = 3;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--rounds" && i + 1 < argc)
      rounds = std::max(1, std::atoi(argv[++i]));
    else if (std::string_view(argv[i]) == "--only" && i + 1 < argc)
      only = argv[++i];
    else
      asof::compare(argv[i], rounds, only);
  }
  return 0;
}
