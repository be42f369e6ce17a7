#include "arch/arm64/packet_list_reference.h"

#include <opencsd/c_api/opencsd_c_api.h>

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "arch/arm64/packet_text.h"
#include "arch/arm64/reference_tree.h"

namespace asof::arm64 {
namespace {

constexpr uint64_t kFeed = 1 << 12;  // bytes handed over at once

uint8_t type_of(ocsd_ptm_pkt_type t) {
  switch (t) {
    case PTM_PKT_NOTSYNC:
      return kPacketNoSync;
    case PTM_PKT_INCOMPLETE_EOT:
    case PTM_PKT_BRANCH_OR_BYPASS_EOT:
      return kPacketCut;
    case PTM_PKT_TPIU_PAD_EOB:
      return kPacketPadding;
    case PTM_PKT_BRANCH_ADDRESS:
      return type_named("Branch-Address");
    case PTM_PKT_A_SYNC:
      return type_named("A-Sync");
    case PTM_PKT_I_SYNC:
      return type_named("I-Sync");
    case PTM_PKT_TRIGGER:
      return type_named("Trigger");
    case PTM_PKT_WPOINT_UPDATE:
      return type_named("Waypoint-Update");
    case PTM_PKT_IGNORE:
      return type_named("Ignore");
    case PTM_PKT_CONTEXT_ID:
      return type_named("Context-ID");
    case PTM_PKT_VMID:
      return type_named("VMID");
    case PTM_PKT_ATOM:
      return type_named("Atom");
    case PTM_PKT_TIMESTAMP:
      return type_named("Timestamp");
    case PTM_PKT_EXCEPTION_RET:
      return type_named("Exception-Return");
    default:
      return kPacketBad;
  }
}

uint8_t type_of(ocsd_etmv3_pkt_type t) {
  switch (t) {
    case ETM3_PKT_NOTSYNC:
      return kPacketNoSync;
    case ETM3_PKT_INCOMPLETE_EOT:
    case ETM3_PKT_BRANCH_OR_BYPASS_EOT:
      return kPacketCut;
    case ETM3_PKT_BRANCH_ADDRESS:
      return type_named("Branch-Address");
    case ETM3_PKT_A_SYNC:
      return type_named("A-Sync");
    case ETM3_PKT_CYCLE_COUNT:
      return type_named("Cycle-Count");
    case ETM3_PKT_I_SYNC:
      return type_named("I-Sync");
    case ETM3_PKT_I_SYNC_CYCLE:
      return type_named("I-Sync-Cycle");
    case ETM3_PKT_TRIGGER:
      return type_named("Trigger");
    case ETM3_PKT_P_HDR:
      return type_named("P-Header");
    case ETM3_PKT_STORE_FAIL:
      return type_named("Store-Fail");
    case ETM3_PKT_OOO_DATA:
      return type_named("OOO-Data");
    case ETM3_PKT_OOO_ADDR_PLC:
      return type_named("OOO-Placeholder");
    case ETM3_PKT_NORM_DATA:
      return type_named("Data");
    case ETM3_PKT_DATA_SUPPRESSED:
      return type_named("Data-Suppressed");
    case ETM3_PKT_VAL_NOT_TRACED:
      return type_named("Value-Not-Traced");
    case ETM3_PKT_IGNORE:
      return type_named("Ignore");
    case ETM3_PKT_CONTEXT_ID:
      return type_named("Context-ID");
    case ETM3_PKT_VMID:
      return type_named("VMID");
    case ETM3_PKT_EXCEPTION_ENTRY:
      return type_named("Exception-Entry");
    case ETM3_PKT_EXCEPTION_EXIT:
      return type_named("Exception-Exit");
    case ETM3_PKT_TIMESTAMP:
      return type_named("Timestamp");
    default:
      return kPacketBad;
  }
}

class OcsdPackets final : public PacketReader {
 public:
  OcsdPackets(const Stream& stream, const Source& source, const Config& config, const PacketStart& start,
              BeforePart before)
      : stream_(stream),
        config_(config),
        before_(std::move(before)),
        ptm_(source.protocol == Protocol::kPtm),
        tree_(make_tree(source, true)),
        from_(start.offset),
        now_(start.time) {
    const auto is_before = [&](const StreamPiece& p) { return p.offset + p.size() <= from_; };
    while (next_piece_ < stream_.pieces.size() && is_before(stream_.pieces[next_piece_])) ++next_piece_;
    if (!tree_) return;
    ocsd_dt_attach_packet_callback(tree_.get(), tree_.get_deleter().id, OCSD_C_API_CB_PKT_SINK,
                                   reinterpret_cast<void*>(&on_end), nullptr);
    ocsd_dt_attach_packet_callback(tree_.get(), tree_.get_deleter().id, OCSD_C_API_CB_PKT_MON,
                                   reinterpret_cast<void*>(&on_packet), this);
  }
  bool usable() const { return tree_ != nullptr; }

  std::span<const std::string_view> names() const override { return packet_names(); }
  bool next(TracePacket& out) override;
  void describe(PacketFields& out) const override { out.text("meaning", line_.text, true); }

 private:
  struct Line {
    uint64_t offset = 0, size = 0;
    Time time = kTimeMin;
    uint8_t type = kPacketBad;
    std::string text;
  };

  static void on_packet(const void* context, ocsd_datapath_op_t op, ocsd_trc_index_t index,
                        const void* packet, uint32_t size, const uint8_t*) {
    if (op == OCSD_OP_DATA) static_cast<OcsdPackets*>(const_cast<void*>(context))->take(index, packet, size);
  }
  static ocsd_datapath_resp_t on_end(const void*, ocsd_datapath_op_t, ocsd_trc_index_t, const void*) {
    return OCSD_RESP_CONT;
  }
  void take(ocsd_trc_index_t index, const void* packet, uint32_t size);
  void add(Line line);
  void feed();
  void end_stretch();
  void enter();

  const Stream& stream_;
  const Config& config_;
  const BeforePart before_;
  const bool ptm_;
  const Tree tree_;
  std::deque<Line> lines_;
  Line line_;  // the last one given
  std::vector<uint8_t> scratch_, shown_;
  uint64_t at_ = 0, end_ = 0;  // of the stretch: not handed over yet
  uint64_t listed_ = 0;        // bytes before it are in a line
  uint64_t from_ = 0;          // what comes before is not listed
  size_t next_piece_ = 0;
  bool open_ = false;
  Time now_ = kTimeMin;
};

// Every byte is in one line, whatever OpenCSD says of it.
void OcsdPackets::add(Line line) {
  const uint64_t end = line.offset + line.size;
  if (end <= listed_) return;
  if (line.offset > listed_) {
    lines_.push_back({listed_, line.offset - listed_, now_, kPacketBad, "not a packet"});
  }
  line.size = end - std::max(listed_, line.offset);
  line.offset = std::max(listed_, line.offset);
  listed_ = end;
  const bool merge = line.type == kPacketNoSync && !lines_.empty() && lines_.back().type == kPacketNoSync;
  if (merge)
    lines_.back().size += line.size;
  else
    lines_.push_back(std::move(line));
}

void OcsdPackets::take(ocsd_trc_index_t index, const void* packet, uint32_t size) {
  // Its offsets have 32 bits.
  const uint64_t offset =
      at_ +
      static_cast<uint64_t>(static_cast<int32_t>(static_cast<uint32_t>(index) - static_cast<uint32_t>(at_)));
  Line line{offset, size, now_, kPacketBad, {}};
  uint64_t timestamp = 0;
  if (ptm_) {
    const auto& k = *static_cast<const ocsd_ptm_pkt*>(packet);
    line.type = type_of(k.type);
    if (k.type == PTM_PKT_TIMESTAMP) timestamp = k.timestamp;
  } else {
    const auto& k = *static_cast<const ocsd_etmv3_pkt*>(packet);
    line.type = type_of(k.type);
    if (k.type == ETM3_PKT_TIMESTAMP) timestamp = k.timestamp;
  }
  if (timestamp != 0 && config_.time) line.time = now_ = config_.time->to_perf(timestamp);
  std::array<char, 512> text{};
  ocsd_pkt_str(ptm_ ? OCSD_PROTOCOL_PTM : OCSD_PROTOCOL_ETMV3, packet, text.data(), text.size());
  line.text = text.data();
  // "NAME : what it is; what it says; "
  for (const std::string_view before : {" : ", "; "}) {
    const size_t at = line.text.find(before);
    line.text.erase(0, at == std::string::npos ? line.text.size() : at + before.size());
  }
  line.text.erase(
      std::find_if(line.text.rbegin(), line.text.rend(), [](char c) { return c > ' ' && c != ';'; }).base(),
      line.text.end());
  add(std::move(line));
}

void OcsdPackets::feed() {
  const uint64_t end = at_ + std::min(end_ - at_, kFeed);
  if (before_) before_(end);
  const auto bytes = stream_.bytes(at_, end, scratch_);
  uint32_t used = 0, ignored = 0;
  const ocsd_datapath_resp_t r =
      ocsd_dt_process_data(tree_.get(), OCSD_OP_DATA, static_cast<ocsd_trc_index_t>(at_),
                           static_cast<uint32_t>(bytes.size()), bytes.data(), &used);
  if (OCSD_DATA_RESP_IS_FATAL(r)) {
    ocsd_dt_process_data(tree_.get(), OCSD_OP_RESET, 0, 0, nullptr, &ignored);
    const uint64_t read = at_ + std::min<uint64_t>(end_ - at_, std::max(used, 1U));
    if (read > listed_) add({listed_, read - listed_, now_, kPacketBad, "OpenCSD does not read this"});
  } else if (OCSD_DATA_RESP_IS_WAIT(r)) {
    ocsd_dt_process_data(tree_.get(), OCSD_OP_FLUSH, 0, 0, nullptr, &ignored);
  }
  at_ += std::max(used, 1U);
}

void OcsdPackets::end_stretch() {
  uint32_t ignored = 0;
  ocsd_dt_process_data(tree_.get(), OCSD_OP_EOT, 0, 0, nullptr, &ignored);
  if (listed_ < end_) add({listed_, end_ - listed_, now_, kPacketCut, "a packet without its end"});
  open_ = false;
}

void OcsdPackets::enter() {
  at_ = listed_ = std::max(from_, stream_.pieces[next_piece_].offset);
  next_piece_ = stretch_end(stream_, next_piece_);
  const StreamPiece& last = stream_.pieces[next_piece_ - 1];
  end_ = last.offset + last.size();
  uint32_t ignored = 0;
  ocsd_dt_process_data(tree_.get(), OCSD_OP_RESET, 0, 0, nullptr, &ignored);
  open_ = true;
}

bool OcsdPackets::next(TracePacket& out) {
  // One more than the first: the last may still grow.
  while (lines_.size() < 2 && (open_ || (lines_.empty() && next_piece_ < stream_.pieces.size()))) {
    if (!open_) {
      enter();
    } else if (at_ < end_) {
      feed();
    } else {
      end_stretch();
    }
  }
  if (lines_.empty()) return false;
  line_ = std::move(lines_.front());
  lines_.pop_front();
  out = {};
  out.offset = line_.offset;
  out.size = line_.size;
  out.time = line_.time;
  out.type = line_.type;
  constexpr uint64_t kShown = 32;
  const auto bytes = stream_.bytes(line_.offset, line_.offset + std::min(line_.size, kShown), shown_);
  out.bytes = bytes;
  if (line_.type == kPacketNoSync) {
    out.code = Code::kNoSyncPoint;
    out.reason = "no sync point precedes these bytes";
  } else if (line_.type == kPacketBad || line_.type == kPacketCut) {
    if (line_.type == kPacketBad) out.code = Code::kBadPacket;
    out.reason = line_.text.empty() ? std::string_view("not a packet") : line_.text;
  }
  return true;
}

}  // namespace

std::unique_ptr<PacketReader> read_reference_packets(const Stream& stream, const Source& source,
                                                     const Config& config, const PacketStart& start,
                                                     const BeforePart& before) {
  auto reader = std::make_unique<OcsdPackets>(stream, source, config, start, before);
  return reader->usable() ? std::move(reader) : nullptr;
}

std::unique_ptr<PacketReader> list_reference_packets(const Stream& stream, const Source& source,
                                                     const Config& config) {
  const auto make = [&](const PacketStart& start, const BeforePart& before) {
    return read_reference_packets(stream, source, config, start, before);
  };
  return packets_in_children(stream, make, {.library = "OpenCSD", .names = packet_names()});
}

}  // namespace asof::arm64
