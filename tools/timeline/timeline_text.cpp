// Words about a timeline that several formats share.
#include <fmt/format.h>

#include "tools/output/format.h"
#include "tools/timeline/timeline_outputs.h"

namespace asof {

std::string poke_title(const PokeSlice& poke) {
  const std::string_view mechanism = mechanism_name(poke.mechanism);
  return poke.action.empty() ? std::string(mechanism) : fmt::format("{}: {}", mechanism, poke.action);
}

std::string poke_bytes(const Capture& capture, const PokeSlice& poke) {
  const PokeRecord& p = capture.text->pokes()[poke.index];
  return fmt::format("{} -> {}", format_bytes(p.old_bytes()), format_bytes(p.new_bytes()));
}

std::string timeline_time(const TimelineSummary& summary, Time t) {
  return summary.clock == TimelineSummary::Clock::kNanoseconds
             ? format_time(t)
             : fmt::format("instruction {}", format_count(static_cast<uint64_t>(t)));
}

std::string timeline_length(const TimelineSummary& summary, Time length) {
  const auto n = static_cast<uint64_t>(length);
  return summary.clock == TimelineSummary::Clock::kNanoseconds
             ? format_duration(n)
             : format_plural(n, "instruction", "instructions");
}

}  // namespace asof
