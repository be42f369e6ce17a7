#include "api/convert.h"

#include <utility>

namespace asof::v0 {
namespace {

static_assert(std::to_underlying(Confidence::kContradiction) ==
              std::to_underlying(asof::Confidence::kContradiction));
static_assert(std::to_underlying(Branch::kConditional) == std::to_underlying(asof::BranchKind::kCond));
static_assert(std::to_underlying(Branch::kIndirectJump) == std::to_underlying(asof::BranchKind::kJumpInd));
static_assert(std::to_underlying(Branch::kReturn) == std::to_underlying(asof::BranchKind::kRet));
static_assert(std::to_underlying(Branch::kFarReturn) == std::to_underlying(asof::BranchKind::kFarRet));
static_assert(std::to_underlying(Branch::kPaging) == std::to_underlying(asof::BranchKind::kPaging));
static_assert(std::to_underlying(EventKind::kOverflow) == std::to_underlying(asof::EventKind::kOverflow));
static_assert(std::to_underlying(EventKind::kPtwrite) == std::to_underlying(asof::EventKind::kPtwrite));
static_assert(std::to_underlying(EventKind::kCbr) == std::to_underlying(asof::EventKind::kCbr));
static_assert(std::to_underlying(EventKind::kEvd) == std::to_underlying(asof::EventKind::kEvd));
static_assert(std::to_underlying(EventKind::kContext) == std::to_underlying(asof::EventKind::kContext));
static_assert(std::to_underlying(SourceKind::kWatcher) == std::to_underlying(asof::OriginKind::kWatcher));
static_assert(std::to_underlying(SourceKind::kPoke) == std::to_underlying(asof::OriginKind::kPoke));
static_assert(kTaken == Step::kTaken && kAfterGap == Step::kAfterGap && kAsyncEntry == Step::kAsyncEntry &&
              kTransaction == Step::kTransaction);
static_assert(v0::kTimeMin == asof::kTimeMin && v0::kTimeMax == asof::kTimeMax);
static_assert(v0::kKernelSpace == asof::kKernelSpace);

std::optional<uint64_t> known_offset(uint64_t offset) {
  if (offset == asof::Error::kNoOffset) return std::nullopt;
  return offset;
}

}  // namespace

Error to_public(const asof::Error& e) {
  return {text_of(e.code), e.where, known_offset(e.offset), e.reason, e.hint};
}

Notice to_public(const asof::Notice& n) {
  Notice out;
  switch (n.severity) {
    case asof::Notice::Severity::kInfo:
      out.severity = Severity::kInfo;
      break;
    case asof::Notice::Severity::kLoss:
      out.severity = Severity::kLoss;
      break;
    case asof::Notice::Severity::kError:
      out.severity = Severity::kError;
      break;
  }
  out.code = text_of(n.code);
  out.where = n.where;
  out.reason = n.reason;
  out.hint = n.hint;
  out.offset = known_offset(n.offset);
  if (n.time != asof::kTimeMin) out.time = n.time;
  out.count = n.count;
  return out;
}

CaptureInfo info_of(const asof::Capture& c) {
  CaptureInfo info{c.path, c.kind, c.machine, c.hostname, c.os_release, c.cpu_desc, c.command_line, {}};
  for (const Stream& s : c.streams) {
    uint64_t bytes = 0;
    for (const StreamPiece& piece : s.pieces) bytes += piece.size();
    info.streams.push_back({s.name, s.cpu, s.tid, bytes});
  }
  return info;
}

asof::CaptureOptions to_internal(const OpenOptions& o) {
  asof::CaptureOptions out;
  out.vmlinux = o.vmlinux;
  out.kallsyms = o.kallsyms;
  out.kcore = o.kcore;
  out.kcore_end = o.kcore_end;
  out.modules_dir = o.modules_dir;
  out.symfs = o.symfs;
  out.buildid_dir = o.buildid_dir;
  out.ksym_text = o.ksym_text;
  out.jitdumps = o.jitdumps;
  out.host_files = o.host_files;
  out.force = o.force;
  out.catalogue = o.catalogue;
  if (o.time_conversion) {
    out.time_conversion.emplace();
    out.time_conversion->shift = o.time_conversion->shift;
    out.time_conversion->mult = o.time_conversion->multiplier;
    out.time_conversion->zero = o.time_conversion->zero;
  }
  return out;
}

asof::PipelineOptions to_internal(const Filter& f) {
  // The most threads that can be requested: each costs a stack and caches.
  constexpr unsigned kMostJobs = 4096;
  asof::PipelineOptions out;
  out.jobs = std::min(f.jobs, kMostJobs);
  out.cpus.assign(f.cpus.begin(), f.cpus.end());
  out.tids.assign(f.tids.begin(), f.tids.end());
  out.time = {f.time.first, f.time.last};
  out.max_memory = f.max_memory;
  switch (f.text_at) {
    case TextAt::kAsof:
      out.decode.text_at = asof::TextAt::kAsof;
      break;
    case TextAt::kFirst:
      out.decode.text_at = asof::TextAt::kFirst;
      break;
    case TextAt::kLast:
      out.decode.text_at = asof::TextAt::kLast;
      break;
  }
  return out;
}

}  // namespace asof::v0
