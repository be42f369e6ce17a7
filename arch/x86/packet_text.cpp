#include "arch/x86/packet_text.h"

#include <array>

namespace asof::x86 {
namespace {

constexpr std::array<std::string_view, kLongTnt + 1> kNames = [] {
  std::array<std::string_view, kLongTnt + 1> out{};
  for (size_t i = 0; i < kLineNames.size(); ++i) out[i] = kLineNames[i];
  const auto name = [&out](Pk type, std::string_view text) {
    out[static_cast<size_t>(kFirstPacketType) + static_cast<size_t>(type)] = text;
  };
  name(Pk::kPad, "PAD");
  name(Pk::kTnt, "TNT.8");
  name(Pk::kTip, "TIP");
  name(Pk::kPge, "TIP.PGE");
  name(Pk::kPgd, "TIP.PGD");
  name(Pk::kFup, "FUP");
  name(Pk::kModeExec, "MODE.Exec");
  name(Pk::kModeTsx, "MODE.TSX");
  name(Pk::kPsb, "PSB");
  name(Pk::kPsbend, "PSBEND");
  name(Pk::kOvf, "OVF");
  name(Pk::kStop, "TraceStop");
  name(Pk::kTsc, "TSC");
  name(Pk::kTma, "TMA");
  name(Pk::kMtc, "MTC");
  name(Pk::kCyc, "CYC");
  name(Pk::kCbr, "CBR");
  name(Pk::kPip, "PIP");
  name(Pk::kVmcs, "VMCS");
  name(Pk::kMnt, "MNT");
  name(Pk::kPtw, "PTWRITE");
  name(Pk::kExstop, "EXSTOP");
  name(Pk::kMwait, "MWAIT");
  name(Pk::kPwre, "PWRE");
  name(Pk::kPwrx, "PWRX");
  name(Pk::kBbp, "BBP");
  name(Pk::kBip, "BIP");
  name(Pk::kBep, "BEP");
  name(Pk::kCfe, "CFE");
  name(Pk::kEvd, "EVD");
  name(Pk::kTrig, "TRIG");
  out[kLongTnt] = "TNT.64";
  return out;
}();

template <size_t N>
std::string_view word(const std::array<std::string_view, N>& words, uint64_t i) {
  return i < N && !words[i].empty() ? words[i] : std::string_view("reserved");
}

constexpr std::array<std::string_view, 8> kIpForms = {"none", "16", "32", "48 sign-extended",
                                                      "48",   "",   "64", ""};
constexpr std::array<std::string_view, 14> kCfeTypes = {
    "",        "INTR",   "IRET",        "SMI",      "RSM", "SIPI",  "INIT",
    "VMENTRY", "VMEXIT", "VMEXIT_INTR", "SHUTDOWN", "",    "UINTR", "UIRET"};
constexpr std::array<std::string_view, 3> kEvdTypes = {"PFA", "VMXQ", "VMXR"};
constexpr std::array<std::string_view, 17> kBbpTypes = {"",
                                                        "GP registers",
                                                        "",
                                                        "",
                                                        "basic info",
                                                        "memory info",
                                                        "",
                                                        "",
                                                        "LBR_0",
                                                        "LBR_1",
                                                        "LBR_2",
                                                        "",
                                                        "",
                                                        "",
                                                        "",
                                                        "",
                                                        "XMM registers"};

void describe_ip(const Packet& k, Addr ip, PacketFields& out) {
  if (k.ipc == 0) {
    out.text("ip", "suppressed", true);
    return;
  }
  out.hex("ip", ip, true);
  out.text("ip_bits", word(kIpForms, k.ipc));
  out.hex("payload", k.value);
}

void describe_mode(const Packet& k, PacketFields& out) {
  if (k.type == Pk::kModeExec) {
    out.number("bits", exec_mode(k.value));
    out.number("cs.l", k.value & 1);
    out.number("cs.d", k.value >> 1 & 1);
    out.number("if", k.value >> 2 & 1);
  } else {
    out.number("intx", k.value & 1);
    out.number("txabort", k.value >> 1 & 1);
  }
}

void describe_power(const Packet& k, PacketFields& out) {
  switch (k.type) {
    case Pk::kMwait:
      out.hex("hints", k.value);
      out.hex("extensions", k.value2);
      return;
    case Pk::kPwre:
      out.number("c_state", k.value >> 12 & 0xf);
      out.number("sub_state", k.value >> 8 & 0xf);
      out.number("hw", k.value >> 7 & 1);
      return;
    case Pk::kPwrx:
      out.number("last_c_state", k.value >> 4 & 0xf);
      out.number("deepest_c_state", k.value & 0xf);
      out.number("interrupt", k.value >> 8 & 1);
      out.number("store", k.value >> 10 & 1);
      out.number("autonomous", k.value >> 11 & 1);
      return;
    default:
      out.flag("ip", k.ip_bit);  // EXSTOP
  }
}

// PEBS blocks, Event Trace, triggers.
void describe_event(const Packet& k, const uint8_t* bytes, PacketFields& out) {
  switch (k.type) {
    case Pk::kBbp:
      out.hex("type", k.value);
      out.text("name", word(kBbpTypes, k.value), true);
      out.number("item_bytes", k.value2 != 0 ? 4 : 8);
      return;
    case Pk::kBip:
      out.hex("id", k.value2);
      out.hex("payload", k.value);
      return;
    case Pk::kCfe:
      out.text("type", word(kCfeTypes, k.value), true);
      out.number("vector", k.value2);
      out.flag("ip", k.ip_bit);
      return;
    case Pk::kEvd:
      out.text("type", word(kEvdTypes, k.value), true);
      out.hex("payload", k.value2);
      return;
    case Pk::kTrig:
      out.hex("trbv", k.value);
      if (k.size == 5) out.number("instructions", load_le(bytes + 3, 2));
      [[fallthrough]];
    default:
      out.flag("ip", k.ip_bit);  // BEP
  }
}

}  // namespace

std::span<const std::string_view> packet_names() { return kNames; }

void describe_packet(const Packet& k, const uint8_t* bytes, Addr ip, PacketFields& out) {
  switch (k.type) {
    case Pk::kTnt:
      out.letters("tnt", k.value, k.ipc, 'T', 'N');
      out.number("count", k.ipc);
      return;
    case Pk::kTip:
    case Pk::kPge:
    case Pk::kPgd:
    case Pk::kFup:
      return describe_ip(k, ip, out);
    case Pk::kModeExec:
    case Pk::kModeTsx:
      return describe_mode(k, out);
    case Pk::kTsc:
      return out.hex("tsc", k.value, true);
    case Pk::kTma:
      out.hex("ctc", k.value);
      return out.hex("fc", k.value2);
    case Pk::kMtc:
      return out.hex("ctc", k.value);
    case Pk::kCyc:
      return out.number("cycles", k.value);
    case Pk::kCbr:
      return out.number("ratio", k.value);
    case Pk::kPip:
      out.hex("cr3", k.value);
      return out.number("nr", k.value2);
    case Pk::kVmcs:
      return out.hex("base", k.value);
    case Pk::kMnt:
      return out.hex("payload", k.value);
    case Pk::kPtw:
      out.hex("payload", k.value, true);
      out.number("bytes", k.ipc);
      return out.flag("ip", k.ip_bit);
    case Pk::kMwait:
    case Pk::kPwre:
    case Pk::kPwrx:
    case Pk::kExstop:
      return describe_power(k, out);
    case Pk::kBbp:
    case Pk::kBip:
    case Pk::kBep:
    case Pk::kCfe:
    case Pk::kEvd:
    case Pk::kTrig:
      return describe_event(k, bytes, out);
    case Pk::kPad:
      if (bytes[0] != 0)
        out.text("erratum",
                 k.size == 1 ? "SKD007: a garbled byte in front of an OVF" : "SKZ84: a garbled TMA", true);
      return;
    default:
      return;
  }
}

}  // namespace asof::x86
