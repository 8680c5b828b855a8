// How far results may be from the true value: the only place where that is written. Tests compare
// with these numbers, and docs/kernels.md lists them. What is not here rounds once, to nearest.
#pragma once

namespace ptowsp::tile {

// In units of the last place of the result. f16 and bf16 compute in f32 and round once.
struct UlpBound {
  double f32;
  double f64;
};
inline constexpr UlpBound kExpUlp{1.5, 1.5};
inline constexpr UlpBound kExp2Ulp{1.5, 1.5};
inline constexpr UlpBound kLogUlp{1.5, 1.5};
inline constexpr UlpBound kTanhUlp{2, 2};
inline constexpr UlpBound kSigmoidUlp{2, 2};
inline constexpr UlpBound kErfUlp{2, 2};
inline constexpr UlpBound kSinUlp{2, 1};  // for all finite x: large ones are left to <cmath>
inline constexpr UlpBound kCosUlp{2, 1};
inline constexpr UlpBound kPowUlp{1, 1};
inline constexpr UlpBound kRsqrtUlp{1.5, 1.5};
inline constexpr UlpBound kSiluUlp{3, 3};  // where sigmoid(x) is not denormal

// In units of epsilon * |x|: 1 + erf cancels where x is negative.
inline constexpr UlpBound kGeluOfOperand{1.5, 1.5};

}  // namespace ptowsp::tile
