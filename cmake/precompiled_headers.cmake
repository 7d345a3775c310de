# Headers of others, read once a target instead of once a file: about a third of a clean build. Our own headers are not among them,
# so that an edit compiles again only what includes it. That files include what they use is checked by
# scripts/check_includes.py, and shows in the builds without (presets of the sanitizers; -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON anywhere).
set(HOTLOOP_STANDARD_HEADERS <algorithm> <array> <atomic> <bit> <charconv> <chrono> <cmath> <cstdint> <cstring> <filesystem>
    <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string> <string_view> <utility>
    <variant> <vector>)

# hotloop_precompile(TARGET [HEADER...]): the standard library's, and these.
function(hotloop_precompile target)
  target_precompile_headers(${target} PRIVATE ${HOTLOOP_STANDARD_HEADERS} ${ARGN})
endfunction()
