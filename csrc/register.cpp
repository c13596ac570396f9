#include <c10/util/Exception.h>
#include <torch/library.h>

#include <map>
#include <memory>
#include <mutex>

#include "dispatch.h"

namespace lstsq_ext {

namespace {

std::mutex mutex;
std::map<c10::DispatchKey, std::unique_ptr<torch::Library>> libraries;

// The dispatcher announces every override of a kernel; ours is asked for.
class Silence final : public c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

void enable(c10::DispatchKey key) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (libraries.count(key)) return;
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  auto library = std::make_unique<torch::Library>(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  library->impl("linalg_lstsq", TORCH_FN(lstsq));
  library->impl("linalg_lstsq.out", TORCH_FN(lstsq_out));
  libraries[key] = std::move(library);
}

void disable(c10::DispatchKey key) {
  const std::lock_guard<std::mutex> lock(mutex);
  libraries.erase(key);
}

PyObject* none() { Py_RETURN_NONE; }

template <void (*function)(c10::DispatchKey)>
PyObject* with_key(PyObject*, PyObject* name) {
  const char* text = PyUnicode_AsUTF8(name);
  if (!text) return nullptr;
  try {
    function(c10::parseDispatchKey(text));
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
  return none();
}

PyObject* py_set_solver(PyObject*, PyObject* arguments) {
  PyObject *solver, *set_eval_frame;
  if (!PyArg_ParseTuple(arguments, "OO", &solver, &set_eval_frame)) return nullptr;
  const auto given = [](PyObject* object) { return object == Py_None ? nullptr : object; };
  set_solver(given(solver), given(set_eval_frame));
  return none();
}

PyObject* py_set_bypass(PyObject*, PyObject* on) { return PyBool_FromLong(set_bypass(PyObject_IsTrue(on))); }

PyObject* py_is_bypassed(PyObject*, PyObject*) { return PyBool_FromLong(is_bypassed()); }

PyMethodDef methods[] = {
    {"enable", with_key<enable>, METH_O, "Answer lstsq and lstsq.out for a dispatch key."},
    {"disable", with_key<disable>, METH_O, "Restore what a dispatch key had before enable."},
    {"set_solver", py_set_solver, METH_VARARGS, "The function that solves, None for none; Dynamo's set_eval_frame."},
    {"set_bypass", py_set_bypass, METH_O, "Send this thread's calls to stock; returns what it was."},
    {"is_bypassed", py_is_bypassed, METH_NOARGS, "Whether this thread's calls go to stock."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "torch_lstsq_ext._C", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

}  // namespace lstsq_ext

PyMODINIT_FUNC PyInit__C() { return PyModule_Create(&lstsq_ext::module); }
