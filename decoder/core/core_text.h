// A finished text store as sections of a core: tables of cells and versions, and the bytes that they point to, each
// range of them once.
#pragma once
#include <memory>
#include <optional>
#include <span>

#include "decoder/core/core_format.h"
#include "textstore/text_store.h"

namespace asof::core {

struct TextSections {
  Writer store;                                 // kStore
  std::vector<std::span<const uint8_t>> bytes;  // side by side: kText
};
// The spans point into the store.
TextSections put_text(const TextStore& text);

// `bytes` must outlive the result. nullopt: damaged.
std::optional<TextStore> take_text(std::span<const uint8_t> store, std::span<const uint8_t> bytes);

}  // namespace asof::core
