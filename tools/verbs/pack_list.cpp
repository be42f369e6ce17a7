#include "tools/verbs/pack_list.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "decoder/model/file_finder.h"
#include "decoder/sideband/sideband.h"

namespace asof {
namespace {

namespace fs = std::filesystem;

class Gatherer {
 public:
  Gatherer(const Capture& capture, const std::string& path, const CaptureOptions& options)
      : capture_(capture), path_(path), options_(options) {}

  std::vector<PackedFile> run() {
    if (capture_.perf) {
      add_recording();
      add_copies();
      add_mapped_files();
      add_kernel_files();
    } else {
      const fs::path input(path_);
      std::error_code ignored;
      add_tree(fs::is_directory(input, ignored) ? input : input.parent_path(), "capture");
    }
    std::vector<PackedFile> out;
    for (const auto& [name, file] : files_) out.push_back({name, file});
    return out;
  }

 private:
  // The first one counts: what was named by an option comes before what is beside the recording.
  void add(const std::string& name, const fs::path& file) {
    std::error_code ignored;
    if (fs::is_regular_file(file, ignored)) files_.try_emplace(name, file.string());
  }
  void add_tree(const fs::path& folder, const std::string& name) {
    const fs::path root = folder.empty() ? fs::path(".") : folder;
    std::error_code error;
    for (fs::recursive_directory_iterator it(root, fs::directory_options::skip_permission_denied, error), end;
         !error && it != end; it.increment(error)) {
      if (it->is_regular_file(error))
        add(name + "/" + it->path().lexically_relative(root).string(), it->path());
    }
  }

  // The folder of a directory capture; empty for a single file.
  fs::path folder() const {
    const fs::path input(path_);
    std::error_code ignored;
    if (fs::is_directory(input, ignored)) return input;
    return input.filename() == "data" ? input.parent_path() : fs::path();
  }

  void add_recording() {
    const fs::path here = folder();
    if (here.empty()) {
      add("perf.data/data", path_);
      return;
    }
    std::error_code error;
    for (fs::directory_iterator it(here, error), end; !error && it != end; it.increment(error)) {
      const std::string name = it->path().filename().string();
      if (name == "data" || name.starts_with("data.") ||
          (name.starts_with("jit-") && name.ends_with(".dump")))
        add("perf.data/" + name, it->path());
    }
  }

  // Of kcore at both ends, what a watcher saw, and names of JIT code.
  void add_copies() {
    const fs::path here = folder();
    add_kcore(options_.kcore, "perf.data/kcore_dir/", "");
    if (!options_.kallsyms.empty()) add("perf.data/kcore_dir/kallsyms", options_.kallsyms);
    if (!here.empty()) add_kcore((here / "kcore_dir" / "kcore").string(), "perf.data/kcore_dir/", "");
    add_kcore(options_.kcore_end, "perf.data/", ".end");
    if (!options_.ksym_text.empty()) add("perf.data/ksym_text.bin", options_.ksym_text);
    if (here.empty()) return;
    for (const fs::path& place : {here, here / ".."}) {
      add_kcore((place / "kcore.end").string(), "perf.data/", ".end");
      add("perf.data/ksym_text.bin", place / "ksym_text.bin");
    }
  }
  void add_kcore(const std::string& given, const std::string& to, const std::string& ending) {
    if (given.empty()) return;
    fs::path file(given);
    std::error_code ignored;
    if (fs::is_directory(file, ignored)) file /= "kcore" + ending;
    add(to + "kcore" + ending, file);
    for (const char* name : {"kallsyms", "modules"}) {
      const fs::path same = file.parent_path() / (name + ending);
      add(to + name + ending, fs::exists(same, ignored) ? same : file.parent_path() / name);
    }
  }

  // All files that are mapped as code, whether the trace went through them or not: this is known only after
  // decoding, and a list that does not depend on it is the same for every method of decoding.
  void add_mapped_files() {
    NoticeBook notices;
    const SideBand side = read_side_band(*capture_.perf, notices);
    FileFinder finder(options_, capture_.perf->path(), folder().string(), notices);
    std::set<std::pair<std::string, std::string>> seen;
    for (const TaskFact& t : side.tasks) {
      if (t.kind != TaskFact::Kind::kMap) continue;
      const std::string& name = side.names[t.name];
      if (!seen.emplace(name, side.names[t.build_id]).second) continue;
      add_jit(name);
      std::string id = side.names[t.build_id];
      for (const BuildIdEntry& b : capture_.perf->build_ids()) {
        if (id.empty() && b.filename == name) id = b.build_id;
      }
      if (const TextFile* found = finder.find_quietly(name, id, {})) add_user_file(name, id, found->path);
    }
    add_names(side);
  }
  void add_user_file(const std::string& name, const std::string& id, const std::string& found) {
    const bool plain = name.starts_with('/') && fs::path(name).lexically_normal() == fs::path(name);
    if (plain) add("symfs" + name, found);
    // Two builds of one path: by build-id, as perf's cache has them.
    const std::string normal = normal_build_id(id);
    const auto here = files_.find("symfs" + name);
    if (normal.size() > 2 && (!plain || here == files_.end() || here->second != found))
      add("debug/.build-id/" + normal.substr(0, 2) + "/" + normal.substr(2) + "/" +
              (name == "[vdso]" ? "vdso" : "elf"),
          found);
    else if (name == "[vdso]")
      add("symfs/[vdso]", found);
  }
  void add_jit(const std::string& name) {
    const std::string leaf = fs::path(name).filename().string();
    if (!leaf.starts_with("jit-") || !leaf.ends_with(".dump")) return;
    for (const std::string& given : options_.jitdumps) {
      if (fs::path(given).filename() == leaf) add("perf.data/" + leaf, given);
    }
    if (!options_.symfs.empty()) add("perf.data/" + leaf, options_.symfs + "/" + name);
    if (options_.host_files) add("perf.data/" + leaf, name);
  }
  void add_names(const SideBand& side) {
    std::set<int32_t> pids;
    for (const TaskFact& t : side.tasks) pids.insert(t.pid);
    const fs::path here = folder();
    for (const int32_t pid : pids) {
      const std::string leaf = "perf-" + std::to_string(pid) + ".map";
      if (!options_.symfs.empty()) add("perf.data/" + leaf, fs::path(options_.symfs) / "tmp" / leaf);
      if (here.empty()) continue;
      for (const char* place : {"", "tmp", "symfs/tmp"}) add("perf.data/" + leaf, here / place / leaf);
    }
  }

  void add_kernel_files() {
    if (!options_.vmlinux.empty()) add("vmlinux", options_.vmlinux);
    if (!options_.modules_dir.empty()) add_tree(options_.modules_dir, "modules");
  }

  const Capture& capture_;
  const std::string& path_;
  const CaptureOptions& options_;
  std::map<std::string, std::string> files_;
};

}  // namespace

std::vector<PackedFile> files_of(const Capture& capture, const std::string& path,
                                 const CaptureOptions& options) {
  return Gatherer(capture, path, options).run();
}

}  // namespace asof
