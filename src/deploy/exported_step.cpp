#include "deploy/exported_step.h"

#include <algorithm>
#include <cctype>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include "hotloop/error.h"
#include "hotloop/jit.h"
#include "runtime/lowering.h"

namespace hotloop::deploy {
namespace {

// A target of the schedule and the processors that it is for, by the levels of the x86-64 psABI.
struct Level {
  std::string_view name, target;
};
constexpr Level levels[] = {
    {"x86-64-v4", "avx512"}, {"x86-64-v3", "avx2"}, {"x86-64-v2", "portable"}, {"aarch64", "portable"}};

const Level& level_of(const std::string& asked) {
  const std::string name = asked == "host" ? kernel::host_target().name : asked;
  for (const Level& level : levels)
    if (name == level.name || name == level.target) return level;
  throw UserError("export", "targets are host, x86-64-v2, x86-64-v3, x86-64-v4 and aarch64", "\"" + asked + "\"",
                  "one of them, or several levels of x86-64 with commas between");
}

std::vector<Level> levels_of(const std::string& targets) {
  std::vector<Level> chosen;
  for (std::size_t at = 0; at <= targets.size();) {
    const std::size_t end = std::min(targets.find(',', at), targets.size());
    const std::string name = targets.substr(at, end - at);
    const Level& level = level_of(name);
    if (std::ranges::find(chosen, level.name, &Level::name) == chosen.end()) chosen.push_back(level);
    at = end + 1;
  }
  std::ranges::sort(chosen, std::ranges::greater(), &Level::name);
  if (chosen.size() > 1 && std::ranges::find(chosen, "aarch64", &Level::name) != chosen.end())
    throw UserError("export", "files for AArch64 are for nothing else", "\"" + targets + "\"", "an export of its own");
  return chosen;
}

bool is_identifier(const std::string& name) {
  const auto letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  return !name.empty() && letter(name[0]) && std::ranges::all_of(name, [&](char c) {
    return letter(c) || std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

// "0.weight_ih_l0" as the name of a field.
std::string field_name(const std::string& leaf) {
  std::string text = leaf.empty() || std::isdigit(static_cast<unsigned char>(leaf[0])) != 0 ? "p" + leaf : leaf;
  for (char& c : text) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return text;
}

std::int64_t lay_out(std::span<const Array> arrays, std::vector<std::int64_t>& offsets) {
  std::int64_t end = 0;
  for (const Array& array : arrays) {
    offsets.push_back(end);
    end = aligned(end + std::max<std::int64_t>(static_cast<std::int64_t>(array.bytes()), 1));
  }
  return end;
}

}  // namespace

std::int64_t ExportedStep::kernel_bytes() const {
  std::int64_t most = 64;
  for (const Variant& v : variants) most = std::max(most, v.step.scratch());
  return most;
}

std::int64_t ExportedStep::scratch_bytes() const {
  return kernel_bytes() + aligned(static_cast<std::int64_t>(x.bytes()));
}

std::int64_t ExportedStep::weights_bytes() const {
  std::int64_t most = 64;
  for (const Variant& v : variants) most = std::max(most, v.prepared_bytes + v.prepare.scratch());
  return most;
}

ExportedStep exported_step(const nn::Layer& model, const Tree<Array>& params, std::int64_t features,
                           const ExportOptions& options) {
  if (!is_identifier(options.name))
    throw UserError("export", "the name must be a C identifier", "'" + options.name + "'",
                    "letters, digits and underscores");
  const std::vector<Level> chosen = levels_of(options.target);
  const StreamStep step = stream_step(model, params, features, options.stream);
  ExportedStep out;
  out.name = options.name;
  out.initial = step.initial_state.flatten();
  out.state_bytes = std::max<std::int64_t>(lay_out(out.initial, out.state_offsets), 64);
  for (std::size_t i = 0; i < step.bound_names.size(); ++i) {
    out.param_names.push_back(field_name(step.bound_names[i]));
    out.param_types.push_back(step.bound[i].type());
  }
  for (const Level& level : chosen) {
    CompileOptions compile_options;
    compile_options.target = level.target;
    kernel::Target target = kernel::target_named(compile_options.target);
    if (options.target == "host") target = kernel::with_caches_of_host(target);
    const runtime::BoundProgram bound =
        runtime::bind_program("export", *step.graph, step.bound, compile_options, target);
    Variant variant;
    variant.level = level.name;
    variant.step.program = runtime::lower(*bound.run, runtime::with_sums_kept(compile_options), target).program;
    variant.prepare.program = runtime::lower(*bound.prepare_graph, compile_options, target).program;
    variant.prepared = bound.prepared;
    variant.prepared_bytes = lay_out(variant.prepared, variant.offsets);
    out.variants.push_back(std::move(variant));
  }
  const kernel::Program& program = out.variants.front().step.program;
  out.x = program.arguments[out.initial.size()];
  out.y = program.results[0];
  if (out.y.dtype != out.x.dtype)
    throw UserError("export", "x and y must have one dtype", out.x.str() + " and " + out.y.str(),
                    "cast() y to the dtype of x");
  return out;
}

std::string filled(std::string text, const std::vector<std::pair<std::string, std::string>>& values) {
  for (const auto& [key, value] : values)
    for (std::size_t at = 0; (at = text.find(key, at)) != std::string::npos; at += value.size())
      text.replace(at, key.size(), value);
  return text;
}

}  // namespace hotloop::deploy
