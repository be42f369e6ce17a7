// Numbers of perf's records, for everything that reads or counts them.
#pragma once
#include <cstdint>

namespace asof::perf {

// Record types, include/uapi/linux/perf_event.h and tools/lib/perf/include/perf/event.h.
enum RecordType : uint32_t {
  kMmap = 1,
  kLost = 2,
  kComm = 3,
  kExit = 4,
  kThrottle = 5,
  kUnthrottle = 6,
  kFork = 7,
  kRead = 8,
  kSample = 9,
  kMmap2 = 10,
  kAux = 11,
  kItraceStart = 12,
  kLostSamples = 13,
  kSwitch = 14,
  kSwitchCpuWide = 15,
  kNamespaces = 16,
  kKsymbol = 17,
  kBpfEvent = 18,
  kCgroup = 19,
  kTextPoke = 20,
  kAuxOutputHwId = 21,
  kCallchainDeferred = 22,
  kUserTypeStart = 64,
  kHeaderAttr = 64,
  kEventType = 65,
  kHeaderTracingData = 66,
  kHeaderBuildId = 67,
  kFinishedRound = 68,
  kIdIndex = 69,
  kAuxtraceInfo = 70,
  kAuxtrace = 71,
  kAuxtraceError = 72,
  kThreadMap = 73,
  kCpuMap = 74,
  kStatConfig = 75,
  kStat = 76,
  kStatRound = 77,
  kEventUpdate = 78,
  kTimeConv = 79,
  kHeaderFeature = 80,
  kCompressed = 81,
  kFinishedInit = 82,
  kCompressed2 = 83,
  kBpfMetadata = 84,
  kSchedstatCpu = 85,
  kSchedstatDomain = 86,
  kTypeEnd = 87,
};

// AUXTRACE_INFO: which trace unit wrote the buffers, tools/perf/util/auxtrace.h (enum auxtrace_type).
enum AuxtraceType : uint32_t {
  kAuxtraceIntelPt = 1,
  kAuxtraceCsEtm = 3,
};

}  // namespace asof::perf
