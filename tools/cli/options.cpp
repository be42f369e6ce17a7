#include "tools/cli/options.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "textstore/time.h"

namespace asof {
namespace {

constexpr size_t kMaxListNumbers = 65536;

std::unexpected<Error> usage(std::string reason) {
  return fail(Code::kBadOption, "", Error::kNoOffset, std::move(reason));
}

}  // namespace

void add_input_options(CLI::App& verb, InputOptions& o, bool positional_input) {
  if (positional_input) {
    verb.add_option(
            "INPUT,-i,--input", o.input,
            "perf.data file or directory, '-' for a pipe, bundle.json, LLDB trace.json (default: perf.data)")
        ->type_name("FILE");
  } else {
    verb.add_option("-i,--input", o.input, "perf.data file or directory, '-', bundle.json, trace.json")
        ->type_name("FILE");
  }
  CaptureOptions& c = o.capture;
  const std::string group = "Text";
  verb.add_option("-k,--vmlinux", c.vmlinux, "vmlinux file, where nothing was copied from memory")
      ->type_name("FILE")
      ->group(group);
  verb.add_option("--kallsyms", c.kallsyms, "kallsyms file")->type_name("FILE")->group(group);
  verb.add_option("--kcore", c.kcore, "kcore file, or directory with kcore, kallsyms, modules")
      ->type_name("FILE")
      ->group(group);
  verb.add_option("--modules", c.modules_dir, "directory of kernel modules")->type_name("DIR")->group(group);
  verb.add_option("--symfs", c.symfs, "look for files relative to this directory")
      ->type_name("DIR")
      ->group(group);
  verb.add_option("--buildid-dir", c.buildid_dir, "build-id cache (default: ~/.debug)")
      ->type_name("DIR")
      ->group(group);
  verb.add_option("--kcore-end", c.kcore_end, "second kcore, copied at the end of the recording")
      ->type_name("FILE")
      ->group(group);
  verb.add_option("--ksym-text", c.ksym_text, "bytes copied when KSYMBOL records appeared")
      ->type_name("FILE")
      ->group(group);
  verb.add_flag("--catalogue", c.catalogue,
                "take every site the kernel is built to change (jump labels, function entries) as doubtful")
      ->group(group);
  verb.add_option_function<std::string>(
          "--time-conv",
          [&c](const std::string& text) {
            const auto conversion = parse_time_conversion(text);
            if (!conversion) throw CLI::ValidationError("--time-conv", conversion.error().reason);
            c.time_conversion = *conversion;
          },
          "trace counter to perf's clock, ns = ZERO + (counter * MULT >> SHIFT), where the capture does not "
          "say")
      ->type_name("SHIFT,MULT,ZERO")
      ->group(group);
  verb.add_option("--jitdump", c.jitdumps, "jit-<pid>.dump file of a traced process")
      ->allow_extra_args(false)
      ->type_name("FILE")
      ->group(group);
  verb.add_flag("-f,--force", c.force, "use files even if their identity does not agree")->group(group);
  verb.add_flag("--no-demangle", o.no_demangle, "names of C++, Rust and Go functions as the files have them");
  verb.add_flag("-q,--quiet", o.quiet, "only errors that stop asof");
  verb.add_flag("-v,--verbose", o.verbose, "more about what was read");
  static const std::map<std::string, Diagnostics::Color> kColors{{"auto", Diagnostics::Color::kAuto},
                                                                 {"always", Diagnostics::Color::kAlways},
                                                                 {"never", Diagnostics::Color::kNever}};
  verb.add_option("--color", o.color, "auto, always or never")->transform(one_of(kColors))->type_name("WHEN");
}

void add_debuginfod_option(CLI::App& verb, InputOptions& o) {
  verb.add_flag("--debuginfod", o.debuginfod,
                "fetch debug information that is not on this machine from the servers of DEBUGINFOD_URLS")
      ->group("Text");
}

void add_source_options(CLI::App& verb, InputOptions& o, SourceChoice& choice) {
  const std::string group = "Output";
  verb.add_flag("--source", choice.lines, "source lines, from debug information")->group(group);
  verb.add_flag("--inline", choice.inlined, "functions that the compiler inlined, from debug information")
      ->group(group);
  add_debuginfod_option(verb, o);
}

void add_decode_options(CLI::App& verb, DecodeChoice& d, CaptureOptions& capture) {
  const std::string group = "Decoding";
  verb.add_option_function<unsigned>(
          "-j,--jobs", [&](unsigned jobs) { d.pipeline.jobs = capture.jobs = jobs; },
          "threads (default: one for each CPU); the output does not depend on it")
      ->check(CLI::Range(1, 4096))
      ->group(group);
  static const std::map<std::string, TextAt> kTextAt{
      {"asof", TextAt::kAsof}, {"first", TextAt::kFirst}, {"last", TextAt::kLast}};
  verb.add_option(
          "--text-at", d.pipeline.decode.text_at,
          "asof: the text of each instant (default); first, last: one state of it, as other tools have")
      ->transform(one_of(kTextAt))
      ->type_name("MODE")
      ->group(group);
  static const std::map<std::string, bool> kEngines{{"asof", false}, {"libipt", true}};
  verb.add_option("--engine", d.pipeline.decode.reference_engine, "asof (default) or libipt, for comparisons")
      ->transform(one_of(kEngines))
      ->type_name("NAME")
      ->group(group);
  verb.add_option("-C,--cpu", d.cpus, "only these CPUs: 0,2-5")->type_name("LIST")->group(group);
  verb.add_option("--max-mem", d.pipeline.max_memory,
                  "bound for decoded output that waits for its turn, e.g. 512MB")
      ->transform(CLI::AsSizeValue(false))
      ->transform(not_negative())
      ->type_name("SIZE")
      ->group(group);
  verb.add_option("--max-errors", d.max_errors,
                  "stop when there are more than this many errors, with exit status 3")
      ->transform(not_negative())
      ->type_name("N")
      ->group(group);
  verb.add_flag("--strict", d.strict,
                "exit status 3 if there was any error, or an option names nothing in the capture")
      ->group(group);
  static const std::map<std::string, ProgressMode> kProgress{
      {"auto", ProgressMode::kAuto}, {"always", ProgressMode::kAlways}, {"never", ProgressMode::kNever}};
  verb.add_option("--progress", d.progress, "auto, always or never")
      ->transform(one_of(kProgress))
      ->type_name("WHEN")
      ->group(group);
}

CLI::Validator not_negative() {
  return CLI::Validator(
      [](std::string& text) {
        return text.starts_with('-') ? fmt::format("'{}' is no number from 0 up", text) : std::string();
      },
      "");
}

void add_output_option(CLI::App& verb, std::string& path) {
  verb.add_option("-o,--output", path, "file to write (default: standard output)")
      ->type_name("FILE")
      ->group("Output");
}

void add_strict_option(CLI::App& verb) {
  const std::string text = "exit status 3 for warnings: an option that names nothing in the capture";
  verb.add_flag("--strict", text);
}

void add_time_option(CLI::App& verb, std::string& time) {
  verb.add_option("--time", time, "only from A to B: A,B in seconds, either may be missing, or 10%-20%")
      ->type_name("A,B")
      ->group("Filters");
}

Result<std::vector<int>> parse_number_list(const std::string& text, const std::string& option) {
  std::vector<int> out;
  for (const std::string& part : split_list(text)) {
    unsigned first = 0;
    unsigned last = 0;
    const char* end = part.data() + part.size();
    auto r = std::from_chars(part.data(), end, first);
    last = first;
    if (r.ec == std::errc() && r.ptr != end && *r.ptr == '-') r = std::from_chars(r.ptr + 1, end, last);
    if (r.ec != std::errc() || r.ptr != end || last < first || last > INT32_MAX) {
      return usage(fmt::format("{}: '{}' is no number or range of numbers", option, part));
    }
    if (last - first >= kMaxListNumbers - out.size()) return usage(fmt::format("{}: list too long", option));
    for (unsigned n = first; n <= last; ++n) out.push_back(static_cast<int>(n));
  }
  if (out.empty()) return usage(fmt::format("{}: empty list", option));
  return out;
}

Result<TimeConversion> parse_time_conversion(const std::string& text) {
  const std::vector<std::string> parts = split_list(text);
  if (parts.size() != 3) return usage(fmt::format("--time-conv: '{}' is not SHIFT,MULT,ZERO", text));
  uint64_t numbers[3] = {};
  for (size_t i = 0; i < parts.size(); ++i) {
    const char* end = parts[i].data() + parts[i].size();
    const auto r = std::from_chars(parts[i].data(), end, numbers[i]);
    if (r.ec != std::errc() || r.ptr != end)
      return usage(fmt::format("--time-conv: '{}' is no number", parts[i]));
  }
  if (numbers[0] > 63 || numbers[1] == 0 || numbers[1] > UINT32_MAX)
    return usage("--time-conv: SHIFT is 0 to 63, MULT 1 to 4294967295");
  TimeConversion out;
  out.shift = static_cast<uint16_t>(numbers[0]);
  out.mult = static_cast<uint32_t>(numbers[1]);
  out.zero = numbers[2];
  return out;
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> out;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

std::vector<std::string> split_names(const std::string& text) {
  std::vector<std::string> out(1);
  int depth = 0;
  for (const char c : text) {
    if (c == '<' || c == '(' || c == '[') ++depth;
    if ((c == '>' || c == ')' || c == ']') && depth > 0) --depth;
    if (c == ',' && depth == 0) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  std::erase(out, "");
  return out;
}

std::optional<uint64_t> parse_hex(std::string_view text) {
  if (text.starts_with("0x") || text.starts_with("0X")) text.remove_prefix(2);
  uint64_t value = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (r.ec != std::errc() || r.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<Time> parse_seconds(std::string_view text) {
  uint64_t seconds = 0;
  const char* end = text.data() + text.size();
  const auto r = std::from_chars(text.data(), end, seconds);
  if (r.ec != std::errc() || seconds > static_cast<uint64_t>(kTimeMax / 1'000'000'000 - 1))
    return std::nullopt;
  uint64_t nanoseconds = 0;
  if (r.ptr != end) {
    const std::string_view fraction(r.ptr + 1, static_cast<size_t>(end - r.ptr - 1));
    if (*r.ptr != '.' || fraction.size() > 9) return std::nullopt;
    uint64_t scale = 100'000'000;
    for (const char c : fraction) {
      if (c < '0' || c > '9') return std::nullopt;
      nanoseconds += static_cast<uint64_t>(c - '0') * scale;
      scale /= 10;
    }
  }
  return static_cast<Time>(seconds * 1'000'000'000 + nanoseconds);
}

namespace {

// Negative: no percentage.
double parse_percent(std::string_view text) {
  if (!text.ends_with('%')) return -1;
  double value = 0;
  const auto r = std::from_chars(text.data(), text.data() + text.size() - 1, value);
  if (r.ec != std::errc() || r.ptr != text.data() + text.size() - 1) return -1;
  return value <= 100 ? value : -1;
}

}  // namespace

Result<TimeBounds> parse_time_range(const std::string& text, TimeBounds whole) {
  if (text.find('%') != std::string::npos) {
    const size_t dash = text.find('-');
    const double a = parse_percent(std::string_view(text).substr(0, dash));
    const double b = dash == std::string::npos ? -1 : parse_percent(std::string_view(text).substr(dash + 1));
    if (a >= 0 && b >= 0 && b < a) return usage(fmt::format("--time: '{}' ends before it begins", text));
    if (!(a >= 0) || !(b >= a)) return usage(fmt::format("--time: '{}' is not like 10%-20%", text));
    if (whole.lo == kTimeMin || whole.hi == kTimeMax || whole.hi < whole.lo) {
      return fail(Code::kBadOption, "", Error::kNoOffset,
                  "--time: percentages need records with times, which say from when to when the trace is",
                  "give seconds, as decode prints them, or record with perf record -T");
    }
    const auto span = static_cast<double>(elapsed(whole.lo, whole.hi));
    return TimeBounds{saturating_add(whole.lo, static_cast<Time>(std::floor(span * a / 100))),
                      saturating_add(whole.lo, static_cast<Time>(std::ceil(span * b / 100)))};
  }
  const size_t comma = text.find(',');
  const std::string_view first = std::string_view(text).substr(0, comma);
  const std::string_view second =
      comma == std::string::npos ? std::string_view() : std::string_view(text).substr(comma + 1);
  TimeBounds out;
  if (!first.empty()) {
    const auto t = parse_seconds(first);
    if (!t) return usage(fmt::format("--time: '{}' is no time in seconds", first));
    out.lo = *t;
  }
  if (!second.empty()) {
    const auto t = parse_seconds(second);
    if (!t) return usage(fmt::format("--time: '{}' is no time in seconds", second));
    out.hi = *t;
  }
  if (out.lo > out.hi) return usage(fmt::format("--time: '{}' ends before it begins", text));
  return out;
}

}  // namespace asof
