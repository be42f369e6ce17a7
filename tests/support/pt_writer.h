// PtWriter: writes Intel PT packets, so that tests have traces without hardware. The packet encoder is
// libipt's; packets that it does not know (event trace, PEBS blocks, MODE.Exec with the interrupt flag) are
// laid out here according to the SDM, vol. 3, "Intel Processor Trace", section "Packet definitions". What
// involves more than one packet (PSB+, the grouping of TNT bits, IP compression against the last IP) is done
// here as in the processor.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

struct pt_encoder;
struct pt_packet;

namespace asof::test {

enum class PtKind : uint8_t {
  kPad,
  kPsb,
  kPsbend,
  kTnt,
  kTip,
  kTipPge,
  kTipPgd,
  kFup,
  kMode,
  kPip,
  kVmcs,
  kCbr,
  kTsc,
  kTma,
  kMtc,
  kCyc,
  kStop,
  kOvf,
  kMnt,
  kPtw,
  kExstop,
  kMwait,
  kPwre,
  kPwrx,
  kBbp,
  kBip,
  kBep,
  kCfe,
  kEvd,
  kRaw,
};

// A packet by its position in the stream.
struct PtPacket {
  uint64_t offset = 0;
  uint32_t size = 0;
  PtKind kind = PtKind::kRaw;
};

// How an address is written. kAuto takes the shortest form that the last IP allows.
enum class IpForm : uint8_t { kAuto, kNone, k16, k32, kSext48, k48, kFull };

enum class ExecMode : uint8_t { k16, k32, k64 };

// The packets between PSB and PSBEND, in writing order; what is not set is left out.
struct PsbPlus {
  struct Tma {
    uint16_t ctc = 0;
    uint16_t fc = 0;
  };
  std::optional<uint64_t> tsc;
  std::optional<Tma> tma;
  std::optional<uint8_t> cbr;
  std::optional<ExecMode> exec = ExecMode::k64;
  std::optional<uint8_t> tsx;  // bit 0 InTX, bit 1 TXAbort
  std::optional<uint64_t> cr3;
  std::optional<uint64_t> vmcs;
  std::optional<uint64_t> ip;  // FUP, six bytes
  bool non_root = false;
};

class PtWriter {
 public:
  struct Options {
    bool long_tnt = false;           // collect up to 47 bits; false: 6
    bool timing_flushes_tnt = true;  // false: MTC, TSC and CYC may overtake TNT bits that are still collected
    bool keep_packets = true;        // off for speed: packets() stays empty
  };

  PtWriter() : PtWriter(Options{}) {}
  explicit PtWriter(const Options& options);
  ~PtWriter();
  PtWriter(PtWriter&&) noexcept;
  PtWriter& operator=(PtWriter&&) noexcept;

  void pad(size_t count = 1);
  void psb_plus(const PsbPlus& group);
  void psb();  // forgets the last IP
  void psbend();
  // One branch outcome. Bits are written when a packet is full, before any other packet, and by flush().
  void tnt(bool taken);
  void flush();
  void tip(uint64_t ip, IpForm form = IpForm::kAuto);
  void tip_pge(uint64_t ip, IpForm form = IpForm::kAuto);
  void tip_pgd(std::optional<uint64_t> ip = {}, IpForm form = IpForm::kAuto);
  void fup(uint64_t ip, IpForm form = IpForm::kAuto);
  void mode_exec(ExecMode mode, bool interrupt_flag = false);
  void mode_tsx(bool in_tx, bool abort);
  void pip(uint64_t cr3, bool non_root = false);
  void vmcs(uint64_t base);
  void cbr(uint8_t ratio);
  void tsc(uint64_t value);
  void tma(uint16_t ctc, uint16_t fc);
  void mtc(uint8_t ctc);
  void cyc(uint64_t cycles);
  void stop();
  void ovf();
  void mnt(uint64_t payload);
  void ptw(uint64_t payload, bool eight_bytes, bool fup_follows);
  void exstop(bool fup_follows);
  void mwait(uint32_t hints, uint32_t extensions);
  void pwre(uint8_t state, uint8_t sub_state, bool hw);
  void pwrx(uint8_t last, uint8_t deepest, uint8_t reason);  // reason: bit 0 interrupt, 1 store, 2 autonomous
  void bbp(uint8_t type, bool four_byte_items);
  void bip(uint8_t id, uint64_t payload);  // four or eight bytes, depending on the last BBP
  void bep(bool fup_follows);
  void cfe(uint8_t type, uint8_t vector, bool fup_follows);
  void evd(uint8_t type, uint64_t payload);
  void raw(std::span<const uint8_t> bytes);

  uint64_t offset() const { return bytes_.size(); }  // without collected TNT bits
  unsigned pending_tnt() const { return tnt_bits_; }
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  std::span<const PtPacket> packets() const { return packets_; }
  uint64_t last_ip() const { return last_ip_; }
  // Drops everything from `offset` on, as when a buffer overflows, including collected TNT bits.
  void cut(uint64_t offset);

 private:
  void put(PtKind kind, const pt_packet& packet);
  void put_raw(PtKind kind, std::span<const uint8_t> bytes);
  void put_ip(PtKind kind, int type, uint64_t ip, IpForm form);
  void before_timing();
  IpForm shortest(uint64_t ip) const;

  struct EncoderFree {
    void operator()(pt_encoder* e) const;
  };

  Options options_;
  std::unique_ptr<std::array<uint8_t, 64>> scratch_;  // stays in place when the writer moves
  std::unique_ptr<pt_encoder, EncoderFree> encoder_;
  std::vector<uint8_t> bytes_;
  std::vector<PtPacket> packets_;
  uint64_t last_ip_ = 0;
  uint64_t tnt_ = 0;
  unsigned tnt_bits_ = 0;
  bool short_items_ = false;
};

}  // namespace asof::test
