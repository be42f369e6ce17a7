#include "tests/support/hostile_capture.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>

#include "tests/support/demo_capture.h"

namespace asof::test {
namespace {

std::string operator+(std::string_view a, std::string_view b) { return std::string(a).append(b); }

// kallsyms is a text: what would end a name there is left out.
std::string in_kallsyms(std::string_view name) {
  std::string out(name);
  std::erase_if(out, [](char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; });
  return out;
}

void name_functions(CaptureSpec& spec) {
  const std::map<std::string, std::string> kernel = {
      {"vfs_read", kEscapes + kFormula},
      {"do_syscall_64", kFormula + ",\"x\";y"},
      {"sk_filter", std::string(kMarkup)},
      {"copy_to_iter", "a;b;[unknown];" + std::string(kNoText)},
      {"schedule", kMarkup + std::string(2'000, 's')},
      {"demo_ioctl", kEscapes + kNoText},
      {"trace_account", std::string(kLong, 'k')}};
  for (KernelSymbol& s : spec.symbols) {
    if (const auto it = kernel.find(s.name); it != kernel.end()) s.name = in_kallsyms(it->second);
    if (!s.module.empty()) s.module = in_kallsyms("d\x1b[2J<b>\x08" + std::string(kMarkup));
  }
  const std::map<std::string, std::string> user = {{"_start", kFormula + kEscapes},
                                                   {"compute", kEscapes + kLines + kNoText},
                                                   {"hash_block", kMarkup + kLines},
                                                   {"leaf", kLines + std::string(kLong, 'u')}};
  for (ExecutableSymbol& s : spec.programs[0].elf.symbols) {
    if (const auto it = user.find(s.name); it != user.end()) s.name = it->second;
  }
}

// One that is mapped and in no file system: a path may have at most 4,096 bytes.
void map_long_path(CaptureSpec& spec) {
  UserProgram p;
  p.path = "/opt/" + std::string(kLong, 'p') + std::string(kLines);
  p.elf.address = 0x7000000;
  p.elf.text.assign(16, 0x90);
  p.pids = {1201};
  spec.programs.push_back(p);
}

// Names that do no harm before they are demangled, of C++ and of Rust: each is of the second half of a function.
void write_perf_map(const ExecutableSpec& elf, const std::filesystem::path& path) {
  const std::string names[] = {"_ZN9\x1b]0;own\x07\x1b[3fooEv",
                               "_ZN6\r\vFORG3barEi",
                               "_RNvC4\x1b[2J7FORGED=",
                               "_RNvCs1234_u9_f_6ugc9b6dh",  // what Punycode makes of it is no ASCII
                               "_ZN4core3\xff\xfe\x80"
                               "17h0123456789abcdefE",
                               "_ZN" + std::to_string(kLong) + std::string(kLong, 'm') + "Ev"};
  std::string text;
  for (size_t i = 0; i < std::size(names); ++i) {
    const ExecutableSymbol& s = elf.symbols[i % elf.symbols.size()];
    const uint64_t eighth = std::max<uint64_t>(s.size / 8, 1),
                   from = s.address + (i < elf.symbols.size() ? 4 : 6) * eighth;
    text += fmt::format("{:x} {:x} {}\n", from, 2 * eighth, names[i]);
  }
  write_text(path, text);
}

void replace_all(std::vector<uint8_t>& bytes, std::string_view old, std::string_view name) {
  for (auto at = bytes.begin();;) {
    at = std::search(at, bytes.end(), old.begin(), old.end());
    if (at == bytes.end()) return;
    at = std::copy(name.begin(), name.end(), at);
  }
}

}  // namespace

void write_hostile(const std::filesystem::path& directory) {
  DemoCapture demo = make_demo();
  CaptureSpec& spec = demo.spec;
  spec.hostname = "host" + std::string(kEscapes) + std::string(kLines);
  spec.os_release = "6.1" + std::string(kEscapes) + std::string(kMarkup);
  name_functions(spec);
  spec.modules[0].name = "d\x1b[2J<b>";
  spec.programs[0].path = "/opt/" + std::string(kEscapes) + "]]><img src=x onerror=window.owned=1>/" +
                          "w\x1b[2J\b" + std::string(kLines);
  const UserProgram program = spec.programs[0];
  map_long_path(spec);
  const PerfDataWriter writer = make_perf_data(*demo.machine, spec);
  writer.write_directory(directory / "perf.data", make_kcore_dir(spec));
  write_bytes(directory / "symfs" / std::filesystem::path(program.path).relative_path(),
              make_executable(program.elf));
  write_perf_map(program.elf, directory / "symfs/tmp/perf-1201.map");
  // Names of programs that the kernel loaded: in the records, and in what perf asked of it.
  std::vector<uint8_t> data = read_bytes(directory / "perf.data/data"), pipe = writer.pipe_bytes();
  for (std::vector<uint8_t>* bytes : {&data, &pipe}) {
    replace_all(*bytes, "count_packets", "\x1b[2J\r\nFORGED=");
    replace_all(*bytes, "drop_odd", "\b\b<b>\x1b[A");
    replace_all(*bytes, "dummy:HG", "\x1b[2J<b>\b");
  }
  write_bytes(directory / "perf.data/data", data);
  write_bytes(directory / "hostile.pipe", pipe);
}

}  // namespace asof::test
