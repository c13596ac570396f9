#pragma once

#include <ATen/ATen.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace lstsq_ext {

// min ||B - A X|| over a broadcast batch: the call as ATen's contract reads it.
struct Problem {
  at::Tensor A;                // (..., m, n), as the caller gave it
  at::Tensor B;                // (..., m, k) as the caller gave it, or (..., m) for a vector right-hand side
  std::vector<int64_t> batch;  // broadcast batch shape
  std::vector<int64_t> a_batch_strides, b_batch_strides;  // one a batch dimension; 0 where broadcast
  int64_t a_row_stride, a_col_stride, b_row_stride, b_col_stride;
  int64_t m, n, k;
  int64_t batch_count;
  bool vector_rhs;

  std::vector<int64_t> solution_shape() const;   // (*batch, n, k), or (*batch, n)
  std::vector<int64_t> residuals_shape() const;  // (*batch, k) if m > n, else (0)
};

// A broadcast batch as at most three nested loops, outermost first.
constexpr int kGroups = 3;
struct Groups {
  std::array<int64_t, kGroups> size{1, 1, 1};
  std::array<int64_t, kGroups> a_stride{0, 0, 0};
  std::array<int64_t, kGroups> b_stride{0, 0, 0};
};

// Every check that torch.linalg.lstsq makes, in its order and in its words.
Problem check(const at::Tensor& A, const at::Tensor& B, std::optional<double> rcond,
              const std::optional<std::string>& driver);

struct Outputs {
  at::Tensor &solution, &residuals, &rank, &singular_values;
};
void check_outputs(const at::Tensor& A, const Outputs& out);

// Whether lstsq.out writes through the caller's own storage, as ATen decides it.
bool writes_directly(const Problem& problem, const Outputs& out);

// Dimensions that A and B both walk with one stride become one. Nothing where more than three are left.
std::optional<Groups> collapse(const Problem& problem);

}  // namespace lstsq_ext
