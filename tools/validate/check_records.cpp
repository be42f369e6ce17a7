// Validation: whether the records about text agree with each other and with the copies of memory.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include "tools/output/format.h"
#include "tools/validate/validation.h"

namespace asof {
namespace {

// The codes by which opening a capture reports that records and copies of text contradict each other.
constexpr std::array<Code, 5> kBroken{Code::kUnrecordedChange, Code::kLastChangeMissing,
                                      Code::kBrokenPokeChain, Code::kFirstPokeMismatch,
                                      Code::kCopyContradictsSamples};
// ... that a copy is of another kernel or moment, so that what is decoded with it means nothing.
constexpr std::array<Code, 5> kForeign{Code::kKallsymsOfOtherBoot, Code::kModuleMoved,
                                       Code::kOtherKernelAtEnd, Code::kOtherBuildIdUsed,
                                       Code::kTraceContradictsText};
// ... that two sources have different bytes of one BPF program.
constexpr std::array<Code, 1> kImages{Code::kBpfImageMismatch};

// The first address of a notice: where it is, or in its reason.
std::optional<Addr> address_of(const Notice& n) {
  for (const std::string* text : {&n.where, &n.reason}) {
    const size_t at = text->starts_with("0x") ? 0 : text->find(" 0x");
    if (at == std::string::npos) continue;
    const Addr a = std::strtoull(text->c_str() + at, nullptr, 16);
    if (is_kernel_address(a)) return a;
  }
  return std::nullopt;
}

std::string notice_text(const Capture& capture, const Notice& n) {
  std::string text = fmt::format("{} {}", code_text(n.code), n.where);
  if (const auto a = address_of(n)) {
    const auto symbol = capture.symbols.find(kKernelSpace, *a, n.time);
    if (symbol) text += fmt::format(" ({}+{:#x})", symbol->symbol->shown(), symbol->offset);
  }
  if (n.time != kTimeMin) text += " from " + format_time(n.time);
  return text + ": " + n.reason;
}

template <size_t N>
uint64_t gather(const Capture& capture, const std::array<Code, N>& codes, std::vector<std::string>& places) {
  uint64_t count = 0;
  for (const Notice& n : capture.notices) {
    if (std::ranges::find(codes, n.code) == codes.end()) continue;
    count += n.count;
    if (places.size() < Check::kMaxPlaces) places.push_back(notice_text(capture, n));
  }
  return count;
}

Check chain(const ValidationInput& in) {
  Check c{.topic = "chain"};
  const uint64_t broken = gather(in.capture, kBroken, c.places);
  const uint64_t pokes = in.capture.text->pokes().size();
  uint64_t lost = 0;
  for (const LostRecords& l : in.health.side.lost) lost += l.count;
  if (broken == 0) {
    c.answer = fmt::format("{} of text, and each finds what the one before it left",
                           format_plural(pokes, "recorded change", "recorded changes"));
  } else {
    c.answer = fmt::format("changes of text are missing: records and copies contradict each other in {}",
                           format_plural(broken, "place", "places"));
  }
  if (lost != 0) c.answer += fmt::format("; {} lost", format_plural(lost, "record was", "records were"));
  // A loss explains a break, so nothing else can be concluded from it.
  c.result = broken != 0 && lost == 0 ? Check::Result::kFail
             : broken + lost != 0     ? Check::Result::kNote
                                      : Check::Result::kPass;
  return c;
}

}  // namespace

void check_records(const ValidationInput& in, std::vector<Check>& out) {
  if (!in.capture.perf) {
    const bool had_records = in.capture.blocks || in.capture.core;
    out.push_back(
        {Check::Result::kSkip,
         "chain",
         had_records
             ? "the records themselves, copies, images and the clock were not compared: this is made of a "
               "recording, and validates with it only"
             : "a capture without records of changes",
         {}});
    return;
  }
  out.push_back(chain(in));
  Check copies{.topic = "copies"};
  const uint64_t foreign = gather(in.capture, kForeign, copies.places);
  copies.result = foreign == 0 ? Check::Result::kPass : Check::Result::kFail;
  copies.answer = foreign == 0 ? "no copy or file is of another kernel or build"
                               : "a copy or file is of another kernel, build or moment";
  out.push_back(std::move(copies));
  if (!in.health.kernel_traced) return;
  Check images{.topic = "images"};
  const uint64_t other = gather(in.capture, kImages, images.places);
  images.result = other == 0 ? Check::Result::kPass : Check::Result::kFail;
  images.answer = other == 0 ? "images of BPF programs agree with what else is known of them"
                             : fmt::format("images of BPF programs are not what was in memory ({})",
                                           format_plural(other, "program", "programs"));
  out.push_back(std::move(images));
  // What `asof doctor` checks, too, and validation needs.
  std::vector<Finding> findings;
  check_pokes(in.health, findings);
  check_kcore(in.health, findings);
  check_text(in.health, findings);
  check_bpf(in.health, findings);
  for (const Finding& f : findings) {
    Check c{.topic = f.topic, .answer = f.answer};
    c.result = f.verdict == Verdict::kOk     ? Check::Result::kPass
               : f.verdict == Verdict::kWarn ? Check::Result::kNote
                                             : Check::Result::kFail;
    if (f.verdict != Verdict::kOk && !f.evidence.empty()) c.places.push_back(f.evidence);
    out.push_back(std::move(c));
  }
}

}  // namespace asof
