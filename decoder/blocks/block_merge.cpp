#include "decoder/blocks/block_merge.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "decoder/blocks/block_records.h"
#include "decoder/blocks/block_writer.h"
#include "decoder/io/in_order.h"

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

// The parts of one file, on a thread of its own.
class PartMerger::Reader {
 public:
  Reader(uint64_t identity, const std::string& path) : identity_(identity), path_(path) {}

  Result<PartsOfFile> read() {
    auto file = MappedFile::open(path_);
    if (!file) return std::unexpected(file.error());
    bytes_ = (*file)->bytes();
    if (bytes_.empty()) return refused(path_, 0, "an empty file");
    for (uint64_t at = 0; at < bytes_.size();) {
      const auto next = read_part(at);
      if (!next) return std::unexpected(next.error());
      at = *next;
    }
    return PartsOfFile{*file, std::move(parts_)};
  }

 private:
  // What the records of a part say of all of it.
  struct Seen {
    uint64_t flow = 0, end = 0;
    bool coverage = false, ended = false;
  };

  // The part at `at`, up to where the next one begins.
  Result<uint64_t> read_part(uint64_t at) {
    const auto head = part_at(bytes_, at);
    if (!head) return refused(path_, at, "no part of a block stream begins here");
    if (!head->usable())
      return refused(path_, at,
                     fmt::format("a part of version {}, this asof reads {}", head->version, kVersion));
    if (head->identity != identity_)
      return refused(path_, at, "a part of another recording, or of another plan of it");
    Part part{.coverage = {}, .file = path_, .offset = at, .bytes = {}};
    Seen seen{.end = at + head->size};
    while (!seen.ended) {
      if (auto ok = read_record(seen, part); !ok) return std::unexpected(ok.error());
    }
    part.bytes = bytes_.subspan(at, seen.end - at);
    if (seen.coverage)
      parts_.push_back(std::move(part));
    else if (seen.flow != 0)  // what an earlier merge put in front has none
      return refused(path_, at, "a block stream that was not decoded with --shard");
    return seen.end;
  }

  Result<void> read_record(Seen& seen, Part& part) {
    const auto record = head_at(bytes_, seen.end);
    if (!record) return refused(path_, seen.end, "the part has no end here: it was cut, or is damaged");
    const auto body = unpacker_.unpack(record->packed, record->raw);
    if (!body) return refused(path_, seen.end, "a record of the part is damaged");
    if (record->type == RecordType::kFlow) ++seen.flow;
    if (record->type == RecordType::kCoverage) {
      seen.coverage = take_coverage(*body, part.coverage);
      if (!seen.coverage) return refused(path_, seen.end, "what the part has is damaged");
    }
    if (record->type == RecordType::kEnd) {
      seen.ended = true;
      if (Source(*body).varint() != seen.flow)
        return refused(path_, seen.end, "records of the part are missing");
    }
    seen.end = record->end;
    return {};
  }

  const uint64_t identity_;
  const std::string& path_;
  std::span<const uint8_t> bytes_;
  Unpacker unpacker_;
  std::vector<Part> parts_;
};

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

std::vector<Result<void>> PartMerger::add(std::span<const std::string> paths) {
  std::vector<Result<void>> out;
  in_order(
      paths.size(), [&](size_t i) { return Reader(identity_, paths[i]).read(); },
      [&](Result<PartsOfFile> read) {
        out.push_back(read ? take(std::move(*read)) : std::unexpected(read.error()));
      });
  return out;
}

Result<void> PartMerger::take(PartsOfFile read) {
  const size_t repeated = repeated_;
  files_.push_back(std::move(read.file));
  for (Part& part : read.parts) {
    part.added = files_.size();
    const auto kept = keep(std::move(part));
    if (kept) continue;
    // Nothing of the file counts.
    std::erase_if(parts_, [&](const Part& p) { return p.added == files_.size(); });
    repeated_ = repeated;
    files_.pop_back();
    return kept;
  }
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
