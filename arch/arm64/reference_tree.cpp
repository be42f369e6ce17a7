#include "arch/arm64/reference_tree.h"

#include <opencsd/c_api/opencsd_c_api.h>

namespace asof::arm64 {

void TreeDeleter::operator()(void* tree) const { ocsd_destroy_dcd_tree(tree); }

Tree make_tree(const Source& s, bool only_packets) {
  ocsd_def_errlog_init(OCSD_ERR_SEV_NONE, 0);
  Tree tree(ocsd_create_dcd_tree(OCSD_TRC_SRC_SINGLE, 0));
  if (!tree) return tree;
  const ocsd_arch_version_t arch = s.armv7 ? ARCH_V7 : ARCH_AA64;
  const ocsd_core_profile_t profile = s.m_profile ? profile_CortexM : profile_CortexA;
  const int flags = only_packets ? OCSD_CREATE_FLG_PACKET_PROC : OCSD_CREATE_FLG_FULL_DECODER;
  const auto create = [&tree, flags](const char* name, auto& config) {
    return ocsd_dt_create_decoder(tree.get(), name, flags, &config, &tree.get_deleter().id) == OCSD_OK;
  };
  bool made = false;
  switch (s.protocol) {
    case Protocol::kEtm4: {
      ocsd_etmv4_cfg c{};
      c.reg_idr0 = s.idr0, c.reg_idr1 = s.idr1, c.reg_idr2 = s.idr2;
      c.reg_idr8 = s.idr8, c.reg_idr9 = s.idr9, c.reg_idr10 = s.idr10;
      c.reg_idr11 = s.idr11, c.reg_idr12 = s.idr12, c.reg_idr13 = s.idr13;
      c.reg_configr = s.configr, c.reg_traceidr = s.traceidr;
      c.arch_ver = arch, c.core_prof = profile;
      made = create(OCSD_BUILTIN_DCD_ETMV4I, c);
      break;
    }
    case Protocol::kEte: {
      ocsd_ete_cfg c{};
      c.reg_idr0 = s.idr0, c.reg_idr1 = s.idr1, c.reg_idr2 = s.idr2, c.reg_idr8 = s.idr8;
      c.reg_devarch = s.devarch, c.reg_configr = s.configr, c.reg_traceidr = s.traceidr;
      c.arch_ver = arch, c.core_prof = profile;
      made = create(OCSD_BUILTIN_DCD_ETE, c);
      break;
    }
    case Protocol::kEtm3: {
      ocsd_etmv3_cfg c{};
      c.reg_idr = s.etmidr, c.reg_ctrl = s.etmcr, c.reg_ccer = s.etmccer, c.reg_trc_id = s.trace_id;
      c.arch_ver = arch, c.core_prof = profile;
      made = create(OCSD_BUILTIN_DCD_ETMV3, c);
      break;
    }
    case Protocol::kPtm: {
      ocsd_ptm_cfg c{};
      c.reg_idr = s.etmidr, c.reg_ctrl = s.etmcr, c.reg_ccer = s.etmccer, c.reg_trc_id = s.trace_id;
      c.arch_ver = arch, c.core_prof = profile;
      made = create(OCSD_BUILTIN_DCD_PTM, c);
      break;
    }
  }
  if (!made) tree.reset();
  return tree;
}

}  // namespace asof::arm64
