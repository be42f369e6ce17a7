#include "arch/x86/errata.h"

#include <algorithm>
#include <initializer_list>

namespace asof::x86 {
namespace {

bool one_of(uint8_t model, std::initializer_list<uint8_t> models) {
  return std::ranges::find(models, model) != models.end();
}

Errata family6(uint8_t model) {
  // Broadwell
  if (one_of(model, {0x3d, 0x47, 0x4f, 0x56})) return {.bdm70 = true, .bdm64 = true};
  // Skylake, Kaby Lake, Coffee Lake, Comet Lake clients
  if (one_of(model, {0x4e, 0x5e, 0x8e, 0x9e, 0xa5, 0xa6})) {
    return {.bdm70 = true, .skd022 = true, .skd010 = true, .skl014 = true, .skd007 = true, .skl168 = true};
  }
  // Skylake and Ice Lake servers
  if (one_of(model, {0x55, 0x6a, 0x6c}))
    return {.bdm70 = true, .skd022 = true, .skl014 = true, .skz84 = true};
  // Cannon, Ice, Tiger, Rocket Lake
  if (one_of(model, {0x66, 0x7d, 0x7e, 0x8c, 0x8d, 0xa7, 0xa8})) {
    return {.bdm70 = true, .skd022 = true, .skl014 = true};
  }
  // Sapphire, Emerald, Granite Rapids
  if (one_of(model, {0x8f, 0xcf, 0xad, 0xae})) return {.bdm70 = true, .skd022 = true, .skz84 = true};
  // Alder Lake and later hybrids
  if (one_of(model, {0x97, 0x9a, 0xba, 0xb7, 0xbf, 0xc5, 0xc6, 0xb5, 0xaa, 0xac, 0xbd, 0xcc, 0xd5})) {
    return {.bdm70 = true, .skd022 = true, .apl11 = true};
  }
  // Goldmont
  if (one_of(model, {0x5c, 0x5f})) return {.apl11 = true, .apl12 = true};
  // Goldmont Plus, Tremont and later small cores
  if (one_of(model, {0x7a, 0x86, 0x96, 0x9c, 0xb6, 0xaf, 0xdd})) return {.apl11 = true};
  return {};
}

}  // namespace

Errata errata_of(const CpuModel& cpu) {
  if (!cpu.intel) return {};
  if (cpu.family == 6) return family6(cpu.model);
  if (cpu.family == 0x12 && one_of(cpu.model, {0x01, 0x03}))
    return {.bdm70 = true, .skd022 = true, .apl11 = true};
  if (cpu.family == 0x13 && cpu.model == 0x01) return {.bdm70 = true, .skd022 = true, .skz84 = true};
  return {};
}

}  // namespace asof::x86
