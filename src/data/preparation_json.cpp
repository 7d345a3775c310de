// A preparation as JSON: every number as text that reads back as the same double.

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>

#include "core/nearest.h"
#include "data/cell_reader.h"
#include "data/preparation.h"
#include "hotloop/error.h"
#include "io/json.h"

namespace hotloop::data {

using Json = nlohmann::ordered_json;

NLOHMANN_JSON_SERIALIZE_ENUM(
    Fill, {{Fill::Refuse, "refuse"}, {Fill::Drop, "drop"}, {Fill::Forward, "forward"}, {Fill::Mean, "mean"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Task, {{Task::Regression, "regression"}, {Task::Classification, "classification"}})

namespace {

constexpr const char* format = "hotloop.preparation";
constexpr int format_version = 1;

// By Cycle::Of.
constexpr const char* cycle_names[] = {"row", "hour_of_day", "day_of_week", "hour_of_week", "day_of_year"};

Json json_of(const std::vector<Standardization>& scales) {
  Json out = Json::array();
  for (const Standardization& s : scales) out.push_back({s.mean, s.std});
  return out;
}

// Reads members of objects; each mistake is a UserError that names the path.
class Reader {
 public:
  Reader(const Json& json, std::string source, std::string path)
      : json_(json), source_(std::move(source)), path_(std::move(path)) {
    if (!json_.is_object()) fail("must be an object");
  }
  [[noreturn]] void fail(const std::string& requirement) const {
    throw UserError("preparation", source_ + ": " + (path_.empty() ? "it" : path_) + " " + requirement,
                    io::shown_json(json_), "train again: the file does not hold together");
  }
  template <class T> T get(const char* key) const {
    const auto it = json_.find(key);
    if (it == json_.end()) fail(std::string("must have '") + key + "'");
    try {
      if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
        if (!it->is_number()) fail(std::string("must have a number as '") + key + "'");
        if (std::is_integral_v<T> && !it->is_number_integer())
          fail(std::string("must have an integer as '") + key + "'");
      }
      return it->get<T>();
    } catch (const Json::exception&) {
      fail(std::string("must have a fitting '") + key + "'");
    }
  }
  Reader at(const char* key) const {
    const auto it = json_.find(key);
    if (it == json_.end()) fail(std::string("must have '") + key + "'");
    return {*it, source_, path_ + "/" + key};
  }
  bool has(const char* key) const { return json_.contains(key); }
  std::vector<Reader> list(const char* key) const {
    const auto it = json_.find(key);
    if (it == json_.end() || !it->is_array()) fail(std::string("must have a list '") + key + "'");
    std::vector<Reader> all;
    for (const Json& item : *it) all.emplace_back(item, source_, path_ + "/" + key);
    return all;
  }
  std::vector<Standardization> scales(const char* key) const {
    std::vector<Standardization> all;
    for (const auto& [mean, std] : get<std::vector<std::pair<double, double>>>(key)) {
      if (!std::isfinite(mean) || !std::isfinite(std) || !(std > 0))
        fail(std::string("must have finite means and positive deviations in '") + key + "'");
      all.push_back({mean, std});
    }
    return all;
  }

 private:
  const Json& json_;
  std::string source_, path_;
};

Json json_of(const Recipe& r) {
  Json lags = Json::array(), cycles = Json::array(), one_hots = Json::array(), rules = Json::array();
  for (const Lag& l : r.lags) lags.push_back({{"name", l.name}, {"column", l.column}, {"steps", l.steps}});
  for (const Cycle& c : r.cycles)
    cycles.push_back({{"name", c.name},
                      {"of", cycle_names[static_cast<std::size_t>(c.of)]},
                      {"period", c.rows.period},
                      {"step", c.rows.step},
                      {"phase", c.rows.phase},
                      {"harmonics", c.of == Cycle::Of::Row ? c.rows.harmonics : c.harmonics}});
  for (const OneHot& o : r.one_hots)
    one_hots.push_back({{"column", o.column}, {"unknown_as_zeros", o.unknown_as_zeros}});
  for (const MissingRule& m : r.missing_rules)
    rules.push_back({{"columns", m.columns}, {"fill", m.fill}, {"indicator", m.indicator}});
  return {{"inputs", r.inputs},
          {"targets", r.targets},
          {"time", r.time},
          {"group", r.group},
          {"sample", r.sample},
          {"missing", r.missing},
          {"indicator", r.indicator},
          {"missing_rules", rules},
          {"lags", lags},
          {"cycles", cycles},
          {"one_hots", one_hots},
          {"length", r.length},
          {"horizon", r.horizon},
          {"horizon_steps", r.horizon_steps},
          {"task", r.task},
          {"standardize", r.standardize},
          {"standardize_targets", r.standardize_targets},
          {"dtype", name_of(r.dtype)},
          {"kept", r.kept}};
}

Fill read_fill(const Reader& json, const char* key) {
  const std::string name = json.get<std::string>(key);
  const Fill fill = Json(name).get<Fill>();
  if (Json(fill) != name) json.fail(std::string("must have a way to fill as '") + key + "'");
  return fill;
}

Recipe read_recipe(const Reader& json) {
  Recipe r;
  r.inputs = json.get<std::vector<std::string>>("inputs");
  r.targets = json.get<std::vector<std::string>>("targets");
  r.time = json.get<std::string>("time");
  r.group = json.get<std::string>("group");
  r.sample = json.get<std::string>("sample");
  r.missing = read_fill(json, "missing");
  r.indicator = json.get<bool>("indicator");
  for (const Reader& rule : json.list("missing_rules"))
    r.missing_rules.push_back(
        {rule.get<std::vector<std::string>>("columns"), read_fill(rule, "fill"), rule.get<bool>("indicator")});
  for (const Reader& lag : json.list("lags"))
    r.lags.push_back({lag.get<std::string>("name"), lag.get<std::string>("column"), lag.get<std::int64_t>("steps")});
  for (const Reader& cycle : json.list("cycles")) {
    const std::string of = cycle.get<std::string>("of");
    const auto name = std::ranges::find(cycle_names, of);
    if (name == std::end(cycle_names)) cycle.fail("must be of a cycle that is known");
    const int harmonics = cycle.get<int>("harmonics");
    r.cycles.push_back(
        {cycle.get<std::string>("name"),
         static_cast<Cycle::Of>(name - std::begin(cycle_names)),
         {cycle.get<double>("period"), cycle.get<std::int64_t>("step"), cycle.get<double>("phase"), harmonics},
         harmonics});
  }
  for (const Reader& one_hot : json.list("one_hots"))
    r.one_hots.push_back({one_hot.get<std::string>("column"), one_hot.get<bool>("unknown_as_zeros")});
  r.length = json.get<std::int64_t>("length");
  r.horizon = json.get<std::int64_t>("horizon");
  r.horizon_steps = json.get<std::int64_t>("horizon_steps");
  r.task = json.get<std::string>("task") == "classification" ? Task::Classification : Task::Regression;
  r.standardize = json.get<bool>("standardize");
  r.standardize_targets = !json.has("standardize_targets") || json.get<bool>("standardize_targets");
  r.dtype = dtype_from_name(json.get<std::string>("dtype"));
  r.kept = json.get<std::vector<std::string>>("kept");
  return r;
}

}  // namespace

std::string Preparation::json() const {
  const State& s = *state_;
  const Json json = {
      {"format", format},
      {"version", format_version},
      {"recipe", json_of(s.recipe)},
      {"input_names", input_names()},
      {"input_scales", json_of(s.input_scales)},
      {"target_scales", json_of(s.target_scales)},
      {"means", s.means},
      {"categories", s.categories},
      {"classes", s.classes},
      {"time_step", s.time_step},
      {"longest", s.longest},
      {"table", {{"rows", s.num_rows}, {"groups", s.num_groups}, {"gaps", s.num_gaps}, {"missing", s.num_missing}}}};
  return json.dump(2) + "\n";
}

Preparation Preparation::parse(std::string_view text, const std::string& source) {
  Json json;
  try {
    json = io::parse_json<Json>(text);
  } catch (const Json::exception&) {
    throw UserError("preparation", source + " must be JSON", "another text", "train again: the file is damaged");
  }
  const Reader reader(json, source, "");
  if (reader.get<std::string>("format") != format || reader.get<int>("version") != format_version)
    reader.fail("must be a " + std::string(format) + " of version " + std::to_string(format_version));
  auto state = std::make_shared<State>();
  state->recipe = read_recipe(reader.at("recipe"));
  check_recipe(state->recipe);
  state->input_scales = reader.scales("input_scales");
  state->target_scales = reader.scales("target_scales");
  state->means = reader.get<std::map<std::string, double>>("means");
  state->categories = reader.get<Categories>("categories");
  state->classes = reader.get<std::vector<std::string>>("classes");
  state->time_step = reader.get<double>("time_step");
  state->longest = reader.get<std::int64_t>("longest");
  const Reader table = reader.at("table");
  state->num_rows = table.get<std::int64_t>("rows");
  state->num_groups = table.get<std::int64_t>("groups");
  state->num_gaps = table.get<std::int64_t>("gaps");
  state->num_missing = table.get<std::map<std::string, std::int64_t>>("missing");

  Preparation preparation(state);
  const bool classification = state->recipe.task == Task::Classification;
  if (preparation.input_names() != reader.get<std::vector<std::string>>("input_names") ||
      state->input_scales.size() != preparation.input_names().size() ||
      state->target_scales.size() != state->recipe.targets.size() || classification != !state->classes.empty() ||
      !(state->time_step >= 0) || state->longest < 0)
    reader.fail("must fit together: inputs, scales and classes");
  // Earlier versions kept numbers of CSV as they were written.
  const auto relabel = [&](std::vector<std::string>& labels) {
    for (std::string& label : labels) label = text_label(label);
    if (std::set<std::string_view>(labels.begin(), labels.end()).size() != labels.size())
      reader.fail("must have categories and classes that differ");
  };
  for (auto& [column, categories] : state->categories) relabel(categories);
  relabel(state->classes);
  return preparation;
}

}  // namespace hotloop::data
