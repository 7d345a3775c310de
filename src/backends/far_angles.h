// Numbers that the backends' far_angle and far_turns share: angles whose multiple of pi / 2 is taken off by integer arithmetic (Payne and Hanek 1983,
// "Radian reduction for trigonometric functions"), so that all of them give the same bits.
//
// |x| = m 2^e with m of 53 bits. |x| / pi modulo 2 is m times those bits of 1 / pi that begin with the e-th after the point, since earlier ones give even
// numbers; 192 of them leave more than 53 right ones of the angle nearest to a multiple of pi / 2 that a double can be (2^-61). Read as of two bits
// before the point, that is |x| 2 / pi modulo 4: the quarter turns, one more where what follows is beyond a half, whose distance from the nearest
// number times pi / 2 is the angle.
#pragma once

#include <array>
#include <cstdint>

namespace hotloop::backends {

// Bits of 1 / pi, the first one after the point at the beginning of the second word. For the exponent field E of x the wanted ones
// begin at bit E - first_exponent.
inline constexpr std::array<std::uint64_t, 20> inverse_pi = {
    0x0000000000000000, 0x517cc1b727220a94, 0xfe13abe8fa9a6ee0, 0x6db14acc9e21c820, 0xff28b1d5ef5de2b0,
    0xdb92371d2126e970, 0x0324977504e8c90e, 0x7f0ef58e5894d39f, 0x74411afa975da242, 0x74ce38135a2fbf20,
    0x9cc8eb1cc1a99cfa, 0x4e422fc5defc941d, 0x8ffc4bffef02cc07, 0xf79788c5ad05368f, 0xb69b3f6793e584db,
    0xa7a31fb34f2ff516, 0xba93dd63f5f2f8bd, 0x9e839cfbc5294975, 0x35fdafd88fc6ae84, 0x2b0198237e3db5d5};
inline constexpr int first_exponent = 1075 - 63;
inline constexpr std::uint64_t pi_bits = 0xc90fdaa22168c235;  // pi 2^62

}  // namespace hotloop::backends
