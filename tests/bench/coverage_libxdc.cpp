// libxdc (github.com/nyx-fuzz/libxdc), with pages from a sorted table.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

extern "C" {
#include <libxdc.h>
}

#include "tests/bench/coverage_peer.h"

namespace asof::bench {
namespace {

constexpr size_t kPage = 4096;

// Whole pages of the text, as libxdc asks for them.
class Pages {
 public:
  explicit Pages(const Capture& capture) : text_(*capture.text), space_(user_space_of(capture)) {}

  void* page(uint64_t address) {
    const uint64_t at = address & ~(kPage - 1);
    auto& page = pages_[at];
    if (!page && !missing_.contains(at)) page = read(at);
    if (!page) missing_[at] = true;
    return page.get();
  }

 private:
  std::unique_ptr<uint8_t[]> read(uint64_t at) const {
    auto page = std::make_unique<uint8_t[]>(kPage);
    bool any = false;
    for (uint64_t a = at; a < at + kPage;) {
      const Cell cell = text_.cell(space_, a);
      const uint64_t end = std::min(at + kPage, cell.range.end);
      if (!cell.versions.empty() && cell.versions[0].bytes != nullptr) {
        std::copy_n(cell.versions[0].bytes + (a - cell.range.begin), end - a, page.get() + (a - at));
        any = true;
      }
      a = end;
    }
    return any ? std::move(page) : nullptr;
  }

  const TextStore& text_;
  const Space space_;
  std::map<uint64_t, std::unique_ptr<uint8_t[]>> pages_;
  std::map<uint64_t, bool> missing_;
};

void* fetch(void* pages, uint64_t address, bool* success) {
  void* const page = static_cast<Pages*>(pages)->page(address);
  *success = page != nullptr;
  return page;
}

class Libxdc final : public CoveragePeer {
 public:
  explicit Libxdc(const Capture& capture)
      : pages_(capture),
        map_(kCoverageMap),
        decoder_(libxdc_init(filter_, fetch, &pages_, map_.data(), map_.size()), libxdc_free) {}

  std::string decode(std::span<uint8_t> trace) override {
    std::fill_n(trace.data() + trace.size(), kPadding, uint8_t{PT_TRACE_END});
    const auto code = libxdc_decode(decoder_.get(), trace.data(), trace.size());
    return code == decoder_success ? "" : fmt::format("code {}", std::to_underlying(code));
  }

 private:
  uint64_t filter_[4][2] = {{kPage, 0x7fffffffffff}};
  Pages pages_;
  std::vector<uint8_t> map_;
  std::unique_ptr<libxdc_t, void (*)(libxdc_t*)> decoder_;
};

}  // namespace

std::unique_ptr<CoveragePeer> new_libxdc(const Capture& capture) { return std::make_unique<Libxdc>(capture); }

}  // namespace asof::bench
