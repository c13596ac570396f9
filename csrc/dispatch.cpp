#include "dispatch.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/linalg_lstsq_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <atomic>

#include "contract.h"

namespace lstsq_ext {

namespace {

std::atomic<PyObject*> solver{nullptr};
std::atomic<PyObject*> set_eval_frame{nullptr};
thread_local bool bypass = false;

class Gil {
 public:
  Gil() : state_(PyGILState_Ensure()) {}
  ~Gil() { PyGILState_Release(state_); }
  Gil(const Gil&) = delete;
  Gil& operator=(const Gil&) = delete;

 private:
  PyGILState_STATE state_;
};

class Owned {
 public:
  explicit Owned(PyObject* object) : object_(object) {
    if (!object_) throw_python_error();
  }
  ~Owned() { Py_DECREF(object_); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  PyObject* get() const { return object_; }

  [[noreturn]] static void throw_python_error() {
    python_error error;
    error.persist();
    throw error;
  }

 private:
  PyObject* object_;
};

// After a graph break Dynamo traces every Python function that it meets, ours and Triton's too.
class WithoutDynamo {
 public:
  WithoutDynamo() {
    PyObject* function = set_eval_frame.load();
    PyObject* modules = PyImport_GetModuleDict();
    if (function && PyDict_GetItemString(modules, "torch._dynamo")) {
      callback_ = PyObject_CallOneArg(function, Py_None);
      if (!callback_) Owned::throw_python_error();
    }
  }
  ~WithoutDynamo() {
    if (!callback_) return;
    PyObject *type, *value, *traceback;  // of the solver, if it raised
    PyErr_Fetch(&type, &value, &traceback);
    Py_XDECREF(PyObject_CallOneArg(set_eval_frame.load(), callback_));
    Py_DECREF(callback_);
    PyErr_Restore(type, value, traceback);
  }
  WithoutDynamo(const WithoutDynamo&) = delete;
  WithoutDynamo& operator=(const WithoutDynamo&) = delete;

 private:
  PyObject* callback_ = nullptr;
};

std::optional<std::string> to_string(const Driver& driver) {
  if (!driver) return std::nullopt;
  return std::string(driver->data(), driver->size());
}

// 16-byte alignment of each address: the code that Triton compiles depends on it.
int64_t alignment(std::initializer_list<const void*> addresses) {
  int64_t bits = 0, bit = 1;
  for (const void* address : addresses) {
    if (reinterpret_cast<uintptr_t>(address) % 16 == 0) bits |= bit;
    bit <<= 1;
  }
  return bits;
}

bool ask_python(const Problem& p, const Groups& g, const at::Tensor& X, const at::Tensor& residuals) {
  const void* a = p.A.const_data_ptr();
  const void* b = p.B.const_data_ptr();
  const void* x = X.const_data_ptr();
  const void* r = residuals.const_data_ptr();
  const int64_t geometry[] = {
      static_cast<int64_t>(p.A.scalar_type()),
      static_cast<int64_t>(p.A.device().type()),
      p.A.device().index(),
      alignment({a, b, x, r}),
      p.m,
      p.n,
      p.k,
      g.size[0],
      g.size[1],
      g.size[2],
      g.a_stride[0],
      g.a_stride[1],
      g.a_stride[2],
      p.a_row_stride,
      p.a_col_stride,
      g.b_stride[0],
      g.b_stride[1],
      g.b_stride[2],
      p.b_row_stride,
      p.b_col_stride,
  };
  constexpr Py_ssize_t kLength = sizeof(geometry) / sizeof(geometry[0]);

  if (!Py_IsInitialized()) return false;
  Gil gil;
  PyObject* function = solver.load();
  if (!function) return false;
  Owned key(PyTuple_New(kLength));
  for (Py_ssize_t i = 0; i < kLength; ++i) {
    PyObject* item = PyLong_FromLongLong(geometry[i]);
    if (!item) Owned::throw_python_error();
    PyTuple_SET_ITEM(key.get(), i, item);
  }
  Owned A(THPVariable_Wrap(p.A)), B(THPVariable_Wrap(p.B)), X_(THPVariable_Wrap(X)),
      residuals_(THPVariable_Wrap(residuals));
  Owned pa(PyLong_FromVoidPtr(const_cast<void*>(a))), pb(PyLong_FromVoidPtr(const_cast<void*>(b))),
      px(PyLong_FromVoidPtr(const_cast<void*>(x))), pr(PyLong_FromVoidPtr(const_cast<void*>(r)));
  PyObject* arguments[] = {key.get(), A.get(),  B.get(),  X_.get(), residuals_.get(),
                           pa.get(),  pb.get(), px.get(), pr.get()};
  const WithoutDynamo without_dynamo;
  Owned answered(PyObject_Vectorcall(function, arguments, 9, nullptr));
  return answered.get() == Py_True;
}

// False: not answered, and X and residuals hold nothing of use.
bool solve(const Problem& p, const at::Tensor& X, const at::Tensor& residuals) {
  if (const auto groups = collapse(p)) return ask_python(p, *groups, X, residuals);
  auto a_shape = p.batch, b_shape = p.batch, x_shape = p.batch;
  a_shape.insert(a_shape.end(), {p.m, p.n});
  b_shape.insert(b_shape.end(), {p.m, p.k});
  x_shape.insert(x_shape.end(), {p.n, p.k});
  const auto A = p.A.expand(a_shape);
  const auto B = (p.vector_rhs ? p.B.unsqueeze(-1) : p.B).expand(b_shape);
  const auto X_view = X.view(x_shape);
  for (int64_t i = 0; i < p.batch[0]; ++i) {
    const auto part = check(A.select(0, i), B.select(0, i), /*rcond=*/0.0, std::nullopt);
    const auto part_residuals = p.m > p.n ? residuals.select(0, i) : residuals;
    if (!solve(part, X_view.select(0, i), part_residuals)) return false;
  }
  return true;
}

bool is_empty(const Problem& p) { return p.batch_count == 0 || p.m == 0 || p.n == 0 || p.k == 0; }

void solve_empty(const Problem& p, const at::Tensor& X, const at::Tensor& residuals) {
  X.zero_();
  if (p.m > p.n && p.n == 0) {
    const auto B = p.vector_rhs ? p.B.unsqueeze(-1) : p.B;
    residuals.copy_((B.is_complex() ? B.abs() : B).square().sum(-2).expand(residuals.sizes()));
  }
}

Result empties(const at::Tensor& A) {
  const auto real = A.options().dtype(c10::toRealValueType(A.scalar_type()));
  return {at::empty({0}, A.options()), at::empty({0}, real), at::empty({0}, A.options().dtype(at::kLong)),
          at::empty({0}, real)};
}

// What the call would get without us. A PrivateUse1 backend has no kernel of ATen's: its inputs go to the CPU and back.
Result stock(const at::Tensor& A, const at::Tensor& B, std::optional<double> rcond, Driver driver) {
  if (A.device().type() == at::kPrivateUse1) {
    auto [X, residuals, rank, singular_values] = at::linalg_lstsq(A.cpu(), B.cpu(), rcond, driver);
    return {X.to(A.device()), residuals.to(A.device()), rank.to(A.device()), singular_values.to(A.device())};
  }
  auto result = empties(A);
  auto& [X, residuals, rank, singular_values] = result;
  at::native::linalg_lstsq_out(A, B, rcond, driver, X, residuals, rank, singular_values);
  return result;
}

bool supported(const at::Tensor& A) {
  const auto type = A.scalar_type();
  return type == at::kFloat || type == at::kDouble || type == at::kComplexFloat || type == at::kComplexDouble;
}

Result answer(const Problem& p, std::optional<double> rcond) {
  if (supported(p.A)) {
    const auto options = p.A.options();
    const auto real = options.dtype(c10::toRealValueType(p.A.scalar_type()));
    Result result{at::empty(p.solution_shape(), options), at::empty(p.residuals_shape(), real),
                  at::empty({0}, options.dtype(at::kLong)), at::empty({0}, real)};
    const auto& X = std::get<0>(result);
    const auto& residuals = std::get<1>(result);
    if (is_empty(p)) {
      solve_empty(p, X, residuals);
      return result;
    }
    if (solve(p, X, residuals)) return result;
  }
  return stock(p.A, p.B, rcond, "gels");
}

void assign(at::Tensor& out, const at::Tensor& value) {
  at::native::resize_output(out, value.sizes());
  out.copy_(value);
}

// The caller's own buffer of max(m, n) rows becomes a view of its first n.
void assign_directly(at::Tensor& out, const at::Tensor& X, const Problem& p) {
  if (out.numel() == 0) {
    out.resize_(X.sizes());
  } else {
    const auto view = out.narrow(p.vector_rhs ? -1 : -2, 0, p.n);
    out.set_(out.storage(), view.storage_offset(), view.sizes(), view.strides());
  }
  out.copy_(X);
}

}  // namespace

void set_solver(PyObject* function, PyObject* eval_frame_setter) {
  // The references that these replace are kept: another thread may be about to call them.
  Py_XINCREF(function);
  Py_XINCREF(eval_frame_setter);
  solver = function;
  set_eval_frame = eval_frame_setter;
}

bool set_bypass(bool on) {
  const bool was = bypass;
  bypass = on;
  return was;
}

bool is_bypassed() { return bypass; }

Result lstsq(const at::Tensor& A, const at::Tensor& B, std::optional<double> rcond, Driver driver) {
  const c10::DeviceGuard guard(A.device());
  if (bypass) return stock(A, B, rcond, driver);
  return answer(check(A, B, rcond, to_string(driver)), rcond);
}

OutResult lstsq_out(const at::Tensor& A, const at::Tensor& B, std::optional<double> rcond, Driver driver,
                    at::Tensor& solution, at::Tensor& residuals, at::Tensor& rank, at::Tensor& singular_values) {
  const c10::DeviceGuard guard(A.device());
  const OutResult result{solution, residuals, rank, singular_values};
  if (bypass && A.device().type() != at::kPrivateUse1) {
    at::native::linalg_lstsq_out(A, B, rcond, driver, solution, residuals, rank, singular_values);
    return result;
  }
  if (bypass) {
    const auto [X, R, ranks, values] = stock(A, B, rcond, driver);
    assign(solution, X);
    assign(residuals, R);
    assign(rank, ranks);
    assign(singular_values, values);
    return result;
  }
  const auto p = check(A, B, rcond, to_string(driver));
  const Outputs out{solution, residuals, rank, singular_values};
  check_outputs(A, out);
  const bool direct = writes_directly(p, out);
  const auto real = c10::toRealValueType(A.scalar_type());
  if (direct) {
    TORCH_INTERNAL_ASSERT(rank.scalar_type() == at::kLong);
    TORCH_INTERNAL_ASSERT(singular_values.scalar_type() == real);
    TORCH_CHECK(p.m <= p.n || residuals.scalar_type() == real, "Expected out tensor to have dtype ",
                c10::scalarTypeToTypeMeta(real), ", but got ", residuals.dtype(), " instead");
  }
  const auto [X, R, ranks, values] = answer(p, rcond);
  if (direct) {
    assign_directly(solution, X, p);
    if (p.m > p.n) assign(residuals, R);
  } else {
    assign(solution, X);
    assign(residuals, R);
    assign(rank, ranks);
    assign(singular_values, values);
  }
  return result;
}

}  // namespace lstsq_ext
