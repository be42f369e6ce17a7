#include "tools/board/pt_plugin/registers.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace asof::pt {

namespace {

constexpr std::array<std::string_view, kRegCount> kNames = {
    "rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi",    "rdi", "r8",  "r9",      "r10",    "r11",
    "r12", "r13", "r14", "r15", "rip", "cs",  "eflags", "cr2", "cr3", "fs_base", "gs_base"};

}  // namespace

void die(const char* what) {
  std::fprintf(stderr, "pt plugin: %s\n", what);
  std::exit(3);
}

Registers::Registers() : bytes_(g_byte_array_new()) {}

void Registers::find() {
  GArray* all = qemu_plugin_get_registers();
  const auto* d = reinterpret_cast<const qemu_plugin_reg_descriptor*>(all->data);
  for (unsigned i = 0; i < all->len; ++i) {
    const auto* name = std::find(kNames.begin(), kNames.end(), d[i].name);
    if (name != kNames.end()) handles_[static_cast<size_t>(name - kNames.begin())] = d[i].handle;
  }
  g_array_free(all, 1);
  for (unsigned i = 0; i < kRegCount; ++i) {
    if (handles_[i] == nullptr) die(std::string_view(kNames[i]).data());
  }
}

uint64_t Registers::get(unsigned reg) {
  g_byte_array_set_size(bytes_, 0);
  uint64_t value = 0;
  if (!qemu_plugin_read_register(handles_[reg], bytes_)) die("cannot read a register");
  std::memcpy(&value, bytes_->data, std::min<size_t>(bytes_->len, sizeof value));
  return value;
}

void Registers::set(unsigned reg, uint64_t value) {
  g_byte_array_set_size(bytes_, sizeof value);
  std::memcpy(bytes_->data, &value, sizeof value);
  if (!qemu_plugin_write_register(handles_[reg], bytes_)) die("cannot write a register");
}

void Registers::set_pair(uint64_t value) {
  set(kRax, value & 0xffffffff);
  set(kRdx, value >> 32);
}

bool read_guest(uint64_t address, void* to, size_t size) {
  static GByteArray* bytes = g_byte_array_new();
  g_byte_array_set_size(bytes, 0);
  if (!qemu_plugin_read_memory_vaddr(address, bytes, size) || bytes->len < size) return false;
  std::memcpy(to, bytes->data, size);
  return true;
}

}  // namespace asof::pt
