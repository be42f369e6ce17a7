// lcov's tracefile and Cobertura's XML.
#include <fmt/format.h>

#include <algorithm>

#include "tools/coverage/coverage_writers.h"

namespace asof {
namespace {

struct Share {
  uint64_t covered = 0, all = 0;
  void add(bool ran) {
    covered += ran ? 1 : 0;
    ++all;
  }
  void add(const Share& s) {
    covered += s.covered;
    all += s.all;
  }
  // Cut to four decimals: what is not covered wholly is below 1.
  std::string rate() const {
    if (all == 0) return "1";
    const uint64_t n = covered * 10'000 / all;
    return n == 10'000 ? "1" : fmt::format("0.{:04}", n);
  }
};

Share lines_of(const CoveredFile& f) {
  Share out;
  for (const auto& [line, count] : f.lines) out.add(count != 0);
  return out;
}
Share branches_of(const CoveredFile& f) {
  Share out;
  for (const auto& [line, branches] : f.branches) {
    for (const CoveredBranch& b : branches) {
      out.add(b.taken != 0);
      out.add(b.not_taken != 0);
    }
  }
  return out;
}

void lcov_file(const std::string& path, const CoveredFile& f, std::string& out) {
  const auto it = std::back_inserter(out);
  fmt::format_to(it, "SF:{}\n", path);
  Share functions;
  for (const auto& [name, fn] : f.functions) fmt::format_to(it, "FN:{},{}\n", fn.line, name);
  for (const auto& [name, fn] : f.functions) {
    fmt::format_to(it, "FNDA:{},{}\n", fn.count, name);
    functions.add(fn.count != 0);
  }
  fmt::format_to(it, "FNF:{}\nFNH:{}\n", functions.all, functions.covered);
  for (const auto& [line, branches] : f.branches) {
    for (size_t i = 0; i < branches.size(); ++i)
      fmt::format_to(it, "BRDA:{0},{1},0,{2}\nBRDA:{0},{1},1,{3}\n", line, i, branches[i].taken,
                     branches[i].not_taken);
  }
  const Share branches = branches_of(f), lines = lines_of(f);
  fmt::format_to(it, "BRF:{}\nBRH:{}\n", branches.all, branches.covered);
  for (const auto& [line, count] : f.lines) fmt::format_to(it, "DA:{},{}\n", line, count);
  fmt::format_to(it, "LF:{}\nLH:{}\nend_of_record\n", lines.all, lines.covered);
}

std::string xml_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

void add_file(CoveredFile& to, const CoveredFile& from) {
  for (const auto& [line, count] : from.lines) to.lines[line] += count;
  for (const auto& [name, fn] : from.functions) {
    to.functions[name].line = fn.line;
    to.functions[name].count += fn.count;
  }
  for (const auto& [line, branches] : from.branches) {
    auto& all = to.branches[line];
    all.insert(all.end(), branches.begin(), branches.end());
  }
}

void xml_lines(const CoveredFile& f, std::string& out) {
  for (const auto& [line, count] : f.lines) {
    fmt::format_to(std::back_inserter(out), "          <line number=\"{}\" hits=\"{}\"", line, count);
    const auto branches = f.branches.find(line);
    if (branches == f.branches.end()) {
      out += "/>\n";
      continue;
    }
    Share share;
    for (const CoveredBranch& b : branches->second) {
      share.add(b.taken != 0);
      share.add(b.not_taken != 0);
    }
    fmt::format_to(std::back_inserter(out), " branch=\"true\" condition-coverage=\"{}% ({}/{})\"/>\n",
                   share.covered * 100 / share.all, share.covered, share.all);
  }
}

void xml_class(const std::string& path, const CoveredFile& f, std::string& out) {
  const std::string name = xml_text(path.substr(path.rfind('/') + 1));
  const auto it = std::back_inserter(out);
  fmt::format_to(it,
                 "      <class name=\"{}\" filename=\"{}\" line-rate=\"{}\" branch-rate=\"{}\" "
                 "complexity=\"0\">\n        <methods>\n",
                 name, xml_text(path), lines_of(f).rate(), branches_of(f).rate());
  for (const auto& [fn_name, fn] : f.functions)
    fmt::format_to(it,
                   "          <method name=\"{}\" signature=\"\" line-rate=\"{}\" branch-rate=\"0\" "
                   "complexity=\"0\"><lines><line number=\"{}\" hits=\"{}\"/></lines></method>\n",
                   xml_text(fn_name), fn.count != 0 ? 1 : 0, fn.line, fn.count);
  out += "        </methods>\n        <lines>\n";
  xml_lines(f, out);
  out += "        </lines>\n      </class>\n";
}

}  // namespace

void write_lcov(const LineCoverage& coverage, std::string_view rule, const WriteText& write) {
  write(fmt::format("# asof coverage: counted is what is {}\n", rule));
  std::string out;
  for (const auto& [version, files] : coverage.versions) {
    for (const auto& [path, file] : files) {
      out = version == 1 && coverage.versions.size() == 1 ? "TN:asof\n"
                                                          : fmt::format("TN:text_version_{}\n", version);
      lcov_file(path, file, out);
      write(out);
    }
  }
}

void write_cobertura(const LineCoverage& coverage, std::string_view rule, const WriteText& write) {
  CoveredFiles all;
  for (const auto& [version, files] : coverage.versions) {
    for (const auto& [path, file] : files) add_file(all[path], file);
  }
  std::map<std::string, std::vector<const CoveredFiles::value_type*>> packages;  // by folder
  Share lines, branches;
  for (const auto& file : all) {
    const size_t slash = file.first.rfind('/');
    packages[slash == std::string::npos ? "." : file.first.substr(0, slash)].push_back(&file);
    lines.add(lines_of(file.second));
    branches.add(branches_of(file.second));
  }
  write(fmt::format(
      "<?xml version=\"1.0\" ?>\n<!DOCTYPE coverage SYSTEM "
      "\"http://cobertura.sourceforge.net/xml/coverage-04.dtd\">\n<!-- asof coverage: counted is what is {} "
      "-->\n<coverage line-rate=\"{}\" branch-rate=\"{}\" lines-covered=\"{}\" lines-valid=\"{}\" "
      "branches-covered=\"{}\" branches-valid=\"{}\" complexity=\"0\" version=\"asof\" timestamp=\"0\">\n"
      "  <sources><source>/</source></sources>\n  <packages>\n",
      rule, lines.rate(), branches.rate(), lines.covered, lines.all, branches.covered, branches.all));
  for (const auto& [name, files] : packages) {
    Share package_lines, package_branches;
    std::string classes;
    for (const auto* file : files) {
      package_lines.add(lines_of(file->second));
      package_branches.add(branches_of(file->second));
      xml_class(file->first, file->second, classes);
    }
    write(fmt::format(
        "    <package name=\"{}\" line-rate=\"{}\" branch-rate=\"{}\" complexity=\"0\">\n    <classes>\n",
        xml_text(name), package_lines.rate(), package_branches.rate()));
    write(classes);
    write("    </classes>\n    </package>\n");
  }
  write("  </packages>\n</coverage>\n");
}

}  // namespace asof
