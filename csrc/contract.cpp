#include "contract.h"

#include <ATen/ExpandUtils.h>
#include <ATen/native/LinearAlgebraUtils.h>

#include <algorithm>
#include <cctype>

namespace lstsq_ext {

namespace {

constexpr const char* kName = "torch.linalg.lstsq";

bool is_gels(const std::optional<std::string>& driver) {
  if (!driver) return true;
  std::string lower = *driver;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower == "gels";
}

// The stride of `tensor` along each dimension of `batch`, its own dimensions aligned to the right.
std::vector<int64_t> broadcast_strides(const at::Tensor& tensor, int64_t own, const std::vector<int64_t>& batch) {
  std::vector<int64_t> strides(batch.size(), 0);
  const int64_t shift = static_cast<int64_t>(batch.size()) - own;
  for (int64_t d = 0; d < own; ++d) {
    if (tensor.size(d) != 1) strides[d + shift] = tensor.stride(d);
  }
  return strides;
}

}  // namespace

std::vector<int64_t> Problem::solution_shape() const {
  auto shape = batch;
  shape.push_back(n);
  if (!vector_rhs) shape.push_back(k);
  return shape;
}

std::vector<int64_t> Problem::residuals_shape() const {
  if (m <= n) return {0};
  auto shape = batch;
  shape.push_back(k);
  return shape;
}

Problem check(const at::Tensor& A, const at::Tensor& B, std::optional<double> rcond,
              const std::optional<std::string>& driver) {
  TORCH_CHECK(A.dim() >= 2, kName, ": input must have at least 2 dimensions.");
  TORCH_CHECK(B.dim() >= 1, kName, ": other must have at least 1 dimension.");
  TORCH_CHECK(A.scalar_type() == B.scalar_type(), kName,
              ": Expected input and other to have the same dtype, but got input's dtype ", A.scalar_type(),
              " and other's dtype ", B.scalar_type());
  const int64_t dim_difference = A.dim() - B.dim();
  TORCH_CHECK(0 <= dim_difference && dim_difference <= 1, kName,
              ": input.dim() must be greater or equal to other.dim() and (input.dim() - "
              "other.dim()) <= 1");

  Problem p;
  p.A = A;
  p.B = B;
  p.m = A.size(-2);
  p.n = A.size(-1);
  p.vector_rhs = B.dim() == 1 || (dim_difference == 1 && B.sizes().equals(A.sizes().slice(0, A.dim() - 1)));
  p.k = p.vector_rhs ? 1 : B.size(-1);
  const int64_t b_rows = B.size(p.vector_rhs ? -1 : -2);
  TORCH_CHECK(
      p.m == b_rows, kName,
      p.vector_rhs ? ": input.size(-2) should match other.size(-1)" : ": input.size(-2) should match other.size(-2)");
  at::native::checkSameDevice(kName, B, A, "other");
  TORCH_CHECK(is_gels(driver), kName, ": `driver` other than `gels` is not supported on CUDA");
  if (!rcond) {
    const auto real = c10::toRealValueType(A.scalar_type());
    TORCH_CHECK(real == at::kFloat || real == at::kDouble,
                "This function doesn't handle types other than float and double");
  }

  const int64_t a_batch_dims = A.dim() - 2;
  if (p.vector_rhs) {
    p.batch = A.sizes().slice(0, a_batch_dims).vec();
    p.b_batch_strides = broadcast_strides(B, a_batch_dims, p.batch);
  } else {
    // ATen reads as many leading sizes of `other` as `input` has batch dimensions, even where that takes in its rows.
    const int64_t b_batch_dims = B.dim() - 2;
    const auto a_batch = A.sizes().slice(0, a_batch_dims);
    p.batch = at::infer_size(a_batch, B.sizes().slice(0, a_batch_dims));
    if (b_batch_dims != a_batch_dims) {
      auto shape = p.batch;
      shape.push_back(p.m);
      shape.push_back(p.k);
      (void)at::inferExpandGeometry(B.sizes(), B.strides(), shape);  // for the error that it raises
    }
    p.b_batch_strides = broadcast_strides(B, b_batch_dims, p.batch);
  }
  p.a_batch_strides = broadcast_strides(A, a_batch_dims, p.batch);
  p.batch_count = c10::multiply_integers(p.batch);
  p.a_row_stride = A.stride(-2);
  p.a_col_stride = A.stride(-1);
  p.b_row_stride = B.stride(p.vector_rhs ? -1 : -2);
  p.b_col_stride = p.vector_rhs ? 0 : B.stride(-1);
  return p;
}

void check_outputs(const at::Tensor& A, const Outputs& out) {
  using at::native::checkLinalgCompatibleDtype;
  using at::native::checkSameDevice;
  checkSameDevice(kName, out.solution, A, "solution");
  checkSameDevice(kName, out.residuals, A, "residuals");
  checkSameDevice(kName, out.rank, A, "rank");
  checkSameDevice(kName, out.singular_values, A, "singular_values");
  const auto real = c10::toRealValueType(A.scalar_type());
  checkLinalgCompatibleDtype(kName, out.solution, A, "solution");
  checkLinalgCompatibleDtype(kName, out.residuals.scalar_type(), real, "solution");
  checkLinalgCompatibleDtype(kName, out.rank.scalar_type(), at::kLong, "rank");
  checkLinalgCompatibleDtype(kName, out.singular_values.scalar_type(), real, "singular_values");
}

bool writes_directly(const Problem& p, const Outputs& out) {
  if (out.solution.scalar_type() != p.A.scalar_type()) return false;
  if (out.solution.numel() == 0) return true;
  auto buffer = p.batch;
  buffer.push_back(std::max(p.m, p.n));
  if (!p.vector_rhs && p.B.dim() > 2) buffer.push_back(p.k);
  if (!out.solution.sizes().equals(buffer)) return false;
  if (p.vector_rhs) return out.solution.is_contiguous();
  return out.solution.dim() >= 2 && out.solution.mT().is_contiguous();
}

std::optional<Groups> collapse(const Problem& p) {
  Groups groups;
  int slot = kGroups;  // the group being filled; filled from the innermost
  for (int64_t d = static_cast<int64_t>(p.batch.size()) - 1; d >= 0; --d) {
    const int64_t size = p.batch[d], sa = p.a_batch_strides[d], sb = p.b_batch_strides[d];
    if (size == 1) continue;
    if (slot < kGroups && sa == groups.size[slot] * groups.a_stride[slot] &&
        sb == groups.size[slot] * groups.b_stride[slot]) {
      groups.size[slot] *= size;
      continue;
    }
    if (slot == 0) return std::nullopt;
    --slot;
    groups.size[slot] = size;
    groups.a_stride[slot] = sa;
    groups.b_stride[slot] = sb;
  }
  return groups;
}

}  // namespace lstsq_ext
