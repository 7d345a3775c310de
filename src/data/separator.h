// What stands between the cells of a table of text.
#pragma once

#include <optional>
#include <string_view>

namespace hotloop::data {

// The separator that the header, the first line of `text`, seems to use instead of `used`: the one of , ; | and tabs that it holds more of.
std::optional<char> other_separator(std::string_view text, char used);

}  // namespace hotloop::data
