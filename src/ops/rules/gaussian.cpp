#include "ops/rules/gaussian.h"

#include <array>

#include "hotloop/ops.h"
#include "ops/rules/arguments.h"

namespace hotloop::ir {

Value exp_of_minus_square(Value x, double scale) {
  // Beyond this it is 0, and the square of the first digits would overflow.
  const Value near = clip(x, -40, 40);
  // Half of the digits: by rounding to f32, or as Veltkamp does (Dekker, A floating-point technique for extending the available precision, 1971).
  const Value spread = near * 4097.0;
  const Value head = x.dtype() == DType::F32 ? spread - (spread - near) : cast(cast(near, DType::F32), DType::F64);
  return exp(head * head * -scale) * exp((near - head) * (near + head) * -scale);
}

// As Shepherd and Laframboise (Chebyshev approximation of (1 + 2 x) exp(x x) erfc(x) in 0 <= x < infinity, Mathematics of
// Computation 36, 1981) map the half line: t = (x - 3.75) / (x + 3.75), a polynomial of degree 23. Its coefficients were computed with 60 digits;
// errors are below 4e-16.
Value scaled_complement(Value x) {
  constexpr std::array coefficients{
      1.2375126308378275,     -0.14024059858554697,   0.0035854154854790257,   0.0822767384901452,
      -0.10880393014244462,   0.09230432116037748,    -0.05869339857664934,    0.028362277418956406,
      -0.009746579683265262,  0.0017556258528952954,  0.000293714378044958,    -0.0002901540805408417,
      5.164652974177416e-05,  2.238423915508223e-05,  -1.1438048033346894e-05, -9.73559896736775e-07,
      1.7419821586224816e-06, -5.721823060322409e-08, -2.4857126248016745e-07, 2.3263508708859127e-08,
      3.197926671666804e-08,  -3.74421008096202e-09,  -2.623107347133476e-09,  3.111433380979928e-10};
  const Value t = 1.0 - 7.5 / (x + 3.75);
  Value sum = like(x, coefficients.back());
  for (std::size_t i = coefficients.size() - 1; i-- > 0;) sum = sum * t + coefficients[i];
  return sum / (1.0 + 2.0 * x);
}

}  // namespace hotloop::ir
