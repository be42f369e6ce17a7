#include "tests/support/case_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "decoder/model/capture.h"
#include "decoder/pipeline/pipeline.h"
#include "tests/support/case_capture.h"

namespace asof::test {

namespace {

constexpr std::array kConfidenceNames = {"certain", "proved", "equivalent", "ambiguous", "contradiction"};

// A decoded instruction or gap.
struct Got {
  std::string gap, reason;
  Addr ip = 0;
  std::vector<uint8_t> bytes;
  Confidence confidence = Confidence::kCertain;
  std::string origin;

  std::string text() const {
    if (!gap.empty()) return fmt::format("gap {} ({})", gap, reason);
    return fmt::format("{:#x} [{:02x}] {} from {}", ip, fmt::join(bytes, " "),
                       kConfidenceNames[static_cast<size_t>(confidence)], origin);
  }
};

std::string origin_name(const TextStore& text, OriginRef ref) {
  switch (text.origin(ref).kind) {
    case OriginKind::kKcore:
      return "kcore";
    case OriginKind::kKcoreEnd:
      return "kcore-end";
    case OriginKind::kWatcher:
      return "watcher";
    case OriginKind::kBpfImage:
      return fmt::format("image-{}", text.origin(ref).id);
    case OriginKind::kPoke:
      return "poke";
    default:
      return "unknown";
  }
}

class Collector : public ChunkConsumer {
 public:
  explicit Collector(const TextStore& text) : text_(text) {}

  void deliver(Chunk& chunk, const Stream& stream, Prepared*) override {
    std::vector<Got>& out = got[static_cast<unsigned>(stream.cpu)];
    auto gap = chunk.gaps.begin();
    const auto gaps_before = [&](size_t position) {
      for (; gap != chunk.gaps.end() && gap->step <= position; ++gap)
        out.push_back(
            {.gap = std::string(code_text(gap->code)), .reason = gap->reason, .bytes = {}, .origin = {}});
    };
    for (auto step = chunk.steps.begin(); step != chunk.steps.end(); ++step) {
      gaps_before(step.position());
      add(out, *step);
    }
    gaps_before(chunk.steps.size());
  }

  std::map<unsigned, std::vector<Got>> got;

 private:
  void add(std::vector<Got>& out, const Step& step) const {
    const Block& b = *step.block;
    uint32_t at = 0;
    for (uint32_t i = 0; i < step.count; at += b.lengths[i++]) {
      out.push_back({.gap = {},
                     .reason = {},
                     .ip = b.ip + at,
                     .bytes = {b.bytes + at, b.bytes + at + b.lengths[i]},
                     .confidence = step.confidence,
                     .origin = origin_name(text_, b.origin)});
    }
  }

  const TextStore& text_;
};

std::string transcript(const std::map<unsigned, std::vector<Got>>& got) {
  std::string out;
  for (const auto& [cpu, all] : got) {
    out += fmt::format("cpu {}\n", cpu);
    for (const Got& g : all) out += g.text() + "\n";
  }
  return out;
}

bool same(const CaseWant& want, const Got& got) {
  if (want.gap != got.gap) return false;
  if (!want.gap.empty()) return got.reason.find(want.origin) != std::string::npos;
  return want.ip == got.ip && want.bytes == got.bytes && want.confidence == got.confidence &&
         (want.origin.empty() || want.origin == got.origin);
}

std::string wanted(const CaseWant& w) {
  if (!w.gap.empty()) return w.text;
  return fmt::format("{}: {:#x} [{:02x}] {}{}", w.text, w.ip, fmt::join(w.bytes, " "),
                     kConfidenceNames[static_cast<size_t>(w.confidence)],
                     w.origin.empty() ? "" : " from " + w.origin);
}

void check_flow(const CaseFile& c, const std::map<unsigned, std::vector<Got>>& got,
                std::vector<std::string>& wrong) {
  std::set<unsigned> cpus;
  for (const auto& [cpu, ignored] : c.traces) cpus.insert(cpu);
  for (const unsigned cpu : cpus) {
    const auto want_it = c.wants.find(cpu);
    const auto got_it = got.find(cpu);
    const std::vector<CaseWant> want = want_it == c.wants.end() ? std::vector<CaseWant>() : want_it->second;
    const std::vector<Got> have = got_it == got.end() ? std::vector<Got>() : got_it->second;
    for (size_t i = 0; i < std::max(want.size(), have.size()); ++i) {
      if (i < want.size() && i < have.size() && same(want[i], have[i])) continue;
      wrong.push_back(fmt::format("cpu {}, entry {}: expected {}, decoded {}", cpu, i,
                                  i < want.size() ? wanted(want[i]) : "the end",
                                  i < have.size() ? have[i].text() : "the end"));
      break;
    }
  }
}

// All contents possible at an instant, for bytes that lie in any number of cells.
std::set<std::vector<uint8_t>> contents_at(const TextStore& text, const CaseQuery& q) {
  size_t longest = 1;
  for (const auto& b : q.contents) longest = std::max(longest, b.size());
  std::set<std::vector<uint8_t>> out = {{}};
  for (size_t done = 0; done < longest;) {
    const Cell cell = text.cell(kKernelSpace, q.addr + done);
    const size_t n = std::min<uint64_t>(longest - done, cell.range.end - (q.addr + done));
    std::set<std::vector<uint8_t>> next;
    for (const std::vector<uint8_t>& before : out) {
      bool any = false;
      for (const Version& v : cell.versions) {
        if (!v.possible_in({q.time, q.time})) continue;
        any = true;
        std::vector<uint8_t> b = before;
        if (v.bytes != nullptr && b.size() == done) {
          const uint8_t* const from = v.bytes + (q.addr + done - cell.range.begin);
          b.insert(b.end(), from, from + n);
        }
        next.insert(std::move(b));
      }
      if (!any) next.insert(before);
    }
    out = std::move(next);
    done += n;
  }
  return out;
}

void check_store(const CaseFile& c, const TextStore& text, std::vector<std::string>& wrong) {
  for (const CaseQuery& q : c.queries) {
    const std::set<std::vector<uint8_t>> want(q.contents.begin(), q.contents.end());
    const std::set<std::vector<uint8_t>> have = contents_at(text, q);
    if (have == want) continue;
    std::string list;
    for (const auto& b : have) list += b.empty() ? " unknown" : fmt::format(" [{:02x}]", fmt::join(b, " "));
    wrong.push_back(fmt::format("store: {}: found{}", q.text, list));
  }
}

// Every error must be expected; information only where the case lists it.
void check_notices(const CaseFile& c, const std::vector<Notice>& notices, std::vector<std::string>& wrong) {
  std::set<std::string> have;
  for (const Notice& n : notices) {
    const std::string code(code_text(n.code));
    have.insert(code);
    if (is_error_or_loss(n.code) && std::ranges::find(c.notices, code) == c.notices.end())
      wrong.push_back(fmt::format("notice {}: {} {}", code, n.where, n.reason));
  }
  for (const std::string& code : c.notices) {
    if (!have.contains(code)) wrong.push_back(fmt::format("no notice {}", code));
  }
}

}  // namespace

std::vector<std::string> run_case(const CaseFile& c, const std::filesystem::path& scratch) {
  std::vector<std::string> wrong;
  std::string first;
  for (const RecordOrder order : kRecordOrders) {
    const std::filesystem::path path = scratch / fmt::format("{}", static_cast<int>(order));
    write_case(c, order, path);
    CaptureOptions options;
    options.host_files = false;
    options.catalogue = c.catalogue;
    const auto capture = open_capture(path.string(), options);
    if (!capture) {
      wrong.push_back(
          fmt::format("{}: {} {}", name_of(order), code_text(capture.error().code), capture.error().reason));
      continue;
    }
    std::vector<std::string> here;
    check_notices(c, capture->notices, here);
    check_store(c, *capture->text, here);
    for (const unsigned jobs : {1U, 4U}) {
      for (const bool cache : {true, false}) {
        Collector collector(*capture->text);
        const PipelineOptions pipeline{.jobs = jobs,
                                       .decode = {.clock_error = c.clock_error, .block_cache = cache}};
        const auto done = run_pipeline(*capture, pipeline, ChunkOrder::kByStream, collector);
        if (!done) here.push_back(done.error().reason);
        const std::string all = transcript(collector.got);
        if (first.empty()) {
          first = all;
          check_flow(c, collector.got, here);
        }
        if (all != first)
          here.push_back(fmt::format("{} workers, block cache {}: other output than at first:\n{}", jobs,
                                     cache ? "on" : "off", all));
      }
    }
    for (const std::string& w : here) wrong.push_back(fmt::format("{}: {}", name_of(order), w));
  }
  if (!wrong.empty()) {
    constexpr size_t kMostText = 6000;
    wrong.push_back("decoded:\n" +
                    (first.size() > kMostText ? "..." + first.substr(first.size() - kMostText) : first));
  }
  return wrong;
}

}  // namespace asof::test
