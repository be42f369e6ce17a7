#include "decoder/ocsd/ocsd_buffers.h"

#include <fmt/format.h>

#include <algorithm>

#include "decoder/perf/perf_data_input.h"

namespace asof {
namespace {

constexpr size_t kBlock = 512, kTrailer = 8;  // of a DSTREAM probe

// The blocks' trace, one after the other.
Result<std::shared_ptr<const FileBytes>> without_trailers(std::span<const uint8_t> bytes) {
  auto spool = Spool::create();
  if (!spool) return std::unexpected(spool.error());
  while (!bytes.empty()) {
    const auto block = bytes.first(std::min(kBlock, bytes.size()));
    if (auto ok = spool->append(block.first(std::min(block.size(), kBlock - kTrailer))); !ok)
      return std::unexpected(ok.error());
    bytes = bytes.subspan(block.size());
  }
  return spool->finish();
}

}  // namespace

Result<OcsdBuffer> open_ocsd_buffer(const IniFile& trace, std::string_view section_name) {
  const IniSection* section = trace.find(section_name);
  if (section == nullptr || section->get("file").empty()) {
    return fail(Code::kBadSnapshot, trace.path(),
                section == nullptr ? Error::kNoOffset : section->file_offset,
                fmt::format("trace buffer {} has no section with its file", section_name));
  }
  OcsdBuffer out;
  out.name = section->get("name").empty() ? std::string(section_name) : std::string(section->get("name"));
  out.path = trace.resolve(section->get("file"));
  const std::string_view format = section->get("format");
  if (format != "coresight" && format != "dstream_coresight" && format != "source_data") {
    return fail(Code::kBadSnapshot, trace.path(), section->file_offset,
                fmt::format("trace buffer {} has the format \"{}\", which is not known", out.name, format));
  }
  auto file = FileBytes::open_part(out.path);
  if (!file) return std::unexpected(file.error());
  if (format == "dstream_coresight") {
    file = without_trailers((*file)->bytes());
    if (!file) return std::unexpected(file.error());
    out.alignment = FrameAlignment::kTpiu;
    out.section.payload = kBlock - kTrailer;
    out.section.trailer = kTrailer;
  }
  out.raw = format == "source_data";
  out.section.bytes = (*file)->bytes();
  out.section.mapped = true;
  out.owner = *file;
  return out;
}

}  // namespace asof
