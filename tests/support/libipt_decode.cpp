#include "tests/support/libipt_decode.h"

#include <fmt/format.h>
#include <intel-pt.h>

#include <memory>

#include "textstore/check.h"

namespace asof::test {

namespace {

struct Context {
  const ReadText* read;
  pt_insn_decoder* decoder = nullptr;
};

int read_memory(uint8_t* buffer, size_t size, const pt_asid*, uint64_t ip, void* opaque) {
  auto* c = static_cast<Context*>(opaque);
  uint64_t tsc = 0;
  uint32_t lost_mtc = 0, lost_cyc = 0;  // libipt 2.1 and later want them
  pt_insn_time(c->decoder, &tsc, &lost_mtc, &lost_cyc);
  const size_t n = (*c->read)(ip, {buffer, size}, tsc);
  return n == 0 ? -pte_nomap : static_cast<int>(n);
}

void note_error(pt_insn_decoder* d, int status, LibiptResult& out) {
  uint64_t offset = 0;
  pt_insn_get_offset(d, &offset);
  out.errors.push_back(fmt::format("{:#x}: {}", offset, pt_errstr(pt_errcode(status))));
}

int drain_events(pt_insn_decoder* d, int status, LibiptResult& out) {
  while (status >= 0 && (status & pts_event_pending)) {
    pt_event event;
    status = pt_insn_event(d, &event, sizeof event);
    if (status >= 0 && event.type == ptev_overflow) ++out.overflows;
  }
  return status;
}

}  // namespace

LibiptResult libipt_decode(std::span<const uint8_t> trace, const LibiptConfig& config, const ReadText& read) {
  pt_config c;
  pt_config_init(&c);
  std::vector<uint8_t> copy(trace.begin(), trace.end());
  c.begin = copy.data();
  c.end = copy.data() + copy.size();
  c.mtc_freq = config.mtc_freq;
  c.cpuid_0x15_ebx = config.tsc_ctc_n;
  c.cpuid_0x15_eax = config.tsc_ctc_d;
  c.nom_freq = config.nominal;
  const std::unique_ptr<pt_insn_decoder, decltype(&pt_insn_free_decoder)> d(pt_insn_alloc_decoder(&c),
                                                                            pt_insn_free_decoder);
  ASOF_CHECK(d != nullptr);
  Context context{&read, d.get()};
  pt_image_set_callback(pt_insn_get_image(d.get()), read_memory, &context);

  LibiptResult out;
  for (;;) {
    int status = pt_insn_sync_forward(d.get());
    if (status == -pte_eos) return out;
    if (status < 0) {
      note_error(d.get(), status, out);
      return out;
    }
    for (;;) {
      status = drain_events(d.get(), status, out);
      if (status < 0) break;
      pt_insn insn{};
      status = pt_insn_next(d.get(), &insn, sizeof insn);
      // An error can be reported together with the instruction before it.
      if (insn.iclass != ptic_error) out.ips.push_back(insn.ip);
      if (status < 0) break;
    }
    if (status != -pte_eos) note_error(d.get(), status, out);
  }
}

}  // namespace asof::test
