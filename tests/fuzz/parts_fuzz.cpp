// Parts of a decoded recording, to be merged: refused by name, or one file that opens.
#include "decoder/blocks/block_file.h"
#include "decoder/blocks/block_merge.h"
#include "decoder/blocks/block_records.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/record_mutator.h"

FUZZ_MUTATES_RECORDS

FUZZ_TARGET(parts) {
  const auto files = asof::fuzz::split_files(bytes);
  if (files.empty()) return;
  const std::string folder = asof::fuzz::as_folder(files);
  const auto first = asof::blocks::BlockFile::open(folder + "/" + files.begin()->first);
  const auto head = asof::blocks::part_at(files.begin()->second, 0);
  if (!first || !head) return;
  asof::blocks::PartMerger merger(head->identity);
  for (const auto& [name, part] : files) {
    const auto added = merger.add(folder + "/" + name);
    if (!added) FUZZ_CHECK(!added.error().reason.empty() && added.error().where.ends_with(name));
  }
  merger.missing();
  std::vector<uint8_t> merged;
  merger.write(*first, [&](asof::fuzz::Bytes b) { merged.insert(merged.end(), b.begin(), b.end()); });
}
