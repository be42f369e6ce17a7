// Finds the files of user code and checks their identity. A wrong file is worse than none: it decodes,
// wrongly.
#include "decoder/model/file_finder.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include "decoder/model/expanded_file.h"

namespace asof {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSecond = 1'000'000'000;

// In ns; nullopt: no such file.
std::optional<int64_t> time_of(const std::string& path, timespec stat::*which) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0) return std::nullopt;
  return (st.*which).tv_sec * kSecond + (st.*which).tv_nsec;
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

std::string file_name(const std::string& path) { return fs::path(path).filename().string(); }

void take_elf(TextFile& file, std::shared_ptr<const ElfImage> elf) {
  file.owner = elf;
  if (!elf->is_debug_only()) file.bytes = elf->bytes();
  file.build_id = elf->build_id();
  file.elf = std::move(elf);
}

bool is_cut(const TextFile& file) { return file.elf && file.elf->stated_size() > file.elf->bytes().size(); }

// nullptr: there is none, or, with a reason in `unreadable`, it cannot be read.
std::unique_ptr<TextFile> open_text_file(const std::string& path, std::optional<Error>& unreadable) {
  if (!is_file(path)) return nullptr;
  auto out = std::make_unique<TextFile>();
  out->path = path;
  if (is_compressed_name(path)) {
    if (const auto elf = ElfImage::open(path)) {
      take_elf(*out, *elf);
      return out;
    }
  }
  auto raw = MappedFile::open(path);
  if (!raw) {
    unreadable = raw.error();
    return nullptr;
  }
  if (auto elf = ElfImage::parse((*raw)->bytes(), path, *raw)) {
    take_elf(*out, *elf);
    return out;
  }
  out->owner = *raw;
  out->bytes = (*raw)->bytes();
  return out;
}

}  // namespace

void note_cut_image(const ElfImage& elf, NoticeBook& notices) {
  const uint64_t size = elf.bytes().size();
  if (elf.stated_size() <= size) return;
  notices.error(
      Code::kFileCut, elf.path(),
      fmt::format(
          "the file ends here, by its headers at {:#x}: {} bytes are missing, code in them is unknown",
          elf.stated_size(), elf.stated_size() - size),
      "copy it again, whole", size);
}

void note_cut_lines(const std::string& path, NoticeBook& notices) {
  const auto file = MappedFile::open(path);
  if (!file || (*file)->bytes().empty() || (*file)->bytes().back() == '\n') return;
  notices.error(Code::kFileCut, path, "the file ends inside a line: what follows is missing",
                "copy it again, whole", (*file)->bytes().size());
}

std::string normal_build_id(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')) out.push_back(c);
  }
  return out;
}

bool same_build_id(const std::string& a, const std::string& b) {
  const std::string& longer = a.size() >= b.size() ? a : b;
  const std::string& shorter = a.size() >= b.size() ? b : a;
  if (shorter.empty() || !longer.starts_with(shorter)) return false;
  return longer.find_first_not_of('0', shorter.size()) == std::string::npos;
}

FileFinder::FileFinder(const CaptureOptions& options, const std::string& capture_file,
                       const std::string& capture_dir, NoticeBook& notices)
    : options_(options),
      symfs_(options.symfs),
      capture_mtime_(time_of(capture_file, &stat::st_mtim)),
      notices_(notices) {
  std::error_code ignored;
  for (const char* place : {"/symfs", "/../symfs"}) {
    if (symfs_.empty() && !capture_dir.empty() && fs::is_directory(capture_dir + place, ignored)) {
      symfs_ = fs::path(capture_dir + place).lexically_normal().string();
    }
  }
  symfs_given_ = !symfs_.empty();
  // As 'asof pack' puts them beside each other.
  for (const char* place : {"/debug", "/../debug"}) {
    if (options.buildid_dir.empty() && !capture_dir.empty() &&
        fs::is_directory(capture_dir + place + "/.build-id", ignored))
      caches_.push_back(fs::path(capture_dir + place).lexically_normal().string());
  }
  if (!options.buildid_dir.empty()) {
    caches_.push_back(options.buildid_dir);
  } else if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0' && options.host_files) {
    caches_.push_back(std::string(home) + "/.debug");
  }
}

// perf's cache: .build-id/ab/cdef... is a folder (or, before 2016, a link to a file) with `elf`, `vdso` or
// `kallsyms`; the same folder is reached as <path>/<id>.
void FileFinder::add_cached(const std::string& path, const std::string& id,
                            std::vector<Candidate>& out) const {
  if (id.size() < 3) return;
  std::vector<std::string> ids = {id};
  if (id.size() == 40 && id.ends_with("00000000")) ids.push_back(id.substr(0, 32));
  for (const std::string& cache : caches_) {
    for (const std::string& one : ids) {
      std::string entry = fmt::format("{}/.build-id/{}/{}", cache, one.substr(0, 2), one.substr(2));
      for (const char* leaf : {"/elf", "/vdso", ""}) out.push_back({entry + leaf, true});
      for (const char* leaf : {"/elf", "/vdso"})
        out.push_back({fmt::format("{}/{}/{}{}", cache, path, one, leaf), true});
    }
  }
}

void FileFinder::add_debug_places(CodeFileMap& code) const {
  code.caches = caches_;
  if (!symfs_.empty()) code.debug_dirs.push_back(symfs_ + "/usr/lib/debug");
  if (options_.host_files) code.debug_dirs.emplace_back("/usr/lib/debug");
}

std::vector<FileFinder::Candidate> FileFinder::candidates(const std::string& path,
                                                          const std::string& build_id,
                                                          const std::string& explicit_file) const {
  std::vector<Candidate> out;
  if (!explicit_file.empty()) out.push_back({explicit_file, false});
  const bool absolute = path.starts_with('/') && !path.starts_with("//");
  // The file before perf's copy of it. perf copies through a private mapping, which has the breakpoints of uprobes
  // (tools/perf/util/copyfile.c copyfile_offset(), kernel/events/uprobes.c valid_vma()).
  if (absolute && !symfs_.empty()) out.push_back({symfs_ + path, true});
  if (absolute && !symfs_given_ && options_.host_files) out.push_back({path, true});
  add_cached(path, build_id, out);
  if (!symfs_.empty()) {
    if (absolute) out.push_back({symfs_ + path, false});
    if (path == "[vdso]") {
      for (const char* name : {"/[vdso]", "/vdso.so", "/vdso"}) out.push_back({symfs_ + name, false});
    }
    // A folder of files without their paths, as simpleperf and adb pull leave them: by name, if the build-id
    // proves the identity.
    if (!path.empty() && path[0] != '[') out.push_back({symfs_ + "/" + file_name(path), true});
  }
  // With a symfs the code comes from another machine: a file of this machine must prove that it is the same.
  if (options_.host_files && absolute) out.push_back({path, symfs_given_});
  return out;
}

std::unique_ptr<TextFile> FileFinder::search(const std::string& path, const std::string& build_id,
                                             const std::string& explicit_file, bool quiet) {
  std::string rejected, without_code;
  std::optional<Error> unreadable;
  std::unique_ptr<TextFile> cut;  // used where no whole one is found
  std::vector<Candidate> places = candidates(path, build_id, explicit_file);
  for (const Candidate& candidate : places) {
    if (candidate.needs_id && build_id.empty()) continue;
    auto file = open_text_file(candidate.path, unreadable);
    if (!file) continue;
    // Of a kernel it has symbols and source lines.
    if (file->elf && file->elf->is_debug_only() && !path.starts_with("[kernel.")) {
      without_code = fmt::format("; {} has debug information only", file->path);
      continue;
    }
    if (build_id.empty()) {
      warn_unverified(*file, path);
      note_end(*file);
      return file;
    }
    if (same_build_id(build_id, file->build_id)) {
      if (!is_cut(*file)) return file;
      if (!cut) cut = std::move(file);
      continue;
    }
    std::string ids = fmt::format("{} has build-id {}, the recording says {}", file->path,
                                  file->build_id.empty() ? "(none)" : file->build_id, build_id);
    if (options_.force && !candidate.needs_id) {
      notices_.error(Code::kOtherBuildIdUsed, path, ids + "; used because of --force");
      file->doubtful = true;
      note_end(*file);
      return file;
    }
    if (rejected.find(ids) == std::string::npos) rejected += (rejected.empty() ? "" : "; ") + ids;
  }
  if (cut) {
    note_end(*cut);
    return cut;
  }
  const bool is_vdso = path == "[vdso]";
  if (is_vdso && vdso_source_) {
    if (auto file = vdso_source_(build_id)) return file;
  }
  if (unreadable) {
    notices_.error(unreadable->code, unreadable->where,
                   unreadable->reason + (path == unreadable->where ? "" : "; it may be " + path),
                   unreadable->hint);
  }
  if (!rejected.empty()) {
    notices_.error(Code::kOtherBuildId, path, rejected + "; not used, its code is unknown",
                   "put the file that ran into a build-id cache (--buildid-dir) or --symfs, or use --force");
  } else if (!quiet) {
    notices_.error(
        Code::kFileNotFound, path,
        (build_id.empty() ? "no such file, its code is unknown"
                          : fmt::format("no file with build-id {}, its code is unknown", build_id)) +
            without_code,
        is_vdso ? "it is the kernel's vDSO, which not every perf keeps: give its build-id cache "
                  "(--buildid-dir) or the recorded kernel's vmlinux (--vmlinux), decode where that kernel "
                  "runs, or put a copy into --symfs as vdso.so"
                : "copy it from the recording machine and give --symfs, or `perf archive` and --buildid-dir");
  }
  return nullptr;
}

void FileFinder::note_end(const TextFile& file) {
  if (file.elf) note_cut_image(*file.elf, notices_);
}

// What was written, replaced or copied since the recording has a newer ctime, whatever its mtime, which packages and
// `cp -p` bring along. A copy elsewhere shows nothing.
bool FileFinder::unchanged_since(const std::string& file) const {
  const auto changed = time_of(file, &stat::st_ctim);
  return changed && capture_mtime_ && *changed < *capture_mtime_;
}

void FileFinder::warn_unverified(TextFile& file, const std::string& path) {
  Notice notice;
  notice.code = Code::kFileNotVerified;
  notice.where = path;
  notice.reason = fmt::format("the recording has no build-id for it: {} is used unverified", file.path);
  file.doubtful = file.path != path || !unchanged_since(file.path);
  notice.reason += file.doubtful ? ", and nothing in it is certain" : "; it did not change since";
  const auto mtime = time_of(file.path, &stat::st_mtim);
  if (mtime && capture_mtime_ && elapsed(*capture_mtime_, *mtime) >= kSecond) {
    notice.severity = Notice::Severity::kError;
    notice.code = Code::kFileNewerThanRecording;
    notice.reason +=
        fmt::format("; it is newer than the recording by {} s", elapsed(*capture_mtime_, *mtime) / kSecond);
  }
  notice.hint = "record with `perf record --buildid-all` or --buildid-mmap";
  notices_.add(std::move(notice));
}

const TextFile* FileFinder::find(const std::string& path, const std::string& build_id,
                                 const std::string& explicit_file) {
  auto [it, fresh] = found_.try_emplace({path + '\0' + explicit_file, build_id});
  if (fresh) it->second = search(path, build_id, explicit_file, false);
  return it->second.get();
}

const TextFile* FileFinder::find_quietly(const std::string& path, const std::string& build_id,
                                         const std::string& explicit_file) {
  auto [it, fresh] = found_.try_emplace({path + '\0' + explicit_file, build_id});
  if (fresh) it->second = search(path, build_id, explicit_file, true);
  return it->second.get();
}

}  // namespace asof
