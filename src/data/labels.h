// The texts of a column, each stored once.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace hotloop::data {

class Labels {
 public:
  // Of a text that may be new.
  std::int32_t index(std::string_view text) {
    const auto it = indices_.find(text);
    if (it != indices_.end()) return it->second;
    const auto next = static_cast<std::int32_t>(all_.size());
    all_.emplace_back(text);
    keys_.emplace_back(text);  // views into a deque stay valid
    indices_.emplace(keys_.back(), next);
    return next;
  }
  std::span<const std::string> all() const { return all_; }

 private:
  std::vector<std::string> all_;
  std::deque<std::string> keys_;
  std::unordered_map<std::string_view, std::int32_t> indices_;
};

// Appends where each of the labels beyond `places` stands among the names; -1: nowhere.
inline void find_labels(std::span<const std::string> labels, std::span<const std::string> names,
                        std::vector<int>& places) {
  if (places.size() == labels.size()) return;
  std::unordered_map<std::string_view, int> place_of;
  for (const std::string& name : names) place_of.emplace(name, static_cast<int>(place_of.size()));
  for (const std::string& label : labels.subspan(places.size())) {
    const auto it = place_of.find(label);
    places.push_back(it == place_of.end() ? -1 : it->second);
  }
}

}  // namespace hotloop::data
