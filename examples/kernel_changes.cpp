// kernel_changes CAPTURE [SYMFS]: each recorded change of kernel text, with old and new bytes, until when
// each CPU ran the old ones and from when the new; then the functions that ran in more than one version. A
// whole program on the library: build it with
//   c++ -std=c++23 kernel_changes.cpp $(pkg-config --cflags --libs asof)
// or in CMake with find_package(asof) and the target asof::shared. docs/api.md explains each call.
#include <asof/asof.h>

#include <cstdio>
#include <map>

namespace {

double seconds(asof::Time t) { return static_cast<double>(t) / 1e9; }

void print_bytes(const char* title, std::span<const uint8_t> bytes) {
  std::printf("    %s", title);
  for (const uint8_t b : bytes) std::printf(" %02x", b);
  std::printf("\n");
}

void print_change(const asof::TextChange& record, const asof::ChangeSlice& change) {
  std::printf("%.9f  %s  %s\n", seconds(record.time), change.symbol.c_str(), change.action.c_str());
  print_bytes("old", record.old_bytes);
  print_bytes("new", record.new_bytes);
  for (const asof::ChangeVisit& v : change.visits) {
    std::printf("    cpu %d", v.cpu);
    if (v.last_old != asof::kTimeMin) std::printf(" ran the old until %.9f", seconds(v.last_old));
    if (v.first_new != asof::kTimeMax) std::printf(" ran the new from %.9f", seconds(v.first_new));
    if (v.breakpoints != 0) {
      std::printf(" met the breakpoint %llu times", static_cast<unsigned long long>(v.breakpoints));
    }
    std::printf("\n");
  }
}

// How often each version of a function was called, over all CPUs.
void print_versions(const asof::Timeline& timeline) {
  std::map<std::string_view, std::map<uint32_t, uint64_t>> calls;
  for (const asof::Call& c : timeline.calls()) {
    if (c.versions > 1) ++calls[c.function][c.version];
  }
  for (const auto& [name, versions] : calls) {
    std::printf("%.*s:", static_cast<int>(name.size()), name.data());
    for (const auto& [version, count] : versions) {
      std::printf(" v%u %llu calls", version, static_cast<unsigned long long>(count));
    }
    std::printf("\n");
  }
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
  asof::OpenOptions options;
  if (argc > 2) options.symfs = argv[2];
  const asof::Result<asof::Capture> capture = asof::Capture::open(argv[1], options);
  if (!capture) return complain(capture.error());

  const asof::Timeline timeline = capture->timeline();  // calls by CPU
  const asof::Text text = capture->text();
  for (const asof::ChangeSlice& change : timeline.changes())
    print_change(text.changes()[change.index], change);
  print_versions(timeline);
  std::printf("%llu instructions in %zu calls, %zu gaps\n",
              static_cast<unsigned long long>(timeline.instructions()), timeline.calls().size(),
              timeline.gaps().size());
  return 0;
}
