// BPF_PROG_INFO and BPF_BTF: the images of BPF programs as perf read them while recording.
// tools/perf/util/header.c (process_bpf_prog_info), tools/lib/perf or tools/lib/bpf bpf-utils.h (perf_bpil),
// include/uapi/linux/bpf.h (struct bpf_prog_info).
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "decoder/perf/perf_data_impl.h"

namespace asof {
namespace {

constexpr uint64_t kArrayJitedInsns = 1U << 0, kArrayKsyms = 1U << 3, kArrayFuncLens = 1U << 4;

// One array of the block's data, named by a count and an offset field of bpf_prog_info. Empty when it is not
// there.
class Block {
 public:
  Block(std::span<const uint8_t> info, std::span<const uint8_t> data, uint64_t arrays, bool swapped)
      : info_(info), data_(data), arrays_(arrays), swapped_(swapped) {}

  // A shorter bpf_prog_info of an older recorder lacks the last fields: zero.
  uint32_t u32_at(size_t at) const {
    Reader in(info_, swapped_);
    in.seek(at);
    return in.left() >= sizeof(uint32_t) ? in.u32() : 0;
  }
  uint64_t u64_at(size_t at) const {
    Reader in(info_, swapped_);
    in.seek(at);
    return in.u64_or(0);
  }
  std::optional<std::span<const uint8_t>> array(uint64_t bit, size_t count_at, size_t offset_at,
                                                uint64_t size) const {
    if ((arrays_ & bit) == 0) return std::span<const uint8_t>();
    const uint64_t length = u32_at(count_at) * size, offset = u64_at(offset_at);
    if (offset > data_.size() || length > data_.size() - offset) return std::nullopt;
    return data_.subspan(offset, length);
  }
  std::span<const uint8_t> info() const { return info_; }

 private:
  std::span<const uint8_t> info_, data_;
  uint64_t arrays_;
  bool swapped_;
};

// Fields of struct bpf_prog_info.
enum Field : size_t {
  kId = 4,
  kTag = 8,
  kJitedLen = 16,
  kJitedInsns = 24,
  kName = 64,
  kNrKsyms = 104,
  kNrFuncLens = 108,
  kKsyms = 112,
  kFuncLens = 120,
};

// Returns what is wrong with it, or nullptr.
const char* split_functions(const Block& block, bool swapped, BpfImage& image) {
  const auto code = block.array(kArrayJitedInsns, kJitedLen, kJitedInsns, 1);
  const auto addresses = block.array(kArrayKsyms, kNrKsyms, kKsyms, sizeof(uint64_t));
  const auto lengths = block.array(kArrayFuncLens, kNrFuncLens, kFuncLens, sizeof(uint32_t));
  if (!code || !addresses || !lengths) return "an array lies outside its data";
  Reader addresses_in(*addresses, swapped), lengths_in(*lengths, swapped), code_in(*code);
  // Kernels before 4.18 give no lengths: then there is one function.
  if (lengths->empty() && addresses->size() == sizeof(uint64_t)) {
    image.functions.push_back({addresses_in.u64(), *code});
    return nullptr;
  }
  while (addresses_in.left() != 0 && lengths_in.left() != 0) {
    const auto bytes = code_in.take(lengths_in.u32());
    if (!code_in.ok()) return code->empty() ? nullptr : "its functions are longer than its code";
    image.functions.push_back({addresses_in.u64(), bytes});
  }
  return addresses_in.left() != lengths_in.left() ? "it has not as many lengths as addresses of functions"
                                                  : nullptr;
}

}  // namespace

void PerfData::Impl::read_bpf_images() {
  const auto it = features.find(perf::kFeatureBpfProgInfo);
  if (it == features.end()) return;
  const auto& body = it->second;
  Reader in = reader(body.bytes);
  const uint32_t count = in.u32();
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t at = body.file_offset + in.pos();
    const uint32_t info_size = in.u32(), data_size = in.u32();
    const uint64_t arrays = in.u64();
    const auto info = in.take(info_size);
    const auto data = in.take(data_size);
    if (!in.ok()) {
      note(Notice::Severity::kError, Code::kBadFeature, path, at,
           fmt::format("feature BPF_PROG_INFO ends in program {} of {}", i + 1, count),
           "code of the programs after it is unknown");
      return;
    }
    const Block block(info, data, arrays, swapped);
    BpfImage image;
    image.file_offset = at;
    image.id = block.u32_at(kId);
    Reader fields = reader(info);
    fields.seek(kTag);
    const auto tag = fields.take(image.tag.size());
    std::copy(tag.begin(), tag.end(), image.tag.begin());
    fields.seek(kName);
    image.name = fields.text(std::min<size_t>(16, fields.left()));
    if (const char* wrong = split_functions(block, swapped, image); wrong != nullptr) {
      note(Notice::Severity::kError, Code::kBadFeature, path, at,
           fmt::format("feature BPF_PROG_INFO, program id {}: {}", image.id, wrong),
           fmt::format("{} of its functions are used", image.functions.size()));
    }
    bpf_images.push_back(std::move(image));
  }
}

void PerfData::Impl::read_bpf_btf() {
  const auto it = features.find(perf::kFeatureBpfBtf);
  if (it == features.end()) return;
  Reader in = reader(it->second.bytes);
  for (uint32_t left = in.u32(); left != 0; --left) {
    const uint64_t at = it->second.file_offset + in.pos();
    const uint32_t id = in.u32();
    const auto bytes = in.take(in.u32());
    if (!in.ok()) {
      note(Notice::Severity::kError, Code::kBadFeature, path, at,
           fmt::format("feature BPF_BTF ends {} entries early", left));
      return;
    }
    bpf_btf.emplace_back(id, bytes);
  }
}

}  // namespace asof
