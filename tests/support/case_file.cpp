#include "tests/support/case_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>

#include "tests/support/case_arm64.h"
#include "tests/support/perf_data_writer.h"

namespace asof::test {

namespace {

struct Line {
  int number = 0;
  std::string text;
};

// "repeat N REST": REST for $i = 0 .. N-1.
void add_line(std::vector<Line>& out, int number, const std::string& text) {
  if (!text.starts_with("repeat ")) {
    out.push_back({number, text});
    return;
  }
  const std::vector<std::string> words = split_words(text);
  const std::string body = trimmed(text.substr(text.find(words.at(1)) + words[1].size()));
  for (uint64_t i = 0; i < parse_number(words[1]); ++i) {
    std::string one = body;
    for (size_t at = one.find("$i"); at != std::string::npos; at = one.find("$i", at))
      one.replace(at, 2, std::to_string(i));
    out.push_back({number, one});
  }
}

std::vector<Line> read_lines(const std::filesystem::path& path) {
  std::ifstream in(path);
  if (!in) throw CaseError(fmt::format("cannot read {}", path.string()));
  std::vector<Line> out;
  std::string text;
  for (int n = 1; std::getline(in, text); ++n) {
    text = trimmed(text.substr(0, text.find('#')));
    if (!text.empty()) add_line(out, n, text);
  }
  return out;
}

// "@a,b rest": for these variants only.
bool belongs(std::string& line, const std::string& variant) {
  if (!line.starts_with("@")) return true;
  const size_t blank = line.find(' ');
  if (blank == std::string::npos) throw CaseError("nothing after the variant");
  const std::vector<std::string> names = split_at(line.substr(1, blank - 1), ',');
  line = trimmed(line.substr(blank));
  return std::ranges::find(names, variant) != names.end();
}

std::string rest_of(const std::vector<std::string>& words, size_t from) {
  return fmt::format("{}", fmt::join(words.begin() + static_cast<std::ptrdiff_t>(from), words.end(), " "));
}

CaseArea area_of(std::string_view word) {
  static const std::map<std::string_view, CaseArea> names = {{"kernel", CaseArea::kKernel},
                                                             {"module", CaseArea::kModule},
                                                             {"generated", CaseArea::kGenerated},
                                                             {"late-module", CaseArea::kLateModule},
                                                             {"late-generated", CaseArea::kLateGenerated},
                                                             {"unclaimed", CaseArea::kUnclaimed},
                                                             {"hidden", CaseArea::kHidden},
                                                             {"user", CaseArea::kUser},
                                                             {"user2", CaseArea::kUser},
                                                             {"late-user", CaseArea::kLateUser}};
  const auto it = names.find(word);
  if (it == names.end()) throw CaseError(fmt::format("'{}' is not a kind of text", word));
  return it->second;
}

uint16_t symbol_type(const std::vector<std::string>& words, size_t at) {
  if (words.size() <= at || words[at] == "bpf") return 1;
  if (words[at] == "ool") return 2;
  if (words[at] == "module") return 100;
  throw CaseError(fmt::format("'{}' is not a kind of symbol", words[at]));
}

// "r-x": PROT_READ 1, PROT_WRITE 2, PROT_EXEC 4.
uint32_t protection(const std::string& word) {
  if (word.size() != 3 || (word[0] != 'r' && word[0] != '-') || (word[1] != 'w' && word[1] != '-') ||
      (word[2] != 'x' && word[2] != '-'))
    throw CaseError(fmt::format("'{}' is not a protection", word));
  return (word[0] == 'r' ? 1U : 0) | (word[1] == 'w' ? 2U : 0) | (word[2] == 'x' ? 4U : 0);
}

constexpr std::array kConfidences = {"certain", "proved", "equivalent", "ambiguous", "contradiction"};

// Reads the sections after [text]: by then all labels are known.
class Reader {
 public:
  explicit Reader(CaseFile& out) : out_(out) {}

  void event(const std::vector<std::string>& words);
  void copy(const std::string& line);
  void packets(unsigned cpu, const Line& line);
  void want(unsigned cpu, const std::string& line);
  void query(const std::string& line);

 private:
  void poke(CaseEvent& e, const std::string& rest);
  std::vector<CaseInsn> block(std::string name) const;

  CaseFile& out_;
};

// NAME ADDRESS: OLD -> NEW
void Reader::poke(CaseEvent& e, const std::string& rest) {
  const size_t colon = rest.find(':'), arrow = rest.find("->");
  if (colon == std::string::npos || arrow == std::string::npos) throw CaseError("a poke has ':' and '->'");
  const std::vector<std::string> head = split_words(rest.substr(0, colon));
  e.kind = CaseEvent::Kind::kPoke;
  e.name = head.at(0);
  e.addr = out_.program.address(head.at(1));
  e.old_insns = out_.program.assemble(e.addr, rest.substr(colon + 1, arrow - colon - 1));
  e.new_insns = out_.program.assemble(e.addr, rest.substr(arrow + 2));
}

void Reader::event(const std::vector<std::string>& words) {
  CaseEvent e;
  size_t at = 0;
  e.at_start = words[0] == "start";
  if (!e.at_start) e.time = case_time(words[0]);
  ++at;
  if (words.at(at) == "on") e.ring = static_cast<unsigned>(parse_number(words.at(at + 1))), at += 2;
  const std::string kind = words.at(at++);
  if (kind == "poke") {
    poke(e, rest_of(words, at));
  } else if (kind == "ksym+" || kind == "ksym-") {
    e.kind = CaseEvent::Kind::kKsymbol;
    e.unregister = kind == "ksym-";
    e.addr = out_.program.address(words.at(at));
    e.length = static_cast<uint32_t>(parse_number(words.at(at + 1)));
    e.name = words.at(at + 2);
    e.type = symbol_type(words, at + 3);
  } else if (kind == "load" || kind == "unload") {
    e.kind = kind == "load" ? CaseEvent::Kind::kLoad : CaseEvent::Kind::kUnload;
    e.number = parse_number(words.at(at));
  } else if (kind == "lost") {
    e.kind = CaseEvent::Kind::kLost;
    e.number = parse_number(words.at(at));
  } else if (kind == "image") {
    e.kind = CaseEvent::Kind::kImage;
    e.number = parse_number(words.at(at));
    e.texts.assign(words.begin() + static_cast<std::ptrdiff_t>(at) + 1, words.end());
  } else if (kind == "watch") {
    e.kind = CaseEvent::Kind::kWatch;
    e.texts = {words.at(at)};
    e.type = symbol_type(words, at + 1);
  } else if (kind == "switch") {
    e.kind = CaseEvent::Kind::kSwitch;
    e.number = parse_number(words.at(at));
  } else if (kind == "map") {
    e.kind = CaseEvent::Kind::kMap;
    if (words.size() == at + 2) {
      e.texts = {words[at]};
      e.addr = out_.program.text(words[at]).begin;
    } else {
      e.addr = out_.program.address(words.at(at));
      e.length = static_cast<uint32_t>(parse_number(words.at(at + 1)));
      e.name = words.at(at + 2);
    }
    e.number = protection(words.back());
  } else if (kind == "record") {
    e.kind = CaseEvent::Kind::kRecord;
    e.type = static_cast<uint16_t>(parse_number(words.at(at)));
    e.misc = static_cast<uint16_t>(parse_number(words.at(at + 1)));
    for (size_t i = at + 2; i < words.size(); ++i)
      e.body.push_back(static_cast<uint8_t>(parse_number("0x" + words[i])));
  } else {
    throw CaseError(fmt::format("unknown event '{}'", kind));
  }
  out_.events.push_back(std::move(e));
}

// "start|end [TIME]" or "start|end ADDRESS: INSTRUCTIONS".
void Reader::copy(const std::string& line) {
  const size_t colon = line.find(':');
  const std::vector<std::string> words = split_words(line.substr(0, colon));
  if (words.at(0) != "start" && words.at(0) != "end") throw CaseError("copies are 'start' and 'end'");
  CaseCopy& c = words[0] == "start" ? out_.start : out_.end;
  c.present = true;
  if (colon != std::string::npos) {
    const Addr at = out_.program.address(words.at(1));
    c.patches.push_back({at, bytes_of(out_.program.assemble(at, line.substr(colon + 1)))});
  } else if (words.size() > 1) {
    if (words[1] == "none")
      c.present = false;
    else
      c.time = case_time(words[1]);
  } else if (words[0] == "end") {
    c.time = kTimeMax;
  }
}

void Reader::packets(unsigned cpu, const Line& line) {
  for (const std::string& part : split_at(line.text, ';')) {
    std::vector<std::string> words = split_words(part);
    if (words.empty()) continue;
    CasePacket p;
    p.kind = words[0];
    p.args.assign(words.begin() + 1, words.end());
    p.line = line.number;
    out_.traces[cpu].push_back(std::move(p));
  }
}

// "label", "label=poke", "label=poke.old", each with "/N" for the first N instructions.
std::vector<CaseInsn> Reader::block(std::string name) const {
  size_t count = SIZE_MAX;
  if (const size_t slash = name.find('/'); slash != std::string::npos) {
    count = parse_number(name.substr(slash + 1));
    name.resize(slash);
  }
  std::vector<CaseInsn> insns;
  if (const size_t equals = name.find('='); equals != std::string::npos) {
    std::string which = name.substr(equals + 1);
    const bool old = which.ends_with(".old");
    if (old) which.resize(which.size() - 4);
    const auto poke = std::ranges::find_if(
        out_.events, [&](const CaseEvent& e) { return e.kind == CaseEvent::Kind::kPoke && e.name == which; });
    if (poke == out_.events.end()) throw CaseError(fmt::format("unknown poke '{}'", which));
    if (poke->addr != out_.program.address(name.substr(0, equals)))
      throw CaseError(fmt::format("'{}' is not at that label", which));
    insns = old ? poke->old_insns : poke->new_insns;
  } else {
    const auto all = out_.program.block(name);
    insns.assign(all.begin(), all.end());
  }
  if (count < insns.size()) insns.resize(count);
  return insns;
}

void Reader::want(unsigned cpu, const std::string& line) {
  std::vector<std::string> words = split_words(line);
  if (words[0] == "gap") {
    out_.wants[cpu].push_back(
        {.text = line, .gap = words.at(1), .origin = words.size() > 2 ? words[2] : std::string()});
    return;
  }
  std::string origin;
  if (words.size() > 2 && words[words.size() - 2] == "from") {
    origin = words.back();
    words.resize(words.size() - 2);
  }
  Confidence confidence = Confidence::kCertain;
  const auto named = std::ranges::find(kConfidences, words.back());
  if (named != kConfidences.end()) {
    confidence = static_cast<Confidence>(named - kConfidences.begin());
    words.pop_back();
  }
  for (const std::string& word : words) {
    for (const CaseInsn& i : block(word)) {
      out_.wants[cpu].push_back(
          {.text = word, .ip = i.at, .bytes = i.bytes, .confidence = confidence, .origin = origin});
    }
  }
}

// TIME ADDRESS: CONTENT | CONTENT ...
void Reader::query(const std::string& line) {
  const size_t colon = line.find(':');
  const std::vector<std::string> head = split_words(line.substr(0, colon));
  if (colon == std::string::npos || head.size() != 2) throw CaseError("a query is TIME ADDRESS: CONTENT");
  CaseQuery q{
      .text = line, .time = case_time(head[0]), .addr = out_.program.address(head[1]), .contents = {}};
  for (const std::string& part : split_at(line.substr(colon + 1), '|')) {
    q.contents.push_back(part == "unknown" ? std::vector<uint8_t>()
                                           : bytes_of(out_.program.assemble(q.addr, part)));
  }
  out_.queries.push_back(std::move(q));
}

void option(CaseFile& out, const std::vector<std::string>& words) {
  if (out.program.is_arm64() && arm64_option(out.arm64, words)) return;
  if (words[0] == "clock-error")
    out.clock_error = case_time(words.at(1)) - kCaseBase;
  else if (words[0] == "trace-start")
    out.trace_start = case_time(words.at(1));
  else if (words[0] == "kcore-split")
    out.kcore_split = out.program.address(words.at(1));
  else if (words[0] == "compressed")
    out.compressed = true;
  else if (words[0] == "data-files")
    out.data_files = true;
  else if (words[0] == "no-text-poke-asked")
    out.no_poke_attr = true;
  else if (words[0] == "cpus")
    out.cpus = static_cast<uint32_t>(std::stoul(words.at(1)));
  else if (words[0] == "overwrite")
    out.more_attr_flags |= attr_flag::kWriteBackward;
  else if (words[0] == "other-clock")
    out.more_attr_flags |= attr_flag::kUseClockid;
  else if (words[0] == "max-nonturbo")
    out.max_nonturbo = std::stoul(words.at(1));
  else if (words[0] == "no-tnt")
    out.pt_config |= 1ULL << 55;
  else if (words[0] == "no-branches")
    out.pt_config |= pt_config_bit::kBranch;
  else if (words[0] == "runs-back")
    out.runs_back = true;
  else if (words[0] == "catalogue")
    out.catalogue = true;
  else
    throw CaseError(fmt::format("unknown option '{}'", words[0]));
}

}  // namespace

Time case_time(std::string_view word) {
  if (const size_t plus = word.find('+'); plus != std::string_view::npos) {
    const std::vector<std::string> factors = split_at(word.substr(plus + 1), '*');
    Time step = case_time(factors[0]) - kCaseBase;
    for (size_t i = 1; i < factors.size(); ++i) step *= static_cast<Time>(parse_number(factors[i]));
    return case_time(word.substr(0, plus)) + step;
  }
  const std::string s(word);
  size_t used = 0;
  double us = 0;
  try {
    us = std::stod(s, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != s.size()) throw CaseError(fmt::format("'{}' is not a time", word));
  return kCaseBase + static_cast<Time>(std::llround(us * 1000));
}

std::vector<uint8_t> CaseFile::memory(const CaseText& text, Time t) const {
  std::vector<uint8_t> out = text.bytes();
  std::vector<const CaseEvent*> pokes;
  for (const CaseEvent& e : events) {
    if (e.kind == CaseEvent::Kind::kPoke && e.time <= t) pokes.push_back(&e);
  }
  std::ranges::sort(pokes, {}, [](const CaseEvent* e) { return std::pair(e->time, e); });
  // A change that does not find the bytes it expects was made on another text at this address.
  for (const CaseEvent* e : pokes) {
    const std::vector<uint8_t> before = bytes_of(e->old_insns), after = bytes_of(e->new_insns);
    if (before.empty() || after.empty() || e->addr < text.begin || e->addr - text.begin > out.size())
      continue;
    const auto at = out.begin() + static_cast<std::ptrdiff_t>(e->addr - text.begin);
    if (static_cast<size_t>(out.end() - at) < after.size() || !std::equal(before.begin(), before.end(), at))
      continue;
    std::ranges::copy(after, at);
  }
  return out;
}

std::vector<std::string> case_variants(const std::filesystem::path& path) {
  for (const Line& line : read_lines(path)) {
    if (line.text.starts_with("variants ")) return split_words(line.text.substr(9));
  }
  return {""};
}

CaseFile read_case(const std::filesystem::path& path, const std::string& variant) {
  CaseFile out;
  out.name = path.stem().string();
  int number = 0;
  try {
    // Two passes: texts first, so that everything else may name any label.
    std::vector<Line> later;
    std::string section;
    std::vector<std::pair<std::string, Line>> rest;
    for (Line& line : read_lines(path)) {
      number = line.number;
      if (!belongs(line.text, variant)) continue;
      if (line.text.starts_with("[")) {
        section = line.text.substr(1, line.text.find(']') - 1);
        const std::vector<std::string> words = split_words(section);
        if (words.empty()) throw CaseError("a section without a name");
        if (words[0] == "text") {
          out.program.begin_text(words.at(1), area_of(words.at(2)), parse_number(words.at(3)),
                                 words[2] == "user2" ? 2 : 1);
          section = "text";
        }
      } else if (section.empty()) {
        if (line.text.starts_with("row "))
          out.row = split_words(line.text).at(1);
        else if (line.text == "machine arm64")
          out.program.use_arm64();
        else if (!line.text.starts_with("variants "))
          rest.emplace_back("option", line);
      } else if (section == "text") {
        out.program.line(line.text);
      } else {
        rest.emplace_back(section, line);
      }
    }
    out.program.finish();
    Reader reader(out);
    // Expectations name pokes, so they come last.
    for (const bool expectations : {false, true}) {
      for (const auto& [name, line] : rest) {
        number = line.number;
        const std::vector<std::string> s = split_words(name);
        if ((s[0] == "expect") != expectations) continue;
        if (s[0] == "option")
          option(out, split_words(line.text));
        else if (s[0] == "events")
          reader.event(split_words(line.text));
        else if (s[0] == "copies")
          reader.copy(line.text);
        else if (s[0] == "trace")
          reader.packets(static_cast<unsigned>(parse_number(s.at(1))), line);
        else if (s[0] == "expect")
          reader.want(static_cast<unsigned>(parse_number(s.at(1))), line.text);
        else if (s[0] == "store")
          reader.query(line.text);
        else if (s[0] == "notices")
          out.notices.push_back(line.text);
        else
          throw CaseError(fmt::format("unknown section '{}'", name));
      }
    }
  } catch (const std::exception& e) {
    throw CaseError(fmt::format("{}:{}: {}", path.filename().string(), number, e.what()));
  }
  return out;
}

}  // namespace asof::test
