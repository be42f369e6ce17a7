#include "tools/validate/truth.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "decoder/bundle/bundle_json.h"
#include "decoder/io/folder.h"
#include "decoder/io/zstd.h"
#include "tools/cli/options.h"

namespace asof {
namespace {

constexpr size_t kRecordSize = 32;
constexpr int kMaxWindowLog = 27;
static_assert(std::endian::native == std::endian::little, "fields are copied as they are in the file");

struct CloseFile {
  void operator()(std::FILE* f) const { std::fclose(f); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

template <class T>
T load(const uint8_t* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

}  // namespace

struct TruthReader::Impl {
  std::string path;
  File file;
  zstd::Unpacker stream;
  std::vector<uint8_t> input = std::vector<uint8_t>(ZSTD_DStreamInSize());
  std::vector<uint8_t> output = std::vector<uint8_t>(kRecordSize * 8192);
  ZSTD_inBuffer in{input.data(), 0, 0};
  size_t begin = 0, end = 0;  // of unread output
  bool frame_done = true;
  std::optional<Error> error;

  void stop(std::string reason) {
    if (!error)
      error = Error{Code::kBadTruth, path, Error::kNoOffset, std::move(reason), "restore the truth files"};
  }

  // Keeps an incomplete record at the start and fills up after it. False when nothing more comes.
  bool fill() {
    std::memmove(output.data(), output.data() + begin, end - begin);
    end -= begin;
    begin = 0;
    while (end < kRecordSize) {
      if (in.pos == in.size) {
        in.size = std::fread(input.data(), 1, input.size(), file.get());
        in.pos = 0;
        if (in.size == 0) {
          if (end != 0 || !frame_done) stop("ends in the middle of a record");
          return false;
        }
      }
      ZSTD_outBuffer out{output.data(), output.size(), end};
      const size_t r = ZSTD_decompressStream(stream.get(), &out, &in);
      if (zstd::failed(r)) {
        stop(std::string("zstd: ") + ZSTD_getErrorName(r));
        return false;
      }
      frame_done = r == 0;
      end = out.pos;
    }
    return true;
  }
};

TruthReader::TruthReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TruthReader::TruthReader(TruthReader&&) noexcept = default;
TruthReader::~TruthReader() = default;
const std::optional<Error>& TruthReader::error() const { return impl_->error; }

Result<TruthReader> TruthReader::open(const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->file.reset(std::fopen(path.c_str(), "rbe"));
  if (!impl->file) {
    return fail(Code::kBadTruth, path, Error::kNoOffset, std::strerror(errno),
                "name the truth directory of this capture");
  }
  impl->stream = zstd::unpacker();
  ZSTD_DCtx_setParameter(impl->stream.get(), ZSTD_d_windowLogMax, kMaxWindowLog);
  return TruthReader(std::move(impl));
}

bool TruthReader::next(TruthRun& run) {
  Impl& s = *impl_;
  if (s.error || (s.end - s.begin < kRecordSize && !s.fill())) return false;
  const uint8_t* p = s.output.data() + s.begin;
  run.ip = load<uint64_t>(p);
  run.bytes = load<uint32_t>(p + 8);
  run.count = load<uint32_t>(p + 12);
  run.flags = load<uint32_t>(p + 16);
  run.time = static_cast<Time>(load<uint64_t>(p + 24));
  s.begin += kRecordSize;
  return true;
}

std::string truth_name(TruthId id) {
  if (id.tid < 0) return fmt::format("cpu {}", id.cpu);
  return id.cpu < 0 ? fmt::format("thread {}", id.tid) : fmt::format("thread {} on cpu {}", id.tid, id.cpu);
}

std::string truth_stem(TruthId id) {
  if (id.tid < 0) return fmt::format("cpu{}", id.cpu);
  return id.cpu < 0 ? fmt::format("tid{}", id.tid) : fmt::format("tid{}-cpu{}", id.tid, id.cpu);
}

std::string truth_file(const std::string& directory, TruthId id) {
  return fmt::format("{}/{}.blocks.zst", directory, truth_stem(id));
}

namespace {

// Takes a word and the number after it off the beginning of `text`.
std::optional<int> take_number(std::string_view& text, std::string_view word, int least) {
  if (!text.starts_with(word)) return {};
  const std::string_view digits = text.substr(word.size());
  int number = -1;
  const auto r = std::from_chars(digits.begin(), digits.end(), number);
  if (r.ec != std::errc() || number < least) return {};
  text = digits.substr(static_cast<size_t>(r.ptr - digits.begin()));
  return number;
}

std::optional<TruthId> id_of_stem(std::string_view stem) {
  TruthId id;
  if (const auto tid = take_number(stem, "tid", 1)) {
    id.tid = *tid;
    if (stem.empty()) return id;
    if (!stem.starts_with('-')) return {};
    stem.remove_prefix(1);
  }
  const auto cpu = take_number(stem, "cpu", 0);
  if (!cpu || !stem.empty()) return {};
  id.cpu = *cpu;
  return id;
}

std::optional<TruthId> id_of_file(std::string_view name) {
  constexpr std::string_view kSuffix = ".blocks.zst";
  if (!name.ends_with(kSuffix)) return {};
  name.remove_suffix(kSuffix.size());
  return id_of_stem(name);
}

std::optional<TruthSummary> summary_of(const JsonView& value) {
  const auto instructions = value.get_number("instructions");
  const auto text = value.get_string("ip_hash");
  const auto hash = text ? parse_hex(*text) : std::nullopt;
  if (!instructions || !hash) return {};
  return TruthSummary{*instructions, *hash, 0, *hash};
}

// The counts without what no trace can show; false: they are unusable.
bool add_trailing(const JsonView& value, TruthSummary& summary) {
  const auto trailing = value.get_number("trailing_instructions");
  const auto text = value.get_string("ip_hash_without_trailing");
  if (!trailing || !text) return true;
  const auto without = parse_hex(*text);
  if (!without) return false;
  summary.trailing = *trailing;
  summary.ip_hash_without_trailing = *without;
  return true;
}

}  // namespace

TruthId truth_id(const Stream& stream) {
  if (stream.cpu >= 0) return {.cpu = stream.cpu};
  // "tid1201:cpu3" where several CPUs wrote trace of the thread (decoder/coresight/cs_perf.cpp)
  const size_t colon = stream.name.find(':');
  if (colon != std::string::npos) {
    std::string_view rest = std::string_view(stream.name).substr(colon + 1);
    if (const auto cpu = take_number(rest, "cpu", 0); cpu && rest.empty()) return {*cpu, stream.tid};
  }
  return {.tid = stream.tid};
}

Result<std::vector<TruthId>> truth_ids(const std::string& directory) {
  std::vector<TruthId> out;
  std::error_code ec;
  for (const std::string& name : names_in(directory, ec)) {
    if (const auto id = id_of_file(name)) out.push_back(*id);
  }
  if (ec)
    return fail(Code::kBadTruth, directory, Error::kNoOffset, ec.message(),
                "name the truth directory of this capture");
  if (out.empty()) return fail(Code::kBadTruth, directory, Error::kNoOffset, "has no cpu<N>.blocks.zst");
  std::sort(out.begin(), out.end());
  return out;
}

Result<std::map<TruthId, TruthSummary>> read_truth_summary(const std::string& directory) {
  const std::string path = directory + "/summary.json";
  const auto unusable = [&](std::string reason) {
    return fail(Code::kBadTruth, path, Error::kNoOffset, std::move(reason));
  };
  const auto file = JsonFile::load(path);
  if (!file) return unusable(file.error().reason);
  const JsonView root = (*file)->root();
  std::map<TruthId, TruthSummary> out;
  bool any = false;
  for (const char* key : {"cpus", "threads"}) {
    const auto counts = root.find(key);
    if (!counts) continue;
    const auto members = counts->members();
    if (!members) continue;
    any = true;
    for (const auto& [name, value] : *members) {
      const auto id = id_of_stem((key[0] == 'c' ? "cpu" : "tid") + name);
      auto summary = summary_of(value);
      if (!id || !summary) return unusable(fmt::format("{}.{}: no counts", key, name));
      if (!add_trailing(value, *summary))
        return unusable(fmt::format("{}.{}: ip_hash_without_trailing is no number", key, name));
      if (summary->trailing > summary->instructions)
        return unusable(fmt::format("{}.{}: counts contradict", key, name));
      out[*id] = *summary;
    }
  }
  if (!any) return unusable("has no object \"cpus\"");
  return out;
}

}  // namespace asof
