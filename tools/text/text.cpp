// asof text: what was at an address, when, and where it came from. Without a time: the code as it was first,
// with a mark at each instruction that changes, then every version of those; --diff shows the changes only,
// old against new; --history what made them; --diff T1 T2 what differs between two instants.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "tools/cli/verbs.h"
#include "tools/output/format.h"
#include "tools/output/output.h"
#include "tools/text/text_change_printer.h"
#include "tools/text/text_lister.h"
#include "tools/text/text_places.h"

namespace asof {
namespace {

struct TextOptions {
  InputOptions input;
  std::string where;
  uint64_t length = 0;  // 0: the function, or what find_text_places() takes
  bool diff = false;
  std::vector<std::string> diff_values;  // after --diff: two times, or WHERE
  bool history = false;
  std::optional<int32_t> pid;
  int mode = 0;  // 0: by the machine of the recording
  std::string syntax = "intel";
  std::string format = "text";
};

struct Asked {  // the options, understood
  std::optional<TextQuery> where;
  std::optional<std::pair<Time, Time>> between;
};

// "start" and "end" are before and after everything.
std::optional<Time> parse_instant(const std::string& text) {
  if (text == "start") return kTimeMin;
  if (text == "end") return kTimeMax;
  return parse_seconds(text);
}

Result<Asked> understand(TextOptions o) {
  Asked asked;
  const auto usage = [](std::string reason) {
    return fail(Code::kBadOption, "", Error::kNoOffset, std::move(reason));
  };
  // CLI11 gives --diff an empty value when there is none, and a WHERE that follows it.
  std::erase(o.diff_values, "");
  if (o.diff_values.size() == 1 && o.where.empty()) {
    o.where = o.diff_values[0];
    o.diff_values.clear();
  }
  if (!o.diff_values.empty()) {
    if (o.diff_values.size() != 2) return usage("--diff takes two times, or none");
    const auto from = parse_instant(o.diff_values[0]);
    const auto to = parse_instant(o.diff_values[1]);
    if (!from || !to || *from > *to)
      return usage(fmt::format("--diff: '{}' and '{}' are not two times in order (seconds, start, end)",
                               o.diff_values[0], o.diff_values[1]));
    asked.between = {*from, *to};
  }
  if (!o.where.empty()) {
    asked.where = parse_text_query(o.where);
    if (!asked.where) return usage(fmt::format("'{}' is not ADDR|SYM[+OFF][@TIME] or ADDR-END", o.where));
  }
  if (!asked.where && !asked.between) return usage("what text? ADDR, SYM, or --diff T1 T2");
  const bool changes = asked.between || o.history;
  const uint64_t length = asked.where ? asked.where->length.value_or(o.length) : 0;
  if (!changes && length > kMaxTextLength)
    return usage(fmt::format("more than {} bytes at once", kMaxTextLength));
  if (!changes && o.format != "text") return usage("--format jsonl goes with --history and --diff T1 T2");
  if (asked.between && o.history) return usage("--history and --diff T1 T2 exclude each other");
  return asked;
}

// Bits of the code at an address, or of a whole recording: as given, else those of its file (EI_CLASS), else
// those of the machine.
int mode_of(const Capture& capture, int given, const TextPlace* place) {
  constexpr char kClass32 = 1;
  constexpr std::streamoff kClassAt = 4;
  if (given != 0) return given;
  if (capture.machine == "i686" || capture.machine == "i386") return 32;
  if (place == nullptr || place->space == kKernelSpace) return 64;
  const Cell cell = capture.text->cell(place->space, place->range.begin);
  if (cell.versions.empty() || is_poke(cell.versions[0].origin)) return 64;
  const Origin& origin = capture.text->origin(cell.versions[0].origin);
  if (origin.kind != OriginKind::kFile) return 64;
  std::ifstream file(origin.name, std::ios::binary);
  file.seekg(kClassAt);
  return file.get() == kClass32 ? 32 : 64;
}

ExitCode print_difference(const Capture& capture, const TextOptions& o, const Asked& asked,
                          const std::vector<Space>& spaces, const std::vector<TextPlace>& places,
                          Output& out) {
  const Recognizer recognizer(capture);
  ChangePrinter printer(capture, o.syntax == "att" ? Syntax::kAtt : Syntax::kIntel,
                        mode_of(capture, o.mode, places.empty() ? nullptr : places.data()),
                        o.format == "jsonl", out);
  const auto [from, to] = *asked.between;
  const auto one = [&](Space space, AddrRange range) {
    const std::vector<Cell> cells = capture.text->cells(space, range);
    printer.difference(space, from, to, difference(capture, recognizer, space, cells, from, to));
  };
  if (asked.where) {
    for (const TextPlace& p : places) one(p.space, p.range);
  } else if (spaces.empty()) {
    one(kKernelSpace, {0, UINT64_MAX});
  } else {
    for (const Space space : spaces) one(space, {0, UINT64_MAX});
  }
  return kExitOk;
}

ExitCode print_text(const Capture& capture, const TextOptions& o, const Asked& asked,
                    const std::vector<TextPlace>& places, Output& out) {
  const Syntax syntax = o.syntax == "att" ? Syntax::kAtt : Syntax::kIntel;
  if (o.history) {
    const Recognizer recognizer(capture);
    for (const TextPlace& p : places) {
      ChangePrinter printer(capture, syntax, mode_of(capture, o.mode, &p), o.format == "jsonl", out);
      const std::vector<Cell> cells = capture.text->cells(p.space, p.range);
      printer.history(p, changes_of(capture, recognizer, p.space, p.range, cells));
    }
    return kExitOk;
  }
  for (const TextPlace& p : places)
    TextLister(*capture.text, syntax, code_machine(capture.machine), mode_of(capture, o.mode, &p), out)
        .show(p, asked.where->time, o.diff);
  return kExitOk;
}

ExitCode run_text(const TextOptions& o) {
  Diagnostics diagnostics = o.input.diagnostics();
  const auto asked = understand(o);
  if (!asked) {
    diagnostics.error(asked.error());
    return kExitUsage;
  }
  const auto capture = open_for_verb(o.input, diagnostics, o.input.verbose > 0);
  if (!capture) return kExitInput;
  std::vector<Space> spaces;
  if (o.pid) {
    spaces = spaces_of(*capture, *o.pid);
    if (spaces.empty()) {
      diagnostics.error({Code::kProcessNotTraced, capture->path, Error::kNoOffset,
                         fmt::format("no traced stream ran process {}", *o.pid),
                         "'asof events --type COMM' lists processes"});
      return kExitInput;
    }
  }
  std::vector<TextPlace> places;
  if (asked->where) {
    places = find_text_places(*capture, *asked->where, o.length, spaces);
    if (places.empty()) {
      diagnostics.error(
          {Code::kNothingKnownHere, o.where, Error::kNoOffset,
           asked->where->name.empty() ? "no text is known at this address" : "no symbol of this name",
           "'asof events' lists mappings, 'asof report' what was read"});
      return kExitInput;
    }
  }
  auto out = Output::open("-");
  if (!out) return kExitInput;
  const ExitCode code = asked->between ? print_difference(*capture, o, *asked, spaces, places, *out)
                                       : print_text(*capture, o, *asked, places, *out);
  out->flush();
  return interrupted() ? kExitInterrupted : code;
}

}  // namespace

RunVerb add_text(CLI::App& app) {
  auto o = std::make_shared<TextOptions>();
  CLI::App* verb =
      app.add_subcommand("text", "what was at an address, who changed it, what differs between two times");
  verb->add_option("WHERE", o->where,
                   "ADDR|SYM[+OFF][@TIME] or ADDR-END: offset hexadecimal, time in seconds");
  add_input_options(*verb, o->input, false);
  verb->add_option("--length", o->length, "bytes (default: the function, or 64)")->type_name("N");
  CLI::Option* diff = verb->add_option(
      "--diff", o->diff_values,
      "changes only, old against new disassembly; with two times (seconds, start, end) what differs between\n"
      "them in the whole kernel, or in WHERE");
  diff->expected(0, 2)->type_name("T1 T2");
  verb->add_flag("--history", o->history, "all changes: when, who, what, from which record");
  verb->add_option("--pid", o->pid, "text of this process")->type_name("PID");
  verb->add_option("--mode", o->mode, "bits of the code (default: as its file or machine is)")
      ->check(CLI::IsMember({16, 32, 64}));
  verb->add_option("--syntax", o->syntax, "of disassembly: intel or att")
      ->check(CLI::IsMember({"intel", "att"}));
  verb->add_option("--format", o->format, "text or jsonl: one JSON object a line")
      ->check(CLI::IsMember({"text", "jsonl"}));
  return [o, diff] {
    o->diff = diff->count() > 0;
    return run_text(*o);
  };
}

}  // namespace asof
