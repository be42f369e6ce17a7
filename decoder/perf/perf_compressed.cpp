#include "decoder/perf/perf_compressed.h"

#include <fmt/format.h>

#include <array>

#include "decoder/io/zstd.h"

namespace asof::perf {
namespace {

constexpr std::array<uint8_t, 4> kFrameMagic = {0x28, 0xb5, 0x2f, 0xfd};

bool starts_frame(std::span<const uint8_t> packed) {
  return packed.size() >= kFrameMagic.size() &&
         std::equal(kFrameMagic.begin(), kFrameMagic.end(), packed.begin());
}

}  // namespace

void Unpacker::FreeContext::operator()(ZSTD_DCtx_s* context) const { ZSTD_freeDCtx(context); }

Unpacker::Unpacker(std::string path, NoticeList& notices) : path_(std::move(path)), notices_(notices) {}
Unpacker::~Unpacker() = default;

void Unpacker::lose() {
  if (!chunks_.empty()) lost_ = true;
}

void Unpacker::damaged(uint64_t file_offset, Code code, std::string reason, std::string hint) {
  Notice notice;
  notice.severity = Notice::Severity::kError;
  notice.code = code;
  notice.where = path_;
  notice.offset = file_offset;
  notice.reason = std::move(reason);
  notice.hint = std::move(hint);
  notices_.add(std::move(notice));
}

Result<void> Unpacker::feed(uint32_t type, std::span<const uint8_t> packed, uint64_t file_offset) {
  if (!spool_) {
    auto spool = Spool::create();
    if (!spool) return std::unexpected(spool.error());
    spool_.emplace(std::move(*spool));
    context_.reset(zstd::unpacker().release());
    buffer_.resize(ZSTD_DStreamOutSize());
  }
  const uint64_t before = spool_->size();
  Unpacked::Chunk chunk{type, file_offset, before, false};
  if (lost_ && starts_frame(packed)) {
    ZSTD_DCtx_reset(context_.get(), ZSTD_reset_session_only);
    lost_ = false;
    chunk.fresh = true;
  }
  packed_bytes_ += packed.size();
  if (lost_) {
    damaged(file_offset, Code::kBadCompressedRecord,
            "COMPRESSED record skipped: the zstd stream it continues is damaged before it",
            "the records in it are lost");
  } else if (!stopped_) {
    if (auto done = unpack(packed, file_offset); !done) return done;
  }
  chunk.end = spool_->size();
  chunks_.push_back(chunk);
  return {};
}

Result<void> Unpacker::unpack(std::span<const uint8_t> packed, uint64_t file_offset) {
  const uint64_t limit = kFreeBytes + packed_bytes_ * kMaxRatio;
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  for (;;) {
    ZSTD_outBuffer out{buffer_.data(), buffer_.size(), 0};
    const size_t in_before = in.pos;
    const size_t left = ZSTD_decompressStream(context_.get(), &out, &in);
    if (zstd::failed(left)) {
      lost_ = true;
      damaged(file_offset, Code::kBadCompressedRecord,
              fmt::format("COMPRESSED record: zstd says: {}", ZSTD_getErrorName(left)),
              "records in it, and up to the next zstd frame, are lost");
      return {};
    }
    if (spool_->size() + out.pos > limit) {
      stopped_ = true;
      damaged(file_offset, Code::kCompressedTooLarge,
              fmt::format("COMPRESSED records of {} bytes unpack to more than {}: unpacking stops here",
                          packed_bytes_, limit),
              "the file is damaged or made to fill the disk");
      return {};
    }
    if (auto done = spool_->append(std::span(buffer_).first(out.pos)); !done) return done;
    // A full output buffer may mean that more is waiting even though all input is taken.
    const bool stuck = in.pos == in_before && out.pos == 0;
    if (stuck || (in.pos == in.size && out.pos < out.size)) return {};
  }
}

Result<Unpacked> Unpacker::finish() {
  Unpacked result;
  if (!spool_) return result;
  auto file = spool_->finish();
  if (!file) return std::unexpected(file.error());
  result.file = *file;
  result.chunks = std::move(chunks_);
  return result;
}

}  // namespace asof::perf
