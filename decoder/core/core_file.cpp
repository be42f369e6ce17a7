#include "decoder/core/core_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "decoder/blocks/block_capture.h"
#include "decoder/core/core_machine.h"
#include "decoder/core/core_text.h"
#include "decoder/core/core_trace.h"
#include "decoder/io/content_hash.h"

namespace asof {

using blocks::put_fixed;
using core::Section;
using core::Source;
using core::Writer;

namespace {

namespace fs = std::filesystem;

using Spans = std::vector<std::span<const uint8_t>>;

uint64_t hash_of(const Spans& spans) {
  ContentHash hash;
  for (const auto& s : spans) hash.add(s);
  return hash.value();
}

uint64_t size_of(const Spans& spans) {
  uint64_t n = 0;
  for (const auto& s : spans) n += s.size();
  return n;
}

struct OneSection {
  Section kind{};
  uint32_t index = 0;
  Spans spans;
};

void write_all(const std::vector<OneSection>& sections, uint64_t identity, const CoreFile::Write& write) {
  std::vector<uint8_t> table;
  uint64_t at = core::kHeaderSize;
  for (const OneSection& s : sections) {
    put_fixed(table, static_cast<uint32_t>(s.kind), 4);
    put_fixed(table, s.index, 4);
    put_fixed(table, at, 8);
    put_fixed(table, size_of(s.spans), 8);
    put_fixed(table, hash_of(s.spans), 8);
    at += size_of(s.spans);
  }
  std::vector<uint8_t> header(core::kMagic.begin(), core::kMagic.end());
  put_fixed(header, core::kVersion, 2);
  put_fixed(header, core::kHeaderSize, 2);
  put_fixed(header, sections.size(), 4);
  put_fixed(header, identity, 8);
  put_fixed(header, at, 8);
  put_fixed(header, hash_of({table}), 8);
  write(header);
  for (const OneSection& s : sections) {
    for (const auto& span : s.spans) write(span);
  }
  write(table);
}

}  // namespace

Result<void> CoreFile::write(const Capture& capture, const std::string& folder, const Write& write) {
  if (capture.blocks) {
    return fail(Code::kTraceNotInFile, capture.path, Error::kNoOffset, "it is decoded already",
                "make the plan of the recording itself");
  }
  auto trace = core::put_trace(capture, folder);
  if (!trace) {
    Error error = trace.error();
    if (error.where.empty()) error.where = capture.path;
    return std::unexpected(std::move(error));
  }
  Writer head, tables, machine, code;
  blocks::put_head(head, capture);
  blocks::put_tables(tables, capture);
  core::put_machine(machine, capture);
  core::put_code(code, capture);
  const std::vector<uint8_t> symbols = blocks::put_symbols(capture);
  const core::TextSections text = core::put_text(*capture.text);
  std::vector<OneSection> sections = {{Section::kHead, 0, {head.data()}},
                                      {Section::kTables, 0, {tables.data()}},
                                      {Section::kMachine, 0, {machine.data()}},
                                      {Section::kCode, 0, {code.data()}},
                                      {Section::kSymbols, 0, {symbols}},
                                      {Section::kFiles, 0, {trace->files.data()}},
                                      {Section::kFrames, 0, {trace->frames.data()}},
                                      {Section::kExtents, 0, {trace->extents.data()}},
                                      {Section::kStore, 0, {text.store.data()}},
                                      {Section::kText, 0, text.bytes}};
  for (size_t i = 0; i < trace->indexes.size(); ++i) {
    if (trace->indexes[i])
      sections.push_back({Section::kFrameIndex, static_cast<uint32_t>(i), {trace->indexes[i]->data()}});
  }
  for (size_t i = 0; i < trace->streams.size(); ++i)
    sections.push_back({Section::kStream, static_cast<uint32_t>(i), {trace->streams[i].data()}});
  write_all(sections, blocks::identity_of(blocks::put_capture(capture)), write);
  return {};
}

bool CoreFile::is_plan(const std::string& folder) {
  std::error_code ignored;
  return fs::is_regular_file(fs::path(folder) / core::kFileName, ignored);
}

std::unexpected<Error> CoreFile::damaged(std::string reason) const {
  return fail(Code::kBadPlan, path_, Error::kNoOffset, std::move(reason), "make the plan again");
}

Result<void> CoreFile::read_table(std::span<const uint8_t> bytes) {
  Source in(bytes);
  const auto magic = in.take(core::kMagic.size());
  if (!in.ok() || std::memcmp(magic.data(), core::kMagic.data(), magic.size()) != 0)
    return damaged("no core of a plan begins here");
  const uint16_t version = in.u16(), header = in.u16();
  if (version != core::kVersion || header != core::kHeaderSize)
    return damaged(fmt::format("a core of version {}, this asof reads {}", version, core::kVersion));
  const uint64_t sections = in.u32();
  identity_ = in.u64();
  const uint64_t table_at = in.u64(), table_hash = in.u64();
  if (!in.ok() || table_at > bytes.size() || bytes.size() - table_at != sections * core::kEntrySize)
    return damaged("its size is not what it says: it was cut, or is not written to its end");
  const auto table = bytes.subspan(table_at);
  if (hash_of({table}) != table_hash) return damaged("its table of sections is damaged");
  hash_ = table_hash;
  Source entries(table);
  for (uint64_t i = 0; i < sections; ++i) {
    Part p;
    p.kind = static_cast<Section>(entries.u32());
    p.index = entries.u32();
    const uint64_t at = entries.u64(), size = entries.u64();
    p.hash = entries.u64();
    if (at > table_at || size > table_at - at) return damaged("a section lies outside of the file");
    p.bytes = bytes.subspan(at, size);
    parts_.push_back(p);
  }
  return {};
}

bool CoreFile::has_section(Section kind, uint32_t index) const {
  return std::ranges::any_of(parts_, [&](const Part& p) { return p.kind == kind && p.index == index; });
}

Result<std::span<const uint8_t>> CoreFile::section(Section kind, uint32_t index) const {
  const auto found =
      std::ranges::find_if(parts_, [&](const Part& p) { return p.kind == kind && p.index == index; });
  if (found == parts_.end())
    return damaged(fmt::format("section {} is missing", static_cast<uint32_t>(kind)));
  if (hash_of({found->bytes}) != found->hash)
    return damaged(
        fmt::format("section {} ({} bytes) is damaged", static_cast<uint32_t>(kind), found->bytes.size()));
  return found->bytes;
}

Result<void> CoreFile::read_streams(Capture& capture, const CaptureOptions& options) {
  const auto index = [this](uint32_t group) -> Result<std::optional<std::span<const uint8_t>>> {
    if (!has_section(Section::kFrameIndex, group)) return std::nullopt;
    return section(Section::kFrameIndex, group);
  };
  core::TraceReader trace(fs::path(path_).parent_path().string(), index);
  const auto files = section(Section::kFiles), frames = section(Section::kFrames),
             extents = section(Section::kExtents);
  for (const auto* s : {&files, &frames, &extents}) {
    if (!*s) return std::unexpected(s->error());
  }
  if (!trace.read_tables(*files, *frames)) return damaged("its table of trace files is damaged");
  Source in(*extents);
  for (uint64_t i = 0, n = in.count(5); i < n && in.ok(); ++i) {
    Stream& s = capture.streams.emplace_back();
    s.name = in.text();
    s.cpu = static_cast<int32_t>(in.signed_varint());
    s.tid = static_cast<int32_t>(in.signed_varint());
    const uint64_t begin = in.varint(), end = in.varint();
    if (end < begin) return damaged("its table of streams is damaged");
    extents_.push_back({begin, end});
    names_.push_back(s.name);
  }
  if (!in.ok() || in.left() != 0) return damaged("its table of streams is damaged");
  std::vector<bool> wanted(capture.streams.size(), !options.shards);
  if (options.shards) {
    for (const StreamRange& r : shard_ranges(extents_, *options.shards)) wanted[r.stream] = true;
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i]) continue;
    const auto body = section(Section::kStream, static_cast<uint32_t>(i));
    if (!body) return std::unexpected(body.error());
    auto stream = trace.read_stream(*body, path_);
    if (!stream) return std::unexpected(stream.error());
    capture.streams[i] = std::move(*stream);
    if (capture.streams[i].begin() != extents_[i].begin || capture.streams[i].end() != extents_[i].end)
      return damaged("a stream is not as long as its table says");
  }
  owners_ = trace.take_owners();
  return {};
}

Result<Capture> CoreFile::open(const std::string& folder, const CaptureOptions& options) {
  const bool files = std::ranges::any_of(
      std::initializer_list<const std::string*>{&options.vmlinux, &options.kallsyms, &options.kcore,
                                                &options.modules_dir, &options.symfs, &options.buildid_dir,
                                                &options.kcore_end, &options.ksym_text},
      [](const std::string* path) { return !path->empty(); });
  if (files || !options.jitdumps.empty() || options.force || options.catalogue || options.time_conversion) {
    return fail(Code::kBadOption, folder, Error::kNoOffset,
                "a plan has been opened already: options that say how have no effect",
                "give them to 'asof plan'");
  }
  auto core = std::make_shared<CoreFile>();
  core->path_ = (fs::path(folder) / core::kFileName).string();
  auto file = MappedFile::open(core->path_);
  if (!file) return std::unexpected(file.error());
  core->file_ = *file;
  if (auto ok = core->read_table((*file)->bytes()); !ok) return std::unexpected(ok.error());
  Capture c;
  // By name: a body that is damaged is found by its hash or by what reads it.
  const auto each = [&](Section kind, const auto& take) -> Result<void> {
    const auto body = core->section(kind);
    if (!body) return std::unexpected(body.error());
    Source in(*body);
    if (!take(in, *body))
      return core->damaged(fmt::format("section {} is damaged", static_cast<uint32_t>(kind)));
    return {};
  };
  const auto whole = [&c](void (*take)(Source&, Capture&)) {
    return
        [&c, take](Source& in, std::span<const uint8_t>) { return take(in, c), in.ok() && in.left() == 0; };
  };
  const auto text = core->section(Section::kText);
  if (!text) return std::unexpected(text.error());
  for (const Result<void>& ok :
       {each(Section::kHead, whole(blocks::take_head)), each(Section::kTables, whole(blocks::take_tables)),
        each(Section::kMachine, whole(core::take_machine)), each(Section::kCode, whole(core::take_code)),
        each(Section::kSymbols, [&c](Source&, auto body) { return blocks::take_symbols(body, c.symbols); }),
        each(Section::kStore,
             [&](Source&, auto body) {
               c.text = core::take_text(body, *text);
               return c.text.has_value();
             }),
        core->read_streams(c, options)}) {
    if (!ok) return std::unexpected(ok.error());
  }
  c.symbols.finish();
  c.path = folder;
  c.core = core;
  c.keep = core;
  return c;
}

}  // namespace asof
