#include "decoder/perf/trace_formats.h"

#include <algorithm>
#include <bit>
#include <charconv>

#include "decoder/io/reader.h"
#include "decoder/perf/trace_texts.h"

namespace asof {
namespace {

constexpr uint32_t kMostEvents = 1U << 16U;

// The value after `key` in a line like "field:u64 e;	offset:24;	size:8;	signed:0;".
std::string_view part(std::string_view line, std::string_view key) {
  const size_t at = line.find(key);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = line.substr(at + key.size());
  return rest.substr(0, std::min(rest.find(';'), rest.size()));
}

std::optional<uint32_t> number(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  uint32_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || status != std::errc()) return std::nullopt;
  return value;
}

// "unsigned long __probe_ip" -> "__probe_ip"; arrays keep their brackets, and so match no name.
std::string_view name_in(std::string_view declaration) {
  const size_t space = declaration.rfind(' ');
  return space == std::string_view::npos ? declaration : declaration.substr(space + 1);
}

std::optional<TraceEvent> read_event(std::string_view system, std::string_view text) {
  TraceEvent out;
  out.system = system;
  bool has_id = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.starts_with("name:")) out.name = name_in(line);
    if (line.starts_with("ID:")) {
      const auto id = number(line.substr(3));
      has_id = id.has_value();
      out.id = id.value_or(0);
    }
    const auto offset = number(part(line, "offset:")), size = number(part(line, "size:"));
    if (line.find("field:") == std::string_view::npos || !offset || !size) continue;
    out.fields.push_back(
        {std::string(name_in(part(line, "field:"))), *offset, *size, part(line, "signed:") == "1"});
  }
  if (!has_id) return std::nullopt;
  return out;
}

// A NUL-terminated name.
std::string_view read_name(Reader& in, std::span<const uint8_t> body) {
  const auto rest = body.subspan(in.pos());
  const auto end = std::find(rest.begin(), rest.end(), uint8_t{0});
  const auto size = static_cast<size_t>(end - rest.begin());
  in.skip(size + 1);
  return {reinterpret_cast<const char*>(rest.data()), size};
}

std::string_view as_text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

const TraceField* TraceEvent::field(std::string_view wanted) const {
  const auto hit =
      std::find_if(fields.begin(), fields.end(), [&](const TraceField& f) { return f.name == wanted; });
  return hit == fields.end() ? nullptr : &*hit;
}

std::optional<uint64_t> TraceEvent::value(std::initializer_list<std::string_view> names,
                                          std::span<const uint8_t> raw, bool swapped) const {
  const TraceField* found = nullptr;
  for (const std::string_view wanted : names) {
    if (found == nullptr) found = field(wanted);
  }
  if (found == nullptr) return std::nullopt;
  Reader in(raw, swapped);
  in.seek(found->offset);
  uint64_t value = 0;
  switch (found->size) {
    case 1:
      value = in.u8();
      break;
    case 2:
      value = in.u16();
      break;
    case 4:
      value = in.u32();
      break;
    case 8:
      value = in.u64();
      break;
    default:
      return std::nullopt;
  }
  if (!in.ok()) return std::nullopt;
  const unsigned unused = 64 - 8 * found->size;
  if (!found->is_signed || unused == 0) return value;
  return static_cast<uint64_t>(static_cast<int64_t>(value << unused) >> unused);
}

// "\x17\x08\x44tracing" version; byte order, size of long, page size; header_page and header_event; events of
// ftrace; then the systems.
TraceTexts read_trace_texts(std::span<const uint8_t> body) {
  TraceTexts out;
  Reader probe(body);
  if (probe.text(10) != "\x17\x08\x44tracing") return out;
  read_name(probe, body);
  out.big_endian = probe.u8() != 0;
  Reader in(body, out.big_endian != (std::endian::native == std::endian::big));
  in.seek(probe.pos());
  out.long_size = in.u8();
  out.page_size = in.u32();
  for (int i = 0; i < 2; ++i) {
    read_name(in, body);
    in.skip(in.u64());
  }
  for (uint32_t left = in.u32(); left != 0 && in.ok(); --left) in.skip(in.u64());
  for (uint32_t systems = in.u32(); systems != 0 && in.ok(); --systems) {
    const std::string_view system = read_name(in, body);
    for (uint32_t events = in.u32(); events != 0 && in.ok() && out.formats.size() < kMostEvents; --events)
      out.formats.push_back({system, as_text(in.take(in.u64()))});
  }
  return out;
}

std::vector<TraceEvent> read_trace_formats(std::span<const uint8_t> body) {
  std::vector<TraceEvent> out;
  for (const auto& [system, text] : read_trace_texts(body).formats) {
    if (auto event = read_event(system, text)) out.push_back(std::move(*event));
  }
  return out;
}

}  // namespace asof
