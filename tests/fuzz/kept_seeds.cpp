// Seeds of what other tests wrote.
#include "tests/fuzz/seeds.h"

#include <algorithm>
#include <set>
#include <span>

#include "tests/support/perf_data_writer.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;
using Bytes = SeedBytes;
using Files = SeedFiles;

bool begins(const Bytes& b, std::string_view with) {
  return b.size() >= with.size() && std::ranges::equal(std::span(b).first(with.size()), bytes_of(with));
}
bool is_perf(const Bytes& b) { return begins(b, "PERFILE2") || begins(b, "2ELIFREP"); }

// Of what a fuzzer's input may have; files of a folder that is too large are left out, the largest first.
Files files_of(const fs::path& folder) {
  constexpr size_t kMostBytes = 1 << 17, kMostFiles = 60;
  std::multimap<size_t, std::pair<std::string, Bytes>> by_size;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_symlink() || !entry.is_regular_file() || entry.file_size() > kMostBytes) continue;
    Bytes bytes = read_bytes(entry.path());
    const size_t size = bytes.size();
    by_size.emplace(size, std::pair(entry.path().lexically_relative(folder).string(), std::move(bytes)));
  }
  Files files;
  size_t all = 0;
  for (auto& [size, file] : by_size) {
    all += size;
    if (all > kMostBytes || files.size() == kMostFiles) break;
    files.insert(std::move(file));
  }
  return files;
}

// The name that `capture` gives what it opens; empty: the file is none of these.
std::string input_name(const fs::path& name, const Bytes& bytes) {
  if (is_perf(bytes)) return name.filename() == "data" ? "perf.data/data" : "perf.data";
  for (const char* whole : {"bundle.json", "trace.json", "snapshot.ini"}) {
    if (name.filename() == whole) return whole;
  }
  return {};
}

// The capture at `input` with the other files beside it, as `capture` names them.
Files capture_at(const Files& files, const fs::path& input, const std::string& as) {
  const fs::path folder = as == "perf.data/data" ? input.parent_path() : fs::path();
  const fs::path beside = (folder.empty() ? input : folder).parent_path();
  Files out;
  for (const auto& [name, bytes] : files) {
    const std::string place = fs::path(name).lexically_relative(beside.empty() ? "." : beside).string();
    const std::string in_folder = folder.empty() ? ".." : fs::path(name).lexically_relative(folder).string();
    const fs::path above = beside / *fs::path(place).begin();
    const bool of_another = above != folder && files.contains((above / "data").string());
    if (place.starts_with("..") || of_another) continue;
    if (name == input)
      out[as] = bytes;
    else if (!in_folder.starts_with(".."))
      out["perf.data/" + in_folder] = bytes;
    else if (fs::path(name).extension() == ".dump")
      out["jit-1.dump"] = bytes;
    else if (input_name(name, bytes).empty())
      out[place] = bytes;
  }
  return out;
}

// What tests wrote. Some write thousands that differ in a few bytes: of captures that have the same files of about the same
// sizes there are the first four, and of the same bytes one.
class Kept {
 public:
  explicit Kept(const Seeds& seeds) : seeds_(seeds) {}
  void add(const fs::path& path) {
    const Files files = files_of(path);
    for (const auto& [name, bytes] : files) {
      if (begins(bytes,
                 "\x7f"
                 "ELF"))
        add("elf", {{"", bytes}}, bytes);
      if (begins(bytes, "JiTD") || begins(bytes, "DTiJ")) add("jitdump", {{"", bytes}}, bytes);
      if (is_perf(bytes)) add("perf_data", {{"", bytes}}, joined({{0}, bytes}));
      const std::string as = input_name(name, bytes);
      // Not what is in ../shared.
      if (as.empty() || !std::ranges::search(bytes, fs::current_path().string()).empty()) continue;
      Files capture = capture_at(files, name, as);
      add("capture", capture, folder(capture));
      capture["catalogue"] = {};
      add("capture", capture, folder(capture));
    }
  }

 private:
  void add(const std::string& target, const Files& files, const Bytes& bytes) {
    std::string alike = target;
    const size_t about = files.size() == 1 ? 64 : 2048;
    for (const auto& [name, b] : files) alike += " " + name + ":" + std::to_string(b.size() / about);
    if (alike_[alike] == 4) return;
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::string name = "kept-" + std::to_string(std::hash<std::string_view>()(text));
    if (!names_.insert(target + name).second) return;
    ++alike_[alike];
    seeds_.add(target, name, bytes);
  }

  const Seeds& seeds_;
  std::map<std::string, int> alike_;
  std::set<std::string> names_;
};

}  // namespace

void add_kept(const Seeds& seeds, const fs::path& folders) {
  Kept kept(seeds);
  for (const auto& entry : fs::directory_iterator(folders)) {
    if (entry.is_directory()) kept.add(entry.path());
  }
}

}  // namespace asof::test
