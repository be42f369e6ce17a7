// Reading ELF with libelf (elfutils), which checks the structure of what is requested; what it does not check
// (that a segment's bytes are in the file, how long names are) is checked here.
#include "decoder/model/image.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gelf.h>
#include <libelf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string_view>

#include "decoder/io/descriptor.h"
#include "decoder/io/elf_over.h"
#include "decoder/io/files_read.h"
#include "decoder/model/expanded_file.h"

namespace asof {
namespace {

constexpr char kBuildIdOwner[] = "GNU";

// Of `size` bytes at `offset`, those that the file has.
std::span<const uint8_t> clipped(std::span<const uint8_t> file, uint64_t offset, uint64_t size) {
  if (offset >= file.size()) return {};
  return file.subspan(offset, std::min<uint64_t>(size, file.size() - offset));
}

std::string hex(std::span<const uint8_t> bytes) {
  std::string text;
  for (uint8_t b : bytes) fmt::format_to(std::back_inserter(text), "{:02x}", b);
  return text;
}

}  // namespace

Result<std::shared_ptr<const MappedFile>> MappedFile::open(const std::string& path) {
  const auto failed = [&](const char* doing, int error, const char* hint) {
    return fail(Code::kCannotRead, path, Error::kNoOffset,
                fmt::format("cannot {}: {}", doing, std::strerror(error)), hint);
  };
  // So that opening a pipe does not wait for its other end.
  const Descriptor own(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!own) {
    const int error = errno;
    FilesRead::note_missing(path);
    return failed("open it", error, "check the path and its permissions");
  }
  struct stat status {};
  if (::fstat(own.get(), &status) != 0) return failed("ask for its size", errno, "");
  if (!S_ISREG(status.st_mode)) {
    return fail(Code::kNotRegularFile, path, Error::kNoOffset, "not a regular file",
                "give a file, not a directory or pipe");
  }
  FilesRead::note(path, status);
  auto file = std::shared_ptr<MappedFile>(new MappedFile);
  file->path_ = path;
  if (status.st_size > 0) {
    const auto size = static_cast<size_t>(status.st_size);
    void* at = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, own.get(), 0);
    if (at == MAP_FAILED) return failed("map it", errno, "");
    file->bytes_ = {static_cast<const uint8_t*>(at), size};
    file->entry_.emplace(file->bytes_, path);
  }
  return file;
}

MappedFile::~MappedFile() {
  entry_.reset();
  if (!bytes_.empty()) ::munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
}

struct ElfImage::Impl {
  std::string path;
  std::span<const uint8_t> bytes;
  std::shared_ptr<const void> owner;  // of the bytes
  Elf* elf = nullptr;
  GElf_Ehdr header{};
  std::string build_id;
  std::vector<ElfSegment> segments;
  uint64_t stated_size = 0;
  bool is_debug_only = false;
  size_t section_names = 0;

  ~Impl() {
    if (elf != nullptr) elf_end(elf);
  }

  void state_end(uint64_t offset, uint64_t size);
  void read_sections();
  void read_segments();
  void find_build_id();
  bool find_build_id_in(uint64_t offset, uint64_t size, uint64_t alignment);
  Elf_Scn* symbol_section(GElf_Shdr& header) const;
  std::vector<bool> executable_sections() const;
  template <class Use>
  void each_symbol(Use use) const;
};

void ElfImage::Impl::state_end(uint64_t offset, uint64_t size) {
  if (size != 0) stated_size = std::max(stated_size, range_of(offset, size).end);
}

void ElfImage::Impl::read_sections() {
  state_end(header.e_shoff, uint64_t{header.e_shnum} * header.e_shentsize);
  bool has_code = false, had_code = false;
  for (Elf_Scn* s = nullptr; (s = elf_nextscn(elf, s)) != nullptr;) {
    GElf_Shdr h;
    if (gelf_getshdr(s, &h) == nullptr || h.sh_type == SHT_NULL) continue;
    const bool is_code = (h.sh_flags & SHF_ALLOC) != 0 && (h.sh_flags & SHF_EXECINSTR) != 0;
    (h.sh_type == SHT_NOBITS ? had_code : has_code) |= is_code;
    if (h.sh_type != SHT_NOBITS) state_end(h.sh_offset, h.sh_size);
  }
  is_debug_only = had_code && !has_code;
}

void ElfImage::Impl::read_segments() {
  if (header.e_phnum != PN_XNUM) state_end(header.e_phoff, uint64_t{header.e_phnum} * header.e_phentsize);
  size_t count = 0;
  if (elf_getphdrnum(elf, &count) != 0) return;
  count = std::min<size_t>(count, std::numeric_limits<int>::max());
  for (size_t i = 0; i < count; ++i) {
    GElf_Phdr p;
    if (gelf_getphdr(elf, static_cast<int>(i), &p) == nullptr) break;
    if (p.p_type != PT_LOAD) continue;
    ElfSegment s;
    s.address = p.p_vaddr;
    s.file_offset = p.p_offset;
    s.mem_size = p.p_memsz;
    s.executable = (p.p_flags & PF_X) != 0;
    if (!is_debug_only) {
      s.bytes = clipped(bytes, p.p_offset, p.p_filesz);
      state_end(p.p_offset, p.p_filesz);
    }
    segments.push_back(s);
  }
}

bool ElfImage::Impl::find_build_id_in(uint64_t offset, uint64_t size, uint64_t alignment) {
  const std::span<const uint8_t> notes = clipped(bytes, offset, size);
  if (notes.empty()) return false;
  Elf_Data* data = elf_getdata_rawchunk(elf, static_cast<int64_t>(offset), notes.size(),
                                        alignment == 8 ? ELF_T_NHDR8 : ELF_T_NHDR);
  if (data == nullptr) return false;
  GElf_Nhdr note;
  size_t name = 0, desc = 0;
  for (size_t at = 0; (at = gelf_getnote(data, at, &note, &name, &desc)) > 0;) {
    const auto* raw = static_cast<const uint8_t*>(data->d_buf);
    if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != sizeof kBuildIdOwner ||
        std::memcmp(raw + name, kBuildIdOwner, sizeof kBuildIdOwner) != 0) {
      continue;
    }
    // SHA-1 is 20 bytes; more than 64 is no build-id of any linker.
    if (note.n_descsz == 0 || note.n_descsz > 64) continue;
    build_id = hex({raw + desc, note.n_descsz});
    return true;
  }
  return false;
}

void ElfImage::Impl::find_build_id() {
  size_t count = 0;
  if (elf_getphdrnum(elf, &count) == 0) {
    for (size_t i = 0; i < std::min<size_t>(count, std::numeric_limits<int>::max()); ++i) {
      GElf_Phdr p;
      if (gelf_getphdr(elf, static_cast<int>(i), &p) == nullptr) break;
      if (p.p_type == PT_NOTE && find_build_id_in(p.p_offset, p.p_filesz, p.p_align)) return;
    }
  }
  for (Elf_Scn* s = nullptr; (s = elf_nextscn(elf, s)) != nullptr;) {
    GElf_Shdr h;
    if (gelf_getshdr(s, &h) == nullptr) continue;
    if (h.sh_type == SHT_NOTE && find_build_id_in(h.sh_offset, h.sh_size, h.sh_addralign)) return;
  }
}

std::vector<bool> ElfImage::Impl::executable_sections() const {
  std::vector<bool> executable(1);  // section 0 is none
  for (Elf_Scn* s = nullptr; (s = elf_nextscn(elf, s)) != nullptr;) {
    GElf_Shdr h;
    executable.push_back(gelf_getshdr(s, &h) != nullptr && (h.sh_flags & SHF_EXECINSTR) != 0);
  }
  return executable;
}

Elf_Scn* ElfImage::Impl::symbol_section(GElf_Shdr& header) const {
  Elf_Scn* dynamic = nullptr;
  GElf_Shdr h;
  for (Elf_Scn* s = nullptr; (s = elf_nextscn(elf, s)) != nullptr;) {
    if (gelf_getshdr(s, &h) == nullptr) continue;
    if (h.sh_type != SHT_SYMTAB && h.sh_type != SHT_DYNSYM) continue;
    if (h.sh_type == SHT_DYNSYM && dynamic != nullptr) continue;
    header = h;
    if (h.sh_type == SHT_SYMTAB) return s;
    dynamic = s;
  }
  return dynamic;
}

ElfImage::ElfImage(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ElfImage::~ElfImage() = default;

Result<std::shared_ptr<const ElfImage>> ElfImage::open(const std::string& path) {
  if (is_compressed_name(path)) {
    if (const auto expanded = expand_file(path)) return parse(*expanded, path, expanded);
  }
  auto file = MappedFile::open(path);
  if (!file) return std::unexpected(file.error());
  return parse((*file)->bytes(), path, *file);
}

Result<std::shared_ptr<const ElfImage>> ElfImage::parse(std::span<const uint8_t> bytes, std::string path,
                                                        std::shared_ptr<const void> owner) {
  const auto broken = [&](const char* why) {
    return fail(Code::kBadElf, path, 0, fmt::format("not a usable ELF file: {}", why),
                "a compressed kernel must be unpacked first");
  };
  if (bytes.size() < EI_NIDENT || std::memcmp(bytes.data(), ELFMAG, SELFMAG) != 0)
    return broken("no ELF header");
  if (elf_version(EV_CURRENT) == EV_NONE) return broken("libelf is older than its header");
  auto impl = std::make_unique<Impl>();
  impl->bytes = bytes;
  impl->owner = std::move(owner);
  impl->elf = elf_over(bytes);
  if (impl->elf == nullptr || elf_kind(impl->elf) != ELF_K_ELF) return broken(elf_errmsg(-1));
  if (gelf_getehdr(impl->elf, &impl->header) == nullptr) return broken(elf_errmsg(-1));
  impl->read_sections();
  impl->read_segments();
  impl->find_build_id();
  impl->path = std::move(path);
  return std::shared_ptr<const ElfImage>(new ElfImage(std::move(impl)));
}

const std::string& ElfImage::path() const { return impl_->path; }
std::span<const uint8_t> ElfImage::bytes() const { return impl_->bytes; }
const std::string& ElfImage::build_id() const { return impl_->build_id; }
uint16_t ElfImage::machine() const { return impl_->header.e_machine; }
uint16_t ElfImage::type() const { return impl_->header.e_type; }
uint64_t ElfImage::stated_size() const { return impl_->stated_size; }
bool ElfImage::is_debug_only() const { return impl_->is_debug_only; }
std::span<const ElfSegment> ElfImage::segments() const { return impl_->segments; }

// `use(symbol, name)` is false where the rest is not wanted.
template <class Use>
void ElfImage::Impl::each_symbol(Use use) const {
  GElf_Shdr header;
  Elf_Scn* section = symbol_section(header);
  if (section == nullptr) return;
  Elf_Data* data = elf_getdata(section, nullptr);
  const size_t entry = gelf_fsize(elf, ELF_T_SYM, 1, EV_CURRENT);
  if (data == nullptr || entry == 0) return;
  const std::vector<bool> executable = executable_sections();
  // Names may overlap in a made-up file; no real one comes near.
  uint64_t name_bytes_left = 4 * bytes.size();
  const size_t count = std::min<size_t>(data->d_size / entry, std::numeric_limits<int>::max());
  for (size_t i = 1; i < count; ++i) {
    GElf_Sym s;
    if (gelf_getsym(data, static_cast<int>(i), &s) == nullptr) break;
    if (s.st_shndx == SHN_UNDEF || s.st_shndx >= executable.size() || !executable[s.st_shndx]) continue;
    const unsigned type = GELF_ST_TYPE(s.st_info);
    if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_OBJECT && type != STT_NOTYPE) continue;
    const char* name = elf_strptr(elf, header.sh_link, s.st_name);
    // "$x", "$d": where arm64 code and data begin, not names.
    if (name == nullptr || *name == '\0' || *name == '$') continue;
    const std::string_view view(name);
    if (view.size() > name_bytes_left) break;
    name_bytes_left -= view.size();
    if (!use(s, view)) break;
  }
}

std::vector<ElfSymbol> ElfImage::symbols() const {
  std::vector<ElfSymbol> symbols;
  impl_->each_symbol([&](const GElf_Sym& s, std::string_view name) {
    symbols.push_back({s.st_value, s.st_size, std::string(name)});
    return true;
  });
  return symbols;
}

std::optional<Addr> ElfImage::symbol_value(std::string_view name) const {
  std::optional<Addr> value;
  impl_->each_symbol([&](const GElf_Sym& s, std::string_view other) {
    if (other == name) value = s.st_value;
    return !value;
  });
  return value;
}

std::vector<ElfImage::Section> ElfImage::sections() const {
  std::vector<Section> sections;
  size_t names = 0;
  if (elf_getshdrstrndx(impl_->elf, &names) != 0) return sections;
  uint64_t name_bytes_left = 4 * bytes().size();
  for (Elf_Scn* s = nullptr; (s = elf_nextscn(impl_->elf, s)) != nullptr;) {
    GElf_Shdr h;
    if (gelf_getshdr(s, &h) == nullptr || h.sh_type == SHT_NOBITS || h.sh_type == SHT_NULL) continue;
    const char* name = elf_strptr(impl_->elf, names, h.sh_name);
    const std::string_view view(name == nullptr ? "" : name);
    if (view.size() > name_bytes_left) break;
    name_bytes_left -= view.size();
    sections.push_back({std::string(view), h.sh_addr, h.sh_offset, clipped(bytes(), h.sh_offset, h.sh_size),
                        (h.sh_flags & SHF_EXECINSTR) != 0});
  }
  return sections;
}

}  // namespace asof
