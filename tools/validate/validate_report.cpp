#include "tools/validate/validate_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "decoder/io/json_memory.h"
#include "textstore/plain_text.h"
#include "tools/output/fold.h"
#include "tools/output/format.h"

namespace asof {
namespace {

std::string confidence_text(const std::array<uint64_t, 5>& counts) {
  std::string text;
  for (size_t c = 0; c < counts.size(); ++c) {
    if (counts[c] == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", confidence_name(static_cast<Confidence>(c)),
                        format_count(counts[c]));
  }
  return text;
}

// Sum over all CPUs.
std::vector<EventCounts> counts_by_event(const std::map<TruthId, CpuResult>& results) {
  std::vector<EventCounts> sum(LiveEvents::kClasses);
  for (const auto& [id, cpu] : results) {
    for (size_t i = 0; i < cpu.compare.by_event.size(); ++i) {
      sum[i].right += cpu.compare.by_event[i].right;
      sum[i].wrong += cpu.compare.by_event[i].wrong;
      sum[i].missing += cpu.compare.by_event[i].missing;
    }
  }
  return sum;
}

void print_truth(const std::map<TruthId, CpuResult>& results, const Capture& capture,
                 const LiveEvents& events, Output& out) {
  for (const auto& [id, cpu] : results) {
    const CompareResult& r = cpu.compare;
    out.write(fmt::format("{}: right {}, wrong {}, missing {}, late text {}; ip_hash {}\n", truth_name(id),
                          format_count(r.right), format_count(r.wrong), format_count(r.missing),
                          format_count(r.late),
                          !cpu.summary        ? "not known"
                          : cpu.hash_agrees() ? "agrees"
                                              : "differs"));
    if (r.right != 0)
      out.write(fmt::format("  right by confidence: {}\n", confidence_text(r.right_by_confidence)));
    if (r.wrong != 0)
      out.write(fmt::format("  wrong by confidence: {}\n", confidence_text(r.wrong_by_confidence)));
    for (const auto& [cause, count] : r.missing_by_cause)
      out.write(fmt::format("  missing by cause: {} {}\n", cause, format_count(count)));
    for (const Difference& d : r.places)
      out.write(fmt::format("  {}\n", difference_text(capture, events, id, d)));
  }
  if (events.empty()) return;
  out.write(fmt::format("nearest live-text event (within {})      right      wrong    missing\n",
                        format_duration(LiveEvents::kNear)));
  const auto sum = counts_by_event(results);
  for (size_t i = 0; i < sum.size(); ++i) {
    if (sum[i].empty()) continue;
    out.write(fmt::format("  {:<32} {:>12} {:>10} {:>10}\n", LiveEvents::class_name(i),
                          format_count(sum[i].right), format_count(sum[i].wrong),
                          format_count(sum[i].missing)));
  }
}

void put_string(JsonWriter& w, const char* key, std::string_view text) {
  w.Key(key);
  w.String(text.data(), static_cast<rapidjson::SizeType>(text.size()));
}

void put_number(JsonWriter& w, const char* key, uint64_t n) {
  w.Key(key);
  w.Uint64(n);
}

void put_strings(JsonWriter& w, const char* key, std::span<const std::string> texts) {
  w.Key(key);
  w.StartArray();
  for (const std::string& t : texts) w.String(t.c_str(), static_cast<rapidjson::SizeType>(t.size()));
  w.EndArray();
}

void put_counts(JsonWriter& w, const char* key, const std::array<uint64_t, 5>& counts) {
  w.Key(key);
  w.StartObject();
  for (size_t c = 0; c < counts.size(); ++c)
    put_number(w, confidence_name(static_cast<Confidence>(c)).data(), counts[c]);
  w.EndObject();
}

void put_place(JsonWriter& w, const Difference& d) {
  static constexpr std::array<const char*, 3> kNames{"wrong", "missing", "late"};
  w.StartObject();
  put_string(w, "kind", kNames[static_cast<size_t>(d.kind)]);
  put_string(w, "decoded_ip", fmt::format("{:#x}", d.decoded_ip));
  put_string(w, "truth_ip", fmt::format("{:#x}", d.truth_ip));
  put_number(w, "instructions", d.count);
  if (d.time != kTimeMin) {
    w.Key("time");
    w.Int64(d.time);
  }
  put_string(w, "gap", d.gap);
  w.EndObject();
}

void put_counts_of(JsonWriter& w, const CpuResult& cpu) {
  const CompareResult& r = cpu.compare;
  put_number(w, "right", r.right);
  put_number(w, "wrong", r.wrong);
  put_number(w, "missing", r.missing);
  put_number(w, "late", r.late);
  put_string(w, "ip_hash", fmt::format("{:016x}", cpu.ips.hash));
  if (cpu.summary) {
    w.Key("ip_hash_agrees");
    w.Bool(cpu.hash_agrees());
  }
  put_counts(w, "right_by_confidence", r.right_by_confidence);
  put_counts(w, "wrong_by_confidence", r.wrong_by_confidence);
  w.Key("missing_by_cause");
  w.StartObject();
  for (const auto& [cause, count] : r.missing_by_cause) put_number(w, cause.c_str(), count);
  w.EndObject();
  w.Key("places");
  w.StartArray();
  for (const Difference& d : r.places) put_place(w, d);
  w.EndArray();
}

void put_event(JsonWriter& w, const EventCounts& counts) {
  put_number(w, "right", counts.right);
  put_number(w, "wrong", counts.wrong);
  put_number(w, "missing", counts.missing);
}

// each(name, counts) of those that have any.
template <class Each>
void each_event(const std::map<TruthId, CpuResult>& results, const Each& each) {
  const auto sum = counts_by_event(results);
  for (size_t i = 0; i < sum.size(); ++i) {
    if (!sum[i].empty()) each(std::string(LiveEvents::class_name(i)), sum[i]);
  }
}

void put_check(JsonWriter& w, const Check& c) {
  put_string(w, "topic", c.topic);
  put_string(w, "result", result_name(c.result));
  put_string(w, "answer", plain_text(c.answer));
  std::vector<std::string> places;
  places.reserve(c.places.size());
  for (const std::string& p : c.places) places.push_back(plain_text(p));
  put_strings(w, "places", places);
}

void put_verdict(JsonWriter& w, const Validation& v) {
  w.Key("pass");
  w.Bool(v.pass());
  std::vector<std::string> reasons;
  for (const Check& c : v.checks) {
    if (c.result == Check::Result::kFail)
      reasons.push_back(plain_text(fmt::format("{}: {}", c.topic, c.answer)));
  }
  put_strings(w, "reasons", reasons);
}

template <class Fill>
void write_object(Output& out, const Fill& fill) {
  JsonBuffer buffer;
  JsonWriter w(buffer);
  w.StartObject();
  fill(w);
  w.EndObject();
  out.write(std::string_view(buffer.GetString(), buffer.GetSize()));
  out.write("\n");
}

}  // namespace

bool Validation::pass() const {
  return std::ranges::none_of(checks, [](const Check& c) { return c.result == Check::Result::kFail; });
}

void print_validation_text(const Validation& v, const Capture& capture, const LiveEvents& events,
                           Output& out) {
  if (v.truth != nullptr) print_truth(*v.truth, capture, events, out);
  constexpr size_t kIndent = 19;
  const size_t columns = out.columns();
  for (const Check& c : v.checks) {
    const auto line = [&](const std::string& text) { out.write(fold_line(text, kIndent, columns) + "\n"); };
    line(fmt::format("{:<5} {:<12} {}", result_name(c.result), c.topic, plain_text(c.answer)));
    for (const std::string& p : c.places) line(fmt::format("{:{}}{}", "", kIndent, plain_text(p)));
  }
  out.write(v.pass() ? "verdict: pass\n" : "verdict: FAIL\n");
  for (const Check& c : v.checks) {
    if (c.result == Check::Result::kFail)
      out.write(fmt::format("  because {}: {}\n", c.topic, plain_text(c.answer)));
  }
}

void print_validation_json(const Validation& v, Output& out) {
  write_object(out, [&](JsonWriter& w) {
    put_verdict(w, v);
    w.Key("checks");
    w.StartArray();
    for (const Check& c : v.checks) {
      w.StartObject();
      put_check(w, c);
      w.EndObject();
    }
    w.EndArray();
    if (v.truth == nullptr) return;
    w.Key("cpus");
    w.StartObject();
    for (const auto& [id, cpu] : *v.truth) {
      w.Key((id.tid < 0 ? std::to_string(id.cpu) : truth_stem(id)).c_str());
      w.StartObject();
      put_counts_of(w, cpu);
      w.EndObject();
    }
    w.EndObject();
    w.Key("by_event");
    w.StartObject();
    each_event(*v.truth, [&](const std::string& name, const EventCounts& counts) {
      w.Key(name.c_str());
      w.StartObject();
      put_event(w, counts);
      w.EndObject();
    });
    w.EndObject();
  });
}

void print_validation_lines(const Validation& v, Output& out) {
  const auto line = [&](const char* type, const auto& fill) {
    write_object(out, [&](JsonWriter& w) {
      put_string(w, "type", type);
      fill(w);
    });
  };
  if (v.truth != nullptr) {
    for (const auto& [id, cpu] : *v.truth) {
      line("truth", [&](JsonWriter& w) {
        if (id.tid >= 0) put_number(w, "tid", static_cast<uint64_t>(id.tid));
        if (id.cpu >= 0) put_number(w, "cpu", static_cast<uint64_t>(id.cpu));
        put_counts_of(w, cpu);
      });
    }
    each_event(*v.truth, [&](const std::string& name, const EventCounts& counts) {
      line("by_event", [&](JsonWriter& w) {
        put_string(w, "event", name);
        put_event(w, counts);
      });
    });
  }
  for (const Check& c : v.checks) line("check", [&](JsonWriter& w) { put_check(w, c); });
  line("verdict", [&](JsonWriter& w) { put_verdict(w, v); });
}

}  // namespace asof
