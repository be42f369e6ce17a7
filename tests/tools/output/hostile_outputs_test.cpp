// Every output of every verb, of a capture whose names are all meant to harm their reader (hostile_capture.h). Text for
// terminals has no control characters, no name begins a line of its own, and what is for programs can be parsed.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "tests/support/hostile_capture.h"
#include "tests/tools/run_asof.h"
#include "tests/tools/stepped_test.h"

namespace asof::test {
namespace {

namespace fs = std::filesystem;

enum class Kind : uint8_t { kText, kTabs, kCsv, kJson, kJsonLines, kXml, kBinary };

struct Output {
  const char* name;
  const char* arguments;  // $C: the capture and where its files are; $T: a folder; $O: the file to write
  Kind kind = Kind::kText;
};
void PrintTo(const Output& o, std::ostream* out) { *out << o.name; }

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
  return text;
}

// The character at `at`, which moves behind it; 0: no UTF-8.
uint32_t next_character(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : uint8_t{0}; };
  const uint8_t first = byte(at++);
  if (first < 0x80) return first;
  const size_t more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
  uint32_t c = first & (0x3fU >> more);
  for (size_t i = 0; i < more; ++i, ++at) {
    if ((byte(at) & 0xc0) != 0x80) return 0;
    c = c << 6 | (byte(at) & 0x3f);
  }
  return first >= 0xc2 && first < 0xf5 && (c < 0xd800 || c > 0xdfff) ? c : 0;
}

// The first place that would do something to a terminal, or is shown as something else than it is; empty: there is none.
std::string harm_in(std::string_view text, std::string_view allowed) {
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const uint32_t c = next_character(text, at);
    const bool control = c < 0x20 || (c >= 0x7f && c < 0xa0);
    const bool direction =
        c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
    if (!control && !direction) continue;
    if (c != 0 && c < 0x80 && allowed.contains(static_cast<char>(c))) continue;
    const size_t from = begin < 60 ? 0 : begin - 60;
    return fmt::format("U+{:04X} at {}: {}", c, begin,
                       nlohmann::json(std::string(text.substr(from, 120)))
                           .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
  }
  for (const char c : {'k', 'p', 'u', 's'}) {
    if (text.contains(std::string(6'000, c))) return fmt::format("a name is not cut ({})", c);
  }
  return "";
}

void expect_lines(std::string_view text, std::string_view allowed) {
  EXPECT_EQ(harm_in(text, allowed), "");
  for (const std::string& line : lines_of(std::string(text))) {
    const size_t first = line.find_first_not_of(" \t");
    EXPECT_FALSE(first != std::string::npos && line.substr(first).starts_with(kForged))
        << line.substr(0, 200);
  }
}

void expect_strings(const nlohmann::json& value) {
  if (value.is_string()) {
    ASSERT_EQ(harm_in(value.get_ref<const std::string&>(), "\n\t"), "");
  }
  for (const auto& [key, child] : value.items()) {
    ASSERT_EQ(harm_in(key, ""), "");
    if (value.is_structured()) expect_strings(child);
  }
}

void expect_json(const std::string& text) {
  const auto value = nlohmann::json::parse(text, nullptr, false);
  ASSERT_FALSE(value.is_discarded()) << text.substr(0, 400);
  expect_strings(value);
}

// Rows of the fields of RFC 4180.
std::vector<std::vector<std::string>> rows_of_csv(const std::string& text) {
  std::vector<std::vector<std::string>> rows(1, {""});
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      rows.back().back() += text[++i];
    } else if (c == '"') {
      quoted = !quoted;
    } else if (quoted || (c != ',' && c != '\n')) {
      rows.back().back() += c;
    } else if (c == ',') {
      rows.back().emplace_back();
    } else {
      rows.push_back({""});
    }
  }
  if (rows.back() == std::vector<std::string>{""}) rows.pop_back();
  return rows;
}

void expect_csv(const std::string& text) {
  expect_lines(text, "\n");
  const auto rows = rows_of_csv(text);
  ASSERT_GT(rows.size(), 1U);
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), rows[0].size()) << fmt::format("{}", fmt::join(row, "|")).substr(0, 400);
    for (const std::string& field : row) {
      const bool formula = field.size() > 1 && std::string_view("=+@").contains(field[0]);
      ASSERT_FALSE(formula) << field.substr(0, 200);
    }
  }
}

void expect_output(const Output& o, const std::string& text, const fs::path& file) {
  ASSERT_FALSE(text.empty());
  switch (o.kind) {
    case Kind::kText:
      return expect_lines(text, "\n");
    case Kind::kTabs:
      return expect_lines(text, "\n\t");
    case Kind::kCsv:
      return expect_csv(text);
    case Kind::kJson:
      return expect_json(text);
    case Kind::kJsonLines:
      EXPECT_EQ(harm_in(text, "\n"), "");
      for (const std::string& line : lines_of(text)) expect_json(line);
      return;
    case Kind::kXml:
      expect_lines(text, "\n");
      EXPECT_EQ(std::system(("python3 -c 'import sys, xml.etree.ElementTree as t; t.parse(sys.argv[1])' " +
                             file.string())
                                .c_str()),
                0);
      return;
    case Kind::kBinary:  // text within it was taken over as it is nowhere
      for (const std::string_view name : {"\x1b[2J", "\x1b]0;", "\nFORGED"})
        EXPECT_FALSE(text.contains(name));
  }
}

// What asof writes of a capture, in `folder`, and says.
void run_and_expect(const Output& o, const std::string& capture, const fs::path& folder) {
  const fs::path file = folder / "output";
  std::string arguments = replaced(o.arguments, "$C", capture);
  arguments = replaced(replaced(arguments, "$T", folder.string()), "$O", file.string());
  const Ran ran = run_asof(arguments);
  EXPECT_TRUE(ran.status == 0 || ran.status == 3) << ran.status << '\n' << ran.err.substr(0, 2'000);
  expect_lines(ran.err, "\n");
  const bool to_file = std::string_view(o.arguments).contains("$O");
  expect_output(o, to_file ? read_file(file) : ran.out, file);
}

constexpr Output kOutputs[] = {
    {"decode", "decode -v $C --time 0%-10%"},
    {"decode_fields",
     "decode $C --time 0%-10% --itrace ibcrexwpIo -F "
     "comm,pid,tid,cpu,time,ip,sym,symoff,dso,insn,disasm,flags,textver,textsrc,conf",
     Kind::kTabs},
    {"decode_jsonl",
     "decode $C --time 0%-10% --format jsonl -F "
     "comm,pid,tid,cpu,time,ip,sym,symoff,dso,insn,disasm,flags,textver,textsrc,conf",
     Kind::kJsonLines},
    {"decode_blocks", "decode $C --format blocks -o $O", Kind::kBinary},
    {"decode_near_names", "decode $C --time 0%-10% -S '=cme,*FORGED*,count_packets,compute' "},
    {"report", "report -v $C"},
    {"report_jsonl", "report $C --format jsonl", Kind::kJsonLines},
    {"report_dso", "report $C --sort dso --cycles"},
    {"stacks", "stacks $C --by thread --versions"},
    {"stacks_firefox", "stacks $C --format firefox -o $O", Kind::kJson},
    {"branches", "branches $C", Kind::kCsv},
    {"branches_perf_script", "branches $C --format perf-script"},
    {"branches_preagg", "branches $C --format bolt-preagg"},
    {"timeline_csv", "timeline $C --format csv -o $O", Kind::kCsv},
    {"timeline_jsonl", "timeline $C --format jsonl -o $O", Kind::kJsonLines},
    {"timeline_chrome", "timeline $C --format chrome -o $O", Kind::kJson},
    {"timeline_perfetto", "timeline $C --detail insn --time 0%-100% --format perfetto -o $O", Kind::kBinary},
    {"timeline_html", "timeline $C --format html -o $O", Kind::kText},
    {"timeline_sqlite", "timeline $C --format sqlite -o $O", Kind::kBinary},
    {"query", "query -i $C 'select * from functions'", Kind::kTabs},
    {"query_csv", "query -i $C --format csv 'select * from functions'", Kind::kCsv},
    {"query_jsonl", "query -i $C --format jsonl 'select * from functions'", Kind::kJsonLines},
    {"query_table", "query -i $C --format table 'select * from functions'"},
    {"query_tracks", "query -i $C --format jsonl 'select * from tracks'", Kind::kJsonLines},
    {"query_lives", "query -i $C --format jsonl 'select * from text_lives'", Kind::kJsonLines},
    {"query_versions", "query -i $C --format jsonl 'select * from text_versions'", Kind::kJsonLines},
    {"query_gaps", "query -i $C --format jsonl 'select * from gaps'", Kind::kJsonLines},
    {"text", "text -i $C --pid 1201 401000-401100"},
    {"text_changes", "text -i $C --diff start end"},
    {"text_changes_jsonl", "text -i $C --diff start end --format jsonl", Kind::kJsonLines},
    {"text_history", "text -i $C --history ffffffffc0400a40-ffffffffc0400b00"},
    {"text_nothing", "text -i $C --history ffffffff81000000-ffffffff81000800"},
    {"doctor", "doctor $C"},
    {"doctor_jsonl", "doctor $C --format jsonl", Kind::kJsonLines},
    {"validate", "validate -v $C"},
    {"validate_json", "validate $C --format json", Kind::kJson},
    {"events", "events $C"},
    {"packets", "packets $C --time 0%-20% --flow"},
    {"packets_jsonl", "packets $C --time 0%-20% --flow --format jsonl", Kind::kJsonLines},
    {"packets_csv", "packets $C --format csv", Kind::kCsv},
    {"packets_count", "packets $C --count"},
    {"script",
     "script $C --time 0%-20% --itrace=bcrxwpe --show-mmap-events --show-task-events --show-switch-events "
     "--show-lost-events --show-bpf-events --show-text-poke-events --show-namespace-events "
     "--show-cgroup-events",
     Kind::kTabs},
    {"script_fields",
     "script $C --time 0%-20% --itrace=i100nsg16l16 -F "
     "comm,tid,pid,time,cpu,event,ip,sym,dso,addr,symoff,period,flags,insn,insnlen,misc,brstack,brstacksym,"
     "brstackinsn,ipc",
     Kind::kTabs},
    {"script_calls", "script $C --time 0%-20% --call-ret-trace", Kind::kTabs},
    {"coverage_lcov", "coverage $C --touched -o $O --format lcov"},
    {"coverage_xml", "coverage $C -o $O --format cobertura", Kind::kXml},
    {"coverage_drcov", "coverage $C --versions -o $O --format drcov", Kind::kBinary},
    {"digest", "digest $C"},
    {"diff", "diff -i $C --time 0%-50% --time 50%-100%"},
    {"diff_paths", "diff -i $C --time 0%-50% --time 50%-100% --rows paths --limit 0"},
    {"diff_csv", "diff -i $C --time 0%-50% --time 50%-100% --rows calls --format csv", Kind::kCsv},
    {"diff_jsonl", "diff -i $C --time 0%-50% --time 50%-100% --rows paths --format jsonl", Kind::kJsonLines},
};

class HostileOutputs : public ::testing::TestWithParam<Output> {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir;
    write_hostile(dir_->path());
  }
  static void TearDownTestSuite() {
    delete dir_;
    dir_ = nullptr;
  }
  static std::string capture() {
    return (dir_->path() / "perf.data").string() + " --symfs " + (dir_->path() / "symfs").string();
  }
  static inline const TempDir* dir_ = nullptr;
};

TEST_P(HostileOutputs, DoNoHarm) {
  const TempDir out;
  run_and_expect(GetParam(), capture(), out.path());
}

// What debug information says: source files, inlined functions.
constexpr Output kSourceOutputs[] = {
    {"decode", "decode $C --source --inline -F +srcline,inline"},
    {"decode_jsonl", "decode $C -F ip,srcline,inline --format jsonl", Kind::kJsonLines},
    {"report", "report $C --sort srcline"},
    {"report_inline", "report $C --inline"},
    {"report_jsonl", "report $C --sort srcline --format jsonl", Kind::kJsonLines},
    {"stacks", "stacks $C --source --inline --weight instructions"},
    {"stacks_firefox", "stacks $C --source --inline --format firefox -o $O", Kind::kJson},
    {"timeline_csv", "timeline $C --source --inline --format csv -o $O", Kind::kCsv},
    {"timeline_jsonl", "timeline $C --source --inline --format jsonl -o $O", Kind::kJsonLines},
    {"timeline_chrome", "timeline $C --source --inline --format chrome -o $O", Kind::kJson},
    {"timeline_perfetto",
     "timeline $C --source --inline --detail insn --time 0%-100% --format perfetto -o $O", Kind::kBinary},
    {"timeline_html", "timeline $C --source --inline --format html -o $O"},
    {"timeline_sqlite", "timeline $C --source --inline --format sqlite -o $O", Kind::kBinary},
    {"script", "script $C --itrace=i1ig --inline -F ip,sym,srcline", Kind::kTabs},
    {"coverage_lcov", "coverage $C -o $O --format lcov"},
    {"coverage_xml", "coverage $C -o $O --format cobertura", Kind::kXml},
    {"coverage_drcov", "coverage $C -o $O --format drcov", Kind::kBinary},
};

// A compiled program. Names that a compiler does not take are put over others of their length.
class HostileSources : public SteppedTest {
 protected:
  static std::string source() {
    return fmt::format(R"(#line 1 "/src/{}/{}.c"
static inline __attribute__((always_inline)) int {}(int x) {{
  volatile int v = x; return v + v;
}}
static inline __attribute__((always_inline)) int {}(int x) {{
  volatile int v = x; return v - 1;
}}
__attribute__((noinline)) int {}(int x) {{
  return {}(x) ^ {}(x + 1);
}}
void _start(void) {{
  volatile int sum = 0;
  for (int i = 0; i < 9; ++i) sum += {}(i);
  __asm__ volatile("syscall" ::"a"(60), "D"(0));
  for (;;) {{}}
}}
)",
                       run('D'), run('F'), run('I'), std::string(kLong, 'u'), run('N'), run('I'),
                       std::string(kLong, 'u'), run('N'));
  }
  static std::string run(char letter) { return std::string(200, letter); }
  void put_over(char letter, std::string name) const {
    name.resize(200, letter);
    std::string program = read_file(path("program"));
    ASSERT_TRUE(program.contains(run(letter)));
    std::ofstream(path("program"), std::ios::binary) << replaced(std::move(program), run(letter), name);
  }
  void SetUp() override {
    record(source(), "-O2");
    if (IsSkipped()) return;
    put_over('D', std::string(kEscapes) + std::string(kLines) + std::string(kMarkup));
    put_over('F', std::string(kFormula) + std::string(kNoText) + std::string(kLines) + std::string(kEscapes));
    put_over('I', std::string(kMarkup) + std::string(kLines) + std::string(kNoText));
    put_over('N', std::string(kFormula) + ";" + std::string(kEscapes) + std::string(kLines));
  }
};

TEST_F(HostileSources, DoNoHarm) {
  for (const Output& o : kSourceOutputs) {
    SCOPED_TRACE(o.name);
    const TempDir out;
    run_and_expect(o, path("perf.data"), out.path());
  }
  const std::string lines = run_asof("decode -q -F ip --source --inline " + path("perf.data")).out;
  EXPECT_TRUE(lines.contains("FORGED")) << "none of the names was shown: " << lines.substr(0, 500);
}

INSTANTIATE_TEST_SUITE_P(Verbs, HostileOutputs, ::testing::ValuesIn(kOutputs),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace asof::test
