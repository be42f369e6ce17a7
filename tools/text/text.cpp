// asof text: what was at an address, when, and where it came from. Without a time: the code as it was first,
// with a mark at each instruction that changes, then every version of those; --diff shows the changes only,
// old against new; --history what made them; --diff T1 T2 what differs between two instants.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "tools/cli/arguments.h"
#include "tools/cli/matches.h"
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
  std::vector<std::string> words;  // WHERE and INPUT, in any order
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

// Sorts what stands on the command line: two times behind --diff, a file that exists is INPUT (unless -i gives
// one), the rest is WHERE.
Result<void> sort_words(TextOptions& o, bool input_given) {
  const auto usage = [](std::string reason) {
    return fail(Code::kBadOption, "", Error::kNoOffset, std::move(reason));
  };
  std::erase(o.diff_values, "");  // CLI11's, for --diff without a value
  std::vector<std::string> words = o.words;
  auto& values = o.diff_values;
  const bool files = std::any_of(values.begin(), values.end(), is_input);
  const bool times = values.size() >= 2 && (!files || (parse_instant(values[0]) && parse_instant(values[1])));
  const bool compares = values.size() >= 2;
  const std::string lone = !times && !values.empty() && parse_instant(values[0]) ? values[0] : std::string();
  const auto rest = values.begin() + (times ? 2 : 0);
  words.insert(words.end(), rest, values.end());
  values.erase(rest, values.end());
  if (!input_given) {
    const auto file = std::find_if(words.begin(), words.end(), is_input);
    // One word that could be both is what the verb is about.
    if (file != words.end() && (words.size() > 1 || times)) {
      o.input.input = *file;
      words.erase(file);
    }
  }
  // Digits alone are an address.
  if (!lone.empty() && (words.size() > 1 || !parse_hex(lone)))
    return usage(fmt::format("--diff: '{}' is one time, and two are compared (seconds, start, end)", lone));
  if (words.size() > 1) {
    if (compares)
      return usage(fmt::format(
          "--diff: '{}' and '{}' are not two times (seconds, start, end), and one WHERE is enough",
          words[words.size() - 2], words.back()));
    return usage(fmt::format("'{}' is no capture that exists, and one WHERE is enough", words.back()));
  }
  o.where = words.empty() ? std::string() : words[0];
  return {};
}

// Without the INPUT among them, and with what of it is not known.
Result<Asked> understand(const TextOptions& o) {
  Asked asked;
  const auto usage = [](std::string reason) {
    return fail(Code::kBadOption, "", Error::kNoOffset, std::move(reason));
  };
  if (!o.diff_values.empty()) {
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

// A time that the capture does not have: the answer is still that of the bytes there.
void warn_of_instant(const Capture& capture, Time t, Diagnostics& diagnostics) {
  if (t == kTimeMin || t == kTimeMax) return;
  const TimeBounds whole = whole_time(capture);
  if (whole.lo == kTimeMin || whole.hi == kTimeMax || (t >= whole.lo && t <= whole.hi)) return;
  const bool late = t > whole.hi;
  diagnostics.warn({Code::kBadOption, "", Error::kNoOffset,
                    fmt::format("{} is {} the capture ({}): shown is the {} text that is known",
                                format_time(t), late ? "after the end of" : "before the start of",
                                format_interval(whole.lo, whole.hi), late ? "last" : "first"),
                    "nothing is known of changes outside the capture"});
}

// And so with an offset that the function does not have.
void warn_of_outside(const Capture& capture, const TextQuery& q, const std::vector<TextPlace>& places,
                     Diagnostics& diagnostics) {
  const auto warn = [&](std::string reason, std::string hint) {
    diagnostics.warn({Code::kBadOption, "", Error::kNoOffset, std::move(reason), std::move(hint)});
  };
  if (q.time) warn_of_instant(capture, *q.time, diagnostics);
  if (q.name.empty()) return;
  for (const Symbol* s : capture.symbols.called(q.name)) {
    if (q.offset == 0 || s->range.empty() || q.offset < s->range.size()) continue;
    const bool shown = std::any_of(places.begin(), places.end(), [&](const TextPlace& p) {
      return p.space == s->space && p.range.begin == s->range.begin + q.offset;
    });
    if (!shown) continue;
    const auto at = capture.symbols.find(s->space, s->range.begin + q.offset, q.time.value_or(s->from));
    warn(fmt::format("{}+{:#x} is not in {}, which has {}", q.name, q.offset, q.name,
                     format_plural(s->range.size(), "byte", "bytes")),
         at ? fmt::format("it is {}+{:#x}", at->symbol->shown(), at->offset) : "it is in no known function");
    return;
  }
}

ExitCode run_text(TextOptions o, bool input_given) {
  Diagnostics diagnostics = o.input.diagnostics();
  const auto sorted = sort_words(o, input_given);
  const auto asked = sorted ? understand(o) : std::unexpected(sorted.error());
  if (!asked) {
    diagnostics.error(asked.error());
    return kExitUsage;
  }
  // What is unknown may be in what could not be read. Lost trace does not matter here.
  const auto capture = open_for_verb(o.input, diagnostics, shown_or_all(ShownNotices::kDamage, o.input));
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
      const std::string near =
          asked->where->name.empty() ? std::string() : near_symbols(*capture, asked->where->name);
      diagnostics.error(
          {Code::kNothingKnownHere, o.where, Error::kNoOffset,
           asked->where->name.empty() ? "no text is known at this address" : "no symbol of this name",
           near.empty() ? "'asof events' lists mappings, 'asof report' what was read" : near});
      return kExitInput;
    }
    warn_of_outside(*capture, *asked->where, places, diagnostics);
  }
  if (asked->between) {
    for (const Time t : {asked->between->first, asked->between->second})
      warn_of_instant(*capture, t, diagnostics);
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
  verb->add_option("WHERE", o->words,
                   "ADDR|SYM[+OFF][@TIME] or ADDR-END: offset hexadecimal, time in seconds, start, end; "
                   "before or behind it "
                   "the capture (default: perf.data)")
      ->expected(0, 2)
      ->type_name("");
  add_input_options(*verb, o->input, false);
  verb->add_option("--length", o->length, "bytes (default: the function, or 64)")
      ->transform(not_negative())
      ->type_name("N");
  CLI::Option* diff = verb->add_option(
      "--diff", o->diff_values,
      "changes only, old against new disassembly; with two times (seconds, start, end) what differs between\n"
      "them in the whole kernel, or in WHERE");
  diff->expected(0, 4)->type_name("T1 T2");  // and what follows them, see sort_words()
  verb->add_flag("--history", o->history, "all changes: when, who, what, from which record");
  verb->add_option("--pid", o->pid, "text of this process")->type_name("PID");
  verb->add_option("--mode", o->mode, "bits of the code (default: as its file or machine is)")
      ->check(CLI::IsMember({16, 32, 64}));
  verb->add_option("--syntax", o->syntax, "of disassembly: intel or att")
      ->check(CLI::IsMember({"intel", "att"}));
  verb->add_option("--format", o->format, "text or jsonl: one JSON object a line")
      ->check(CLI::IsMember({"text", "jsonl"}));
  add_strict_option(*verb);
  const CLI::Option* const input = verb->get_option("--input");
  return [o, diff, input] {
    o->diff = diff->count() > 0;
    return run_text(*o, input->count() > 0);
  };
}

}  // namespace asof
