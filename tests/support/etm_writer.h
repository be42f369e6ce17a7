// EtmWriter: writes ETMv4 and ETE instruction trace packets, so that tests have traces without hardware.
// Layouts follow Arm IHI 0064, "Descriptions of trace packets". What depends on earlier packets (the grouping
// of atoms, address compression against the three last addresses, timestamp compression) is done as in a
// trace unit.
//
// A writer writes what it is given, including nonsense. tests/arch/arm64/etm_writer_test.cpp reads everything
// back with OpenCSD.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace asof::test {

enum class EtmKind : uint8_t {
  kAsync,
  kDiscard,
  kOverflow,
  kTraceInfo,
  kTimestamp,
  kTraceOn,
  kFunctionReturn,
  kException,
  kExceptionReturn,
  kTransactionStart,
  kTransactionCommit,
  kCycleCount,
  kCommit,
  kCancel,
  kMispredict,
  kIgnore,
  kEvent,
  kContext,
  kAddressContext,
  kTimestampMarker,
  kAddress,
  kQ,
  kSourceAddress,
  kAtoms,
  kInstrumentation,
  kRaw,
};

// A packet by its position in the stream.
struct EtmPacket {
  uint64_t offset = 0;
  uint32_t size = 0;
  EtmKind kind = EtmKind::kRaw;
  uint32_t atoms = 0;  // how many it has
};

// Absent sections leave their values as after reset: zero.
struct EtmTraceInfo {
  std::optional<uint32_t> info = 0;  // bit 0: cycle counts, 3:1 conditional, 6: in a transaction (ETE)
  std::optional<uint32_t> key{};
  std::optional<uint32_t> spec{};  // speculation depth
  std::optional<uint32_t> cycle_threshold{};
};

struct EtmContext {
  uint8_t el = 1;
  bool aarch64 = true;
  bool non_secure = true;
  bool nse = false;  // ETE with RME
  std::optional<uint32_t> vmid{};
  std::optional<uint32_t> context_id{};
};

// How an address is written. kAuto takes the shortest form that the last addresses allow.
enum class EtmAddressForm : uint8_t { kAuto, kMatch, kShort, k32, k64 };

// E field of an exception packet: the meaning of the address after it.
enum class EtmExceptionAddress : uint8_t {
  kReturn = 1,  // preferred return address
  kTarget = 2,  // that, and also the target of the branch before it
};

// Exception types of the A profile (IHI 0064, "Exception instruction trace packet").
namespace etm_exception {
inline constexpr uint16_t kReset = 0, kDebugHalt = 1, kCall = 2, kTrap = 3, kSystemError = 4, kInstDebug = 6,
                          kDataDebug = 7, kAlignment = 10, kInstFault = 11, kDataFault = 12, kIrq = 14,
                          kFiq = 15;
}

class EtmWriter {
 public:
  struct Options {
    unsigned vmid_bytes = 1;        // TRCIDR2.VMIDSIZE
    unsigned context_id_bytes = 4;  // TRCIDR2.CIDSIZE
    bool commit_in_count = false;   // TRCIDR0.COMMOPT == 0: cycle count packets commit elements
    unsigned max_spec_depth = 0;    // TRCIDR8
    uint32_t cycle_threshold = 0;   // TRCCCCTLR, as in the last trace info
    bool keep_packets = true;       // off for speed: packets() stays empty
  };

  EtmWriter() : EtmWriter(Options{}) {}
  explicit EtmWriter(const Options& options) : options_(options) {}

  void async();
  void discard();
  void overflow();
  void trace_info(const EtmTraceInfo& info);  // forgets addresses and time
  void trace_on();
  // Only the bytes that changed since the last one are written; `count`: cycle count of the packet.
  void timestamp(uint64_t value, std::optional<uint32_t> count = {});
  void context(const EtmContext& c);
  void context_unchanged();  // the packet without payload
  void address(uint64_t a, unsigned is = 0, EtmAddressForm form = EtmAddressForm::kAuto);
  void address_with_context(uint64_t a, const EtmContext& c, unsigned is = 0, bool wide = true);
  void source_address(uint64_t a, unsigned is = 0, EtmAddressForm form = EtmAddressForm::kAuto);  // ETE
  // E or N. Atoms are written before any other packet and by flush(), in the largest formats that fit.
  void atom(bool e);
  void atoms(const char* pattern);  // "EEN"
  void flush();
  // The packet alone; its address packet is written next. `pending`: M profile.
  void exception_header(uint16_t type, EtmExceptionAddress what, bool pending = false);
  void exception(uint16_t type, uint64_t return_address,
                 EtmExceptionAddress what = EtmExceptionAddress::kReturn, unsigned is = 0);
  void exception_return();
  void function_return();  // M profile
  // Q elements: number of instructions; unknown if there is none. Address: none, exact match, short or
  // 32-bit.
  void q();
  void q(uint32_t count);
  void q_address(uint32_t count, uint64_t a, unsigned is = 0, EtmAddressForm form = EtmAddressForm::kAuto);
  // `commit` is present in formats 1 and 2 only if Options::commit_in_count; no count: unknown.
  void cycle_count_f1(std::optional<uint32_t> count, uint32_t commit = 0);
  void cycle_count_f2(uint32_t count, int32_t commit);
  void cycle_count_f3(uint32_t count, uint32_t commit = 1);
  void commit(uint32_t elements);
  void cancel_f1(uint32_t elements, bool mispredict);
  void cancel_f2(const char* atoms);                  // one element; "", "E", "EE" or "N", then mispredict
  void cancel_f3(uint32_t elements, bool then_atom);  // 2 to 5 elements, E if `then_atom`, then mispredict
  void mispredict(const char* atoms);                 // "", "E", "EE" or "N" before it
  void event(unsigned bits);                          // bits 0 to 3
  void ignore();
  void transaction_start();                           // ETE
  void transaction_commit();                          // ETE
  void timestamp_marker();                            // ETE
  void instrumentation(unsigned el, uint64_t value);  // ETE 1.2, FEAT_ITE
  void raw(std::span<const uint8_t> bytes);

  uint64_t offset() const { return bytes_.size(); }  // without collected atoms
  size_t pending_atoms() const { return atoms_.size(); }
  // Hands over what has been written; offset() begins at zero again.
  std::vector<uint8_t> take() { return std::exchange(bytes_, {}); }
  // The packets of it.
  std::vector<EtmPacket> take_packets() { return std::exchange(packets_, {}); }
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  std::span<const EtmPacket> packets() const { return packets_; }

 private:
  struct Known {
    uint64_t address = 0;
    unsigned is = 0;
    bool valid = false;
  };
  void begin(EtmKind kind);
  void end();
  void put(EtmKind kind, std::initializer_list<uint8_t> bytes);
  void leb(uint64_t value);  // seven bits a byte, lowest first, bit 7: more follow
  void context_payload(const EtmContext& c);
  void long_address(uint64_t a, unsigned is, unsigned bytes);
  bool short_address(uint64_t a, unsigned is);
  void address_as(uint64_t a, unsigned is, EtmAddressForm form, uint8_t match, uint8_t brief, uint8_t long32,
                  uint8_t long64);
  EtmAddressForm shortest(uint64_t a, unsigned is, int& match) const;
  void remember(uint64_t a, unsigned is);
  size_t put_atoms(size_t at);

  Options options_;
  std::vector<uint8_t> bytes_;
  std::vector<EtmPacket> packets_;
  std::vector<bool> atoms_;
  std::array<Known, 3> known_{};
  uint64_t time_ = 0;
  uint64_t start_ = 0;
  EtmKind kind_ = EtmKind::kRaw;
};

}  // namespace asof::test
