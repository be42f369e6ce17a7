// The C interface: text at a time.
#include "api/c_support.h"

using namespace asof::c;

namespace {

// Calls use(image); SIZE_MAX: there is none, and why is in `error`.
template <typename Use>
size_t with_image(const char* function, const asof_capture* capture, uint64_t address, size_t size,
                  int64_t time, uint32_t space, const void* room, asof_error** error, Use use) {
  return guarded(error, SIZE_MAX, [&]() -> size_t {
    const v0::AddressRange range{address, size > UINT64_MAX - address ? UINT64_MAX : address + size};
    if (capture == nullptr || room == nullptr || range.end - range.begin != size) {
      bad_value(error, function, "no capture, no room, or a range past the last address");
      return SIZE_MAX;
    }
    auto image = capture->text.at(range, time, space);
    if (!image) {
      set_error(error, std::move(image.error()));
      return SIZE_MAX;
    }
    return use(*image);
  });
}

}  // namespace

size_t asof_text_at(const asof_capture* capture, uint64_t address, size_t size, int64_t time, uint32_t space,
                    uint8_t* bytes, uint32_t* sources, asof_error** error) {
  return with_image(
      "asof_text_at", capture, address, size, time, space, bytes, error, [&](const v0::TextImage& image) {
        std::copy(image.bytes.begin(), image.bytes.end(), bytes);
        if (sources != nullptr) std::copy(image.sources.begin(), image.sources.end(), sources);
        const auto unknown = std::find(image.sources.begin(), image.sources.end(), v0::SourceRef{0});
        return static_cast<size_t>(unknown - image.sources.begin());
      });
}

size_t asof_text_doubts(const asof_capture* capture, uint64_t address, size_t size, int64_t time,
                        uint32_t space, uint8_t* doubts, asof_error** error) {
  return with_image("asof_text_doubts", capture, address, size, time, space, doubts, error,
                    [&](const v0::TextImage& image) {
                      std::copy(image.doubts.begin(), image.doubts.end(), doubts);
                      return static_cast<size_t>(std::count(image.doubts.begin(), image.doubts.end(), 1));
                    });
}

asof_status asof_source_at(const asof_capture* capture, uint32_t ref, asof_source* out) {
  const v0::Source s = capture->text.source(ref);
  if (s.kind == v0::SourceKind::kUnknown) return ASOF_END;
  return write_struct<asof_source>(
             {sizeof(asof_source), c_string(v0::name(s.kind)), c_string(s.name), c_string(s.build_id), s.id},
             out)
             ? ASOF_OK
             : ASOF_FAILED;
}

size_t asof_change_count(const asof_capture* c) { return c->text.changes().size(); }
asof_status asof_change_at(const asof_capture* c, size_t index, asof_change* out) {
  return element(c->text.changes(), index, out, [](const v0::TextChange& p) {
    return asof_change{sizeof(asof_change), p.address,         p.time, p.old_bytes.data(), p.old_bytes.size(),
                       p.new_bytes.data(),  p.new_bytes.size()};
  });
}

const char* asof_symbol_at(const asof_capture* capture, uint64_t address, int64_t time, uint32_t space,
                           uint64_t* offset) {
  const auto symbol = capture->text.symbol(address, time, space);
  if (!symbol) return nullptr;
  if (offset != nullptr) *offset = symbol->offset;
  return c_string(symbol->name);
}
