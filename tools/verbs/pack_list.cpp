#include "tools/verbs/pack_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string_view>

#include "decoder/io/folder.h"
#include "decoder/model/file_finder.h"
#include "decoder/sideband/sideband.h"

namespace asof {
namespace {

namespace fs = std::filesystem;

// The file that `path` leads to in the end; empty: none that is a regular file.
fs::path real_file(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  return !error && fs::is_regular_file(real, error) ? real : fs::path();
}

// Both without links.
bool is_below(const fs::path& file, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first == folder.end();
}

// A copy of /proc/kcore, /proc/kallsyms or /proc/modules, by what it begins with. Several recordings of one boot may share
// theirs through links; a link to anything else is not followed.
bool is_kernel_copy(const fs::path& file, std::string_view kind) {
  std::ifstream in(file, std::ios::binary);
  if (kind == "kcore") {
    constexpr char kCore = 4;  // ET_CORE
    std::array<char, 18> head{};
    in.read(head.data(), head.size());
    return std::string_view(head.data(), 4) ==
               "\x7f"
               "ELF" &&
           (head[16] == kCore || head[17] == kCore);
  }
  std::string line;
  line.resize(512);
  in.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<size_t>(in.gcount()));
  line.resize(std::min(line.find('\n'), line.size()));
  if (kind == "modules")
    return line.empty() || std::regex_search(line, std::regex("^\\w+ [0-9]+ [0-9]+ \\S+ \\w+ 0x[0-9a-f]+"));
  return std::regex_search(line, std::regex("^[0-9a-f]{8,16} [A-Za-z?] \\S+"));
}

bool is_jitdump(const fs::path& file) {
  std::array<char, 4> magic{};
  std::ifstream(file, std::ios::binary).read(magic.data(), magic.size());
  const std::string_view found(magic.data(), magic.size());
  return found == "DTiJ" || found == "JiTD";
}

class Gatherer {
 public:
  Gatherer(const Capture& capture, const std::string& path, const CaptureOptions& options,
           const std::vector<FileState>& read)
      : capture_(capture), path_(path), options_(options), read_(read) {}

  PackList run() {
    if (capture_.perf) {
      add_recording();
      add_copies();
      add_mapped_files();
      add_kernel_files();
    } else {
      add_read();
    }
    PackList out;
    for (const auto& [name, file] : files_) out.files.push_back({name, file});
    out.refused.assign(refused_.begin(), refused_.end());
    return out;
  }

 private:
  // What an option names. The first one counts: it comes before what is beside the recording.
  void add(const std::string& name, const fs::path& file) {
    if (const fs::path real = real_file(file); !real.empty()) files_.try_emplace(name, real.string());
  }
  // What a capture has in its own folder.
  void add_own(const std::string& name, const fs::path& file, const fs::path& folder) {
    const fs::path real = real_file(file);
    if (real.empty()) return;
    std::error_code error;
    const fs::path root = fs::canonical(folder, error);
    if (!error && is_below(real, root))
      files_.try_emplace(name, real.string());
    else
      refused_.emplace(file.string(), "it is a link that leads out of the capture's folder");
  }
  // What opening read. There may be anything beside it.
  void add_read() {
    const fs::path input(path_);
    std::error_code ignored;
    fs::path root = fs::is_directory(input, ignored) ? input : input.parent_path();
    if (root.empty()) root = ".";
    const auto plain = [](const fs::path& path) { return fs::absolute(path).lexically_normal(); };
    for (const FileState& file : read_) {
      if (!file.there || !fs::is_regular_file(file.path, ignored)) continue;
      std::string name = plain(file.path).lexically_relative(plain(root)).string();
      if (name.starts_with("..")) {
        refused_.emplace(file.path, "it is not in the capture's folder");
        continue;
      }
      if (capture_.blocks && !name.ends_with(".blocks"))
        name += ".blocks";  // by which they are known in a folder
      add_own("capture/" + name, file.path, root);
    }
  }
  void add_tree(const fs::path& folder, const std::string& name) {
    const fs::path root = folder.empty() ? fs::path(".") : folder;
    walk_files(root.string(), [&](const std::string& path) {
      std::error_code ignored;
      if (fs::is_regular_file(path, ignored))
        add_own(name + "/" + fs::path(path).lexically_relative(root).string(), path, root);
      return true;
    });
  }

  // The folder of a directory capture; empty for a single file.
  fs::path folder() const {
    fs::path input(path_);
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
    for (const std::string& name : names_in(here.string(), error)) {
      if (name == "data" || name.starts_with("data.") ||
          (name.starts_with("jit-") && name.ends_with(".dump")))
        add_own("perf.data/" + name, here / name, here);
    }
  }

  // Of kcore at both ends, what a watcher saw, and names of JIT code.
  void add_copies() {
    const fs::path here = folder();
    add_kcore(options_.kcore, "perf.data/kcore_dir/", "", {});
    if (!options_.kallsyms.empty()) add("perf.data/kcore_dir/kallsyms", options_.kallsyms);
    if (!here.empty()) add_kcore((here / "kcore_dir" / "kcore").string(), "perf.data/kcore_dir/", "", here);
    add_kcore(options_.kcore_end, "perf.data/", ".end", {});
    if (!options_.ksym_text.empty()) add("perf.data/ksym_text.bin", options_.ksym_text);
    if (here.empty()) return;
    for (const fs::path& place : {here, here / ".."}) {
      add_kcore((place / "kcore.end").string(), "perf.data/", ".end", place);
      add_own("perf.data/ksym_text.bin", place / "ksym_text.bin", place);
    }
  }
  // `folder`: the capture's, where it was found; empty: an option named it.
  void add_kcore(const std::string& given, const std::string& to, const std::string& ending,
                 const fs::path& folder) {
    if (given.empty()) return;
    const auto take = [&](const std::string& name, const fs::path& from, std::string_view kind) {
      folder.empty() || is_kernel_copy(from, kind) ? add(name, from) : add_own(name, from, folder);
    };
    fs::path file(given);
    std::error_code ignored;
    if (fs::is_directory(file, ignored)) file /= "kcore" + ending;
    take(to + "kcore" + ending, file, "kcore");
    for (const char* name : {"kallsyms", "modules"}) {
      const fs::path same = file.parent_path() / (name + ending);
      take(fmt::format("{}{}{}", to, name, ending),
           fs::exists(same, ignored) ? same : file.parent_path() / name, name);
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
      const TextFile* const found = finder.find_quietly(name, id, {});
      if (found == nullptr || found->path.empty()) continue;
      if (is_of_capture(*found, id, finder.symfs()))
        add_user_file(name, id, found->path);
      else if (!real_file(found->path).empty())
        refused_.emplace(found->path, "a file of this machine whose build-id is not in the recording");
    }
    for (const Notice& n : notices.take()) {
      if (n.code == Code::kCannotRead) refused_.emplace(n.where, n.reason);
    }
    add_names(side);
  }
  // Does the recording prove that it ran this file, or is it of the folder that came with it?
  bool is_of_capture(const TextFile& file, const std::string& id, const std::string& symfs) const {
    if (!id.empty() && same_build_id(normal_build_id(id), file.build_id)) return true;
    if (symfs.empty()) return false;
    std::error_code error;
    const fs::path root = fs::canonical(symfs, error);
    return !error && is_below(real_file(file.path), root);
  }
  void add_user_file(const std::string& name, const std::string& id, const std::string& found) {
    const bool plain = name.starts_with('/') && fs::path(name).lexically_normal() == fs::path(name);
    if (plain) add("symfs" + name, found);
    // Two builds of one path: by build-id, as perf's cache has them.
    const std::string normal = normal_build_id(id);
    const auto here = files_.find("symfs" + name);
    if (normal.size() > 2 && (!plain || here == files_.end() || here->second != real_file(found)))
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
    if (!options_.symfs.empty()) add_own("perf.data/" + leaf, options_.symfs + "/" + name, options_.symfs);
    if (options_.host_files && is_jitdump(name)) add("perf.data/" + leaf, name);
  }
  void add_names(const SideBand& side) {
    std::set<int32_t> pids;
    for (const TaskFact& t : side.tasks) pids.insert(t.pid);
    const fs::path here = folder();
    for (const int32_t pid : pids) {
      const std::string leaf = "perf-" + std::to_string(pid) + ".map";
      if (!options_.symfs.empty())
        add_own("perf.data/" + leaf, fs::path(options_.symfs) / "tmp" / leaf, options_.symfs);
      if (here.empty()) continue;
      for (const char* place : {"", "tmp", "symfs/tmp"})
        add_own("perf.data/" + leaf, here / place / leaf, here);
    }
  }

  void add_kernel_files() {
    if (!options_.vmlinux.empty()) add("vmlinux", options_.vmlinux);
    if (!options_.modules_dir.empty()) add_tree(options_.modules_dir, "modules");
  }

  const Capture& capture_;
  const std::string& path_;
  const CaptureOptions& options_;
  const std::vector<FileState>& read_;
  std::map<std::string, std::string> files_;
  std::map<std::string, std::string> refused_;
};

}  // namespace

PackList files_of(const Capture& capture, const std::string& path, const CaptureOptions& options,
                  const std::vector<FileState>& read) {
  return Gatherer(capture, path, options, read).run();
}

}  // namespace asof
