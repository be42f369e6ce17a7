// kernel_changes CAPTURE [SYMFS]: each recorded change of kernel text, with what ran at its place before and
// after it, on each CPU. A whole program on the library: build it with
//   c++ kernel_changes.cpp $(pkg-config --cflags --libs asof)
// or in CMake with find_package(asof) and the target asof::decoder. docs/api.md explains each call.
#include <asof/asof.h>

#include <cstdio>
#include <map>

namespace {

struct Seen {
  uint64_t count = 0;
  asof::Time first = asof::kTimeMax, last = asof::kTimeMin;
};

// Sees every executed block, in the order of each CPU's trace.
class Visits : public asof::ChunkConsumer {
 public:
  explicit Visits(const asof::TextStore& text) {
    for (const asof::PokeRecord& p : text.pokes()) sites_.try_emplace(p.addr);
  }

  void deliver(asof::Chunk& chunk, const asof::Stream& stream, Prepared*) override {
    for (const asof::Step& step : chunk.steps) {
      const asof::Block& block = *step.block;
      if (block.space != asof::kKernelSpace) continue;
      const auto end = sites_.lower_bound(block.end());
      for (auto site = sites_.lower_bound(block.ip); site != end; ++site) {
        // The block holds its bytes from one change to the next: block.from names the version that ran.
        Seen& seen = site->second[{stream.cpu, block.from}];
        ++seen.count;
        seen.first = std::min(seen.first, step.time);
        seen.last = std::max(seen.last, step.time);
      }
    }
  }

  void print(asof::Addr site) const {
    for (const auto& [key, seen] : sites_.at(site)) {
      std::printf("    cpu %d ran the text of %s %llu times, from %.9f to %.9f\n", key.first,
                  key.second == asof::kTimeMin ? "the beginning" : "a change",
                  static_cast<unsigned long long>(seen.count), static_cast<double>(seen.first) / 1e9,
                  static_cast<double>(seen.last) / 1e9);
    }
  }

 private:
  // By address; by CPU and by the time from which the version held.
  std::map<asof::Addr, std::map<std::pair<int, asof::Time>, Seen>> sites_;
};

void print_bytes(const char* title, std::span<const uint8_t> bytes) {
  std::printf("    %s", title);
  for (const uint8_t b : bytes) std::printf(" %02x", b);
  std::printf("\n");
}

int complain(const asof::Error& e) {
  std::fprintf(stderr, "%s %s: %s\n", e.code.c_str(), e.where.c_str(), e.reason.c_str());
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: kernel_changes CAPTURE [SYMFS]\n");
    return 1;
  }
  asof::CaptureOptions options;
  if (argc > 2) options.symfs = argv[2];
  const asof::Result<asof::Capture> capture = asof::open_capture(argv[1], options);
  if (!capture) return complain(capture.error());

  const asof::TextStore& text = *capture->text;
  Visits visits(text);
  const auto done = asof::run_pipeline(*capture, {}, asof::ChunkOrder::kByStream, visits);
  if (!done) return complain(done.error());

  for (const asof::PokeRecord& poke : text.pokes()) {
    const auto symbol = capture->symbols.find(asof::kKernelSpace, poke.addr, poke.time);
    std::printf("%.9f  %llx  %s\n", static_cast<double>(poke.time) / 1e9,
                static_cast<unsigned long long>(poke.addr), symbol ? symbol->symbol->name.c_str() : "?");
    print_bytes("old", poke.old_bytes());
    print_bytes("new", poke.new_bytes());
    visits.print(poke.addr);
  }
  return 0;
}
