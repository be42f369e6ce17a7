#include "decoder/user_text/jitdump.h"

#include <fmt/format.h>

#include <charconv>
#include <unordered_map>

#include "decoder/io/reader.h"

namespace asof {
namespace {

constexpr uint32_t kMagic = 0x4a695444, kMagicSwapped = 0x4454694a;  // "JiTD"
constexpr uint32_t kVersion = 1;
constexpr uint64_t kHeaderSize = 40, kRecordHeaderSize = 16;
enum : uint32_t { kCodeLoad, kCodeMove, kDebugInfo, kCodeClose, kUnwindingInfo };

}  // namespace

int64_t jitdump_pid(std::string_view path) {
  path.remove_prefix(std::min(path.rfind('/') + 1, path.size()));
  constexpr std::string_view kPrefix = "jit-", kSuffix = ".dump";
  if (!path.starts_with(kPrefix) || !path.ends_with(kSuffix)) return -1;
  path = path.substr(kPrefix.size(), path.size() - std::min(path.size(), kPrefix.size() + kSuffix.size()));
  uint32_t pid = 0;
  const auto r = std::from_chars(path.data(), path.data() + path.size(), pid);
  const bool whole = r.ec == std::errc() && r.ptr == path.data() + path.size();
  return whole && pid <= INT32_MAX ? int64_t{pid} : -1;
}

Result<std::unique_ptr<const JitDump>> JitDump::load(const std::string& path, NoticeBook& notices) {
  auto file = MappedFile::open(path);
  if (!file) return std::unexpected(file.error());
  std::unique_ptr<JitDump> out(new JitDump());
  out->file_ = *file;
  const auto bytes = (*file)->bytes();
  const uint32_t magic = Reader(bytes).u32();
  const bool swap = magic == kMagicSwapped;
  Reader r(bytes, swap);
  const bool known = r.u32() == kMagic;
  const uint32_t version = r.u32();
  const uint32_t header_size = r.u32();
  out->machine_ = r.u32();
  r.u32();  // padding
  out->pid_ = r.u32();
  r.u64();  // when the file was made
  out->flags_ = r.u64();
  if (!known || !r.ok() || version != kVersion || header_size < kHeaderSize || header_size > bytes.size()) {
    return fail(Code::kNotJitdump, path, 0,
                !known || !r.ok()
                    ? "no jitdump file"
                    : fmt::format("a jitdump of version {} with a header of {} bytes", version, header_size),
                "the JIT must write jitdump version 1");
  }
  out->read_records(header_size, swap, notices);
  return out;
}

void JitDump::read_records(uint64_t begin, bool swap, NoticeBook& notices) {
  const auto bytes = file_->bytes();
  std::unordered_map<uint64_t, size_t> by_index;
  const auto damaged = [&](uint64_t at, const std::string& why) {
    notices.error(Code::kBadJitdump, path(), why + "; the rest of the file is not used",
                  "a JIT that was killed while it wrote leaves such an end", at);
  };
  for (uint64_t at = begin; at < bytes.size();) {
    Reader head(bytes.subspan(at), swap);
    const uint32_t id = head.u32();
    const uint32_t size = head.u32();
    const uint64_t timestamp = head.u64();
    if (!head.ok()) return damaged(at, "the file ends inside a record");
    if (size < kRecordHeaderSize || size > bytes.size() - at)
      return damaged(at, fmt::format("a record of {} bytes", size));
    Reader r(bytes.subspan(at + kRecordHeaderSize, size - kRecordHeaderSize), swap);
    const uint64_t offset = at;
    at += size;
    if (id != kCodeLoad && id != kCodeMove) continue;  // debug and unwind information, close, later kinds
    JitCode code;
    code.timestamp = timestamp;
    code.file_offset = offset;
    r.skip(8);  // pid, tid: the process is that of the file
    const Addr vma = r.u64();
    code.moved_from = r.u64();
    const Addr new_address = id == kCodeMove ? r.u64() : vma;
    const uint64_t code_size = r.u64();
    code.index = r.u64();
    code.range = range_of(new_address, code_size);
    if (id == kCodeLoad) {
      // The address where it runs; both fields are equal for every JIT, except those that write elsewhere.
      code.range = range_of(code.moved_from, code_size);
      code.moved_from = 0;
      code.name = r.text(r.left() - std::min<uint64_t>(code_size, r.left()));
      code.bytes = r.take(code_size);  // at the end of the record
    } else {
      code.kind = JitCode::Kind::kMove;
      if (const auto load = by_index.find(code.index); load != by_index.end()) {
        code.name = code_[load->second].name;
        if (code_[load->second].bytes.size() == code_size) code.bytes = code_[load->second].bytes;
      }
    }
    if (!r.ok() || code_size == 0 || code.range.size() != code_size ||
        is_kernel_address(code.range.end - 1)) {
      notices.error(Code::kBadJitdumpRecord, path(),
                    fmt::format("a record about {} bytes at {:#x} cannot be true; left out", code_size,
                                code.range.begin),
                    "", offset);
      continue;
    }
    if (code.kind == JitCode::Kind::kLoad) by_index[code.index] = code_.size();
    code_.push_back(code);
  }
}

}  // namespace asof
