// The folder of the tests' sources, with the data beside them.
#pragma once

#include <string>

namespace hotloop::testing {

std::string test_dir();

}  // namespace hotloop::testing
