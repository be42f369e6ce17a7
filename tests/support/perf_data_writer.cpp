#include "tests/support/perf_data_writer.h"

#include <zstd.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>

#include "textstore/check.h"

namespace asof::test {

namespace {

constexpr uint32_t kFirstToolType = 64, kHeaderAttrType = 64, kAuxtraceType = 71, kHeaderFeatureType = 80,
                   kCompressedType = 81, kCompressed2Type = 83;
constexpr size_t kHeaderSize = 8, kMaxRecord = 0xffff;
constexpr uint64_t kFileHeaderSize = 104, kPipeHeaderSize = 16;
constexpr std::string_view kMagic = "PERFILE2";
constexpr int kAuxtraceFeature = 18, kCompressedFeature = 27;
constexpr uint32_t kCompressionLevel = 1;

// Bit fields are allocated from the other end on big-endian machines: bit n of the word is bit 63 - n there.
uint64_t mirrored_bits(uint64_t v) {
  uint64_t r = 0;
  for (unsigned byte = 0; byte < 8; ++byte) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      if (v >> (8 * byte + bit) & 1) r |= 1ULL << (8 * (7 - byte) + (7 - bit));
    }
  }
  return r;
}

}  // namespace

PerfDataWriter::PerfDataWriter(const Options& options) : options_(options) {}

size_t PerfDataWriter::add_attr(AttrSpec attr) {
  attrs_.push_back(std::move(attr));
  return attrs_.size() - 1;
}

uint64_t PerfDataWriter::id_of(const Trailer& t) const {
  if (!t.has_id || t.attr >= attrs_.size()) return 0;
  const auto& ids = attrs_[t.attr].ids;
  if (ids.empty()) return 0;
  return ids[t.cpu < ids.size() ? t.cpu : 0];
}

void PerfDataWriter::put_trailer(ByteSink& s, const Trailer& t) const {
  if (attrs_.empty()) return;
  const AttrSpec& a = attrs_[t.attr < attrs_.size() ? t.attr : 0];
  if ((a.flags & attr_flag::kSampleIdAll) == 0) return;
  const uint64_t id = id_of(t);
  if (a.sample_type & sample::kTid) s.u32(static_cast<uint32_t>(t.pid)), s.u32(static_cast<uint32_t>(t.tid));
  if (a.sample_type & sample::kTime) s.u64(t.time);
  if (a.sample_type & sample::kId) s.u64(id);
  if (a.sample_type & sample::kStreamId) s.u64(id);
  if (a.sample_type & sample::kCpu) s.u32(t.cpu), s.u32(0);
  if (a.sample_type & sample::kIdentifier) s.u64(id);
}

void PerfDataWriter::emit(uint32_t type, uint16_t misc, const ByteSink& body,
                          std::optional<Trailer> trailer) {
  ByteSink s(options_.big_endian);
  s.u32(type);
  s.u16(misc);
  s.u16(0);
  s.raw(body.bytes());
  if (trailer) put_trailer(s, *trailer);
  ASOF_CHECK(s.size() <= kMaxRecord);
  s.patch(6, s.size(), 2);
  items_.push_back({type, std::move(s).take(), {}, false});
}

void PerfDataWriter::record(uint32_t type, uint16_t misc, std::span<const uint8_t> content,
                            const Trailer* trailer) {
  ByteSink s = body();
  s.raw(content);
  emit(type, misc, s, trailer ? std::optional(*trailer) : std::nullopt);
}

void PerfDataWriter::raw(std::span<const uint8_t> bytes) {
  items_.push_back({0, {bytes.begin(), bytes.end()}, {}, true});
}

// zstd context for the lifetime of one stream: perf keeps it between records.
std::vector<PerfDataWriter::Item> PerfDataWriter::compressed(const std::vector<Item>& items) const {
  if (options_.compression == Compression::kNone) return items;
  const std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> ctx(ZSTD_createCCtx(), ZSTD_freeCCtx);
  ZSTD_CCtx_setParameter(ctx.get(), ZSTD_c_compressionLevel, static_cast<int>(kCompressionLevel));
  std::vector<Item> out;
  std::vector<uint8_t> waiting;
  const auto give = [&](size_t count) {
    std::vector<uint8_t> packed(ZSTD_compressBound(count) + 64);
    ZSTD_inBuffer in{waiting.data(), count, 0};
    ZSTD_outBuffer dst{packed.data(), packed.size(), 0};
    ASOF_CHECK(ZSTD_compressStream2(ctx.get(), &dst, &in, ZSTD_e_flush) == 0 && in.pos == count);
    packed.resize(dst.pos);
    waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(count));
    const bool v2 = options_.compression == Compression::kRecord83;
    ByteSink s(options_.big_endian);
    s.u32(v2 ? kCompressed2Type : kCompressedType), s.u16(0), s.u16(0);
    if (v2) s.u64(packed.size());
    s.raw(packed);
    if (v2) s.align(8);
    ASOF_CHECK(s.size() <= kMaxRecord);
    s.patch(6, s.size(), 2);
    out.push_back({kCompressedType, std::move(s).take(), {}, true});
  };
  for (const Item& item : items) {
    if (!item.raw && item.type < kFirstToolType) {
      waiting.insert(waiting.end(), item.record.begin(), item.record.end());
      while (waiting.size() >= options_.compressed_block) give(options_.compressed_block);
    } else {
      if (!waiting.empty()) give(waiting.size());
      out.push_back(item);
    }
  }
  if (!waiting.empty()) give(waiting.size());
  return out;
}

std::vector<uint8_t> PerfDataWriter::compression_feature() const {
  ByteSink s(options_.big_endian);
  s.u32(1), s.u32(1), s.u32(kCompressionLevel), s.u32(1);
  s.u32(512 * 1024);  // perf sizes its output blocks by this
  return std::move(s).take();
}

void PerfDataWriter::put_attr(ByteSink& s, const AttrSpec& a) const {
  ByteSink t(options_.big_endian);
  t.u32(a.type), t.u32(a.size), t.u64(a.config), t.u64(a.sample_period), t.u64(a.sample_type),
      t.u64(a.read_format);
  t.u64(options_.big_endian ? mirrored_bits(a.flags) : a.flags);
  t.zeros(112 - t.size());
  t.u32(a.aux_sample_size);
  t.zeros(a.size > t.size() ? a.size - t.size() : 0);
  s.raw(std::span(t.bytes()).first(a.size));
}

std::vector<uint8_t> PerfDataWriter::file_bytes() const {
  const std::vector<Item> items = compressed(items_);
  auto features = features_;
  if (options_.compression != Compression::kNone) features[kCompressedFeature] = compression_feature();

  ByteSink s(options_.big_endian);
  s.zeros(kFileHeaderSize);
  std::vector<uint64_t> id_offsets;
  for (const AttrSpec& a : attrs_) {
    id_offsets.push_back(s.size());
    for (const uint64_t id : a.ids) s.u64(id);
  }
  const uint64_t attrs_at = s.size();
  for (size_t i = 0; i < attrs_.size(); ++i) {
    put_attr(s, attrs_[i]);
    s.u64(id_offsets[i]), s.u64(attrs_[i].ids.size() * 8);
  }
  const uint64_t data_at = s.size();
  ByteSink index(options_.big_endian);
  uint64_t buffers = 0;
  for (const Item& item : items) {
    if (item.type == kAuxtraceType && !item.raw) {
      index.u64(s.size()), index.u64(item.record.size());
      ++buffers;
    }
    s.raw(item.record);
    s.raw(item.payload);
  }
  const uint64_t data_end = s.size();
  if (options_.auxtrace_index && buffers > 0) {
    ByteSink f(options_.big_endian);
    f.u64(buffers), f.raw(index.bytes());
    features[kAuxtraceFeature] = std::move(f).take();
  }

  const uint64_t table_at = s.size();
  s.zeros(features.size() * 16);
  std::array<uint64_t, 4> bitmap{};
  size_t slot = table_at;
  for (const auto& [bit, content] : features) {
    s.patch(slot, s.size(), 8), s.patch(slot + 8, content.size(), 8);
    slot += 16;
    s.raw(content);
    bitmap[static_cast<size_t>(bit) / 64] |= 1ULL << (bit % 64);
  }

  ByteSink h(options_.big_endian);
  // perf determines the byte order by this number; as text it is reversed in a file of the other byte order.
  uint64_t magic = 0;
  for (size_t i = 8; i-- > 0;) magic = magic << 8 | static_cast<uint8_t>(kMagic[i]);
  h.u64(magic);
  h.u64(kFileHeaderSize);
  h.u64((attrs_.empty() ? 128 : attrs_.front().size) + 16);
  h.u64(attrs_at), h.u64(data_at - attrs_at);
  h.u64(data_at), h.u64(data_end - data_at);
  h.u64(0), h.u64(0);
  for (const uint64_t word : bitmap) h.u64(word);
  std::vector<uint8_t> out = std::move(s).take();
  std::copy(h.bytes().begin(), h.bytes().end(), out.begin());
  return out;
}

std::vector<uint8_t> PerfDataWriter::pipe_bytes() const {
  ByteSink s(options_.big_endian);
  uint64_t magic = 0;
  for (size_t i = 8; i-- > 0;) magic = magic << 8 | static_cast<uint8_t>(kMagic[i]);
  s.u64(magic), s.u64(kPipeHeaderSize);
  const auto put = [&](uint32_t type, const ByteSink& content) {
    ASOF_CHECK(content.size() + kHeaderSize <= kMaxRecord);
    s.u32(type), s.u16(0), s.u16(static_cast<uint16_t>(content.size() + kHeaderSize));
    s.raw(content.bytes());
  };
  for (const AttrSpec& a : attrs_) {
    ByteSink b(options_.big_endian);
    put_attr(b, a);
    for (const uint64_t id : a.ids) b.u64(id);
    put(kHeaderAttrType, b);
  }
  auto features = features_;
  if (options_.compression != Compression::kNone) features[kCompressedFeature] = compression_feature();
  for (const auto& [bit, content] : features) {
    ByteSink b(options_.big_endian);
    b.u64(static_cast<uint64_t>(bit));
    b.raw(content);
    b.align(8);
    put(kHeaderFeatureType, b);
  }
  for (const Item& item : compressed(items_)) s.raw(item.record), s.raw(item.payload);
  return std::move(s).take();
}

void PerfDataWriter::write_file(const std::filesystem::path& path) const { write_bytes(path, file_bytes()); }
void PerfDataWriter::write_pipe(const std::filesystem::path& path) const { write_bytes(path, pipe_bytes()); }

void PerfDataWriter::write_directory(const std::filesystem::path& path, const DirectoryParts& parts) const {
  write_bytes(path / "data", file_bytes());
  if (parts.kcore.empty() && parts.kallsyms.empty()) return;
  if (!parts.kcore.empty()) write_bytes(path / "kcore_dir/kcore", parts.kcore);
  write_text(path / "kcore_dir/kallsyms", parts.kallsyms);
  write_text(path / "kcore_dir/modules", parts.modules);
}

void write_bytes(const std::filesystem::path& path, std::span<const uint8_t> bytes) {
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  ASOF_CHECK(out.good());
}

void write_text(const std::filesystem::path& path, std::string_view text) {
  write_bytes(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

std::vector<uint8_t> read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;  // much faster than by iterators where the tests are not optimised
  text << in.rdbuf();
  const std::string_view bytes = text.view();
  return {bytes.begin(), bytes.end()};
}

}  // namespace asof::test
