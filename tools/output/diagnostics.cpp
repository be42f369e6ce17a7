#include "tools/output/diagnostics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "textstore/plain_text.h"
#include "tools/output/error_table.h"
#include "tools/output/format.h"
#include "tools/output/ring_start.h"

namespace asof {
namespace {

std::atomic<bool> any_warning = false;

}  // namespace

std::string place_text(const std::string& where, uint64_t offset) {
  return offset == Error::kNoOffset ? where : fmt::format("{} offset {:#x}", where, offset);
}

const Notice* early_end(const Capture& capture) {
  const auto found = std::ranges::find_if(capture.notices, [](const Notice& n) {
    return n.code == Code::kPerfDataTruncated || n.code == Code::kUnfinishedRecording;
  });
  return found == capture.notices.end() ? nullptr : &*found;
}

bool wants_color(Diagnostics::Color color, bool terminal) {
  if (color != Diagnostics::Color::kAuto) return color == Diagnostics::Color::kAlways;
  const char* no_color = std::getenv("NO_COLOR");
  return (no_color == nullptr || *no_color == '\0') && terminal;
}

void to_stderr(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

Diagnostics::Diagnostics(Color color, int verbosity)
    : color_(wants_color(color, isatty(STDERR_FILENO) == 1)), verbosity_(verbosity) {}

void Diagnostics::line(Code code, std::string_view rest, std::string_view hint, uint64_t count) {
  const bool first = hinted_.insert(code).second;
  const std::string plain = plain_text(rest);
  std::string text = color_ ? fmt::format("\033[1;31m{}\033[0m {}", code_text(code), plain)
                            : fmt::format("{} {}", code_text(code), plain);
  if (count > 1) text += fmt::format(" ({} times)", format_count(count));
  text += '\n';
  if (first && !hint.empty()) text += fmt::format("  hint: {}\n", hint);
  to_stderr(text);
}

void Diagnostics::error(const Error& e) {
  const std::string place = place_text(e.where, e.offset);
  line(e.code, place.empty() ? e.reason : fmt::format("{}: {}", place, e.reason), e.hint);
}

void Diagnostics::warn(const Error& e) {
  any_warning = true;
  if (verbosity_ >= 0) error(e);
}

bool Diagnostics::warned() { return any_warning; }

void Diagnostics::notice(const Notice& n) {
  const bool info = n.severity == Notice::Severity::kInfo;
  if (verbosity_ < (info ? 1 : 0)) return;
  std::string place = place_text(n.where, n.offset);
  if (n.time != kTimeMin) place += fmt::format("{}{}", place.empty() ? "" : " ", format_time(n.time));
  line(n.code, place.empty() ? n.reason : fmt::format("{}: {}", place, n.reason), n.hint, n.count);
}

void Diagnostics::gap(const Capture& capture, const Stream& stream, const Gap& gap) {
  if (verbosity_ < 0) return;
  if (is_ring_start(stream, gap)) {
    note(fmt::format(
        "{}: the trace begins in the middle, as a ring buffer leaves it; {} before its first sync "
        "point are not decoded ({})",
        stream_place(stream), format_size(gap.end - gap.begin), code_text(gap.code)));
    return;
  }
  line(gap.code, gap_text(capture, stream, gap),
       fmt::format("see 'asof errors --explain {}'", code_text(gap.code)));
}

void Diagnostics::note(const std::string& text) {
  if (verbosity_ >= 0) to_stderr(fmt::format("asof: {}\n", plain_text(text)));
}

std::string stream_place(const Stream& stream) {
  if (stream.cpu >= 0) return fmt::format("cpu {}", stream.cpu);
  if (stream.tid >= 0) return fmt::format("tid {}", stream.tid);
  return stream.name;
}

Time known_time(TimeBounds b) {
  if (b.lo != kTimeMin) return b.lo;
  return b.hi == kTimeMax ? kTimeMin : b.hi;
}

std::string symbol_text(const Capture& capture, const Stream& stream, Addr a, Time t) {
  Space space = kKernelSpace;
  if (!is_kernel_address(a)) {
    const ContextChange* context = stream.context_at(t);
    if (context == nullptr || context->space == kNoSpace) return {};
    space = context->space;
  }
  const auto at = capture.symbols.find(space, a, t);
  return at ? fmt::format("{}+{:#x}", at->symbol->shown(), at->offset) : std::string();
}

std::string gap_text(const Capture& capture, const Stream& stream, const Gap& gap) {
  std::string text = stream_place(stream);
  const Time time = known_time(gap.time);
  if (time != kTimeMin) text += ' ' + format_time(time);
  if (gap.ip != 0) {
    text += fmt::format(" ip {:x}", gap.ip);
    const std::string symbol = symbol_text(capture, stream, gap.ip, time);
    if (!symbol.empty()) text += fmt::format(" ({})", symbol);
  }
  text += fmt::format(": {}", gap.reason);
  if (gap.end > gap.begin) {
    text += fmt::format(" [{} of trace from offset {:#x} not decoded]", format_size(gap.end - gap.begin),
                        gap.begin);
  }
  return text;
}

bool is_error_code(Code code) { return is_error_or_loss(code) && family_of(code) != CodeFamily::kLost; }

}  // namespace asof
