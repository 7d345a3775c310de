// Parts of ln 2 that exponents are taken out by (see Expander::reduce): high + low is ln 2 beyond the precision of the dtype.
#pragma once

namespace hotloop::kernel::math {

inline constexpr double ln2_f32 = 0x1.62e43p-1,
                        ln2_rest_f32 = -0x1.05c610ca86c38p-29;  // rounded once: what one fma takes out
inline constexpr double ln2_high_f32 = 0x1.62e4p-1, ln2_low_f32 = 0x1.7f7d1cf79abcap-20;
inline constexpr double ln2_f64 = 0x1.62e42fefa39efp-1;
inline constexpr double ln2_high_f64 = 0x1.62e42fefa38p-1, ln2_low_f64 = 0x1.ef35793c76730p-45;
inline constexpr double inverse_ln2 = 0x1.71547652b82fep+0;

}  // namespace hotloop::kernel::math
