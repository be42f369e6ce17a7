#include "tools/script/script_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "tools/cli/options.h"
#include "tools/disasm/disasm.h"

namespace asof {
namespace {

std::unexpected<Error> usage(std::string reason, std::string hint = {}) {
  return fail(Code::kBadOption, "", Error::kNoOffset, std::move(reason), std::move(hint));
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
  out.by_time = word != "i" && value != 0;
  out.by_ticks = word == "t" && value != 0;
  if (out.by_time && !out.by_ticks) {
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

// After `e`: signs with a letter each, for kinds of errors. perf leaves out those with a minus.
Result<void> take_error_kinds(std::string_view& text, ScriptItrace& out) {
  while (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    const char kind = text.size() < 2 ? '\0' : text[1];
    if (kind != 'o' && kind != 'l')
      return usage("--itrace: e is followed by other kinds of errors than there are",
                   "there are o (overflows) and l (losses), as in e-o-l");
    (kind == 'o' ? out.no_overflows : out.no_losses) = text[0] == '-';
    text.remove_prefix(2);
  }
  return {};
}

// Letters for events that perf prints if there are any.
std::string_view without_effect(char letter) {
  switch (letter) {
    case 'T':
      return "T (the trace's timestamps as the kernel's time) changes nothing: asof uses them wherever a "
             "trace has them";
    case 'f':
    case 'm':
    case 't':
    case 'M':
    case 'a':
      return "f, m, t, M and a change nothing: they are of Arm SPE, which has no control flow";
    default:
      return {};
  }
}

std::string_view why_not(char letter) {
  switch (letter) {
    case 'y':
      return "y (cycles): '-F +ipc' prints cycles, 'asof decode --cycles' with their bounds";
    case 'd':
      return "d (a log of the decoder): 'asof decode -v' says what was read";
    default:
      return {};
  }
}

Result<void> take_other_letter(char letter, ScriptItrace& out) {
  const std::string_view note = without_effect(letter);
  if (note.empty()) {
    const std::string_view why = why_not(letter);
    return usage(fmt::format("--itrace: letter '{}' is not taken", letter),
                 why.empty() ? "there are i b c r x w p o I e g l G L s q A Z" : std::string(why));
  }
  if (std::ranges::find(out.without_effect, note) == out.without_effect.end())
    out.without_effect.push_back(note);
  return {};
}

// g, G: call chains; l, L: last branches.
Result<void> take_stack(char letter, std::string_view& text, ScriptItrace& out) {
  const bool chain = letter == 'g' || letter == 'G';
  constexpr uint32_t kChain = 16, kBranches = 64;  // as in perf
  const auto size = take_size(text, chain ? kChain : kBranches);
  if (!size) return std::unexpected(size.error());
  (letter == 'g'   ? out.chain
   : letter == 'G' ? out.sample_chain
   : letter == 'l' ? out.last_branches
                   : out.sample_branches) = *size;
  return {};
}

}  // namespace

const std::optional<TimeConversion>& trace_clock(const Capture& capture) {
  return code_machine(capture.machine) == CodeMachine::kArm64 ? capture.arm64.time : capture.x86.time;
}

Result<void> ticks_to_time(const std::optional<TimeConversion>& clock, ScriptItrace& itrace) {
  if (!itrace.by_ticks) return {};
  if (!clock) {
    return usage("--itrace: a period in ticks needs a trace whose clock is known",
                 "use i (instructions), as in i1000i");
  }
  const auto ns = (static_cast<unsigned __int128>(itrace.period) * clock->mult) >> clock->shift;
  if (ns > INT64_MAX) return usage("--itrace: period too large");
  itrace.period = std::max<uint64_t>(static_cast<uint64_t>(ns), 1);
  itrace.by_ticks = false;
  return {};
}

ScriptItrace default_script_itrace() {
  ScriptItrace all;
  all.branches = all.calls = all.errors = all.transactions = all.ptwrite = all.power = true;
  all.pebs = all.interrupts = true;
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
        if (const auto ok = take_error_kinds(text, out); !ok) return std::unexpected(ok.error());
        break;
      case 'o':
        out.pebs = true;
        break;
      case 'I':
        out.interrupts = true;
        break;
      case 'Z':
        out.timeless = true;
        break;
      case 'g':
      case 'G':
      case 'l':
      case 'L':
        if (const auto ok = take_stack(letter, text, out); !ok) return std::unexpected(ok.error());
        break;
      case 's': {
        const auto number = take_number(text);
        if (!number) return std::unexpected(number.error());
        if (!*number) return usage("--itrace: s needs the number of events to skip");
        out.skip = **number;
        break;
      }
      case 'A':
        out.approx_ipc = true;
        break;
      case 'q':
        ++out.quick;
        break;
      case ' ':
      case ',':
        break;
      default:
        if (const auto ok = take_other_letter(letter, out); !ok) return std::unexpected(ok.error());
    }
  }
  return out;
}

}  // namespace asof
