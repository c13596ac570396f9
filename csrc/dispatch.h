#pragma once

// Python.h comes first: it sets feature macros that the system's headers read.
#include <ATen/ATen.h>
#include <ATen/ops/linalg_lstsq_ops.h>
#include <Python.h>

#include <tuple>

namespace lstsq_ext {

// ATen names the driver's type c10::string_view or std::string_view, by version: take it from the schema.
template <class Schema>
struct FourthArgument;
template <class R, class T1, class T2, class T3, class T4>
struct FourthArgument<R(T1, T2, T3, T4)> {
  using type = T4;
};
using Driver = FourthArgument<at::_ops::linalg_lstsq::schema>::type;

using Result = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using OutResult = std::tuple<at::Tensor&, at::Tensor&, at::Tensor&, at::Tensor&>;

Result lstsq(const at::Tensor& A, const at::Tensor& B, std::optional<double> rcond, Driver driver);
OutResult lstsq_out(const at::Tensor& A, const at::Tensor& B, std::optional<double> rcond, Driver driver,
                    at::Tensor& solution, at::Tensor& residuals, at::Tensor& rank, at::Tensor& singular_values);

// The Python function that solves: called with the geometry, the four tensors and their addresses, true if it did.
// set_eval_frame: Dynamo's; the solver runs without Dynamo looking on. Keeps references. nullptr: none, so every call
// goes to stock.
void set_solver(PyObject* solver, PyObject* set_eval_frame);

// While on, calls of this thread go to stock. Returns what it was.
bool set_bypass(bool on);
bool is_bypassed();

}  // namespace lstsq_ext
