#include "asof/capture.h"

#include "api/capture_data.h"
#include "api/convert.h"

namespace asof::v0 {

Capture::Capture(std::shared_ptr<const CaptureData> data) : data_(std::move(data)) {}

Result<Capture> Capture::open(const std::string& path, const OpenOptions& options) {
  auto opened = asof::open_capture(path, to_internal(options));
  if (!opened) return std::unexpected(to_public(opened.error()));
  // What cannot be decoded is refused here, so that no flow can fail later.
  if (const auto arch = opened->arch(); !arch) return std::unexpected(to_public(arch.error()));
  auto data = std::make_shared<CaptureData>();
  data->capture = *std::move(opened);
  data->info = info_of(data->capture);
  for (const asof::Notice& n : data->capture.notices) data->notices.push_back(to_public(n));
  for (const asof::PokeRecord& p : data->capture.text->pokes())
    data->changes.push_back({p.addr, p.time, p.old_bytes(), p.new_bytes(), p.file_offset});
  return Capture(std::move(data));
}

const CaptureInfo& Capture::info() const { return data_->info; }
std::span<const Notice> Capture::notices() const { return data_->notices; }
Text Capture::text() const { return Text(data_); }

std::string_view Capture::comm(int32_t tid, Time time) const { return data_->capture.tasks.comm(tid, time); }

}  // namespace asof::v0
