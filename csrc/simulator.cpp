// A PrivateUse1 device named "simulator": its memory is host memory and its operators are the
// CPU's, run to the end before they return. It stands in for an accelerator, it does not model one.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>

namespace {

constexpr auto kSimulator = c10::DeviceType::PrivateUse1;
const c10::Device kDevice(kSimulator, 0);
const c10::Stream kStream(c10::Stream::DEFAULT, kDevice);
std::atomic<bool> poisoned{false};

void check_index(c10::Device device) {
  TORCH_CHECK(device.index() <= 0, "the simulator is one device, there is no ", device);
}

struct HostAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t n) override {
    void* data = c10::alloc_cpu(n);
    if (n > 0 && poisoned) std::memset(data, 0xFF, n);
    return {data, data, &c10::free_cpu, kDevice};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &c10::free_cpu; }
  void copy_data(void* dst, const void* src, size_t n) const override {
    if (n > 0) std::memcpy(dst, src, n);
  }
};

HostAllocator allocator;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kSimulator; }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
  c10::Device getDevice() const override { return kDevice; }
  void setDevice(c10::Device device) const override { check_index(device); }
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::Device exchangeDevice(c10::Device device) const override {
    check_index(device);
    return kDevice;
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {}

  c10::Stream getStream(c10::Device) const override { return kStream; }
  c10::Stream getDefaultStream(c10::Device) const override { return kStream; }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override { return kStream; }
  c10::Stream getNewStream(c10::Device, int) const override { return kStream; }
  c10::Stream exchangeStream(c10::Stream) const override { return kStream; }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}

  // Whatever an event could wait for has already happened.
  void record(void**, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
};

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::Device getDeviceFromPtr(void*) const override { return kDevice; }

  // Random operators run on the CPU and accept nothing but its generators.
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override { return at::detail::createCPUGenerator(); }

  // All host memory is within this device's reach, so pinning it has nothing to do.
  c10::Allocator* getPinnedMemoryAllocator() const override { return c10::GetCPUAllocator(); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t n) const override {
    at::native::resize_bytes_cpu(storage.unsafeGetStorageImpl(), n);
  }
};

// Good until the storage is resized; a tensor of another device is returned as it is.
at::Tensor host_alias(const at::Tensor& tensor) {
  if (!tensor.is_privateuseone()) return tensor;
  auto owner = std::make_unique<c10::Storage>(tensor.storage());
  void* data = owner->mutable_data();
  const size_t nbytes = owner->nbytes();
  c10::DataPtr pointer(
      data, owner.release(), [](void* context) { delete static_cast<c10::Storage*>(context); }, at::kCPU);
  c10::Storage storage(c10::Storage::use_byte_size_t(), nbytes, std::move(pointer), nullptr, false);
  auto alias = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
                                                        tensor.dtype());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  alias._set_conj(tensor.is_conj());
  alias._set_neg(tensor.is_neg());
  return alias;
}

void check_placement(std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  check_index(device.value_or(kDevice));
  TORCH_CHECK(!pin_memory.value_or(false), "only CPU memory can be pinned");
}

at::Tensor empty(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                 std::optional<c10::Device> device, std::optional<bool> pin_memory,
                 std::optional<c10::MemoryFormat> format) {
  check_placement(device, pin_memory);
  return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype,
                         std::optional<c10::Layout>, std::optional<c10::Device> device,
                         std::optional<bool> pin_memory) {
  check_placement(device, pin_memory);
  return at::detail::empty_strided_generic(size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                           c10::dtype_or_default(dtype));
}

at::Tensor copy_from(const at::Tensor& src, const at::Tensor& dst, bool) {
  at::assert_no_partial_overlap(dst, src);  // the aliases' storages are distinct and would hide it
  host_alias(dst).copy_(host_alias(src));
  return dst;
}

at::Tensor copy_from_and_resize(const at::Tensor& src, const at::Tensor& dst) {
  if (dst.sizes() != src.sizes()) at::native::resize_(dst, src.sizes());
  return copy_from(src, dst, false);
}

// cpu_fallback alone would let tensors of two devices mix, which no accelerator does. Lists are let
// through: they may be indices, which every device accepts from the CPU.
void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
  const auto is_foreign = [](const c10::IValue& value) {
    return value.isTensor() && value.toTensor().defined() && value.toTensor().dim() > 0 &&
           !value.toTensor().is_privateuseone();
  };
  const auto foreign = std::find_if(arguments.begin(), arguments.end(), is_foreign);
  TORCH_CHECK(foreign == arguments.end(), op.schema().name(),
              ": Expected all tensors to be on the same device, but found at least two devices, ", kDevice, " and ",
              foreign->toTensor().device(), "!");
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

PyObject* py_host_alias(PyObject*, PyObject* tensor) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(THPVariable_Check(tensor), "host_alias takes a tensor");
  return THPVariable_Wrap(host_alias(THPVariable_Unpack(tensor).detach()));
  END_HANDLE_TH_ERRORS
}

PyObject* py_poison(PyObject*, PyObject* enabled) {
  const int truth = PyObject_IsTrue(enabled);
  if (truth < 0) return nullptr;
  poisoned = truth;
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {{"host_alias", py_host_alias, METH_O, nullptr},
                         {"poison", py_poison, METH_O, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_simulator", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__simulator() {
  HANDLE_TH_ERRORS
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  c10::SetAllocator(kSimulator, &allocator);
  c10::impl::DeviceGuardImplRegistrar registrar(kSimulator, new Guard());
  return PyModule_Create(&definition);
  END_HANDLE_TH_ERRORS
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) { m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>()); }

// Here stands what the fallback cannot do: memory, copies, and views, which it would copy.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", &empty);
  m.impl("empty_strided", &empty_strided);
  m.impl("_copy_from", &copy_from);
  m.impl("_copy_from_and_resize", &copy_from_and_resize);
  m.impl("resize_", &at::native::resize_);
  m.impl("as_strided", &at::native::as_strided_tensorimpl);
  m.impl("view", &at::native::view);
  m.impl("_reshape_alias", &at::native::_reshape_alias);
  m.impl("unfold", &at::native::unfold);
  m.impl("view_as_real", &at::native::view_as_real);
  m.impl("view_as_complex", &at::native::view_as_complex);
  m.impl("is_set_to", &at::native::is_set_to);
  m.impl("set_.source_Storage", static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(&at::native::set_));
  m.impl("set_.source_Storage_storage_offset", &at::native::set_storage_cpu_);
  m.impl("set_.source_Tensor", &at::native::set_tensor_);
}

// Their fallback would clone the source, and cloning copies. host_alias carries both bits.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) { m.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(mm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(bmm, lower_precision_fp)
}
