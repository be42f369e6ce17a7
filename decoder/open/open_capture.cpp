// Which reader an input needs, and what every capture gets in the end.
#include "decoder/model/capture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "decoder/blocks/block_file.h"
#include "decoder/bundle/bundle.h"
#include "decoder/bundle/bundle_json.h"
#include "decoder/bundle/lldb_bundle.h"
#include "decoder/core/core_file.h"
#include "decoder/io/folder.h"
#include "decoder/io/sideband_notices.h"
#include "decoder/io/threads_here.h"
#include "decoder/ocsd/ocsd_snapshot.h"
#include "decoder/open/archive.h"
#include "decoder/open/capture_perf.h"
#include "decoder/open/check_clock.h"
#include "decoder/open/text_check.h"
#include "textstore/plain_text.h"
#include "textstore/text_store_impl.h"

namespace asof {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

Result<Capture> open_by_manifest(const std::string& path, const CaptureOptions& options) {
  auto file = JsonFile::load(path);
  if (!file) return std::unexpected(file.error());
  if ((*file)->root().find("format")) return open_bundle(path, options);
  if ((*file)->root().find("type")) return open_lldb_bundle(path, options);
  return fail(Code::kOtherJson, path, Error::kNoOffset,
              "JSON, but neither \"format\" nor \"type\" says what of",
              "a raw bundle has \"format\": \"asof-bundle\", an LLDB bundle \"type\": \"intel-pt\"");
}

Result<Capture> open_manifest(const std::string& path, const CaptureOptions& options) {
  auto capture = open_by_manifest(path, options);
  if (!capture) return capture;
  NoticeBook notices;
  check_mtcs(*capture, notices);
  std::ranges::move(notices.take(), std::back_inserter(capture->notices));
  return capture;
}

// The first character that is no white space.
char first_character(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  char c = 0;
  for (int i = 0; i < 4096 && in.get(c); ++i) {
    if (c != ' ' && c != '\t' && c != '\r' && c != '\n') return c;
  }
  return 0;
}

bool holds_block_files(const std::string& folder) {
  std::error_code ignored;
  return std::ranges::any_of(names_in(folder, ignored),
                             [](const std::string& name) { return name.ends_with(".blocks"); });
}

Result<Capture> open_any(const std::string& path, const CaptureOptions& options) {
  if (path == "-") return open_perf(path, options);
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    if (CoreFile::is_plan(path)) return CoreFile::open(path, options);
    if (is_there(fs::path(path) / "data")) return open_perf(path, options);
    for (const char* name : {"bundle.json", "trace.json"}) {
      if (is_there(fs::path(path) / name)) return open_manifest((fs::path(path) / name).string(), options);
    }
    if (is_there(fs::path(path) / "snapshot.ini")) return open_ocsd_snapshot(path, options);
    if (holds_block_files(path)) return blocks::BlockFile::open(path);
    CaptureOptions inner = options;
    if (const auto place = unpacked_capture(path, inner)) return open_any(*place, inner);
    return fail(Code::kFolderWithoutCapture, path, Error::kNoOffset,
                "a folder with neither data, perf.data, bundle.json, trace.json, snapshot.ini, core.asof nor "
                ".blocks files in it");
  }
  if (fs::path(path).filename() == "snapshot.ini") return open_ocsd_snapshot(path, options);
  if (fs::is_regular_file(path, ignored) && blocks::BlockFile::is_block_file(path))
    return blocks::BlockFile::open(path);
  if (fs::is_regular_file(path, ignored) && first_character(path) == '{') return open_manifest(path, options);
  return open_perf(path, options);
}

struct NoticeKind {
  Notice::Severity severity;
  Code code;
};

NoticeKind kind_of(TextNotice::Kind kind) {
  using Severity = Notice::Severity;
  switch (kind) {
    case TextNotice::Kind::kChainBreak:
      return {Severity::kError, Code::kBrokenPokeChain};
    case TextNotice::Kind::kBaselineMismatch:
      return {Severity::kError, Code::kFirstPokeMismatch};
    case TextNotice::Kind::kDuplicatePoke:
      return {Severity::kInfo, Code::kDuplicatePoke};
    case TextNotice::Kind::kTransientHealed:
      return {Severity::kInfo, Code::kSnapshotCaughtBreakpoint};
    case TextNotice::Kind::kPokeOutsideText:
      return {Severity::kInfo, Code::kPokeOutsideText};
    case TextNotice::Kind::kReordered:
      return {Severity::kInfo, Code::kEqualTimesOrdered};
    case TextNotice::Kind::kTooComplex:
      return {Severity::kError, Code::kTooManyOverlappingPokes};
  }
  return {Severity::kInfo, Code::kTextStoreNote};
}

// Unpacked into a directory that lives as long as the capture: its files are mapped.
Result<Capture> open_archive(const std::string& path, const CaptureOptions& options) {
  auto tree = TemporaryTree::make();
  if (!tree) return std::unexpected(tree.error());
  if (const auto done = unpack_archive(path, (*tree)->path()); !done) return std::unexpected(done.error());
  CaptureOptions inner = options;
  const auto place = unpacked_capture((*tree)->path(), inner);
  if (!place) {
    Error error = place.error();
    error.where = path;
    return std::unexpected(std::move(error));
  }
  auto capture = open_any(*place, inner);
  const ArchiveNames names((*tree)->path(), path);
  if (!capture) {
    names.set_in(capture.error());
    return capture;
  }
  for (Notice& n : capture->notices) names.set_in(n);
  if (capture->text) {
    for (Origin& o : StoreAccess::of(*capture->text).origins) names.set(o.name);
  }
  capture->archive_names = names;
  struct Both {
    std::shared_ptr<const void> tree, inner;
  };
  capture->path = path;
  capture->keep = std::make_shared<const Both>(Both{*tree, capture->keep});
  return capture;
}

// What building the store has found, as notices like the others.
void add_text_notices(Capture& capture) {
  NoticeBook book;
  for (const TextNotice& notice : capture.text->notices()) {
    const NoticeKind kind = kind_of(notice.kind);
    book.add({kind.severity,
              kind.code,
              fmt::format("{:#x}", notice.addr),
              Error::kNoOffset,
              notice.from,
              notice.text,
              {},
              1});
  }
  for (Notice& notice : book.take()) capture.notices.push_back(std::move(notice));
}

void make_names_plain(Capture& c) {
  for (std::string* text :
       {&c.machine, &c.hostname, &c.os_release, &c.cpu_desc, &c.cpu_id, &c.command_line}) {
    if (!is_plain_text(*text)) *text = plain_text(*text);
  }
  for (BpfProgram& p : c.bpf_programs) p.name = plain_text(p.name);
  for (ModuleLifetime& m : c.modules) m.name = plain_text(m.name);
  for (Stream& s : c.streams) s.name = plain_text(s.name);
  for (Notice& n : c.notices) {
    n.where = plain_text(n.where);
    n.reason = plain_text(n.reason);
  }
}

}  // namespace

Result<Capture> open_capture(const std::string& path, const CaptureOptions& options) {
  const ThreadsHere threads(options.jobs);
  auto capture = is_archive(path) ? open_archive(path, options) : open_any(path, options);
  // Those of a block stream or a plan are of the recording, and in it.
  if (capture && !capture->blocks && !capture->core) {
    add_text_notices(*capture);
    doubt_contradicted_text(*capture);
  }
  if (capture) make_names_plain(*capture);
  return capture;
}

Result<std::unique_ptr<Arch>> Capture::arch() const {
  if (blocks) return blocks::make_block_arch(blocks);
  for (const char* name : {"x86_64", "i686", "i386"}) {
    if (machine == name) return x86::make_arch(x86);
  }
  for (const char* name : {"aarch64", "armv8l", "armv7l", "arm"}) {
    if (machine != name) continue;
    if (arm64.sources.size() >= streams.size()) return arm64::make_arch(arm64);
    return fail(Code::kUnknownMachine, path, Error::kNoOffset,
                fmt::format("it is of {}, but its trace is not of CoreSight", machine));
  }
  return fail(Code::kUnknownMachine, path, Error::kNoOffset,
              machine.empty() ? "the recording does not say which machine it is of"
                              : fmt::format("traces of {} are not decoded yet", machine));
}

}  // namespace asof
