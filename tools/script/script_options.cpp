#include "tools/script/script_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "tools/cli/options.h"

namespace asof {
namespace {

std::unexpected<Error> usage(std::string reason, std::string hint = {}) {
  return fail(Code::kBadOption, "", Error::kNoOffset, std::move(reason), std::move(hint));
}

constexpr std::array<std::string_view, 22> kWords{
    "comm",  "tid",        "pid",     "time",       "cpu",    "event", "ip",   "sym",
    "dso",   "addr",       "symoff",  "srcline",    "period", "flags", "insn", "insnlen",
    "synth", "callindent", "brstack", "brstacksym", "disasm", "ipc"};
static_assert(kScriptIpc == 1U << (kWords.size() - 1));

constexpr uint32_t kFlow = kScriptComm | kScriptTid | kScriptCpu | kScriptTime | kScriptEvent | kScriptIp |
                           kScriptSym | kScriptSymoff | kScriptDso | kScriptPeriod;
constexpr uint32_t kSynth = kScriptComm | kScriptTid | kScriptCpu | kScriptTime | kScriptEvent | kScriptIp |
                            kScriptSym | kScriptSymoff | kScriptDso | kScriptSynth;

uint32_t field_bit(std::string_view name) {
  if (name == "brstackoff") return 0;
  const auto* const at = std::ranges::find(kWords, name);
  return at == kWords.end() ? 0 : 1U << (at - kWords.begin());
}

// Digits at the front of `text`; nothing: there are none.
Result<std::optional<uint64_t>> take_number(std::string_view& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0) return std::optional<uint64_t>();
  uint64_t value = 0;
  const auto r = std::from_chars(text.data(), text.data() + digits, value);
  if (r.ec != std::errc()) return usage(fmt::format("--itrace: {} is too large", text.substr(0, digits)));
  text.remove_prefix(digits);
  return std::optional(value);
}

// After `i`: a number and its unit. perf's default unit is us... of a number alone, instructions if it is 0 or 1.
Result<void> take_period(std::string_view& text, ScriptItrace& out) {
  const auto number = take_number(text);
  if (!number) return std::unexpected(number.error());
  if (!*number) return {};
  uint64_t value = **number;
  struct Unit {
    std::string_view word;
    uint64_t ns;
  };
  constexpr std::array<Unit, 5> kUnits{{{"ms", 1'000'000}, {"us", 1000}, {"ns", 1}, {"i", 0}, {"t", 0}}};
  const auto* const unit =
      std::ranges::find_if(kUnits, [&](const Unit& u) { return text.starts_with(u.word); });
  // Without a unit it is nanoseconds, unless it means every instruction.
  const std::string_view word = unit == kUnits.end() ? "ns" : unit->word;
  if (unit != kUnits.end()) text.remove_prefix(word.size());
  if (word == "t")
    return usage("--itrace: periods in ticks are not taken", "use ns, us, ms or i (instructions)");
  out.by_time = word != "i" && value != 0;
  if (out.by_time) {
    const uint64_t scale = unit == kUnits.end() ? 1 : unit->ns;
    if (value > UINT64_MAX / 2 / scale) return usage("--itrace: period too large");
    value *= scale;
  }
  out.period = std::max<uint64_t>(value, 1);
  return {};
}

Result<uint32_t> take_size(std::string_view& text, uint32_t standard) {
  constexpr uint32_t kMost = 1024;  // as in perf
  const auto number = take_number(text);
  if (!number) return std::unexpected(number.error());
  if (!*number) return standard;
  if (**number == 0 || **number > kMost)
    return usage(fmt::format("--itrace: sizes after g and l are 1 to {}", kMost));
  return static_cast<uint32_t>(**number);
}

std::string_view why_not(char letter) {
  switch (letter) {
    case 'd':
      return "d (a log of the decoder): 'asof decode -v' says what was read";
    case 'q':
      return "q (quicker, without walking the code): asof walks all of it";
    case 'A':
      return "A (approximate IPC): the field ipc has what CYC packets say";
    case 'f':
    case 'm':
    case 't':
    case 'M':
    case 'a':
      return "f, m, t, M and a are of Arm SPE, which has no control flow";
    case 'o':
    case 'I':
      return "o and I: 'asof decode --itrace oI' prints PEBS via PT and Event Trace";
    case 'G':
    case 'L':
      return "G and L: chains and branches are added to events that asof makes, not to others; use g and l";
    case 'T':
      return "T (timestamps without clock)";
    default:
      return {};
  }
}

}  // namespace

ScriptFields default_script_fields() { return {kFlow, kSynth, true}; }

Result<void> change_fields(const std::string& text, ScriptFields& fields) {
  if (text.find(':') != std::string::npos)
    return usage("--fields: fields by type of event (hw:...) are not taken",
                 "name the fields without a type");
  bool first = true;
  const std::string all = text;
  for (std::string part : split_list(text)) {
    const char sign = part[0];
    const bool change = sign == '+' || sign == '-';
    if (change) part.erase(0, 1);
    if (first && !change) fields.flow = fields.synth = 0;
    first = false;
    const uint32_t bit = field_bit(part);
    if (bit == 0) {
      return usage(fmt::format("--fields: no field '{}'", part),
                   fmt::format("there are {}", fmt::join(kWords, ",")));
    }
    for (uint32_t* mask : {&fields.flow, &fields.synth}) *mask = sign == '-' ? *mask & ~bit : *mask | bit;
  }
  // As in perf: who names fields says with `addr` whether branches show where they go.
  fields.targets = fields.targets && all == "+flags";
  fields.synth &= ~uint32_t{kScriptPeriod | kScriptAddr | kScriptBrstack | kScriptBrstacksym |
                            kScriptCallindent | kScriptIpc};
  if (fields.flow == 0) return usage("--fields: no field is left");
  return {};
}

ScriptItrace default_script_itrace() {
  ScriptItrace all;
  all.branches = all.calls = all.errors = all.transactions = all.ptwrite = all.power = true;
  return all;
}

Result<ScriptItrace> parse_script_itrace(std::string_view text) {
  if (text.empty()) return usage("--itrace: no letter given");
  ScriptItrace out;
  while (!text.empty()) {
    const char letter = text[0];
    text.remove_prefix(1);
    switch (letter) {
      case 'i':
        out.instructions = true;
        if (const auto ok = take_period(text, out); !ok) return std::unexpected(ok.error());
        break;
      case 'b':
        out.branches = true;
        break;
      case 'c':
        out.branches = out.calls = true;
        break;
      case 'r':
        out.branches = out.returns = true;
        break;
      case 'x':
        out.transactions = true;
        break;
      case 'w':
        out.ptwrite = true;
        break;
      case 'p':
        out.power = true;
        break;
      case 'e':
        out.errors = true;
        break;
      case 'g': {
        const auto size = take_size(text, 16);
        if (!size) return std::unexpected(size.error());
        out.chain = *size;
        break;
      }
      case 'l': {
        const auto size = take_size(text, 64);
        if (!size) return std::unexpected(size.error());
        out.last_branches = *size;
        break;
      }
      case 's': {
        const auto number = take_number(text);
        if (!number) return std::unexpected(number.error());
        if (!*number) return usage("--itrace: s needs the number of events to skip");
        out.skip = **number;
        break;
      }
      case ' ':
      case ',':
        break;
      default: {
        const std::string_view why = why_not(letter);
        return usage(fmt::format("--itrace: letter '{}' is not taken", letter),
                     why.empty() ? "there are i b c r x w p e g l s" : std::string(why));
      }
    }
  }
  return out;
}

}  // namespace asof
