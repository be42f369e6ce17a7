#include "tests/support/pt_writer.h"

#include <intel-pt.h>

#include <cstring>

#include "textstore/check.h"

namespace asof::test {

namespace {

pt_packet packet_of(pt_packet_type type) {
  pt_packet p;
  std::memset(&p, 0, sizeof p);
  p.type = type;
  return p;
}

pt_exec_mode mode_of(ExecMode mode) {
  switch (mode) {
    case ExecMode::k16:
      return ptem_16bit;
    case ExecMode::k32:
      return ptem_32bit;
    case ExecMode::k64:
      return ptem_64bit;
  }
  return ptem_unknown;
}

constexpr unsigned kShortTntBits = 6;
constexpr unsigned kLongTntBits = 47;

}  // namespace

void PtWriter::EncoderFree::operator()(pt_encoder* e) const { pt_free_encoder(e); }

PtWriter::PtWriter(const Options& options)
    : options_(options), scratch_(std::make_unique<std::array<uint8_t, 64>>()) {
  pt_config config;
  pt_config_init(&config);
  config.begin = scratch_->data();
  config.end = scratch_->data() + scratch_->size();
  encoder_.reset(pt_alloc_encoder(&config));
  ASOF_CHECK(encoder_ != nullptr);
}

PtWriter::~PtWriter() = default;
PtWriter::PtWriter(PtWriter&&) noexcept = default;
PtWriter& PtWriter::operator=(PtWriter&&) noexcept = default;

void PtWriter::put(PtKind kind, const pt_packet& packet) {
  ASOF_CHECK(pt_enc_sync_set(encoder_.get(), 0) == 0);
  const int size = pt_enc_next(encoder_.get(), &packet);
  ASOF_CHECK(size > 0);
  put_raw(kind, {scratch_->data(), static_cast<size_t>(size)});
}

void PtWriter::put_raw(PtKind kind, std::span<const uint8_t> bytes) {
  if (options_.keep_packets) packets_.push_back({bytes_.size(), static_cast<uint32_t>(bytes.size()), kind});
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
}

void PtWriter::pad(size_t count) {
  flush();
  for (size_t i = 0; i < count; ++i) put(PtKind::kPad, packet_of(ppt_pad));
}

void PtWriter::psb() {
  flush();
  put(PtKind::kPsb, packet_of(ppt_psb));
  last_ip_ = 0;
}

void PtWriter::psbend() {
  flush();
  put(PtKind::kPsbend, packet_of(ppt_psbend));
}

void PtWriter::psb_plus(const PsbPlus& group) {
  psb();
  if (group.tsc) tsc(*group.tsc);
  if (group.tma) tma(group.tma->ctc, group.tma->fc);
  if (group.cbr) cbr(*group.cbr);
  if (group.exec) mode_exec(*group.exec);
  if (group.tsx) mode_tsx((*group.tsx & 1) != 0, (*group.tsx & 2) != 0);
  if (group.cr3) pip(*group.cr3, group.non_root);
  if (group.vmcs) vmcs(*group.vmcs);
  if (group.ip) fup(*group.ip, IpForm::kSext48);
  psbend();
}

void PtWriter::tnt(bool taken) {
  tnt_ = tnt_ << 1 | (taken ? 1U : 0U);
  if (++tnt_bits_ == (options_.long_tnt ? kLongTntBits : kShortTntBits)) flush();
}

void PtWriter::flush() {
  if (tnt_bits_ == 0) return;
  pt_packet p = packet_of(tnt_bits_ <= kShortTntBits ? ppt_tnt_8 : ppt_tnt_64);
  p.payload.tnt.bit_size = static_cast<uint8_t>(tnt_bits_);
  p.payload.tnt.payload = tnt_;
  tnt_ = 0;
  tnt_bits_ = 0;
  put(PtKind::kTnt, p);
}

IpForm PtWriter::shortest(uint64_t ip) const {
  const uint64_t differs = ip ^ last_ip_;
  if (differs >> 16 == 0) return IpForm::k16;
  if (differs >> 32 == 0) return IpForm::k32;
  if (static_cast<uint64_t>(static_cast<int64_t>(ip << 16) >> 16) == ip) return IpForm::kSext48;
  return differs >> 48 == 0 ? IpForm::k48 : IpForm::kFull;
}

void PtWriter::put_ip(PtKind kind, int type, uint64_t ip, IpForm form) {
  flush();
  if (form == IpForm::kAuto) form = shortest(ip);
  pt_packet p = packet_of(static_cast<pt_packet_type>(type));
  uint64_t mask = ~0ULL;
  switch (form) {
    case IpForm::kNone:
      p.payload.ip.ipc = pt_ipc_suppressed, mask = 0;
      break;
    case IpForm::k16:
      p.payload.ip.ipc = pt_ipc_update_16, mask = 0xffff;
      break;
    case IpForm::k32:
      p.payload.ip.ipc = pt_ipc_update_32, mask = 0xffffffff;
      break;
    case IpForm::kSext48:
      p.payload.ip.ipc = pt_ipc_sext_48, mask = 0xffffffffffff;
      break;
    case IpForm::k48:
      p.payload.ip.ipc = pt_ipc_update_48, mask = 0xffffffffffff;
      break;
    default:
      p.payload.ip.ipc = pt_ipc_full;
      break;
  }
  p.payload.ip.ip = ip & mask;
  put(kind, p);
  if (form != IpForm::kNone) last_ip_ = ip;
}

void PtWriter::tip(uint64_t ip, IpForm form) { put_ip(PtKind::kTip, ppt_tip, ip, form); }
void PtWriter::tip_pge(uint64_t ip, IpForm form) { put_ip(PtKind::kTipPge, ppt_tip_pge, ip, form); }
void PtWriter::fup(uint64_t ip, IpForm form) { put_ip(PtKind::kFup, ppt_fup, ip, form); }
void PtWriter::tip_pgd(std::optional<uint64_t> ip, IpForm form) {
  put_ip(PtKind::kTipPgd, ppt_tip_pgd, ip.value_or(0), ip ? form : IpForm::kNone);
}

void PtWriter::mode_exec(ExecMode mode, bool interrupt_flag) {
  flush();
  if (interrupt_flag) {
    const uint8_t bits = mode == ExecMode::k64 ? 1 : mode == ExecMode::k32 ? 2 : 0;  // CS.L, CS.D
    put_raw(PtKind::kMode, std::array<uint8_t, 2>{0x99, static_cast<uint8_t>(bits | 4)});
    return;
  }
  pt_packet p = packet_of(ppt_mode);
  p.payload.mode.leaf = pt_mol_exec;
  p.payload.mode.bits.exec = pt_set_exec_mode(mode_of(mode));
  put(PtKind::kMode, p);
}

void PtWriter::mode_tsx(bool in_tx, bool abort) {
  flush();
  pt_packet p = packet_of(ppt_mode);
  p.payload.mode.leaf = pt_mol_tsx;
  p.payload.mode.bits.tsx.intx = in_tx;
  p.payload.mode.bits.tsx.abrt = abort;
  put(PtKind::kMode, p);
}

void PtWriter::pip(uint64_t cr3, bool non_root) {
  flush();
  pt_packet p = packet_of(ppt_pip);
  p.payload.pip.cr3 = cr3;
  p.payload.pip.nr = non_root;
  put(PtKind::kPip, p);
}

void PtWriter::vmcs(uint64_t base) {
  flush();
  pt_packet p = packet_of(ppt_vmcs);
  p.payload.vmcs.base = base;
  put(PtKind::kVmcs, p);
}

void PtWriter::before_timing() {
  if (options_.timing_flushes_tnt) flush();
}

void PtWriter::cbr(uint8_t ratio) {
  before_timing();
  pt_packet p = packet_of(ppt_cbr);
  p.payload.cbr.ratio = ratio;
  put(PtKind::kCbr, p);
}

void PtWriter::tsc(uint64_t value) {
  before_timing();
  pt_packet p = packet_of(ppt_tsc);
  p.payload.tsc.tsc = value & 0xffffffffffffff;
  put(PtKind::kTsc, p);
}

void PtWriter::tma(uint16_t ctc, uint16_t fc) {
  before_timing();
  pt_packet p = packet_of(ppt_tma);
  p.payload.tma.ctc = ctc;
  p.payload.tma.fc = fc;
  put(PtKind::kTma, p);
}

void PtWriter::mtc(uint8_t ctc) {
  before_timing();
  pt_packet p = packet_of(ppt_mtc);
  p.payload.mtc.ctc = ctc;
  put(PtKind::kMtc, p);
}

void PtWriter::cyc(uint64_t cycles) {
  before_timing();
  pt_packet p = packet_of(ppt_cyc);
  p.payload.cyc.value = cycles;
  put(PtKind::kCyc, p);
}

void PtWriter::stop() {
  flush();
  put(PtKind::kStop, packet_of(ppt_stop));
}

void PtWriter::ovf() {
  flush();
  put(PtKind::kOvf, packet_of(ppt_ovf));
  last_ip_ = 0;  // as at PSB; decoders reset it as well (libipt, pt_qry_decode_ovf())
}

void PtWriter::mnt(uint64_t payload) {
  flush();
  pt_packet p = packet_of(ppt_mnt);
  p.payload.mnt.payload = payload;
  put(PtKind::kMnt, p);
}

void PtWriter::ptw(uint64_t payload, bool eight_bytes, bool fup_follows) {
  flush();
  pt_packet p = packet_of(ppt_ptw);
  p.payload.ptw.payload = payload;
  p.payload.ptw.plc = eight_bytes ? 1 : 0;
  p.payload.ptw.ip = fup_follows;
  put(PtKind::kPtw, p);
}

void PtWriter::exstop(bool fup_follows) {
  flush();
  pt_packet p = packet_of(ppt_exstop);
  p.payload.exstop.ip = fup_follows;
  put(PtKind::kExstop, p);
}

void PtWriter::mwait(uint32_t hints, uint32_t extensions) {
  flush();
  pt_packet p = packet_of(ppt_mwait);
  p.payload.mwait.hints = hints;
  p.payload.mwait.ext = extensions;
  put(PtKind::kMwait, p);
}

void PtWriter::pwre(uint8_t state, uint8_t sub_state, bool hw) {
  flush();
  pt_packet p = packet_of(ppt_pwre);
  p.payload.pwre.state = state;
  p.payload.pwre.sub_state = sub_state;
  p.payload.pwre.hw = hw;
  put(PtKind::kPwre, p);
}

void PtWriter::pwrx(uint8_t last, uint8_t deepest, uint8_t reason) {
  flush();
  pt_packet p = packet_of(ppt_pwrx);
  p.payload.pwrx.last = last;
  p.payload.pwrx.deepest = deepest;
  p.payload.pwrx.interrupt = reason & 1U;
  p.payload.pwrx.store = reason >> 1 & 1U;
  p.payload.pwrx.autonomous = reason >> 2 & 1U;
  put(PtKind::kPwrx, p);
}

void PtWriter::bbp(uint8_t type, bool four_byte_items) {
  flush();
  short_items_ = four_byte_items;
  const uint8_t payload = static_cast<uint8_t>((type & 0x1f) | (four_byte_items ? 0x80 : 0));
  put_raw(PtKind::kBbp, std::array<uint8_t, 3>{0x02, 0x63, payload});
}

void PtWriter::bip(uint8_t id, uint64_t payload) {
  flush();
  std::array<uint8_t, 9> b{static_cast<uint8_t>((id & 0x1f) << 3 | 4)};
  for (unsigned i = 0; i < 8; ++i) b[i + 1] = static_cast<uint8_t>(payload >> (8 * i));
  put_raw(PtKind::kBip, std::span(b).first(short_items_ ? 5 : 9));
}

void PtWriter::bep(bool fup_follows) {
  flush();
  put_raw(PtKind::kBep, std::array<uint8_t, 2>{0x02, static_cast<uint8_t>(fup_follows ? 0xb3 : 0x33)});
}

void PtWriter::cfe(uint8_t type, uint8_t vector, bool fup_follows) {
  flush();
  const uint8_t payload = static_cast<uint8_t>((type & 0x1f) | (fup_follows ? 0x80 : 0));
  put_raw(PtKind::kCfe, std::array<uint8_t, 4>{0x02, 0x13, payload, vector});
}

void PtWriter::evd(uint8_t type, uint64_t payload) {
  flush();
  std::array<uint8_t, 11> b{0x02, 0x53, static_cast<uint8_t>(type & 0x3f)};
  for (unsigned i = 0; i < 8; ++i) b[i + 3] = static_cast<uint8_t>(payload >> (8 * i));
  put_raw(PtKind::kEvd, b);
}

void PtWriter::raw(std::span<const uint8_t> bytes) {
  flush();
  put_raw(PtKind::kRaw, bytes);
}

void PtWriter::cut(uint64_t offset) {
  ASOF_CHECK(offset <= bytes_.size());
  bytes_.resize(offset);
  tnt_ = 0;
  tnt_bits_ = 0;
  while (!packets_.empty() && packets_.back().offset + packets_.back().size > offset) packets_.pop_back();
}

}  // namespace asof::test
