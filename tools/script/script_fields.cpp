// The rules are those of perf's tools/perf/builtin-script.c (parse_output_fields(), evsel__check_attr()), as seen in what
// it prints and refuses.
#include "tools/script/script_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "decoder/perf/records.h"
#include "tools/cli/options.h"
#include "tools/script/script_event_names.h"

namespace asof {
namespace {

std::unexpected<Error> bad_field(std::string reason, std::string hint = {}) {
  return fail(Code::kBadOption, "", Error::kNoOffset, std::move(reason), std::move(hint));
}

constexpr std::array<std::string_view, 36> kWords{"comm",
                                                  "tid",
                                                  "pid",
                                                  "time",
                                                  "cpu",
                                                  "event",
                                                  "ip",
                                                  "sym",
                                                  "dso",
                                                  "addr",
                                                  "symoff",
                                                  "srcline",
                                                  "period",
                                                  "flags",
                                                  "insn",
                                                  "insnlen",
                                                  "synth",
                                                  "callindent",
                                                  "brstack",
                                                  "brstacksym",
                                                  "disasm",
                                                  "ipc",
                                                  "misc",
                                                  "brstackinsn",
                                                  "brstackinsnlen",
                                                  "trace",
                                                  "tod",
                                                  "weight",
                                                  "bpf-output",
                                                  "iregs",
                                                  "uregs",
                                                  "phys_addr",
                                                  "ins_lat",
                                                  "data_page_size",
                                                  "code_page_size",
                                                  "brstackoff"};
static_assert(kScriptBrstackoff == uint64_t{1} << (kWords.size() - 1));

struct Refused {
  std::string_view word, hint;
};
constexpr std::array<Refused, 10> kRefused{
    {{"cgroup", "--show-cgroup-events has the names and ids of cgroups"},
     {"data_src", "'perf script --no-itrace -F data_src' prints where data of samples came from"},
     {"metric", "metrics need groups of counters; 'perf script -F metric' prints those"},
     {"srccode", "-F srcline, or 'asof decode --source' for the lines themselves"},
     {"retire_lat", "-F weight has all that a sample says of latencies"},
     {"brcntr", "'perf script -F brcntr' prints counters of branch stacks"},
     {"brstackdisasm", "-F brstackinsn, or 'asof decode -F +disasm'"},
     {"dsoff", "'asof decode --format jsonl' has offsets in files"},
     {"machine_pid", "asof decodes no guests' samples; 'asof decode' marks what ran in a guest"},
     {"vcpu", "asof decodes no guests' samples; 'asof decode' marks what ran in a guest"}}};

constexpr size_t kSynthType = ScriptFields::kOtherType + 1;
struct EventType {
  std::string_view word;
  size_t type;
};
constexpr std::array<EventType, 6> kTypes{
    {{"hw", 0}, {"sw", 1}, {"trace", 2}, {"raw", 4}, {"break", 5}, {"synth", kSynthType}}};

constexpr uint64_t kFlow = kScriptComm | kScriptTid | kScriptCpu | kScriptTime | kScriptEvent | kScriptIp |
                           kScriptSym | kScriptSymoff | kScriptDso | kScriptPeriod;
constexpr uint64_t kSynth = kScriptComm | kScriptTid | kScriptCpu | kScriptTime | kScriptEvent | kScriptIp |
                            kScriptSym | kScriptSymoff | kScriptDso | kScriptSynth;
constexpr uint64_t kTracepoint =
    kScriptComm | kScriptTid | kScriptCpu | kScriptTime | kScriptEvent | kScriptTrace;
constexpr uint64_t kRaw = kFlow | kScriptAddr | kScriptWeight | kScriptPhysAddr | kScriptDataPageSize |
                          kScriptCodePageSize | kScriptInsLat;
constexpr uint64_t kPlaces = kScriptIp | kScriptSym | kScriptSymoff | kScriptDso;
// What events made of the trace have not.
constexpr uint64_t kNoSynth = kScriptPeriod | kScriptAddr | kScriptBrstack | kScriptBrstacksym |
                              kScriptBrstackoff | kScriptBrstackinsn | kScriptBrstackinsnlen |
                              kScriptCallindent | kScriptIpc;

uint64_t field_bit(std::string_view name) {
  const auto* const at = std::ranges::find(kWords, name);
  return at == kWords.end() ? 0 : uint64_t{1} << (at - kWords.begin());
}

// Fields that samples of a type never have.
uint64_t invalid_for(size_t type) {
  return (type == ScriptFields::kTracepointType ? 0 : uint64_t{kScriptTrace}) |
         (type == ScriptFields::kSoftwareType || type == ScriptFields::kTracepointType
              ? 0
              : uint64_t{kScriptBpfOutput});
}

// The events in front of the colon, nothing: all.
Result<std::optional<size_t>> take_type(std::string_view& text) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::optional<size_t>();
  const auto* const at = std::ranges::find(kTypes, text.substr(0, colon), &EventType::word);
  if (at == kTypes.end()) {
    return bad_field(fmt::format("--fields: no type of event '{}'", text.substr(0, colon)),
                     "there are hw, sw, trace, raw, break and synth");
  }
  text.remove_prefix(colon + 1);
  return std::optional(at->type);
}

std::vector<size_t> types_of(std::optional<size_t> type) {
  if (type) return {*type};
  std::vector<size_t> all;
  for (size_t t = 0; t <= kSynthType; ++t) all.push_back(t);
  return all;
}

uint64_t& mask_of(ScriptFields& fields, size_t type) {
  return type == kSynthType ? fields.synth : fields.of_type(type);
}

Result<uint64_t> read_field(std::string_view word) {
  const uint64_t bit = field_bit(word);
  if (bit != 0) return bit;
  const auto* const refused = std::ranges::find(kRefused, word, &Refused::word);
  if (refused != kRefused.end())
    return bad_field(fmt::format("--fields: field '{}' is not taken", word), std::string(refused->hint));
  return bad_field(fmt::format("--fields: no field '{}'", word),
                   fmt::format("there are {}", fmt::join(kWords, ",")));
}

// One field of one type of events.
void change_field(ScriptFields& fields, size_t type, uint64_t bit, bool remove) {
  uint64_t& mask = mask_of(fields, type);
  mask = remove ? mask & ~bit : mask | bit;
  if (type == kSynthType) return;
  fields.asked[type] = remove ? fields.asked[type] & ~bit : fields.asked[type] | bit;
}

bool nothing_left(ScriptFields& fields) {
  return std::ranges::all_of(types_of(std::nullopt), [&](size_t type) { return mask_of(fields, type) == 0; });
}

}  // namespace

ScriptFields default_script_fields() {
  ScriptFields fields;
  fields.flow = kFlow;
  fields.synth = kSynth;
  fields.records.fill(kFlow);
  fields.records[ScriptFields::kSoftwareType] = kFlow | kScriptBpfOutput;
  fields.records[ScriptFields::kTracepointType] = kTracepoint;
  fields.records[ScriptFields::kRawType] = kRaw;
  return fields;
}

Result<void> change_fields(const std::string& text, ScriptFields& fields) {
  std::string_view list = text;
  const auto type = take_type(list);
  if (!type) return std::unexpected(type.error());
  const bool of_flow = !*type || **type == 0;
  const std::vector<size_t> types = types_of(*type);
  // As in perf, flags are those of all events or of none, and who names other fields of branches says with `addr`
  // whether they show where they go.
  const std::vector<std::string> words = split_list(std::string(list));
  const auto is_change = [](const std::string& word) { return word[0] == '+' || word[0] == '-'; };
  if (std::ranges::none_of(words, is_change)) {
    for (const size_t t : types) mask_of(fields, t) &= kScriptFlags;
    fields.targets = fields.targets && !of_flow;
  }
  for (std::string part : words) {
    const char sign = part[0];
    if (is_change(part)) part.erase(0, 1);
    const auto bit = read_field(part);
    if (!bit) return std::unexpected(bit.error());
    const bool flags = *bit == kScriptFlags;
    if (*type && (invalid_for(**type) & *bit) != 0)
      return bad_field(fmt::format("--fields: '{}' is no field of these events", part));
    for (const size_t t : flags ? types_of(std::nullopt) : types) {
      if ((invalid_for(t) & *bit) == 0) change_field(fields, t, *bit, sign == '-');
      if (t < fields.listed.size() && !flags) fields.listed[t] = true;
    }
    fields.targets = fields.targets && (flags || !of_flow);
  }
  fields.synth &= ~kNoSynth;
  if (!*type && nothing_left(fields)) return bad_field("--fields: no field is left");
  return {};
}

namespace {

struct Needed {
  uint64_t field, sample_type;
  std::string_view name;
  bool may_lack;  // perf shows what there is when the recording has trace
};
constexpr uint64_t kWeights = kSampleWeight | kSampleWeightStruct;
constexpr std::array<Needed, 13> kNeeded{{{kScriptIp, kSampleIp, "ip", false},
                                          {kScriptAddr, kSampleAddr, "addr", true},
                                          {kScriptWeight, kWeights, "weight", true},
                                          {kScriptTid, kSampleTid, "tid", false},
                                          {kScriptPid, kSampleTid, "pid", false},
                                          {kScriptTime, kSampleTime, "time", false},
                                          {kScriptCpu, kSampleCpu, "cpu", true},
                                          {kScriptIregs, kSampleRegsIntr, "iregs", false},
                                          {kScriptUregs, kSampleRegsUser, "uregs", false},
                                          {kScriptPhysAddr, kSamplePhysAddr, "phys_addr", false},
                                          {kScriptDataPageSize, kSampleDataPageSize, "data_page_size", false},
                                          {kScriptCodePageSize, kSampleCodePageSize, "code_page_size", false},
                                          {kScriptInsLat, kSampleWeightStruct, "ins_lat", false}}};

Result<void> fit_to_event(const PerfAttr& event, size_t type, ScriptFields& fields) {
  uint64_t& mask = fields.of_type(type);
  for (const Needed& n : kNeeded) {
    if ((mask & n.field) == 0 || (event.sample_type & n.sample_type) != 0) continue;
    if ((fields.asked[type] & n.field) == 0) {
      mask &= ~n.field;
    } else if (!n.may_lack) {
      return bad_field(
          fmt::format("--fields: samples of '{}' have no {}", script_event_name(event), n.name),
          "'asof doctor' and 'perf evlist -v' say what was recorded; -F hw:... is for one type of events");
    }
  }
  const bool placed = (event.sample_type & (kSampleIp | kSampleAddr)) != 0;
  if ((mask & (kScriptSym | kScriptDso)) != 0 && !placed) {
    return bad_field(
        fmt::format("--fields: samples of '{}' have no address to name", script_event_name(event)),
        "leave out sym and dso of these events, as in -F sw:comm,tid,time");
  }
  return {};
}

}  // namespace

Result<void> fit_fields(std::span<const PerfAttr> events, bool chains, ScriptFields& fields) {
  constexpr uint64_t kDummy = 9;
  std::array<bool, ScriptFields::kOtherType + 1> met{};
  for (const PerfAttr& event : events) {
    if (event.type == ScriptFields::kSoftwareType && event.config == kDummy) continue;
    const size_t type = ScriptFields::type_of(event.type);
    // Drivers' own events are those of traces, which have no samples.
    if (type == ScriptFields::kOtherType || met[type] || fields.of_type(type) == 0) continue;
    met[type] = true;
    if (const auto ok = fit_to_event(event, type, fields); !ok) return ok;
  }
  // perf shows where tracepoints are if they have call chains.
  constexpr size_t kTracepoints = ScriptFields::kTracepointType;
  const bool chained = std::ranges::any_of(events, [](const PerfAttr& e) {
    return e.type == kTracepoints && (e.sample_type & kSampleCallchain) != 0;
  });
  if (chains && chained && !fields.listed[kTracepoints]) fields.records[kTracepoints] |= kPlaces;
  return {};
}

}  // namespace asof
