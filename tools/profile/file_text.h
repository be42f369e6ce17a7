// FileText: whether code that ran is as in its file. Compilers and binary optimizers read profiles together with the file:
// what the kernel patched (static keys, probes, alternatives) is other code there.
#pragma once
#include <tsl/robin_map.h>

#include <map>
#include <memory>

#include "arch/block.h"
#include "decoder/lines/source_lines.h"
#include "decoder/model/image.h"

namespace asof {

class FileText {
 public:
  explicit FileText(const Capture& capture) : capture_(capture), places_(capture) {}
  // False also where no file is known. Blocks are those of one pipeline.
  bool same(const Block& b);

 private:
  bool compare(const Block& b);

  const Capture& capture_;
  SourceLines places_;
  std::map<uint32_t, std::shared_ptr<const ElfImage>> files_;  // nullptr: cannot be read
  tsl::robin_map<const Block*, bool> known_;
};

}  // namespace asof
