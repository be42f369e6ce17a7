// Raw bundle to Capture. Only the manifest counts: nothing is looked up on this machine, and bytes are known
// exactly where and when a text piece says so.
#include "decoder/bundle/bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "decoder/bundle/bundle_etm.h"
#include "decoder/bundle/bundle_json.h"
#include "decoder/bundle/bundle_returns.h"
#include "decoder/coresight/cs_frames.h"
#include "decoder/model/image.h"
#include "textstore/builder.h"

namespace asof {
namespace {

template <class T>
Result<void> read_number(const JsonView& object, std::string_view key, T& out) {
  auto member = object.find(key);
  if (!member) return {};
  auto value = member->unsigned_number(std::numeric_limits<T>::max());
  if (!value) return std::unexpected(value.error());
  out = static_cast<T>(*value);
  return {};
}

Result<void> read_bool(const JsonView& object, std::string_view key, bool& out) {
  auto member = object.find(key);
  if (!member) return {};
  auto value = member->boolean();
  if (!value) return std::unexpected(value.error());
  out = *value;
  return {};
}

class BundleReader {
 public:
  explicit BundleReader(const JsonFile& file) : file_(file), root_(file.root()) {}

  Result<Capture> read() {
    if (auto ok = header(); !ok) return std::unexpected(ok.error());
    if (auto ok = cpu(); !ok) return std::unexpected(ok.error());
    if (auto ok = pt(); !ok) return std::unexpected(ok.error());
    if (auto ok = etm(); !ok) return std::unexpected(ok.error());
    if (auto ok = streams(); !ok) return std::unexpected(ok.error());
    if (auto ok = text(); !ok) return std::unexpected(ok.error());
    if (!says_guest_) capture_.x86.guest_text = all_guest();
    capture_.path = file_.path();
    capture_.notices = notices_.take();
    capture_.kind = "bundle";
    capture_.keep = std::make_shared<std::vector<std::shared_ptr<const void>>>(std::move(keep_));
    capture_.symbols.finish();
    capture_.tasks.finish();
    capture_.text = std::move(builder_).build();
    if (capture_.machine == "x86_64" && !says_returns_) settle_return_compression(capture_);
    return std::move(capture_);
  }

 private:
  Result<void> header();
  Result<void> cpu();
  Result<void> pt();
  Result<void> etm();
  Result<void> add_pieces(const JsonView& entry, const MappedFile& file, Stream& stream);
  Result<void> streams();
  Result<void> text();
  Result<void> text_piece(const JsonView& piece, int rank);
  bool all_guest() const;
  Result<std::shared_ptr<const MappedFile>> open(const JsonView& object);

  const JsonFile& file_;
  JsonView root_;
  Capture capture_;
  Builder builder_;
  Space user_ = builder_.add_space();
  std::vector<std::shared_ptr<const void>> keep_;
  std::optional<JsonView> etm_;
  bool says_guest_ = false, says_returns_ = false;
  std::map<std::string, std::shared_ptr<const CsFrames>> frames_;  // by file
  NoticeBook notices_;
};

Result<void> BundleReader::header() {
  if (auto ok = root_.only_keys({"format", "version", "arch", "cpu", "pt", "etm", "streams", "text"}); !ok)
    return ok;
  auto version = root_.get_number("version");
  if (!version) return std::unexpected(version.error());
  if (*version != 1) {
    return root_.error(fmt::format("version {} is not known, only 1 is", *version),
                       "a newer asof may read it");
  }
  auto arch = root_.get_string("arch");
  if (!arch) return std::unexpected(arch.error());
  if (*arch == "x86-64") {
    capture_.machine = "x86_64";
  } else if (*arch == "arm64") {
    capture_.machine = "aarch64";
  } else {
    return root_.error(fmt::format("arch \"{}\" is not known", *arch), "known are \"x86-64\" and \"arm64\"");
  }
  return {};
}

Result<void> BundleReader::cpu() {
  auto cpu = root_.find("cpu");
  if (!cpu) return {};
  if (auto ok = cpu->only_keys({"family", "model", "stepping"}); !ok) return ok;
  x86::CpuModel& model = capture_.x86.cpu;
  if (auto ok = cpu->get("family"); !ok) return std::unexpected(ok.error());
  if (auto ok = cpu->get("model"); !ok) return std::unexpected(ok.error());
  if (auto ok = read_number(*cpu, "family", model.family); !ok) return ok;
  if (auto ok = read_number(*cpu, "model", model.model); !ok) return ok;
  if (auto ok = read_number(*cpu, "stepping", model.stepping); !ok) return ok;
  model.intel = true;
  return {};
}

Result<void> BundleReader::pt() {
  auto pt = root_.find("pt");
  if (!pt) return {};
  if (auto ok = pt->only_keys({"mtc_freq", "tsc_ctc", "max_nonturbo", "has_cyc", "guest", "ret_compression",
                               "cr3_filter", "ip_filter", "time_shift", "time_mult", "time_zero"});
      !ok) {
    return ok;
  }
  x86::Config& config = capture_.x86;
  if (auto ok = read_number(*pt, "mtc_freq", config.mtc_freq); !ok) return ok;
  if (auto ok = read_number(*pt, "max_nonturbo", config.max_nonturbo); !ok) return ok;
  if (config.mtc_freq > 15)
    return pt->error(fmt::format("mtc_freq {} does not exist, the field has 4 bits", config.mtc_freq));
  if (auto ok = read_bool(*pt, "has_cyc", config.has_cyc); !ok) return ok;
  if (auto ok = read_bool(*pt, "guest", config.guest_text); !ok) return ok;
  if (auto ok = read_bool(*pt, "cr3_filter", config.cr3_filter); !ok) return ok;
  bool ip_filter = false, ret_compression = true;
  if (auto ok = read_bool(*pt, "ip_filter", ip_filter); !ok) return ok;
  if (ip_filter) config.filter.emplace_back();
  if (auto ok = read_bool(*pt, "ret_compression", ret_compression); !ok) return ok;
  config.no_ret_compression = !ret_compression;
  says_returns_ = pt->find("ret_compression").has_value();
  says_guest_ = pt->find("guest").has_value();
  if (auto ratio = pt->find("tsc_ctc")) {
    auto parts = ratio->array();
    if (!parts) return std::unexpected(parts.error());
    if (parts->size() != 2) return ratio->error("expected [n, d]");
    auto n = (*parts)[0].unsigned_number(UINT32_MAX);
    auto d = (*parts)[1].unsigned_number(UINT32_MAX);
    if (!n) return std::unexpected(n.error());
    if (!d) return std::unexpected(d.error());
    if (*d == 0 && *n != 0) return ratio->error("the divisor is 0");
    config.tsc_ctc_n = static_cast<uint32_t>(*n);
    config.tsc_ctc_d = static_cast<uint32_t>(*d);
  }
  auto time = read_bundle_time(*pt);
  if (!time) return std::unexpected(time.error());
  config.time = *time;
  return {};
}

Result<void> BundleReader::etm() {
  etm_ = root_.find("etm");
  if (!etm_) return {};
  if (capture_.machine != "aarch64") return etm_->error("\"etm\" is of arch \"arm64\"");
  // A bundle without streams is checked as well.
  if (auto source = read_bundle_etm({}, root_); !source) return std::unexpected(source.error());
  auto time = read_bundle_time(*etm_);
  if (!time) return std::unexpected(time.error());
  capture_.arm64.time = *time;
  return {};
}

// Frames may hold the trace of several sources: several streams then name the same file.
Result<void> BundleReader::add_pieces(const JsonView& entry, const MappedFile& file, Stream& stream) {
  bool frames = false;
  if (auto ok = read_bool(entry, "frames", frames); !ok) return ok;
  if (capture_.machine == "aarch64") {
    auto source = read_bundle_etm(etm_, entry);
    if (!source) return std::unexpected(source.error());
    capture_.arm64.sources.push_back(*source);
  } else if (frames || entry.find("etm")) {
    return entry.error("\"frames\" and \"etm\" are of arch \"arm64\"");
  }
  if (!frames) {
    StreamPiece piece;
    piece.bytes = file.bytes();
    piece.mapped = true;
    stream.pieces.push_back(std::move(piece));
    return {};
  }
  auto& index = frames_[file.path()];
  if (!index) {
    index = CsFrames::index({{.bytes = file.bytes(), .mapped = true}}, FrameAlignment::kMemory);
    report_unused_frames(*index, file.path(), notices_);
  }
  stream.pieces = index->pieces_of(capture_.arm64.sources.back().trace_id);
  return {};
}

Result<std::shared_ptr<const MappedFile>> BundleReader::open(const JsonView& object) {
  auto name = object.get_string("file");
  if (!name) return std::unexpected(name.error());
  auto file = MappedFile::open(file_.resolve(*name));
  if (!file) return std::unexpected(file.error());
  builder_.keep(*file);
  keep_.push_back(*file);
  return *file;
}

Result<void> BundleReader::streams() {
  auto list = root_.get_array("streams");
  if (!list) return std::unexpected(list.error());
  std::set<std::string> names;
  for (const JsonView& entry : *list) {
    if (auto ok = entry.only_keys({"file", "cpu", "tid", "frames", "etm"}); !ok) return ok;
    if (entry.find("cpu").has_value() == entry.find("tid").has_value()) {
      return entry.error("a stream has either \"cpu\" or \"tid\"");
    }
    Stream stream;
    const bool per_cpu = entry.find("cpu").has_value();
    const std::string_view key = per_cpu ? "cpu" : "tid";
    int32_t& number = per_cpu ? stream.cpu : stream.tid;
    if (auto ok = read_number(entry, key, number); !ok) return ok;
    stream.name = fmt::format("{}{}", key, number);
    if (!names.insert(stream.name).second) return entry.error(fmt::format("a second stream {}", stream.name));
    auto file = open(entry);
    if (!file) return std::unexpected(file.error());
    if (auto ok = add_pieces(entry, **file, stream); !ok) return ok;
    stream.contexts.push_back({kTimeMin, stream.tid, stream.tid, user_});
    capture_.streams.push_back(std::move(stream));
  }
  return {};
}

// Was only a guest recorded? Then the text that the manifest gives for it is the guest's.
bool BundleReader::all_guest() const {
  if (capture_.machine != "x86_64" || capture_.streams.empty()) return false;
  return std::ranges::all_of(capture_.streams, x86::is_guest_trace);
}

Result<void> BundleReader::text() {
  auto list = root_.get_array("text");
  if (!list) return std::unexpected(list.error());
  int rank = kRankMapping;
  for (const JsonView& piece : *list) {
    if (auto ok = text_piece(piece, rank++); !ok) return ok;
  }
  return {};
}

Result<void> BundleReader::text_piece(const JsonView& piece, int rank) {
  if (auto ok = piece.only_keys({"file", "address", "size", "offset", "from", "until"}); !ok) return ok;
  Addr address = 0;
  uint64_t offset = 0;
  if (auto ok = piece.get("address"); !ok) return std::unexpected(ok.error());
  if (auto ok = read_number(piece, "address", address); !ok) return ok;
  if (auto ok = read_number(piece, "offset", offset); !ok) return ok;
  auto file = open(piece);
  if (!file) return std::unexpected(file.error());
  std::span<const uint8_t> bytes = (*file)->bytes();
  if (offset > bytes.size())
    return piece.error(fmt::format("offset {:#x} is beyond the file's {:#x} bytes", offset, bytes.size()));
  bytes = bytes.subspan(offset);
  if (piece.find("size")) {
    uint64_t size = 0;
    if (auto ok = read_number(piece, "size", size); !ok) return ok;
    if (size > bytes.size()) {
      return piece.error(fmt::format("{:#x} bytes at offset {:#x} go beyond the file's {:#x} bytes", size,
                                     offset, (*file)->bytes().size()));
    }
    bytes = bytes.first(size);
  }
  if (bytes.empty()) return {};
  AddrRange range = range_of(address, bytes.size());
  if (range.size() != bytes.size()) return piece.error("the piece goes beyond the end of the address space");
  if (is_kernel_address(range.begin) != is_kernel_address(range.end - 1)) {
    return piece.error("the piece lies across the border of user and kernel addresses");
  }
  Layer layer{.space = is_kernel_address(address) ? kKernelSpace : user_,
              .range = range,
              .bytes = bytes,
              .rank = rank};
  if (auto from = piece.find("from")) {
    auto value = from->signed_number();
    if (!value) return std::unexpected(value.error());
    layer.from = *value;
  }
  if (auto until = piece.find("until")) {
    auto value = until->signed_number();
    if (!value) return std::unexpected(value.error());
    if (*value <= layer.from) return piece.error("\"until\" is not after \"from\"");
    layer.until = *value - 1;  // the manifest's interval is half open, a layer's is not
  }
  layer.origin =
      builder_.add_origin({.kind = OriginKind::kRaw, .name = (*file)->path(), .id = offset, .build_id = {}});
  builder_.add_layer(layer);
  return {};
}

}  // namespace

Result<Capture> open_bundle(const std::string& path, const CaptureOptions&) {
  auto file = JsonFile::load(path);
  if (!file) return std::unexpected(file.error());
  JsonView root = (*file)->root();
  if (auto ok = root.object(); !ok) return std::unexpected(ok.error());
  auto format = root.get_string("format");
  if (!format) return std::unexpected(format.error());
  if (*format != "asof-bundle")
    return root.error(fmt::format("format \"{}\" is not \"asof-bundle\"", *format));
  return BundleReader(**file).read();
}

}  // namespace asof
