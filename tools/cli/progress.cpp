#include "tools/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "tools/output/diagnostics.h"
#include "tools/output/format.h"

namespace asof {

ProgressBar::ProgressBar(ProgressMode mode, std::string what)
    : enabled_(mode == ProgressMode::kAlways || (mode == ProgressMode::kAuto && isatty(STDERR_FILENO) == 1)),
      what_(std::move(what)),
      started_(std::chrono::steady_clock::now()),
      last_(started_) {}

ProgressBar::~ProgressBar() {
  if (drawn_) to_stderr("\r\033[K");
}

void ProgressBar::update(const PipelineProgress& p) {
  using namespace std::chrono_literals;
  const auto now = std::chrono::steady_clock::now();
  if (!enabled_ || p.total_bytes == 0 || now - last_ < 200ms) return;
  last_ = now;
  drawn_ = true;
  constexpr unsigned kWidth = 40;
  const double share = std::min(1.0, static_cast<double>(p.done_bytes) / static_cast<double>(p.total_bytes));
  const auto filled = static_cast<unsigned>(share * kWidth);
  const double seconds = std::chrono::duration<double>(now - started_).count();
  const double left = share > 0.01 ? seconds / share - seconds : 0;
  to_stderr(fmt::format("\r\033[K{} [{:#<{}}{:.<{}}] {:5.1f} %  {}{}", what_, "", filled, "", kWidth - filled,
                        share * 100, format_size(p.done_bytes),
                        left > 0 ? fmt::format("  {:.0f} s left", left) : ""));
  std::fflush(stderr);
}

std::function<void(const PipelineProgress&)> ProgressBar::callback() {
  if (!enabled_) return {};
  return [this](const PipelineProgress& p) { update(p); };
}

}  // namespace asof
