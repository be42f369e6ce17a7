#include "tools/coverage/line_coverage.h"

#include <algorithm>
#include <tuple>

#include "decoder/lines/dwarf_lines.h"
#include "textstore/plain_text.h"

namespace asof {
namespace {

// Code of one file of code, by address as linked; what ran in several processes is one.
struct CodeOfFile {
  std::map<uint64_t, Executed> executed;
};
using ByFile = std::map<std::pair<uint32_t, uint32_t>, CodeOfFile>;  // by version and file

class Collector {
 public:
  Collector(uint32_t version, DwarfLines& dwarf, LineCoverage& out)
      : dwarf_(dwarf), files_(out.versions[version]), out_(out) {}

  void add(const CodeOfFile& code) {
    functions(code);
    for (const auto& [address, e] : code.executed) instruction(address, e);
    for (const auto& [where, copies] : counts_) {
      uint64_t& count = files_[where.first].lines[where.second];
      for (const auto& [copy, most] : copies) count += most;
    }
  }
  // Of lines that did not run.
  void add_unexecuted(bool touched) {
    dwarf_.each_line([&](std::string_view file, uint32_t line) {
      const std::string path = plain_text(file);
      if (!touched || files_.contains(path)) files_[path].lines.try_emplace(line, 0);
    });
  }

 private:
  void instruction(uint64_t address, const Executed& e) {
    const DwarfLine line = dwarf_.find(address);
    if (line.line == 0) {
      out_.instructions_without_line += e.count;
      return;
    }
    const auto chain = dwarf_.functions_at(address);
    const uint64_t copy = chain.empty() ? 0 : chain[0].copy;
    const std::string path = plain_text(line.file);
    uint64_t& most = counts_[{path, line.line}][copy];
    most = std::max(most, e.count);
    if (e.conditional) files_[path].branches[line.line].push_back({e.taken, e.not_taken});
  }
  void functions(const CodeOfFile& code) {
    for (const DwarfFunction& f : dwarf_.functions()) {
      if (f.name.empty() || f.file.empty() || f.line == 0) continue;
      const auto ran = code.executed.find(f.begin);
      CoveredFile::Function& known = files_[plain_text(f.file)].functions[plain_text(f.name)];
      known.line = f.line;
      if (ran != code.executed.end()) known.count += ran->second.count;
    }
  }

  DwarfLines& dwarf_;
  CoveredFiles& files_;
  LineCoverage& out_;
  std::map<std::pair<std::string, uint32_t>, std::map<uint64_t, uint64_t>> counts_;  // by line, then by copy
};

}  // namespace

LineCoverage line_coverage(const Capture& capture, const ExecutedCode::Map& executed, bool touched,
                           SourceLines& lines) {
  LineCoverage out;
  ByFile by_file;
  for (const auto& [at, e] : executed) {
    const auto place = lines.place_with_lines(at.space, at.address, e.time);
    if (!place) {
      const auto symbol =
          capture.symbols.find(is_kernel_address(at.address) ? kKernelSpace : at.space, at.address, e.time);
      out.without_lines.insert(symbol ? symbol->symbol->dso : std::string("[unknown]"));
      out.instructions_without_line += e.count;
      continue;
    }
    by_file[{at.version, place->file}].executed[place->address].add(e);
  }
  for (const auto& [which, code] : by_file) {
    DwarfLines* const dwarf = lines.lines_of(which.second);
    if (dwarf == nullptr) {
      const CodeFile& file = capture.code.files[which.second];
      out.without_lines.insert(file.recorded.empty() ? file.path : file.recorded);
      for (const auto& [address, e] : code.executed) out.instructions_without_line += e.count;
      continue;
    }
    Collector collector(which.first, *dwarf, out);
    collector.add(code);
    collector.add_unexecuted(touched);
  }
  if (!touched) return out;
  for (auto& [version, files] : out.versions)
    std::erase_if(files, [](const auto& file) {
      return std::ranges::none_of(file.second.lines, [](const auto& l) { return l.second != 0; });
    });
  return out;
}

}  // namespace asof
