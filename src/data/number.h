// Numbers as texts, whatever the locale.
#pragma once

#include <optional>
#include <string_view>

namespace hotloop::data {

// A finite number with a decimal point, blanks around it left out. Nothing for any other text.
std::optional<double> parse_number(std::string_view text);
// Whether it is a number written in another way: with a decimal comma, separators of thousands, a currency or a percent sign.
bool is_formatted_number(std::string_view text);

}  // namespace hotloop::data
