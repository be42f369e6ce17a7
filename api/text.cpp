#include "asof/text.h"

#include <algorithm>
#include <string>

#include "api/capture_data.h"
#include "api/convert.h"
#include "textstore/text_image.h"

namespace asof::v0 {
namespace {

TextCell to_public(const asof::Cell& cell) {
  TextCell out{v0::to_public(cell.range), {}};
  out.versions.reserve(cell.versions.size());
  for (const asof::Version& v : cell.versions) {
    std::span<const uint8_t> bytes;
    if (v.bytes != nullptr) bytes = {v.bytes, cell.range.size()};
    out.versions.push_back({v.from, v.until, bytes, v.origin, v.unsure});
  }
  return out;
}

Symbol to_public(const asof::Symbol& s, uint64_t offset) {
  return {s.name, s.dso, s.space, v0::to_public(s.range), {s.from, s.until}, offset};
}

}  // namespace

Text::Text(std::shared_ptr<const CaptureData> data) : data_(std::move(data)) {}

Result<TextImage> Text::at(AddressRange range, Time time, Space space) const {
  if (range.end <= range.begin || range.end - range.begin > kMaxImage) {
    return std::unexpected(
        Error{text_of(Code::kBadOption), "", std::nullopt,
              "the range is empty or has more than " + std::to_string(kMaxImage) + " bytes", ""});
  }
  const asof::AddrRange asked{range.begin, range.end};
  const auto cells = text_of(*data_).cells(space, asked);
  asof::TextImage image = asof::image_at(cells, asked, time);
  std::vector<std::uint8_t> doubts(image.bytes.size());
  for (const asof::Cell& cell : cells) {
    const asof::AddrRange part = cell.range.intersect(asked);
    if (!part.empty() && asof::may_differ(cell, time))
      std::fill_n(doubts.begin() + static_cast<std::ptrdiff_t>(part.begin - asked.begin), part.size(), 1);
  }
  return TextImage{image.begin, std::move(image.bytes), std::move(image.origins), std::move(doubts)};
}

TextCell Text::cell(Address address, Space space) const {
  return to_public(text_of(*data_).cell(space, address));
}

std::vector<TextCell> Text::cells(AddressRange range, Space space) const {
  std::vector<TextCell> out;
  for (const asof::Cell& cell : text_of(*data_).cells(space, {range.begin, range.end}))
    out.push_back(to_public(cell));
  return out;
}

std::span<const TextChange> Text::changes() const { return data_->changes; }

std::optional<Symbol> Text::symbol(Address address, Time time, Space space) const {
  const auto found = data_->capture.symbols.find(space, address, time);
  if (!found) return std::nullopt;
  return to_public(*found->symbol, found->offset);
}

std::vector<Symbol> Text::symbols(std::string_view name) const {
  std::vector<Symbol> out;
  for (const asof::Symbol* s : data_->capture.symbols.named(name)) out.push_back(to_public(*s, 0));
  return out;
}

Source Text::source(SourceRef ref) const {
  const asof::TextStore& text = text_of(*data_);
  if (asof::is_poke(ref)) {
    if (asof::poke_index(ref) >= data_->changes.size()) return {};
    return {asof::is_before_poke(ref) ? SourceKind::kBeforePoke : SourceKind::kPoke,
            {},
            asof::poke_index(ref),
            {}};
  }
  if (ref == asof::kNoOrigin || ref > text.origin_count()) return {};
  const asof::Origin& o = text.origin(ref);
  return {v0::to_public(o.kind), o.name, o.id, o.build_id};
}

std::vector<Space> Text::spaces(int32_t pid) const {
  std::vector<Space> out;
  for (const asof::Stream& stream : data_->capture.streams) {
    for (const asof::ContextChange& change : stream.contexts) {
      if (change.pid == pid && change.space != asof::kNoSpace) out.push_back(change.space);
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace asof::v0
