#include "tests/support/etm_opencsd.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace asof::test {

namespace {

// A decode tree for one source. Streams of this test code are far below 4 GiB.
class Tree {
 public:
  Tree(ocsd_dcd_tree_src_t kind, uint32_t flags) : handle_(ocsd_create_dcd_tree(kind, flags)) {
    // Errors are returned as values; the library's own log is off.
    ocsd_def_errlog_init(OCSD_ERR_SEV_NONE, 0);
  }
  ~Tree() { ocsd_destroy_dcd_tree(handle_); }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  dcd_tree_handle_t handle() const { return handle_; }
  unsigned char id() const { return id_; }

  bool create(const arm64::Source& s, int flags) {
    if (s.protocol == arm64::Protocol::kEte) {
      ocsd_ete_cfg c{};
      c.reg_idr0 = s.idr0, c.reg_idr1 = s.idr1, c.reg_idr2 = s.idr2, c.reg_idr8 = s.idr8;
      c.reg_devarch = s.devarch, c.reg_configr = s.configr, c.reg_traceidr = s.trace_id;
      c.arch_ver = ARCH_AA64, c.core_prof = profile_CortexA;
      return ocsd_dt_create_decoder(handle_, OCSD_BUILTIN_DCD_ETE, flags, &c, &id_) == OCSD_OK;
    }
    ocsd_etmv4_cfg c{};
    c.reg_idr0 = s.idr0, c.reg_idr1 = s.idr1, c.reg_idr2 = s.idr2, c.reg_idr8 = s.idr8;
    c.reg_configr = s.configr, c.reg_traceidr = s.trace_id;
    c.arch_ver = ARCH_AA64, c.core_prof = profile_CortexA;
    return ocsd_dt_create_decoder(handle_, OCSD_BUILTIN_DCD_ETMV4I, flags, &c, &id_) == OCSD_OK;
  }

  bool process(std::span<const uint8_t> trace) {
    uint32_t done = 0;
    while (done < trace.size()) {
      uint32_t used = 0;
      const ocsd_datapath_resp_t r =
          ocsd_dt_process_data(handle_, OCSD_OP_DATA, done, static_cast<uint32_t>(trace.size() - done),
                               trace.data() + done, &used);
      if (OCSD_DATA_RESP_IS_FATAL(r)) return false;
      if (OCSD_DATA_RESP_IS_WAIT(r)) ocsd_dt_process_data(handle_, OCSD_OP_FLUSH, 0, 0, nullptr, &used);
      done += used;
    }
    uint32_t used = 0;
    return !OCSD_DATA_RESP_IS_FATAL(ocsd_dt_process_data(handle_, OCSD_OP_EOT, 0, 0, nullptr, &used));
  }

 private:
  dcd_tree_handle_t handle_;
  unsigned char id_ = 0;
};

// The library passes contexts back as pointers to const.
template <class T>
T& context_of(const void* p) {
  return *static_cast<T*>(const_cast<void*>(p));
}

void on_packet(const void* context, ocsd_datapath_op_t op, ocsd_trc_index_t index, const void* packet,
               uint32_t, const uint8_t*) {
  if (op != OCSD_OP_DATA) return;
  CsdPacket out{.offset = index, .text = {}, .packet = *static_cast<const ocsd_etmv4_i_pkt*>(packet)};
  char text[512] = {};
  ocsd_pkt_str(OCSD_PROTOCOL_ETMV4I, packet, text, sizeof text);
  out.text = text;
  context_of<std::vector<CsdPacket>>(context).push_back(std::move(out));
}

// "Idx:12; ID:10; [0x01 ... ];\tI_TRACE_INFO : ...": the C interface has no callback for packets of ETE.
void on_line(const void* context, const char* line, int length) {
  const std::string_view text(line, static_cast<size_t>(std::max(length, 0)));
  const size_t tab = text.find('\t');
  if (!text.starts_with("Idx:") || tab == std::string_view::npos) return;
  context_of<std::vector<CsdPacket>>(context).push_back(
      {.offset = std::strtoull(line + 4, nullptr, 10), .text = std::string(text.substr(tab + 1))});
}

void on_bytes(const void* context, ocsd_datapath_op_t op, ocsd_trc_index_t, const void*, uint32_t size,
              const uint8_t* data) {
  if (op != OCSD_OP_DATA) return;
  auto& out = context_of<std::vector<uint8_t>>(context);
  out.insert(out.end(), data, data + size);
}

ocsd_datapath_resp_t on_packet_end(const void*, ocsd_datapath_op_t, ocsd_trc_index_t, const void*) {
  return OCSD_RESP_CONT;
}

ocsd_datapath_resp_t on_element(const void* context, ocsd_trc_index_t, uint8_t,
                                const ocsd_generic_trace_elem* e) {
  auto& out = context_of<CsdDecode>(context);
  char text[512] = {};
  ocsd_gen_elem_str(e, text, sizeof text);
  out.elements.emplace_back(text);
  if (e->elem_type != OCSD_GEN_TRC_ELEM_INSTR_RANGE) return OCSD_RESP_CONT;
  out.ranges.push_back({e->st_addr, e->en_addr, e->num_instr_range, e->last_instr_exec != 0});
  for (Addr a = e->st_addr; a < e->en_addr; a += 4) out.instructions.push_back(a);
  return OCSD_RESP_CONT;
}

uint32_t on_read(const void* context, ocsd_vaddr_t a, ocsd_mem_space_acc_t, uint32_t size, uint8_t* buffer) {
  return context_of<const CsdRead>(context)(a, {buffer, size});
}

}  // namespace

arm64::Source etm4_source(uint8_t trace_id, bool return_stack) {
  arm64::Source s;
  s.trace_id = trace_id;
  s.idr0 = 0x28000ea1;  // 64-bit timestamps, cycle counts, return stack, COMMOPT
  s.idr1 = 0x4100f403;
  s.idr2 = 0x00000488;
  s.configr = 1U | 1U << 11 | (return_stack ? 1U << 12 : 0U);
  s.traceidr = trace_id;
  return s;
}

arm64::Source ete_source(uint8_t trace_id, bool return_stack) {
  arm64::Source s = etm4_source(trace_id, return_stack);
  s.protocol = arm64::Protocol::kEte;
  s.idr1 = 0x4100fff3;
  s.devarch = 0x47705a13;
  return s;
}

std::vector<CsdPacket> csd_packets(const arm64::Source& source, std::span<const uint8_t> trace) {
  std::vector<CsdPacket> out;
  Tree tree(OCSD_TRC_SRC_SINGLE, 0);
  if (!tree.create(source, OCSD_CREATE_FLG_PACKET_PROC)) return out;
  if (source.protocol == arm64::Protocol::kEte) {
    static const ocsd_err_t once = ocsd_def_errlog_init(OCSD_ERR_SEV_NONE, 1);  // each call makes an output
    (void)once;
    ocsd_def_errlog_config_output(C_API_MSGLOGOUT_FLG_NONE, nullptr);
    ocsd_def_errlog_set_strprint_cb(tree.handle(), &out, &on_line);
    ocsd_dt_set_pkt_protocol_printer(tree.handle(), tree.id(), 1);
    tree.process(trace);
    return out;
  }
  ocsd_dt_attach_packet_callback(tree.handle(), tree.id(), OCSD_C_API_CB_PKT_SINK,
                                 reinterpret_cast<void*>(&on_packet_end), nullptr);
  ocsd_dt_attach_packet_callback(tree.handle(), tree.id(), OCSD_C_API_CB_PKT_MON,
                                 reinterpret_cast<void*>(&on_packet), &out);
  tree.process(trace);
  return out;
}

CsdDecode csd_decode(const arm64::Source& source, std::span<const uint8_t> trace, const CsdRead& read) {
  CsdDecode out;
  Tree tree(OCSD_TRC_SRC_SINGLE, 0);
  const auto ok = [](ocsd_err_t e) { return e == OCSD_OK; };
  out.failed =
      !tree.create(source, OCSD_CREATE_FLG_FULL_DECODER) ||
      !ok(ocsd_dt_set_gen_elem_outfn(tree.handle(), &on_element, &out)) ||
      !ok(ocsd_dt_add_callback_mem_acc(tree.handle(), 0, UINT64_MAX, OCSD_MEM_SPACE_ANY, &on_read, &read)) ||
      !tree.process(trace);
  return out;
}

std::vector<uint8_t> csd_unformat(const arm64::Source& source, std::span<const uint8_t> frames, bool sync) {
  std::vector<uint8_t> out;
  Tree tree(OCSD_TRC_SRC_FRAME_FORMATTED, sync ? OCSD_DFRMTR_HAS_FSYNCS : OCSD_DFRMTR_FRAME_MEM_ALIGN);
  if (!tree.create(source, OCSD_CREATE_FLG_PACKET_PROC)) return out;
  ocsd_dt_attach_packet_callback(tree.handle(), tree.id(), OCSD_C_API_CB_PKT_SINK,
                                 reinterpret_cast<void*>(&on_packet_end), nullptr);
  ocsd_dt_attach_packet_callback(tree.handle(), tree.id(), OCSD_C_API_CB_PKT_MON,
                                 reinterpret_cast<void*>(&on_bytes), &out);
  tree.process(frames);
  return out;
}

}  // namespace asof::test
