// Part of every test program: small programs, too, run on as many threads as a test asks for. What the engine makes of their number by
// itself has tests of its own.
#include <cstdlib>

namespace {
[[maybe_unused]] const int always = setenv("HOTLOOP_TEAM", "always", 0);
}
