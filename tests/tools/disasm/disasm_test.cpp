// Disassembly: Capstone's text where it is right, Zydis' where Capstone 4 rejects or misreads an instruction.
#include "tools/disasm/disasm.h"

#include <gtest/gtest.h>

#include <vector>

namespace asof {
namespace {

std::string intel(std::vector<uint8_t> bytes, Addr ip = 0x1000, int mode = 64) {
  Disassembler d(Syntax::kIntel);
  return d.text(bytes, ip, mode);
}

TEST(Disasm, Ordinary) {
  EXPECT_EQ(intel({0x48, 0x89, 0xe5}), "mov rbp, rsp");
  EXPECT_EQ(intel({0xe8, 0xfb, 0x00, 0x00, 0x00}), "call 0x1100");
  EXPECT_EQ(intel({0x74, 0x10}), "je 0x1012");
  EXPECT_EQ(intel({0x0f, 0x93, 0xc0}), "setae al");
  EXPECT_EQ(intel({0xcc}), "int3");
}

TEST(Disasm, Arm64) {
  Disassembler d(Syntax::kIntel, code_machine("aarch64"));
  const auto text = [&d](std::vector<uint8_t> bytes, int mode) {
    return d.text(bytes, 0xffff800008010000, mode);
  };
  EXPECT_EQ(text({0x1f, 0x20, 0x03, 0xd5}, 64), "nop");
  EXPECT_EQ(text({0x02, 0x00, 0x00, 0x14}, 64), "b #0xffff800008010008");
  EXPECT_EQ(text({0x80, 0x00, 0x20, 0xd4}, 64), "brk #0x4");
  EXPECT_EQ(text({0x1e, 0xff, 0x2f, 0xe1}, 32), "bx lr");
  EXPECT_EQ(text({0x70, 0x47}, 16), "bx lr");
  EXPECT_EQ(text({0xff, 0xff, 0xff, 0xff}, 64), ".byte 0xff, 0xff, 0xff, 0xff");
  EXPECT_EQ(d.length(std::vector<uint8_t>{0x70, 0x47, 0, 0}, 16), 2U);
  EXPECT_EQ(d.length(std::vector<uint8_t>{0x00, 0xf0, 0, 0}, 16), 4U);
  EXPECT_EQ(d.length(std::vector<uint8_t>{0x70, 0x47}, 64), 0U);
}

// Workers are asked for instructions in any order: what came before must not show.
TEST(Disasm, ConditionsOfAnItBlockDoNotGoOn) {
  Disassembler d(Syntax::kIntel, CodeMachine::kArm64);
  const auto text = [&d](std::vector<uint8_t> bytes) { return d.text(bytes, 0x8000, 16); };
  const std::string ldr = text({0xff, 0x4b});
  EXPECT_EQ(ldr, "ldr r3, [pc, #0x3fc]");
  EXPECT_EQ(text({0x04, 0xbf}), "itt eq");
  EXPECT_EQ(text({0xff, 0x4b}), ldr);
  EXPECT_EQ(text({0x01, 0xbf}), "itttt eq");
  EXPECT_EQ(text({0xff, 0x4b}), ldr);
}

TEST(Disasm, AttSyntax) {
  Disassembler d(Syntax::kAtt);
  EXPECT_EQ(d.text(std::vector<uint8_t>{0x48, 0x89, 0xe5}, 0, 64), "movq %rsp, %rbp");
}

TEST(Disasm, OtherCodeSizes) {
  EXPECT_EQ(intel({0x40}, 0x1000, 32), "inc eax");
  EXPECT_EQ(intel({0x40}, 0x1000, 16), "inc ax");
}

TEST(Disasm, WhatCapstoneGetsWrongComesFromZydis) {
  EXPECT_EQ(intel({0xf3, 0x0f, 0xc7, 0xf8}), "rdpid rax");          // Capstone 4: rdseed
  EXPECT_EQ(intel({0xf3, 0x0f, 0xae, 0xf0}), "umonitor rax");       // Capstone 4: mfence
  EXPECT_EQ(intel({0x0f, 0x01, 0xe8}), "serialize");                // Capstone 4: none
  EXPECT_EQ(intel({0xf3, 0x48, 0x0f, 0xae, 0xe0}), "ptwrite rax");  // Capstone 4: none
}

TEST(Disasm, NoInstructionIsShownAsBytes) {
  EXPECT_EQ(intel({0x06}), ".byte 0x06");
  EXPECT_EQ(intel({0x90, 0x90}), ".byte 0x90, 0x90") << "two instructions are not one";
  Disassembler d(Syntax::kIntel);
  EXPECT_EQ(d.length(std::vector<uint8_t>{0x0f, 0x1f, 0x44, 0x00, 0x00, 0xcc}, 64), 5u);
  EXPECT_EQ(d.length(std::vector<uint8_t>{0x0f, 0x1f}, 64), 0u) << "cut off";
}

}  // namespace
}  // namespace asof
