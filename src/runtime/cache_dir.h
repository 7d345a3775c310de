// Where compiled code is kept between runs, and how much of it.
#pragma once

#include <cstdint>
#include <string>

namespace hotloop::runtime {

// The folder `objects` in $HOTLOOP_CACHE_DIR, else in $XDG_CACHE_HOME/hotloop, else in ~/.cache/hotloop. What is absent is made, for its owner
// alone; the modes of what is there are left as they are. Code is loaded from here, so both folders, or what links of these names lead
// to, must belong to the user and be writable by nobody else. Empty where they are not or cannot be made, where none of the variables
// is set, and with HOTLOOP_CACHE=0 or HOTLOOP_CACHE_MB=0.
std::string disk_cache_dir();

// How much it holds at most, about: $HOTLOOP_CACHE_MB times 2^20 bytes, by default 256. UserError if that is no whole number.
std::int64_t disk_cache_bytes();

}  // namespace hotloop::runtime
