// What the files of the Python module share.
#pragma once
#include <pybind11/pybind11.h>

#include <optional>
#include <vector>

#include "asof/asof.h"

namespace asof_python {

namespace py = pybind11;

[[noreturn]] void raise(const asof::Error& error);

// The keyword arguments of everything that decodes: cpu, pid, tid (None, a number or several), time (None or
// a pair, each of which may be None), order ("time" or "stream"), jobs.
asof::Filter make_filter(const py::object& cpu, const py::object& pid, const py::object& tid,
                         const py::object& time, const std::string& order, unsigned jobs);

// None for a time that is not known.
inline py::object time_object(asof::Time t) {
  if (t == asof::kTimeMin || t == asof::kTimeMax) return py::none();
  return py::int_(t);
}

// None for -1.
inline py::object id_object(std::int32_t id) {
  if (id < 0) return py::none();
  return py::int_(id);
}

inline py::bytes bytes_object(std::span<const std::uint8_t> bytes) {
  return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

void bind_text(py::module_& module);
void bind_records(py::module_& module);
void bind_columns(py::module_& module);
// Methods of Capture that bind_records() and bind_columns() have the types for.
using CaptureClass = py::class_<asof::Capture>;
void add_record_methods(CaptureClass& capture);
void add_column_methods(CaptureClass& capture);
void add_text_methods(CaptureClass& capture);

}  // namespace asof_python
