// libipt's block decoder at its best: sections stay mapped, and their block caches with them.
#include <fmt/format.h>
#include <intel-pt.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/bench/peer.h"
#include "tests/support/perf_data_writer.h"

namespace asof::bench {
namespace {

uint64_t number(const nlohmann::json& value) {
  return value.is_string() ? std::stoull(value.get<std::string>(), nullptr, 0) : value.get<uint64_t>();
}

Outcome decode(const std::string& bundle) {
  const std::filesystem::path folder = std::filesystem::path(bundle).parent_path();
  const nlohmann::json manifest = nlohmann::json::parse(std::ifstream(bundle));
  std::vector<uint8_t> trace = test::read_bytes(folder / manifest["streams"][0]["file"].get<std::string>());
  pt_config config{};
  pt_config_init(&config);
  config.begin = trace.data();
  config.end = trace.data() + trace.size();
  const std::unique_ptr<pt_image_section_cache, void (*)(pt_image_section_cache*)> sections(
      pt_iscache_alloc(nullptr), pt_iscache_free);
  pt_iscache_set_limit(sections.get(), UINT64_MAX);
  const std::unique_ptr<pt_image, void (*)(pt_image*)> image(pt_image_alloc(nullptr), pt_image_free);
  for (const auto& text : manifest["text"]) {
    const int section =
        pt_iscache_add_file(sections.get(), (folder / text["file"].get<std::string>()).c_str(),
                            number(text["offset"]), number(text["size"]), number(text["address"]));
    pt_image_add_cached(image.get(), sections.get(), section, nullptr);
  }
  const std::unique_ptr<pt_block_decoder, void (*)(pt_block_decoder*)> decoder(pt_blk_alloc_decoder(&config),
                                                                               pt_blk_free_decoder);
  pt_blk_set_image(decoder.get(), image.get());
  Outcome out;
  for (int status = pt_blk_sync_forward(decoder.get()); status >= 0;
       status = pt_blk_sync_forward(decoder.get())) {
    for (;;) {
      pt_event event{};
      while (status >= 0 && (status & pts_event_pending) != 0)
        status = pt_blk_event(decoder.get(), &event, sizeof(event));
      if (status < 0) break;
      pt_block block{};
      status = pt_blk_next(decoder.get(), &block, sizeof(block));
      out.instructions += block.ninsn;
      if (status < 0) break;
    }
    if (status == -pte_eos) break;
    ++out.errors;
  }
  return out;
}

}  // namespace

Outcome decode_with_libipt(const std::string& bundle) {
  Outcome out;
  const double seconds = cpu_seconds_of([&] { out = decode(bundle); });
  out.seconds = seconds;
  return out;
}

std::string libipt_version() {
  // The library does not know its patch level; Debian does.
  if (std::string package = output_of({"dpkg-query", "-W", "-f", "${Version}", "libipt-dev"});
      !package.empty())
    return package;
  const pt_version v = pt_library_version();
  return fmt::format("{}.{}.{}", v.major, v.minor, v.build);
}

}  // namespace asof::bench
