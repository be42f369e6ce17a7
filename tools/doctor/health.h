// Health of a capture: whether it holds what exact decoding needs, determined before any decoding. Each
// finding is one question with its answer, the numbers it is based on, and what to do. What text and time
// must provide is in docs/live-text.md.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "decoder/model/capture.h"
#include "decoder/model/image.h"
#include "decoder/sideband/sideband.h"

namespace asof {

enum class Verdict : uint8_t { kOk, kWarn, kBad };
std::string_view verdict_name(Verdict v);  // "ok", "warn", "bad"

struct Finding {
  Verdict verdict = Verdict::kOk;
  std::string_view topic;  // stable: "pokes", "kcore", "clock", ...
  std::string answer;      // one sentence
  std::string evidence;    // numbers; may be empty
  std::string remedy;      // empty when all is well
};

// What the checks share: the capture, and the facts of its side-band read once more.
struct HealthInput {
  const Capture& capture;
  SideBand side;  // empty for captures without records
  bool kernel_traced = false, user_traced = false;
  bool arm64 = false;
};
HealthInput health_input(const Capture& capture);

std::vector<Finding> examine(const Capture& capture);

// The checks, by subject. Each adds its findings.
void check_trace(const HealthInput& in, std::vector<Finding>& out);
void check_losses(const HealthInput& in, std::vector<Finding>& out);
void check_clock(const HealthInput& in, std::vector<Finding>& out);
void check_switches(const HealthInput& in, std::vector<Finding>& out);
void check_text(const HealthInput& in, std::vector<Finding>& out);
void check_pokes(const HealthInput& in, std::vector<Finding>& out);
void check_kcore(const HealthInput& in, std::vector<Finding>& out);
void check_bpf(const HealthInput& in, std::vector<Finding>& out);
void check_files(const HealthInput& in, std::vector<Finding>& out);
void check_damage(const HealthInput& in, std::vector<Finding>& out);
void check_open(const HealthInput& in, std::vector<Finding>& out);

// Code that was announced (KSYMBOL), or written to empty memory, during the recording, as a module's is, which no
// record tells of: a copy of kcore made before that has something else there, and shows nothing about changes of it.
class LaterCode {
 public:
  LaterCode(const ElfImage& copy, const SideBand& side, std::span<const PokeRecord> pokes);
  bool holds(const PokeRecord& poke) const;

 private:
  bool was_empty(Addr addr) const;

  const ElfImage& copy_;
  std::unordered_map<Addr, Time> first_;  // of poked addresses: when it was announced first
};

// Times a notice of this code was given.
uint64_t notice_count(const Capture& capture, Code code);
// "a, b, c and 7 more"
std::string first_of(const std::vector<std::string>& names);

}  // namespace asof
