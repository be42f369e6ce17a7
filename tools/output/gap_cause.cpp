#include "tools/output/gap_cause.h"

#include <fmt/format.h>

#include "tools/output/diagnostics.h"
#include "tools/output/format.h"

namespace asof {

void GapCause::add(const Capture& capture, const Stream& stream, const Gap& gap) {
  if (count++ == 0) first = gap_text(capture, stream, gap);
  if (gap.ip != 0 && !is_kernel_address(gap.ip)) ++in_user;
  bytes += gap.end > gap.begin ? gap.end - gap.begin : 0;
}

std::vector<Notice> notices_of(const std::map<Code, GapCause>& causes, const std::string& where) {
  std::vector<Notice> out;
  for (const auto& [code, cause] : causes) {
    std::string reason =
        fmt::format("{}, first: {}", format_plural(cause.count, "time", "times"), cause.first);
    if (cause.count > 1 && cause.bytes != 0)
      reason += fmt::format("; {} of trace in all", format_size(cause.bytes));
    out.push_back({.severity = is_error_code(code) ? Notice::Severity::kError : Notice::Severity::kLoss,
                   .code = code,
                   .where = where,
                   .reason = std::move(reason),
                   .hint = fmt::format("see 'asof errors --explain {}'", code_text(code))});
  }
  return out;
}

}  // namespace asof
