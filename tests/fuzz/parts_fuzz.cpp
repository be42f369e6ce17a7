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
  std::vector<std::string> paths;
  for (const auto& [name, part] : files) paths.push_back(folder + "/" + name);
  const auto added = merger.add(paths);
  FUZZ_CHECK(added.size() == paths.size());
  for (size_t i = 0; i < added.size(); ++i)
    FUZZ_CHECK(added[i] || (!added[i].error().reason.empty() && added[i].error().where == paths[i]));
  merger.missing();
  std::vector<uint8_t> merged;
  merger.write(*first, [&](asof::fuzz::Bytes b) { merged.insert(merged.end(), b.begin(), b.end()); });
}
