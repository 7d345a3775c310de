// Where compiled code is kept between runs.
#pragma once

#include <string>

namespace hotloop::runtime {

// $HOTLOOP_CACHE_DIR, else $XDG_CACHE_HOME/hotloop, else ~/.cache/hotloop: created if absent, readable by its owner alone. Empty
// when HOTLOOP_CACHE=0, when none of the variables is set, or when the folder cannot be made or belongs to someone else.
std::string disk_cache_dir();

}  // namespace hotloop::runtime
