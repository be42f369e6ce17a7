// asof pack: a capture and all files that decoding it uses as one archive, which decodes the same on any
// machine. asof unpack: restores the files of such an archive. Reading and its limits:
// decoder/open/archive.h.
#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "decoder/io/files_read.h"
#include "decoder/open/archive.h"
#include "tools/cli/verbs.h"
#include "tools/output/format.h"
#include "tools/output/output.h"
#include "tools/output/unfinished_file.h"
#include "tools/verbs/pack_list.h"
#include "tools/verbs/zstd_file.h"

namespace asof {
namespace {

namespace fs = std::filesystem;

// One archive being written: entries in the order of calls, with nothing in them that depends on who packs.
class Packer {
 public:
  // `fd`: what is written to until the archive is complete; `path` says which compression.
  static Result<std::unique_ptr<Packer>> open(int fd, const std::string& path) {
    auto p = std::unique_ptr<Packer>(new Packer(path));
    archive_write_set_format_pax_restricted(p->archive_);
    // Names are bytes, whatever the locale is.
    archive_write_set_options(p->archive_, "pax:hdrcharset=BINARY");
    if (path.ends_with(".zst") || path.ends_with(".tzst")) {
      p->zstd_.emplace(fd);
    } else if (path.ends_with(".gz") || path.ends_with(".tgz")) {
      archive_write_add_filter_gzip(p->archive_);
      archive_write_set_options(p->archive_, "gzip:!timestamp");
    } else if (path.ends_with(".xz") || path.ends_with(".txz")) {
      archive_write_add_filter_xz(p->archive_);
    }
    const int opened = p->zstd_ ? archive_write_open(p->archive_, p.get(), nullptr, on_write, nullptr)
                                : archive_write_open_fd(p->archive_, fd);
    if (opened != ARCHIVE_OK) return std::unexpected(p->error());
    return p;
  }
  ~Packer() { archive_write_free(archive_); }
  Packer(const Packer&) = delete;
  Packer& operator=(const Packer&) = delete;

  // False: the file cannot be read as it was when it was examined; the archive is as before.
  Result<bool> add(const PackedFile& file) {
    const int fd = ::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return false;
    struct stat st {};
    Result<bool> done = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
    if (done && *done) done = copy(fd, st, file.name);
    close(fd);
    return done;
  }

  Result<void> finish() {
    if (archive_write_close(archive_) != ARCHIVE_OK) return std::unexpected(error());
    // Not by a callback, whose result archive_write_close() does not look at.
    if (zstd_ && !zstd_->finish()) {
      failed(archive_);
      return std::unexpected(error());
    }
    return {};
  }

 private:
  explicit Packer(std::string path) : path_(std::move(path)), archive_(archive_write_new()) {}

  // Of libarchive, where zstd_ takes what it writes.
  static la_ssize_t on_write(archive* a, void* self, const void* bytes, size_t size) {
    const bool done = static_cast<Packer*>(self)->zstd_->write({static_cast<const char*>(bytes), size});
    return done ? static_cast<la_ssize_t>(size) : failed(a);
  }
  static int failed(archive* a) {
    archive_set_error(a, errno, "cannot be written: %s", std::strerror(errno));
    return ARCHIVE_FATAL;
  }

  Error error() const {
    const char* const said = archive_error_string(archive_);
    if (archive_errno(archive_) == ENOMEM)
      return {Code::kNoResources, path_, Error::kNoOffset, "the system refused memory to pack it",
              "raise the limit of memory (ulimit -v, cgroup)"};
    return {Code::kCannotWrite, path_, Error::kNoOffset, said != nullptr ? said : "cannot be written", {}};
  }

  Result<bool> copy(int fd, const struct stat& st, const std::string& name) {
    archive_entry* const entry = archive_entry_new();
    archive_entry_set_pathname(entry, name.c_str());
    archive_entry_set_filetype(entry, AE_IFREG);
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_size(entry, st.st_size);
    archive_entry_set_mtime(entry, st.st_mtime, 0);
    const int r = archive_write_header(archive_, entry);
    archive_entry_free(entry);
    if (r != ARCHIVE_OK) return std::unexpected(error());
    std::vector<char> block(1U << 20U);
    for (off_t left = st.st_size; left > 0 && !interrupted();) {
      const ssize_t n = read(fd, block.data(), std::min<size_t>(block.size(), static_cast<size_t>(left)));
      if (n <= 0)
        return fail(Code::kCannotPack, name, Error::kNoOffset,
                    n < 0 ? std::strerror(errno) : "it became shorter while it was packed", {});
      if (archive_write_data(archive_, block.data(), static_cast<size_t>(n)) != n)
        return std::unexpected(error());
      left -= n;
    }
    return true;
  }

  std::string path_;
  std::optional<ZstdFile> zstd_;
  archive* archive_;
};

struct PackOptions {
  InputOptions input;
  std::string output;
};

Result<uint64_t> write_archive(const std::vector<PackedFile>& files, int fd, const std::string& path,
                               Diagnostics& diagnostics) {
  auto packer = Packer::open(fd, path);
  if (!packer) return std::unexpected(packer.error());
  uint64_t packed = 0;
  for (const PackedFile& file : files) {
    if (interrupted()) return packed;
    const auto added = (*packer)->add(file);
    if (!added) return std::unexpected(added.error());
    if (*added) {
      ++packed;
    } else {
      diagnostics.error(
          {Code::kCannotPack, file.path, Error::kNoOffset, "cannot be read; the archive is without it", {}});
    }
  }
  if (const auto done = (*packer)->finish(); !done) return std::unexpected(done.error());
  return packed;
}

// Without a suffix: .tar.
bool names_archive(const fs::path& path) {
  constexpr std::array<std::string_view, 7> kSuffixes = {".tar", ".tar.zst", ".tzst", ".tar.gz",
                                                         ".tgz", ".tar.xz",  ".txz"};
  return !path.has_extension() ||
         std::ranges::any_of(kSuffixes, [&](std::string_view s) { return path.native().ends_with(s); });
}

ExitCode run_pack(const PackOptions& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  if (o.input.input == "-" || is_archive(o.input.input)) {
    diagnostics.error({Code::kBadOption, o.input.input, Error::kNoOffset,
                       "a pipe or an archive cannot be packed", "name the recording's file or directory"});
    return kExitUsage;
  }
  if (!names_archive(o.output)) {
    diagnostics.error({Code::kBadOption, "", Error::kNoOffset,
                       fmt::format("the suffix of '{}' names no archive", o.output),
                       "use .tar, .tar.zst, .tar.gz or .tar.xz"});
    return kExitUsage;
  }
  FilesRead files;
  const auto capture = open_for_verb(o.input, diagnostics);
  if (!capture) return kExitInput;
  if (!is_recording(*capture, diagnostics)) return kExitUsage;
  const PackList list = files_of(*capture, o.input.input, o.input.capture, files.take());
  for (const auto& [file, reason] : list.refused) {
    diagnostics.error({Code::kCannotPack, file, Error::kNoOffset, reason + "; the archive is without it",
                       "give the folder it belongs to with --symfs if it is meant to be packed"});
  }
  UnfinishedFile part(o.output);
  if (part.error()) {
    diagnostics.error(*part.error());
    return kExitInput;
  }
  const auto packed = write_archive(list.files, part.fd(), o.output, diagnostics);
  if (interrupted()) return kExitInterrupted;
  if (!packed) {
    diagnostics.error(packed.error());
    return kExitInput;
  }
  if (const auto kept = part.keep(); !kept) {
    diagnostics.error(kept.error());
    return kExitInput;
  }
  std::error_code error;
  diagnostics.note(fmt::format("{}: {}, {}", o.output, format_plural(*packed, "file", "files"),
                               format_size(fs::file_size(o.output, error))));
  return *packed == list.files.size() && list.refused.empty() ? kExitOk : kExitErrors;
}

struct UnpackOptions {
  std::string input, output = ".";
};

ExitCode run_unpack(const UnpackOptions& o) {
  Diagnostics diagnostics(Diagnostics::Color::kAuto, 0);
  std::error_code error;
  fs::create_directories(o.output, error);
  if (error) {
    diagnostics.error({Code::kCannotWrite, o.output, Error::kNoOffset, error.message(), {}});
    return kExitInput;
  }
  const auto files = unpack_archive(o.input, o.output);
  if (!files) {
    diagnostics.error(files.error());
    return kExitInput;
  }
  diagnostics.note(fmt::format("{}: {}; 'asof report {}' opens it as the archive", o.output,
                               format_plural(*files, "file", "files"), o.output));
  return kExitOk;
}

}  // namespace

RunVerb add_pack(CLI::App& app) {
  auto o = std::make_shared<PackOptions>();
  CLI::App* verb = app.add_subcommand("pack", "a capture with all files that decoding uses, as one archive");
  add_input_options(*verb, o->input);
  verb->add_option("-o,--output", o->output,
                   "the archive: NAME.tar, or NAME.tar.zst, .gz, .xz (default: asof.tar.zst)")
      ->default_str("asof.tar.zst")
      ->type_name("FILE");
  o->output = "asof.tar.zst";
  return [o] { return run_pack(*o); };
}

RunVerb add_unpack(CLI::App& app) {
  auto o = std::make_shared<UnpackOptions>();
  CLI::App* verb = app.add_subcommand("unpack", "the files of an archive that asof pack made");
  verb->add_option("ARCHIVE", o->input, "the archive")->required()->type_name("FILE");
  verb->add_option("-o,--output", o->output, "directory to unpack into (default: here)")->type_name("DIR");
  return [o] { return run_unpack(*o); };
}

}  // namespace asof
