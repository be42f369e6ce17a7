// LineCoverage: executed code by source line, function and branch, from debug information. Lines, functions and
// branches of a file are known also where they did not run.
//
// A line can have code in several places. In one function (or one inlined copy of it) it ran as often as its most
// executed instruction; copies add up. A function ran as often as its first instruction, copies included.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "decoder/lines/source_lines.h"
#include "tools/coverage/executed.h"

namespace asof {

struct CoveredBranch {
  uint64_t taken = 0, not_taken = 0;
};
struct CoveredFile {
  std::map<uint32_t, uint64_t> lines;  // how often
  struct Function {
    uint32_t line = 0;
    uint64_t count = 0;
  };
  std::map<std::string, Function> functions;  // by linkage name
  std::map<uint32_t, std::vector<CoveredBranch>>
      branches;  // of conditional branches that ran, by line and address
};
using CoveredFiles = std::map<std::string, CoveredFile>;  // by path

struct LineCoverage {
  std::map<uint32_t, CoveredFiles> versions;  // by version of text: 1 where they are not told apart
  uint64_t instructions_without_line = 0;
  std::set<std::string> without_lines;  // files of code, or what it is called
};

// `touched`: only source files of which something ran.
LineCoverage line_coverage(const Capture& capture, const ExecutedCode::Map& executed, bool touched,
                           SourceLines& lines);

}  // namespace asof
