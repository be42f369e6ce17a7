// PerfettoPackets: a Perfetto trace, packet by packet (protos/perfetto/trace/trace_packet.proto,
// track_event/*.proto), with interned names and strings. A slice's begin and end are packets of their own;
// where times are equal, the order in the file decides how they nest.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "textstore/address.h"
#include "textstore/time.h"

namespace asof {

// Field numbers of the protos named above.
namespace perfetto_field {
constexpr uint32_t kPacket = 1;
constexpr uint32_t kFtraceEvents = 1, kSystemInfo = 45;
constexpr uint32_t kTimestamp = 8, kSequence = 10, kTrackEvent = 11, kInterned = 12, kSequenceFlags = 13,
                   kTrackDescriptor = 60;
constexpr uint32_t kUuid = 1, kTrackName = 2, kProcess = 3, kThread = 4, kParent = 5, kCounter = 8,
                   kChildOrdering = 11, kSiblingRank = 12;
constexpr uint32_t kProcessPid = 1, kProcessName = 6, kThreadPid = 1, kThreadTid = 2, kThreadName = 5;
constexpr uint32_t kUnitName = 6;
constexpr uint32_t kUtsname = 1, kSysname = 1, kRelease = 3, kMachine = 4;
// protos/perfetto/trace/ftrace.
constexpr uint32_t kFtraceCpu = 1, kFtraceEvent = 2, kFtraceTime = 1, kFtracePid = 2, kSchedSwitch = 4;
constexpr uint32_t kPrevComm = 1, kPrevPid = 2, kPrevPrio = 3, kPrevState = 4, kNextComm = 5, kNextPid = 6,
                   kNextPrio = 7;
constexpr uint32_t kCategoryIid = 3, kAnnotation = 4, kType = 9, kNameIid = 10, kTrackUuid = 11,
                   kCounterDouble = 44;
// By its old number, which all versions of Perfetto read.
constexpr uint32_t kFlow = 36;
constexpr uint32_t kInternedCategories = 1, kInternedNames = 2, kInternedAnnotationNames = 3, kIid = 1,
                   kInternedName = 2;
constexpr uint32_t kAnnotationNameIid = 1, kAnnotationUint = 3, kAnnotationInt = 4, kAnnotationString = 6;
}  // namespace perfetto_field

class PerfettoPackets {
 public:
  using pbf_writer = protozero::pbf_writer;
  enum EventType : int32_t { kBegin = 1, kEnd = 2, kInstant = 3, kCounterValue = 4 };

  explicit PerfettoPackets(const std::function<void(std::string_view)>& write) : write_(write) {
    packet([](pbf_writer& p) { p.add_uint32(perfetto_field::kSequenceFlags, kStateCleared); });
  }
  void finish() {
    if (!buffer_.empty()) write_(buffer_);
    buffer_.clear();
  }

  template <class Fill>
  void packet(Fill&& fill) {
    packet_.clear();
    pbf_writer p(packet_);
    p.add_uint32(perfetto_field::kSequence, kOneSequence);
    fill(p);
    pbf_writer out(buffer_);
    out.add_message(perfetto_field::kPacket, packet_);
    if (buffer_.size() > 1 << 20) {
      write_(buffer_);
      buffer_.clear();
    }
  }

  uint64_t track(uint64_t parent, std::string_view name, int32_t rank, const std::string& unit = {}) {
    const uint64_t uuid = next_uuid_++;
    packet([&](pbf_writer& p) {
      pbf_writer d(p, perfetto_field::kTrackDescriptor);
      d.add_uint64(perfetto_field::kUuid, uuid);
      if (parent != 0) d.add_uint64(perfetto_field::kParent, parent);
      d.add_string(perfetto_field::kTrackName, name.data(), name.size());
      d.add_enum(perfetto_field::kChildOrdering, kExplicitOrder);
      d.add_int32(perfetto_field::kSiblingRank, rank);
      if (unit.empty()) return;
      pbf_writer counter(d, perfetto_field::kCounter);
      counter.add_string(perfetto_field::kUnitName, unit);
    });
    return uuid;
  }

  uint64_t new_uuid() { return next_uuid_++; }
  static uint64_t stamp(Time t) { return t < 0 ? 0 : static_cast<uint64_t>(t); }

  // Annotations are collected before the event they belong to.
  void note(std::string_view key, uint64_t value) {
    annotation(key, [&](pbf_writer& a) { a.add_uint64(perfetto_field::kAnnotationUint, value); });
  }
  void note(std::string_view key, int64_t value) {
    annotation(key, [&](pbf_writer& a) { a.add_int64(perfetto_field::kAnnotationInt, value); });
  }
  // Not as an iid: older versions of Perfetto skip those.
  void note(std::string_view key, const std::string& value) {
    annotation(key, [&](pbf_writer& a) { a.add_string(perfetto_field::kAnnotationString, value); });
  }
  // As text: Perfetto in a browser keeps 32 bits of its pointers.
  void note_address(std::string_view key, Addr value) { note(key, fmt::format("{:#x}", value)); }

  // Events that name a flow are joined by arrows, in order of time. Collected as annotations are.
  void flow(uint64_t id) { flows_.push_back(id); }

  void event(uint64_t uuid, Time t, EventType type, std::string_view name, std::string_view category) {
    const uint64_t name_iid = name.empty() ? 0 : iid(names_, perfetto_field::kInternedNames, name);
    const uint64_t category_iid =
        category.empty() ? 0 : iid(categories_, perfetto_field::kInternedCategories, category);
    packet([&](pbf_writer& p) {
      p.add_uint64(perfetto_field::kTimestamp, stamp(t));
      p.add_uint32(perfetto_field::kSequenceFlags, kNeedsState);
      if (!interned_.empty()) p.add_message(perfetto_field::kInterned, interned_);
      pbf_writer e(p, perfetto_field::kTrackEvent);
      e.add_enum(perfetto_field::kType, type);
      e.add_uint64(perfetto_field::kTrackUuid, uuid);
      if (category_iid != 0) e.add_uint64(perfetto_field::kCategoryIid, category_iid);
      if (name_iid != 0) e.add_uint64(perfetto_field::kNameIid, name_iid);
      for (const uint64_t id : flows_) e.add_uint64(perfetto_field::kFlow, id);
      annotations_into(e);
    });
    interned_.clear();
    annotations_.clear();
    flows_.clear();
  }
  void whole(uint64_t uuid, Time begin, Time end, std::string_view name, std::string_view category) {
    event(uuid, begin, kBegin, name, category);
    event(uuid, end, kEnd, {}, {});
  }
  void counter(uint64_t uuid, Time t, double value) {
    packet([&](pbf_writer& p) {
      p.add_uint64(perfetto_field::kTimestamp, stamp(t));
      p.add_uint32(perfetto_field::kSequenceFlags, kNeedsState);
      pbf_writer e(p, perfetto_field::kTrackEvent);
      e.add_enum(perfetto_field::kType, kCounterValue);
      e.add_uint64(perfetto_field::kTrackUuid, uuid);
      e.add_double(perfetto_field::kCounterDouble, value);
    });
  }

 private:
  static constexpr uint32_t kStateCleared = 1, kNeedsState = 2, kOneSequence = 1, kExplicitOrder = 3;

  // Iids of names not written yet go into the next packet that needs them.
  using Iids = std::unordered_map<std::string, uint64_t>;
  uint64_t iid(Iids& known, uint32_t where, std::string_view name) {
    const auto [at, fresh] = known.try_emplace(std::string(name), known.size() + 1);
    if (fresh) {
      pbf_writer all(interned_);
      pbf_writer one(all, where);
      one.add_uint64(perfetto_field::kIid, at->second);
      one.add_string(perfetto_field::kInternedName, at->first);
    }
    return at->second;
  }

  template <class Fill>
  void annotation(std::string_view key, Fill&& fill) {
    const uint64_t name = iid(annotation_names_, perfetto_field::kInternedAnnotationNames, key);
    pbf_writer all(annotations_);
    pbf_writer one(all, perfetto_field::kAnnotation);
    one.add_uint64(perfetto_field::kAnnotationNameIid, name);
    fill(one);
  }

  // They are encoded already: fields of the event, one after the other.
  void annotations_into(pbf_writer& e) {
    protozero::pbf_reader all(annotations_);
    while (all.next()) e.add_message(perfetto_field::kAnnotation, all.get_view());
  }

  const std::function<void(std::string_view)>& write_;
  std::string buffer_, packet_, interned_, annotations_;
  std::vector<uint64_t> flows_;
  Iids names_, categories_, annotation_names_;
  uint64_t next_uuid_ = 1;
};

}  // namespace asof
