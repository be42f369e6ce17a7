// opening CAPTURE: opens it and says what that cost: CPU and wall seconds, peak memory.
// opening --write FOLDER [--mb N] [--cpus N] [--processes N] [--packed]: makes a recording to open.
#include <fmt/format.h>
#include <sys/resource.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <string>

#include "decoder/model/capture.h"
#include "tests/bench/peer.h"
#include "tests/bench/sideband_recording.h"

namespace {

int measure(const std::string& path) {
  double cpu = 0, records = 0;
  bool ok = true;
  const double wall = asof::bench::wall_seconds_of([&] {
    cpu = asof::bench::cpu_seconds_of([&] {
      asof::CaptureOptions options;
      options.host_files = false;
      const auto capture = asof::open_capture(path, options);
      ok = capture.has_value();
      if (!ok) return (void)fmt::print(stderr, "{}\n", capture.error().reason);
      for (const auto& [type, count] : capture->record_counts) records += static_cast<double>(count);
    });
  });
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  fmt::print("{:.0f} records, {:.3f} s CPU, {:.3f} s, {:.0f} ns a record, peak {} MB\n", records, cpu, wall,
             cpu / std::max(records, 1.0) * 1e9, used.ru_maxrss / 1024);
  return ok ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Cost of opening a recording");
  std::string capture, to;
  asof::test::SidebandSpec spec;
  app.add_option("capture", capture);
  app.add_option("--write", to);
  app.add_option("--mb", spec.megabytes);
  app.add_option("--cpus", spec.cpus)->check(CLI::Range(1, 255));
  app.add_option("--processes", spec.processes)->check(CLI::Range(1, 100000));
  app.add_flag("--packed", spec.packed);
  CLI11_PARSE(app, argc, argv);
  if (!to.empty()) asof::test::write_sideband_recording(to, spec);
  return capture.empty() ? 0 : measure(capture);
}
