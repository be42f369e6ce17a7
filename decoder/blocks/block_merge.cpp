#include "decoder/blocks/block_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "decoder/blocks/block_records.h"
#include "decoder/blocks/block_writer.h"

namespace asof::blocks {
namespace {

std::unexpected<Error> refused(const std::string& file, uint64_t offset, std::string reason) {
  return fail(Code::kPartRefused, file, offset, std::move(reason),
              "remove it, decode its shard again, and merge what there is then");
}

// By where in the trace they begin; those with nothing come first.
bool before(const PartCoverage& a, const PartCoverage& b) {
  const auto key = [](const PartCoverage& c) {
    const StreamRange first = c.ranges.empty() ? StreamRange{} : c.ranges.front();
    return std::tuple(!c.ranges.empty(), first.stream, first.begin, first.end, c.shard.count, c.shard.index);
  };
  return key(a) < key(b);
}

}  // namespace

// The part at `at`, up to where the next one begins.
Result<uint64_t> PartMerger::read_part(const std::string& path, std::span<const uint8_t> bytes, uint64_t at) {
  const auto head = part_at(bytes, at);
  if (!head) return refused(path, at, "no part of a block stream begins here");
  if (!head->usable())
    return refused(path, at,
                   fmt::format("a part of version {}, this asof reads {}", head->version, kVersion));
  if (head->identity != identity_)
    return refused(path, at, "a part of another recording, or of another plan of it");
  Part part;
  part.file = path;
  part.offset = at;
  uint64_t flow = 0;
  bool has_coverage = false, ended = false;
  uint64_t end = at + head->size;
  while (!ended) {
    const auto record = head_at(bytes, end);
    if (!record) return refused(path, end, "the part has no end here: it was cut, or is damaged");
    const auto body = unpack(record->packed, record->raw);
    if (!body) return refused(path, end, "a record of the part is damaged");
    if (record->type == RecordType::kFlow) ++flow;
    if (record->type == RecordType::kCoverage) {
      has_coverage = take_coverage(*body, part.coverage);
      if (!has_coverage) return refused(path, end, "what the part has is damaged");
    }
    if (record->type == RecordType::kEnd) {
      ended = true;
      if (Source(*body).varint() != flow) return refused(path, end, "records of the part are missing");
    }
    end = record->end;
  }
  part.bytes = bytes.subspan(at, end - at);
  if (!has_coverage) {
    // What an earlier merge put in front; a block stream that is no part has flow.
    if (flow != 0) return refused(path, at, "a block stream that was not decoded with --shard");
    return end;
  }
  if (auto ok = keep(std::move(part)); !ok) return std::unexpected(ok.error());
  return end;
}

Result<void> PartMerger::keep(Part part) {
  const auto at = std::ranges::lower_bound(parts_, part.coverage, before, &Part::coverage);
  if (at != parts_.end() && at->coverage.shard == part.coverage.shard) {
    if (!std::ranges::equal(at->bytes, part.bytes)) {
      return refused(part.file, part.offset,
                     fmt::format("shard {}/{} differs from that in {}", part.coverage.shard.index,
                                 part.coverage.shard.count, at->file));
    }
    ++repeated_;
    return {};
  }
  if (!parts_.empty() && parts_.front().coverage.options != part.coverage.options)
    return refused(
        part.file, part.offset,
        fmt::format("decoded with another --text-at, --engine or --calls than {}", parts_.front().file));
  parts_.insert(at, std::move(part));
  return {};
}

Result<void> PartMerger::add(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file) return std::unexpected(file.error());
  const auto bytes = (*file)->bytes();
  if (bytes.empty()) return refused(path, 0, "an empty file");
  const std::vector<Part> before = parts_;
  const size_t repeated = repeated_;
  for (uint64_t at = 0; at < bytes.size();) {
    const auto next = read_part(path, bytes, at);
    if (!next) {  // nothing of the file counts
      parts_ = before;
      repeated_ = repeated;
      return std::unexpected(next.error());
    }
    at = *next;
  }
  files_.push_back(*file);
  return {};
}

std::vector<Shard> PartMerger::missing() const {
  std::vector<Shard> out;
  std::set<uint32_t> there;
  for (const Part& p : parts_) {
    if (p.coverage.shard.count != parts_.front().coverage.shard.count) return out;
    there.insert(p.coverage.shard.index);
  }
  if (parts_.empty()) return out;
  const uint32_t count = parts_.front().coverage.shard.count;
  for (uint32_t i = 0; i < count; ++i) {
    if (!there.contains(i)) out.push_back({i, count});
  }
  return out;
}

void PartMerger::write(const Capture& capture, const Write& write) const {
  BlockWriter(capture, write).finish();
  for (const Part& p : parts_) write(p.bytes);
}

}  // namespace asof::blocks
