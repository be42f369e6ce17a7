// Contexts and results of zstd. Want of memory is std::bad_alloc here as everywhere: it is neither damage of what is read
// nor a defect of what packs.
#pragma once
#include <zstd.h>
#include <zstd_errors.h>

#include <memory>
#include <new>

namespace asof::zstd {

struct Free {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};
using Packer = std::unique_ptr<ZSTD_CCtx, Free>;
using Unpacker = std::unique_ptr<ZSTD_DCtx, Free>;

inline Packer packer() {
  Packer context(ZSTD_createCCtx());
  if (!context) throw std::bad_alloc();
  return context;
}

inline Unpacker unpacker() {
  Unpacker context(ZSTD_createDCtx());
  if (!context) throw std::bad_alloc();
  return context;
}

// Whether a call's result is an error of the data. Throws std::bad_alloc.
inline bool failed(size_t result) {
  if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation) throw std::bad_alloc();
  return ZSTD_isError(result) != 0;
}

}  // namespace asof::zstd
