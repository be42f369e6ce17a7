// soak DATA [SECONDS [SEED]]: one process opens, decodes, queries and closes captures of tests/data over and over, as they are
// and damaged, by the C++ and the C interface, with one and several threads, and often leaves off in the middle. What it holds
// while nothing is open (allocated memory, file descriptors, mappings) must not grow. Ends with 1 where it does.
#include <asof/asof.h>
#include <asof/asof_c.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

namespace fs = std::filesystem;

using Random = std::mt19937_64;
uint64_t below(Random& random, uint64_t n) { return random() % n; }

struct Input {
  fs::path path;
  fs::path symfs;
};

struct Held {
  uint64_t bytes = 0, descriptors = 0, mappings = 0;
};

uint64_t entries(const char* folder) {
  return static_cast<uint64_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}
// TSan maps memory of its own, more and more: with it, only mappings of files are counted.
uint64_t mappings() {
  std::ifstream in("/proc/self/maps");
  uint64_t count = 0;
  for (std::string line; std::getline(in, line);) {
#ifdef ASOF_FILES_ONLY
    if (!line.contains('/')) continue;
#endif
    ++count;
  }
  return count;
}
Held held() {
  ::malloc_trim(0);
  const struct mallinfo2 all = ::mallinfo2();
  return {all.uordblks + all.hblkhd, entries("/proc/self/fd"), mappings()};
}

// A copy of a capture in `to`, with some bytes changed, files cut or gone.
Input damaged(const Input& from, const fs::path& to, Random& random) {
  fs::remove_all(to);
  Input out{to / from.path.filename(), from.symfs};
  fs::create_directories(to);
  fs::copy(from.path, out.path, fs::copy_options::recursive);
  std::vector<fs::path> files;
  if (fs::is_regular_file(out.path))
    files.push_back(out.path);
  else
    for (const auto& e : fs::recursive_directory_iterator(out.path))
      if (e.is_regular_file()) files.push_back(e.path());
  std::ranges::sort(files);
  const fs::path& file = files[below(random, files.size())];
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
  const uint64_t size = fs::file_size(file);
  switch (below(random, 8)) {
    case 0:
      fs::remove(file);
      return out;
    case 1:
      fs::resize_file(file, below(random, size + 1));
      return out;
    default:
      break;
  }
  std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
  for (uint64_t n = 1 + below(random, 16); n > 0 && size > 0; --n) {
    bytes.seekp(static_cast<std::streamoff>(below(random, size)));
    bytes.put(static_cast<char>(random()));
  }
  return out;
}

// Reads to the end, or leaves off.
template <class Records>
uint64_t read_some(Records records, Random& random) {
  const uint64_t most = below(random, 3) == 0 ? below(random, 5'000) : UINT64_MAX;
  uint64_t n = 0;
  for (const auto& r : records) {
    (void)r;
    if (++n >= most) break;
  }
  return n;
}

uint64_t use(const asof::Capture& capture, Random random) {
  asof::Filter filter;
  filter.jobs = static_cast<unsigned>(below(random, 5));
  filter.order = below(random, 2) == 0 ? asof::Order::kTime : asof::Order::kStream;
  if (below(random, 4) == 0) filter.cpus = {static_cast<int32_t>(below(random, 3))};
  if (below(random, 4) == 0) filter.max_memory = uint64_t{1} << 20U;
  switch (below(random, 8)) {
    case 0:
      return read_some(capture.instructions(filter), random);
    case 1:
      return read_some(capture.blocks(filter), random);
    case 2:
      return read_some(capture.events(filter), random);
    case 3:
      return read_some(capture.gaps(filter), random);
    case 4:
      return read_some(capture.flow(filter), random);
    case 5:
      return read_some(capture.calls({.filter = filter}), random);
    case 6:
      return capture.timeline({.filter = filter, .max_calls = below(random, 10'000)}).calls().size();
    default:
      break;
  }
  const asof::Text text = capture.text();
  uint64_t n = capture.notices().size();
  for (const asof::TextChange& c : text.changes()) {
    n += text.cells({c.address, c.address + 64}).size();
    if (const auto image = text.at({c.address, c.address + 64}, c.time))
      n += text.symbol(c.address, c.time).has_value();
  }
  return n;
}

void by_cpp(const Input& input, Random& random) {
  asof::OpenOptions options;
  options.symfs = input.symfs;
  options.host_files = false;
  const auto capture = asof::Capture::open(input.path, options);
  if (!capture) return;
  std::vector<std::thread> others;
  for (uint64_t n = below(random, 4); n > 0; --n)
    others.emplace_back([&, mine = Random(random())] { use(*capture, mine); });
  use(*capture, Random(random()));
  for (std::thread& t : others) t.join();
}

void by_c(const Input& input, Random& random) {
  const std::string symfs = input.symfs;
  asof_open_options options = ASOF_OPEN_OPTIONS_INIT;
  options.symfs = symfs.c_str();
  asof_error* error = nullptr;
  asof_capture* const capture = asof_open(input.path.c_str(), &options, &error);
  asof_error_free(error);
  if (capture == nullptr) return;
  asof_filter filter = ASOF_FILTER_INIT;
  const uint64_t most = below(random, 3) == 0 ? below(random, 5'000) : UINT64_MAX;
  asof_reader* const reader = asof_instructions(capture, &filter, nullptr);
  asof_instruction i = {};
  i.size = sizeof i;
  for (uint64_t n = 0; n < most && asof_next_instruction(reader, &i, nullptr) == ASOF_OK; ++n) {
  }
  // A reader may be closed before or after its capture's last use.
  asof_reader_close(reader);
  for (size_t k = 0; k < asof_change_count(capture); ++k) {
    asof_change change = {};
    change.size = sizeof change;
    if (asof_change_at(capture, k, &change) == ASOF_OK)
      asof_symbol_at(capture, change.address, change.time, ASOF_KERNEL_SPACE, nullptr);
  }
  asof_close(capture);
}

std::vector<Input> inputs_of(const fs::path& data) {
  std::vector<Input> out = {{data / "demo/perf.data", data / "demo/symfs"},
                            {data / "demo-arm64/perf.data", {}}};
  for (const char* archive :
       {"board-x86/capture.tar.xz", "board-arm64/capture.tar.xz", "machine-6.12/kernel-tailcall.tar.xz"})
    if (fs::exists(data / archive)) out.push_back({data / archive, {}});
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 4) {
    std::fputs("usage: soak DATA [SECONDS [SEED]]\n", stderr);
    return 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // what a run that is stopped has measured is in its log
  // Of CPU time: a machine that is busy makes a run longer, not shorter.
  const auto used = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };
  const double seconds = argc > 2 ? std::atof(argv[2]) : 20;
  Random random(argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1);
  const std::vector<Input> inputs = inputs_of(argv[1]);
  std::string scratch = (fs::temp_directory_path() / "asof-soak-XXXXXX").string();
  if (::mkdtemp(scratch.data()) == nullptr) return 2;
  std::vector<Held> all;
  uint64_t rounds = 0, next = 16;
  // By rounds, as many as fit; some in any case, so that there is something to compare.
  while (rounds < 64 || used() < seconds) {
    const Input& whole = inputs[below(random, 4) == 0 ? below(random, inputs.size()) : below(random, 2)];
    const Input input = below(random, 3) == 0 ? whole : damaged(whole, scratch, random);
    below(random, 4) == 0 ? by_c(input, random) : by_cpp(input, random);
    if (++rounds < next) continue;
    all.push_back(held());
    std::printf("after %llu: %llu bytes, %llu descriptors, %llu mappings\n",
                static_cast<unsigned long long>(rounds), static_cast<unsigned long long>(all.back().bytes),
                static_cast<unsigned long long>(all.back().descriptors),
                static_cast<unsigned long long>(all.back().mappings));
    next = rounds + std::max<uint64_t>(8, rounds / 8);
  }
  std::error_code ignored;
  fs::remove_all(scratch, ignored);
  // The least of some measurements early, after a warm-up, and of the last ones: what decoders keep for the next one goes up
  // and down.
  const size_t quarter = all.size() / 4, half = (all.size() + quarter) / 2;
  const size_t late = all.size() - std::max<size_t>(3, all.size() / 6);
  const auto least = [&](size_t from, size_t to, auto field) {
    uint64_t n = UINT64_MAX;
    for (size_t i = from; i < to; ++i) n = std::min(n, all[i].*field);
    return n;
  };
  constexpr struct {
    const char* name;
    uint64_t Held::*field;
    uint64_t may_grow;
    uint64_t
        kept;  // what the library keeps for the next capture (arch/pooled.cpp: 8 MiB), which a short run may not have reached
  } kFields[] = {{"allocated bytes", &Held::bytes, 512 << 10, 9 << 20},
                 {"file descriptors", &Held::descriptors, 0, 0},
                 {"mappings", &Held::mappings, 16, 0}};
  bool grown = false;
  std::printf("%llu captures in %.0f s of CPU time\n", static_cast<unsigned long long>(rounds), used());
  for (const auto& f : kFields) {
    const uint64_t first = least(quarter, half, f.field), last = least(late, all.size(), f.field);
    std::printf("%-16s  %llu, then %llu\n", f.name, static_cast<unsigned long long>(first),
                static_cast<unsigned long long>(last));
    if (last <= std::max(first, f.kept) + f.may_grow) continue;
    std::printf("%s GROW\n", f.name);
    grown = true;
  }
  return grown ? 1 : 0;
}
