#include "test_dir.h"

namespace hotloop::testing {

std::string test_dir() { return HOTLOOP_TEST_DIR; }

}  // namespace hotloop::testing
