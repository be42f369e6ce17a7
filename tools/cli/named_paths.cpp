#include "tools/cli/named_paths.h"

#include <elf.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "decoder/io/folder.h"

namespace asof {
namespace {

namespace fs = std::filesystem;

// kCore, kEndCore: a copy of kcore, or a folder with one.
enum class Kind : uint8_t { kFile, kElf, kFolder, kCore, kEndCore };

struct Named {
  const char* option;
  const std::string& path;
  Kind kind;
};

using Head = std::array<unsigned char, 18>;  // of an ELF file, up to its type

Head head_of(const std::string& path) {
  Head head{};
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(head.data()), head.size());
  return head;
}

bool is_elf(const Head& head) { return std::memcmp(head.data(), "\177ELF", 4) == 0; }

// What /proc/kcore, and each copy of it, is. In either byte order.
bool is_core(const Head& head) { return is_elf(head) && head[16] + head[17] == ET_CORE; }

std::string what_is_wrong_with_core(const Named& n, bool folder) {
  const fs::path path(n.path);
  if (!folder) return is_core(head_of(n.path)) ? "" : "this is no copy of kcore";
  std::error_code error;
  const bool end = n.kind == Kind::kEndCore && fs::exists(path / "kcore.end", error);
  const fs::path file = path / (end ? "kcore.end" : "kcore");
  if (!fs::is_regular_file(file, error)) return "there is no file kcore in this folder";
  return is_core(head_of(file.string())) ? "" : "the file kcore in this folder is no copy of kcore";
}

// Empty: it can be used.
std::string what_is_wrong(const Named& n) {
  std::error_code error;
  const fs::file_status status = fs::status(n.path, error);
  if (!fs::exists(status)) return error ? error.message() : "No such file or directory";
  const bool folder = fs::is_directory(status);
  if (n.kind == Kind::kFolder && !folder) return "this is no folder";
  if ((n.kind == Kind::kFile || n.kind == Kind::kElf) && folder) return "this is a folder, not a file";
  // Opening a FIFO would wait for somebody who writes.
  if (!folder && !fs::is_regular_file(status)) return "this is no regular file";
  if (::access(n.path.c_str(), R_OK) != 0) return std::strerror(errno);
  if (n.kind == Kind::kElf && !is_elf(head_of(n.path))) return "this is no ELF file";
  if (n.kind == Kind::kCore || n.kind == Kind::kEndCore) return what_is_wrong_with_core(n, folder);
  return {};
}

// Whether a folder has a file with this in its name; only so many are looked at.
bool holds(const std::string& folder, std::string_view part) {
  constexpr int kMost = 100'000;
  int looked = 0;
  bool found = false;
  walk_files(folder, [&](const std::string& path) {
    found = path.find(part, path.rfind('/') + 1) != std::string::npos;
    return !found && ++looked < kMost;
  });
  return found;
}

void warn(const char* option, const std::string& path, std::string reason, Diagnostics& diagnostics) {
  diagnostics.warn({Code::kBadOption, path, Error::kNoOffset,
                    fmt::format("{}: {}", option, std::move(reason)),
                    "without it, nothing is read from there"});
}

void warn_of_empty(const CaptureOptions& o, Diagnostics& diagnostics) {
  std::error_code ignored;
  if (!o.symfs.empty() && names_in(o.symfs, ignored).empty() && !ignored)
    warn("--symfs", o.symfs, "the folder is empty", diagnostics);
  if (!o.modules_dir.empty() && !holds(o.modules_dir, ".ko"))
    warn("--modules", o.modules_dir, "no .ko file is in it", diagnostics);
  if (!o.buildid_dir.empty() && !fs::is_directory(fs::path(o.buildid_dir) / ".build-id", ignored))
    warn("--buildid-dir", o.buildid_dir, "no folder .build-id is in it", diagnostics);
}

}  // namespace

bool check_named_paths(const CaptureOptions& o, Diagnostics& diagnostics) {
  std::vector<Named> all{{"--vmlinux", o.vmlinux, Kind::kElf},
                         {"--kallsyms", o.kallsyms, Kind::kFile},
                         {"--kcore", o.kcore, Kind::kCore},
                         {"--modules", o.modules_dir, Kind::kFolder},
                         {"--symfs", o.symfs, Kind::kFolder},
                         {"--buildid-dir", o.buildid_dir, Kind::kFolder},
                         {"--kcore-end", o.kcore_end, Kind::kEndCore},
                         {"--ksym-text", o.ksym_text, Kind::kFile}};
  for (const std::string& path : o.jitdumps) all.push_back({"--jitdump", path, Kind::kFile});
  bool good = true;
  for (const Named& n : all) {
    if (n.path.empty()) continue;
    const std::string wrong = what_is_wrong(n);
    if (wrong.empty()) continue;
    diagnostics.error(
        {Code::kBadOption, n.path, Error::kNoOffset, fmt::format("{}: {}", n.option, wrong), ""});
    good = false;
  }
  if (good) warn_of_empty(o, diagnostics);
  return good;
}

}  // namespace asof
