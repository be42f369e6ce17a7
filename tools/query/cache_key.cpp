#include "tools/query/cache_key.h"

#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <span>

#include "decoder/blocks/block_format.h"
#include "decoder/io/content_hash.h"
#include "decoder/io/descriptor.h"
#include "tools/timeline/sqlite_schema.h"

namespace asof {
namespace {

// A change within one tick of a file system's clock leaves the same time behind. 100 ms is ten ticks of the
// slowest kernel.
constexpr int64_t kFresh = 100'000'000;

int64_t now() {
  struct timespec t {};
  ::clock_gettime(CLOCK_REALTIME, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void add_state(KeyText& key, const FileState& f) {
  key.add(f.path).add(f.there ? "there" : "missing").add(f.device).add(f.inode).add(f.size);
  key.add(static_cast<uint64_t>(f.modified)).add(static_cast<uint64_t>(f.changed));
}

std::optional<uint64_t> hash_of(const FileState& file) {
  const Descriptor own(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!own) return std::nullopt;
  const auto hash = hash_file(own.get());
  struct stat after {};
  const bool same = ::fstat(own.get(), &after) == 0 && file_state(file.path, after) == file;
  return same ? hash : std::nullopt;
}

// Files of libraries; of what the kernel maps (vdso) the bytes themselves.
int add_object(struct dl_phdr_info* object, size_t, void* key) {
  auto& out = *static_cast<KeyText*>(key);
  const std::string name = object->dlpi_name == nullptr ? "" : object->dlpi_name;
  if (name.starts_with('/')) {
    add_state(out, file_state(name));
  } else if (!name.empty()) {
    for (const ElfW(Phdr) & segment : std::span(object->dlpi_phdr, object->dlpi_phnum)) {
      if (segment.p_type != PT_LOAD) continue;
      const auto* at = reinterpret_cast<const char*>(object->dlpi_addr + segment.p_vaddr);  // NOLINT
      out.add(name).add(hash_text({at, segment.p_memsz}, 0));
    }
  }
  return 0;
}

}  // namespace

KeyText& KeyText::add(std::string_view text) {
  text_ += std::to_string(text.size()) + ":";
  text_ += text;
  return *this;
}

std::optional<std::string> files_text(const std::vector<FileState>& files) {
  KeyText key;
  const int64_t oldest_fresh = now() - kFresh;
  for (const FileState& f : files) {
    if (file_state(f.path) != f) return std::nullopt;
    add_state(key, f);
    if (!f.there) continue;
    const auto hash = hash_of(f);
    if (!hash || f.changed > oldest_fresh) return std::nullopt;
    key.add(*hash);
  }
  return key.text();
}

std::string program_text() {
  KeyText key;
  key.add("asof " ASOF_VERSION).add(static_cast<uint64_t>(kSchemaVersion)).add(blocks::kVersion);
  struct stat own {};
  if (::stat("/proc/self/exe", &own) == 0) add_state(key, file_state("", own));
  ::dl_iterate_phdr(add_object, &key);
  return key.text();
}

std::string options_text(const InputOptions& input, const DecodeChoice& choice, const std::string& time,
                         bool detail) {
  KeyText key;
  const CaptureOptions& c = input.capture;
  for (const std::string* text : {&input.input, &c.vmlinux, &c.kallsyms, &c.kcore, &c.modules_dir, &c.symfs,
                                  &c.buildid_dir, &c.kcore_end, &c.ksym_text, &time, &choice.cpus})
    key.add(*text);
  key.add(c.jitdumps.size());
  for (const std::string& file : c.jitdumps) key.add(file);
  const bool converts = c.time_conversion.has_value();
  const TimeConversion conversion = c.time_conversion.value_or(TimeConversion{});
  for (const uint64_t number :
       {uint64_t{c.force}, uint64_t{c.host_files}, uint64_t{c.catalogue}, uint64_t{converts},
        uint64_t{conversion.shift}, uint64_t{conversion.mult}, uint64_t{conversion.zero}, uint64_t{detail},
        uint64_t{input.no_demangle}, uint64_t{choice.pipeline.decode.reference_engine},
        static_cast<uint64_t>(choice.pipeline.decode.text_at)})
    key.add(number);
  return key.text();
}

}  // namespace asof
