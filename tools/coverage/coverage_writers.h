// Coverage as other tools read it.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/coverage/line_coverage.h"

namespace asof {

using WriteText = std::function<void(std::string_view)>;

// geninfo(1), "FILES": lcov and genhtml. A test (TN) for each version of text where they are told apart. `rule`: what was
// counted, a word.
void write_lcov(const LineCoverage& coverage, std::string_view rule, const WriteText& write);
// Cobertura's XML (coverage-04.dtd). All versions of text together.
void write_cobertura(const LineCoverage& coverage, std::string_view rule, const WriteText& write);

// drcov, version 2, as DynamoRIO's drcov and Lighthouse have it: a file of code (or a module of the kernel) and the
// basic blocks in it that ran. `versions`: those of each version of text are a module of their own.
struct DrcovModule {
  std::string path;
  uint64_t base = 0, end = 0;
  struct Block {
    uint32_t start = 0;
    uint16_t size = 0;
  };
  std::vector<Block> blocks;
};
std::vector<DrcovModule> drcov_modules(const Capture& capture, const ExecutedCode::Map& executed,
                                       bool versions, const SourceLines& lines);
void write_drcov(const std::vector<DrcovModule>& modules, const WriteText& write);

}  // namespace asof
