#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <unordered_map>

#include "tools/board/machine/machine_truth.h"

namespace asof::machine {
namespace {

struct FirstRun {
  uint64_t clock = 0;
  int cpu = -1;
};

// The bytes that each address of kernel text had when it was translated last.
class SeenText {
 public:
  // Where `bytes` differ from what was there: old bytes with their address, joined where they touch.
  std::vector<std::pair<Addr, std::vector<uint8_t>>> put(Addr address, std::span<const uint8_t> bytes) {
    std::vector<std::pair<Addr, std::vector<uint8_t>>> changed;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const Addr at = address + i;
      Page& page = pages_[at >> kShift];
      const size_t k = at & (kBytes - 1);
      if (page.known[k] && page.bytes[k] != bytes[i]) {
        if (changed.empty() || changed.back().first + changed.back().second.size() != at)
          changed.push_back({at, {}});
        changed.back().second.push_back(page.bytes[k]);
      }
      page.known[k] = true;
      page.bytes[k] = bytes[i];
    }
    return changed;
  }

 private:
  static constexpr unsigned kShift = 12;
  static constexpr size_t kBytes = size_t{1} << kShift;
  struct Page {
    std::vector<uint8_t> bytes = std::vector<uint8_t>(kBytes);
    std::vector<bool> known = std::vector<bool>(kBytes);
  };
  std::unordered_map<Addr, Page> pages_;
};

std::string hex(std::span<const uint8_t> bytes) {
  std::string out;
  for (const uint8_t b : bytes) out += fmt::format("{:02x}", b);
  return out;
}

}  // namespace

std::vector<Poke> find_pokes(const std::filesystem::path& log, const std::vector<int>& cpus,
                             const CodeTable& code, const TimeConversion& clock) {
  std::unordered_map<uint32_t, FirstRun> first;
  for_each_record(log, cpus, [&](int cpu, const LogRecord& r, uint64_t) {
    if (r.code == kLogMark || !is_kernel_address(r.address)) return;
    const auto [it, is_new] = first.try_emplace(r.code, FirstRun{r.clock, cpu});
    if (!is_new && r.clock < it->second.clock) it->second = {r.clock, cpu};
  });
  SeenText seen;
  std::vector<Poke> pokes;
  for (uint32_t number = 0; number < code.end(); ++number) {
    const CodeBlock* block = code.find(number);
    if (block == nullptr || !is_kernel_address(block->address)) continue;
    for (auto& [address, before] : seen.put(block->address, block->bytes)) {
      const auto after = block->bytes.subspan(address - block->address, before.size());
      Poke poke{kTimeMin, -1, address, std::move(before), {after.begin(), after.end()}};
      if (const auto it = first.find(number); it != first.end())
        poke.time = clock.to_perf(it->second.clock), poke.cpu = it->second.cpu;
      pokes.push_back(std::move(poke));
    }
  }
  return pokes;
}

void write_pokes(const std::filesystem::path& file, const std::vector<Poke>& pokes) {
  const auto close = [](std::FILE* f) { std::fclose(f); };
  const std::unique_ptr<std::FILE, decltype(close)> out(std::fopen(file.c_str(), "we"), close);
  if (!out) throw std::runtime_error(fmt::format("cannot write {}", file.string()));
  for (const Poke& p : pokes) {
    const std::string when = p.time == kTimeMin ? "null" : fmt::format("{}", p.time);
    fmt::print(out.get(),
               "{{\"time\": {}, \"addr\": \"{:#x}\", \"old\": \"{}\", \"new\": \"{}\", \"cpu\": {}}}\n", when,
               p.address, hex(p.before), hex(p.after), p.cpu);
  }
}

}  // namespace asof::machine
