// machine_trim RECORDING TRUTH: makes a recording with a copy of kcore small enough to be committed. Parts of the copy that
// hold neither executed nor changed code become zero, and symbols of other pages are left out.
#include <elf.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <unordered_set>

#include "decoder/perf/perf_data.h"
#include "decoder/perf/record_types.h"
#include "decoder/perf/records.h"
#include "tools/board/machine/log_reader.h"
#include "tools/validate/truth.h"

namespace asof::machine {
namespace {

constexpr uint64_t kPart = 256, kPage = 4096;

class Kept {
 public:
  void add(Addr address, uint64_t bytes) {
    for (Addr part = address / kPart; part <= (address + bytes - 1) / kPart; ++part) {
      parts_.insert(part);
      pages_.insert(part * kPart / kPage);
    }
  }
  void add_truth(const std::string& truth) {
    const auto cpus = truth_ids(truth);
    if (!cpus) throw std::runtime_error(cpus.error().reason);
    for (const TruthId cpu : *cpus) {
      auto reader = TruthReader::open(truth_file(truth, cpu));
      if (!reader) throw std::runtime_error(reader.error().reason);
      TruthRun run;
      while (reader->next(run)) add(run.ip, run.bytes);
    }
  }
  void add_changes(const std::string& recording) {
    const auto data = PerfData::open(recording);
    if (!data) throw std::runtime_error(data.error().reason);
    (*data)->for_each([&](const Record& r) {
      if (r.type != perf::kTextPoke) return true;
      if (const auto poke = parse_text_poke(r))
        add(poke->addr, std::max(poke->old_bytes.size(), poke->new_bytes.size()));
      return true;
    });
  }
  bool has_part(Addr address) const { return parts_.contains(address / kPart); }
  bool has_page(Addr address) const { return pages_.contains(address / kPage); }

 private:
  std::unordered_set<Addr> parts_, pages_;
};

// Symbols of those pages, and those that give the kernel's address.
std::string trimmed_symbols(const std::vector<uint8_t>& kallsyms, const Kept& kept) {
  const std::string_view all(reinterpret_cast<const char*>(kallsyms.data()), kallsyms.size());
  std::string out;
  for (size_t at = 0; at < all.size();) {
    const size_t end = std::min(all.find('\n', at), all.size() - 1) + 1;
    const std::string_view line = all.substr(at, end - at);
    Addr address = 0;
    std::from_chars(line.data(), line.data() + line.size(), address, 16);
    const bool named =
        line.ends_with(" _text\n") || line.ends_with(" _stext\n") || line.ends_with(" _etext\n");
    if (named || kept.has_page(address)) out += line;
    at = end;
  }
  return out;
}

void trim_segment(std::vector<uint8_t>& core, const Elf64_Phdr& segment, const Kept& kept) {
  if (segment.p_type != PT_LOAD || segment.p_offset > core.size() ||
      segment.p_filesz > core.size() - segment.p_offset)
    return;
  for (uint64_t at = 0; at < segment.p_filesz; at += kPart) {
    if (!kept.has_part(segment.p_vaddr + at))
      std::memset(core.data() + segment.p_offset + at, 0, std::min(kPart, segment.p_filesz - at));
  }
}

void trim_core(std::vector<uint8_t>& core, const Kept& kept) {
  Elf64_Ehdr head;
  if (core.size() < sizeof head) throw std::runtime_error("kcore is no ELF file");
  std::memcpy(&head, core.data(), sizeof head);
  for (unsigned i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr segment;
    const uint64_t at = head.e_phoff + i * sizeof segment;
    if (at > core.size() - sizeof segment) throw std::runtime_error("kcore has no program headers");
    std::memcpy(&segment, core.data() + at, sizeof segment);
    trim_segment(core, segment, kept);
  }
}

void replace(const std::filesystem::path& file, const void* bytes, size_t size) {
  std::filesystem::remove(file);  // perf makes it read-only
  std::ofstream out(file, std::ios::binary);
  out.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
  if (!out.flush()) throw std::runtime_error(fmt::format("cannot write {}", file.string()));
}

void run(const std::string& recording, const std::string& truth) {
  Kept kept;
  kept.add_truth(truth);
  kept.add_changes(recording);
  const std::filesystem::path folder = recording + "/kcore_dir";
  const std::string symbols = trimmed_symbols(read_file(folder / "kallsyms"), kept);
  std::vector<uint8_t> core = read_file(folder / "kcore");
  trim_core(core, kept);
  replace(folder / "kallsyms", symbols.data(), symbols.size());
  replace(folder / "kcore", core.data(), core.size());
}

}  // namespace
}  // namespace asof::machine

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: machine_trim RECORDING TRUTH (the recording is changed)\n", stderr);
    return 1;
  }
  try {
    asof::machine::run(argv[1], argv[2]);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "machine_trim: {}\n", e.what());
    return 2;
  }
}
