// iptr (github.com/Evian-Zhang/iptr) with its features `cache` and `fuzz_bitmap`, through tests/bench/iptr/lib.rs.
#include <array>
#include <vector>

#include "tests/bench/coverage_peer.h"

extern "C" {
struct IptrText {
  uint64_t address, size;
  const uint8_t* bytes;
};
void* iptr_new(const IptrText* text, size_t count, size_t map_size);
int iptr_decode(void* analyzer, const uint8_t* bytes, size_t size, char* message, size_t room);
void iptr_free(void* analyzer);
}

namespace asof::bench {
namespace {

std::vector<IptrText> text_of(const Capture& capture) {
  std::vector<IptrText> all;
  for (const Cell& cell : capture.text->cells(user_space_of(capture), {0, Addr{1} << 63})) {
    if (cell.versions.empty() || cell.versions[0].bytes == nullptr) continue;
    all.push_back({cell.range.begin, cell.range.end - cell.range.begin, cell.versions[0].bytes});
  }
  return all;
}

class Iptr final : public CoveragePeer {
 public:
  explicit Iptr(const Capture& capture)
      : text_(text_of(capture)), analyzer_(iptr_new(text_.data(), text_.size(), kCoverageMap), iptr_free) {}

  std::string decode(std::span<uint8_t> trace) override {
    std::array<char, 256> message{};
    iptr_decode(analyzer_.get(), trace.data(), trace.size(), message.data(), message.size());
    return message.data();
  }

 private:
  std::vector<IptrText> text_;
  std::unique_ptr<void, void (*)(void*)> analyzer_;
};

}  // namespace

std::unique_ptr<CoveragePeer> new_iptr(const Capture& capture) { return std::make_unique<Iptr>(capture); }

}  // namespace asof::bench
