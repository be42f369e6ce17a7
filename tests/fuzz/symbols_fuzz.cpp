// kallsyms and modules, in that order after two bytes of length of the first; and names, demangled.
#include "decoder/model/demangle.h"
#include "decoder/module/kernel_text_symbols.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(symbols) {
  asof::fuzz::Input in(bytes);
  const size_t first = in.number(2);
  const asof::fuzz::Bytes rest = in.rest();
  const asof::fuzz::Bytes names = rest.first(std::min(first, rest.size()));
  const auto kallsyms = asof::Kallsyms::load(asof::fuzz::as_file(names));
  if (kallsyms) {
    asof::Addr last = 0;
    for (const auto& symbol : kallsyms->symbols()) {
      FUZZ_CHECK(symbol.addr >= last);
      last = symbol.addr;
      kallsyms->next(symbol.addr);
      asof::demangle(symbol.name, asof::Parameters::kYes);
    }
  }
  const auto modules = asof::load_modules(asof::fuzz::as_file(rest.subspan(names.size())));
  if (!modules || !kallsyms) return;
  for (const auto& module : *modules) {
    const asof::AddrRange text = asof::module_text(module, *kallsyms);
    FUZZ_CHECK(text.begin >= module.range.begin && text.end <= module.range.end);
  }
}
