// The instruction classifier: encodings of every branch kind in every mode, and libipt's classification of
// the same bytes.
#include "arch/x86/insn.h"

#include "arch/forked_decoder.h"
#include "tests/arch/x86/flow_fixture.h"

namespace asof::x86::test {
namespace {

constexpr Addr kIp = 0x401000;

struct Row {
  const char* name;
  uint8_t mode;
  Bytes bytes;
  BranchKind kind;
  Addr target = 0;
  const char* libipt_differs = nullptr;  // why the two classify this differently
};

using K = BranchKind;

const Row kRows[] = {
    {"JE rel8", 64, {0x74, 0x10}, K::kCond, kIp + 0x12},
    {"JNE rel8 back", 64, {0x75, 0xfe}, K::kCond, kIp},
    {"JE rel32", 64, {0x0f, 0x84, 0x00, 0x01, 0, 0}, K::kCond, kIp + 0x106},
    {"JG rel32 back", 64, {0x0f, 0x8f, 0xfa, 0xff, 0xff, 0xff}, K::kCond, kIp},
    {"BND JE", 64, {0xf2, 0x0f, 0x84, 0x00, 0x01, 0, 0}, K::kCond, kIp + 0x107},
    {"JE with a hint", 64, {0x3e, 0x74, 0x10}, K::kCond, kIp + 0x13},
    {"LOOPNE", 64, {0xe0, 0x10}, K::kCond, kIp + 0x12},
    {"LOOPE", 64, {0xe1, 0x10}, K::kCond, kIp + 0x12},
    {"LOOP", 64, {0xe2, 0x10}, K::kCond, kIp + 0x12},
    {"JRCXZ", 64, {0xe3, 0x10}, K::kCond, kIp + 0x12},
    {"JECXZ", 64, {0x67, 0xe3, 0x10}, K::kCond, kIp + 0x13},
    {"JMP rel8", 64, {0xeb, 0x7f}, K::kJump, kIp + 0x81},
    {"JMP rel32", 64, {0xe9, 0, 0, 0, 0x80}, K::kJump, kIp + 5 - 0x80000000ULL},
    {"BND JMP", 64, {0xf2, 0xe9, 0x01, 0, 0, 0}, K::kJump, kIp + 7},
    {"JMP, operand size prefix is ignored", 64, {0x66, 0xe9, 0x01, 0, 0, 0}, K::kJump, kIp + 7},
    {"CALL rel32", 64, {0xe8, 0x00, 0x01, 0, 0}, K::kCall, kIp + 0x105},
    {"CALL next", 64, {0xe8, 0, 0, 0, 0}, K::kCall, kIp + 5},
    {"BND CALL", 64, {0xf2, 0xe8, 0, 0, 0, 0}, K::kCall, kIp + 6},
    {"JMP RAX", 64, {0xff, 0xe0}, K::kJumpInd},
    {"NOTRACK JMP RAX", 64, {0x3e, 0xff, 0xe0}, K::kJumpInd},
    {"BND JMP R11", 64, {0xf2, 0x41, 0xff, 0xe3}, K::kJumpInd},
    {"JMP [RIP+d]", 64, {0xff, 0x25, 1, 2, 3, 4}, K::kJumpInd},
    {"JMP [table+RAX*8]", 64, {0xff, 0x24, 0xc5, 1, 2, 3, 4}, K::kJumpInd},
    {"CALL RAX", 64, {0xff, 0xd0}, K::kCallInd},
    {"NOTRACK CALL RAX", 64, {0x3e, 0xff, 0xd0}, K::kCallInd},
    {"CALL [RIP+d]", 64, {0xff, 0x15, 1, 2, 3, 4}, K::kCallInd},
    {"CALL FAR [RDI]", 64, {0xff, 0x1f}, K::kFarCall},
    {"JMP FAR [RDI]", 64, {0xff, 0x2f}, K::kFarJump},
    {"JMP FAR m16:64", 64, {0x48, 0xff, 0x2f}, K::kFarJump},
    {"RET", 64, {0xc3}, K::kRet},
    {"REP RET", 64, {0xf3, 0xc3}, K::kRet},
    {"BND RET", 64, {0xf2, 0xc3}, K::kRet},
    {"RET imm16", 64, {0xc2, 0x08, 0x00}, K::kRet},
    {"RETF", 64, {0xcb}, K::kFarRet},
    {"RETFQ", 64, {0x48, 0xcb}, K::kFarRet},
    {"RETF imm16", 64, {0xca, 0x08, 0x00}, K::kFarRet},
    {"INT3", 64, {0xcc}, K::kFarCall},
    {"INT 0x80", 64, {0xcd, 0x80}, K::kFarCall},
    {"INT1", 64, {0xf1}, K::kFarCall},
    {"SYSCALL", 64, {0x0f, 0x05}, K::kFarCall},
    {"SYSENTER", 64, {0x0f, 0x34}, K::kFarCall},
    {"SYSRET", 64, {0x0f, 0x07}, K::kFarRet},
    {"SYSRETQ", 64, {0x48, 0x0f, 0x07}, K::kFarRet},
    {"SYSEXIT", 64, {0x0f, 0x35}, K::kFarRet},
    {"IRETD", 64, {0xcf}, K::kFarRet},
    {"IRETQ", 64, {0x48, 0xcf}, K::kFarRet},
    {"IRET", 64, {0x66, 0xcf}, K::kFarRet},
    {"VMCALL", 64, {0x0f, 0x01, 0xc1}, K::kFarCall},
    {"VMLAUNCH", 64, {0x0f, 0x01, 0xc2}, K::kFarRet},
    {"VMRESUME", 64, {0x0f, 0x01, 0xc3}, K::kFarRet},
    {"RSM",
     64,
     {0x0f, 0xaa},
     K::kFarRet,
     0,
     "libipt has no class for it; system management mode is not traced anyway"},
    {"UIRET", 64, {0xf3, 0x0f, 0x01, 0xec}, K::kFarRet, 0, "newer than libipt 2.0.5"},
    {"ERETS", 64, {0xf2, 0x0f, 0x01, 0xca}, K::kFarRet, 0, "newer than libipt 2.0.5"},
    {"ERETU", 64, {0xf3, 0x0f, 0x01, 0xca}, K::kFarRet, 0, "newer than libipt 2.0.5"},
    {"PTWRITE RAX", 64, {0xf3, 0x48, 0x0f, 0xae, 0xe0}, K::kPtwrite},
    {"PTWRITE EAX", 64, {0xf3, 0x0f, 0xae, 0xe0}, K::kPtwrite},
    {"PTWRITE [RAX]", 64, {0xf3, 0x0f, 0xae, 0x20}, K::kPtwrite},
    {"MOV CR3, RAX",
     64,
     {0x0f, 0x22, 0xd8},
     K::kPaging,
     0,
     "libipt has no class for it, but handles it: see CR3 tests"},
    {"MOV CR3, R8", 64, {0x41, 0x0f, 0x22, 0xd8}, K::kPaging, 0, "as above"},
    {"WRMSR", 64, {0x0f, 0x30}, K::kPaging, 0, "libipt does not know that it can switch tracing off"},
    // Not branches for PT.
    {"CLAC", 64, {0x0f, 0x01, 0xca}, K::kNone},
    {"MOV CR0, RAX", 64, {0x0f, 0x22, 0xc0}, K::kNone},
    {"MOV RAX, CR3", 64, {0x0f, 0x20, 0xd8}, K::kNone},
    {"XBEGIN", 64, {0xc7, 0xf8, 0x10, 0, 0, 0}, K::kNone},
    {"XABORT", 64, {0xc6, 0xf8, 0x01}, K::kNone},
    {"XEND", 64, {0x0f, 0x01, 0xd5}, K::kNone},
    {"VMFUNC", 64, {0x0f, 0x01, 0xd4}, K::kNone},
    {"UD2", 64, {0x0f, 0x0b}, K::kNone},
    {"HLT", 64, {0xf4}, K::kNone},
    {"REP MOVSB", 64, {0xf3, 0xa4}, K::kNone},
    {"ENDBR64", 64, {0xf3, 0x0f, 0x1e, 0xfa}, K::kNone},
    {"CLFLUSH (0F AE without F3)", 64, {0x0f, 0xae, 0x38}, K::kNone},
    {"MOV RAX, imm64", 64, {0x48, 0xb8, 0xe8, 0xe9, 0xc3, 0xcc, 0xeb, 0x74, 0x0f, 0x84}, K::kNone},
    {"VPBROADCASTD (EVEX)", 64, {0x62, 0xf2, 0x7d, 0x48, 0x7c, 0xc0}, K::kNone},
    {"PUSH imm32", 64, {0x68, 1, 2, 3, 4}, K::kNone},
    {"INC R/M (FF /0)", 64, {0xff, 0xc0}, K::kNone},
    {"PUSH R/M (FF /6)", 64, {0xff, 0x30}, K::kNone},

    {"JE rel32", 32, {0x0f, 0x84, 0x00, 0x01, 0, 0}, K::kCond, kIp + 0x106},
    {"JECXZ", 32, {0xe3, 0x10}, K::kCond, kIp + 0x12},
    {"CALL rel32", 32, {0xe8, 0x00, 0x01, 0, 0}, K::kCall, kIp + 0x105},
    {"CALL rel16 cuts the address", 32, {0x66, 0xe8, 0x00, 0x01}, K::kCall, (kIp + 0x104) & 0xffff},
    {"JMP rel32 wraps at 4 GiB", 32, {0xe9, 0, 0, 0xb0, 0xff}, K::kJump, (kIp + 5 - 0x500000) & 0xffffffff},
    {"JMP EAX", 32, {0xff, 0xe0}, K::kJumpInd},
    {"CALL EAX", 32, {0xff, 0xd0}, K::kCallInd},
    {"CALL FAR ptr16:32", 32, {0x9a, 1, 2, 3, 4, 5, 6}, K::kFarCall},
    {"JMP FAR ptr16:32", 32, {0xea, 1, 2, 3, 4, 5, 6}, K::kFarJump},
    {"INTO", 32, {0xce}, K::kFarCall},
    {"INT3", 32, {0xcc}, K::kFarCall},
    {"RET", 32, {0xc3}, K::kRet},
    {"IRETD", 32, {0xcf}, K::kFarRet},
    {"SYSENTER", 32, {0x0f, 0x34}, K::kFarCall},
    {"SYSEXIT", 32, {0x0f, 0x35}, K::kFarRet},
    {"INC EAX is no REX here", 32, {0x40}, K::kNone},
    {"LES", 32, {0xc4, 0x00}, K::kNone},
    {"PTWRITE EAX", 32, {0xf3, 0x0f, 0xae, 0xe0}, K::kPtwrite},
    {"MOV CR3, EAX", 32, {0x0f, 0x22, 0xd8}, K::kPaging, 0, "as above"},

    {"JE rel8", 16, {0x74, 0x10}, K::kCond, kIp + 0x12},
    {"JE rel16", 16, {0x0f, 0x84, 0x00, 0x01}, K::kCond, kIp + 0x104},
    {"CALL rel16", 16, {0xe8, 0x00, 0x01}, K::kCall, kIp + 0x103},
    {"JMP rel16 back", 16, {0xe9, 0xfd, 0xff}, K::kJump, kIp},
    {"JMP rel32", 16, {0x66, 0xe9, 0x00, 0x01, 0, 0}, K::kJump, kIp + 0x106},
    {"JMP AX", 16, {0xff, 0xe0}, K::kJumpInd},
    {"CALL FAR ptr16:16", 16, {0x9a, 1, 2, 3, 4}, K::kFarCall},
    {"JMP FAR ptr16:16", 16, {0xea, 1, 2, 3, 4}, K::kFarJump},
    {"RETF", 16, {0xcb}, K::kFarRet},
    {"IRET", 16, {0xcf}, K::kFarRet},
    {"MOV AX, imm16", 16, {0xb8, 1, 2}, K::kNone},
    {"MOV EAX, imm32", 16, {0x66, 0xb8, 1, 2, 3, 4}, K::kNone},
};

std::string title(const Row& r) { return fmt::format("{}-bit {}", r.mode, r.name); }

TEST(Insn, KindLengthAndTarget) {
  for (const Row& r : kRows) {
    SCOPED_TRACE(title(r));
    // In 16-bit code the instruction pointer is truncated to 16 bits; the table's addresses are above that on
    // purpose.
    Addr target = r.target;
    if (r.mode == 16 && target != 0 && r.bytes[0] != 0x66) target &= 0xffff;
    Insn i;
    Bytes b = r.bytes;
    b.resize(15, 0x90);
    ASSERT_EQ(decode_insn(b, kIp, r.mode, i), InsnStatus::kOk);
    EXPECT_EQ(i.length, r.bytes.size());
    EXPECT_EQ(i.kind, r.kind) << static_cast<int>(i.kind);
    EXPECT_EQ(i.target, target);
    for (size_t n = 0; n < r.bytes.size(); ++n) {
      const Bytes part(r.bytes.begin(), r.bytes.begin() + static_cast<std::ptrdiff_t>(n));
      EXPECT_EQ(decode_insn(part, kIp, r.mode, i), InsnStatus::kTruncated) << n << " bytes";
    }
  }
}

TEST(Insn, Details) {
  Insn i;
  ASSERT_EQ(decode_insn(Bytes{0x0f, 0x22, 0xd8}, kIp, 64, i), InsnStatus::kOk);
  EXPECT_TRUE(i.writes_cr3);
  ASSERT_EQ(decode_insn(Bytes{0x0f, 0x22, 0xe0}, kIp, 64, i), InsnStatus::kOk);  // CR4
  EXPECT_FALSE(i.writes_cr3);
  for (const uint8_t op : std::initializer_list<uint8_t>{0xc2, 0xc3}) {
    ASSERT_EQ(decode_insn(Bytes{0x0f, 0x01, op}, kIp, 64, i), InsnStatus::kOk);
    EXPECT_TRUE(i.vm_entry);
  }
  ASSERT_EQ(decode_insn(Bytes{0x48, 0x0f, 0x07}, kIp, 64, i), InsnStatus::kOk);
  EXPECT_FALSE(i.vm_entry);
  ASSERT_EQ(decode_insn(Bytes{0x0f, 0x30}, kIp, 64, i), InsnStatus::kOk);
  EXPECT_TRUE(i.wrmsr);
}

TEST(Insn, Invalid) {
  struct Case {
    uint8_t mode;
    Bytes bytes;
  };
  const Case cases[] = {
      {64, {0x06}},                    // PUSH ES
      {64, {0x9a, 1, 2, 3, 4, 5, 6}},  // CALL FAR ptr
      {64, {0xea, 1, 2, 3, 4, 5, 6}},  // JMP FAR ptr
      {64, {0xce}},                    // INTO
      {64, {0x0f, 0x04}},              // undefined
      {64, {0x44, 0x0f, 0x22, 0xd8}},  // MOV CR11
      {64, Bytes(15, 0x66)},           // prefixes without end
      {64, {0xf0, 0x90}},              // LOCK NOP
  };
  for (const Case& c : cases) {
    Insn i;
    EXPECT_EQ(decode_insn(c.bytes, kIp, c.mode, i), InsnStatus::kInvalid)
        << fmt::format("{:02x}", fmt::join(c.bytes, " "));
  }
}

BranchKind without_paging(BranchKind k) { return k == K::kPaging ? K::kNone : k; }

// libipt executes each row once. Its class must be ours.
TEST(InsnDifferential, EveryRowByLibipt) {
  for (const Row& r : kRows) {
    if (r.libipt_differs != nullptr) continue;
    SCOPED_TRACE(title(r));
    FlowFixture s;
    Bytes b = r.bytes;
    b.resize(32, 0x90);
    s.code(kIp, b);
    PsbPlus g;
    g.ip = kIp;
    g.exec = r.mode == 64 ? ExecMode::k64 : r.mode == 32 ? ExecMode::k32 : ExecMode::k16;
    s.pt.psb_plus(g);
    // The packet that follows each kind of instruction: a bit or a target.
    if (r.kind == K::kCond) {
      s.pt.tnt(false);
    } else if (r.kind != K::kNone && r.kind != K::kJump && r.kind != K::kCall && r.kind != K::kPtwrite) {
      s.pt.tip(kIp + 20);
    }
    s.pt.fup(kIp + 24);
    s.pt.tip_pgd();
    const Decoded d = s.decode_by_reference();
    ASSERT_FALSE(d.ran.empty());
    EXPECT_EQ(d.ran[0].ip, kIp);
    EXPECT_EQ(d.ran[0].length, r.bytes.size());
    EXPECT_EQ(d.ran[0].kind, without_paging(r.kind)) << static_cast<int>(d.ran[0].kind);
  }
}

bool is_undefined(std::span<const uint8_t> b) {
  for (size_t i = 0; i + 1 < b.size(); ++i)
    if (b[i] == 0x0f && (b[i + 1] == 0xff || b[i + 1] == 0xb9)) return true;
  return false;
}

// Random bytes that libipt accepts as an instruction: same length (Zydis knows more, never less than what
// runs), and the same class where both have one.
TEST(InsnDifferential, RandomBytes) {
  // A child for each try takes ASan eight minutes, and no damaged trace is read here.
  run_foreign_decoders_here();
  asof::test::SimRandom random(1);
  size_t compared = 0;
  for (int n = 0; n < 20'000; ++n) {
    FlowFixture s;
    Bytes b(32, 0x90);
    for (size_t i = 0; i < 15; ++i) b[i] = static_cast<uint8_t>(random.next());
    // Half of the tries start with the first bytes of branches.
    constexpr uint8_t kStarts[] = {0x0f, 0xff, 0xf3, 0xf2, 0x66, 0x48, 0xe8, 0xe9, 0xeb, 0xc7, 0x67, 0x3e};
    if (random.chance(50)) b[0] = kStarts[random.below(std::size(kStarts))];
    Insn own;
    if (decode_insn(std::span(b).first(15), kIp, 64, own) != InsnStatus::kOk) continue;
    // UD0 and UD1 never retire; processors differ on whether they have a ModRM byte.
    if (is_undefined(std::span(b).first(own.length))) continue;
    s.code(kIp, b);
    s.start(kIp);
    s.pt.tip(kIp + 20);
    const Decoded d = s.decode_by_reference();
    if (d.ran.empty()) continue;  // libipt rejects what the processor would reject
    if (own.kind == K::kFarRet && d.ran[0].kind == K::kNone) continue;  // RSM and newer ones: see the table
    ++compared;
    EXPECT_EQ(d.ran[0].length, own.length) << fmt::format("{:02x}", fmt::join(b, " "));
    EXPECT_EQ(d.ran[0].kind, without_paging(own.kind)) << fmt::format("{:02x}", fmt::join(b, " "));
    if (HasFailure()) return;
  }
  EXPECT_GT(compared, 5'000U);
}

}  // namespace
}  // namespace asof::x86::test
