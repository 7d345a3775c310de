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
#include "schedule/host.h"

namespace hotloop::deploy {
namespace {

// A target of the schedule and the processors that it is for: levels of the x86-64 psABI, or AArch64.
struct Level {
  std::string_view name, target;
};
constexpr Level levels[] = {
    {"x86-64-v4", "avx512"}, {"x86-64-v3", "avx2"}, {"x86-64-v2", "portable"}, {"aarch64", "neon"}};

const Level& level_of(const std::string& asked) {
  const std::string host = kernel::host_runs("neon") ? "neon" : kernel::host_target().name;
  const std::string& name = asked == "host" ? host : asked;
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

// "0.weight_ih_l0" as the name of a field, which begins with `letter` where the leaf's does not begin with one.
std::string field_name(const std::string& leaf, char letter) {
  std::string text = leaf.empty() || std::isdigit(static_cast<unsigned char>(leaf[0])) != 0 ? letter + leaf : leaf;
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

std::vector<std::int64_t> ExportedStep::copies() const {
  std::vector<std::int64_t> at = {kernel_bytes()};
  for (const ValueType& input : inputs) at.push_back(at.back() + aligned(static_cast<std::int64_t>(input.bytes())));
  return at;
}

std::int64_t ExportedStep::scratch_bytes() const { return copies().back(); }

std::int64_t ExportedStep::weights_bytes() const {
  std::int64_t most = 64;
  for (const Variant& v : variants) most = std::max(most, v.prepared_bytes + v.prepare.scratch());
  return most;
}

void check_options(const ExportOptions& options) {
  if (!is_identifier(options.name))
    throw UserError("export", "the name must be a C identifier", "'" + options.name + "'",
                    "letters, digits and underscores");
  (void)levels_of(options.target);
}

ExportedStep exported_step(const StreamStep& step, const ExportOptions& options) {
  const std::vector<Level> chosen = levels_of(options.target);
  ExportedStep out;
  out.name = options.name;
  out.initial = step.initial_state.flatten();
  out.state_bytes = std::max<std::int64_t>(lay_out(out.initial, out.state_offsets), 64);
  for (std::size_t i = 0; i < step.bound_names.size(); ++i) {
    out.param_names.push_back(field_name(step.bound_names[i], 'p'));
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
    variant.step.program =
        runtime::lower(*bound.run, runtime::with_sums_kept(compile_options), target, bound.layouts).program;
    variant.prepare.program = runtime::lower(*bound.prepare_graph, compile_options, target).program;
    variant.prepared = bound.prepared;
    variant.prepared_bytes = lay_out(variant.prepared, variant.offsets);
    out.variants.push_back(std::move(variant));
  }
  const kernel::Program& program = out.variants.front().step.program;
  for (std::size_t i = 0; i < step.inputs.num_leaves(); ++i)
    out.inputs.push_back(program.arguments[out.initial.size() + i]);
  if (!step.inputs.is_leaf())
    step.inputs.for_each([&](const std::string& name, const ValueType&) {
      const std::string field = field_name(name, 'x');
      if (std::ranges::find(out.input_names, field) != out.input_names.end())
        throw UserError("export", "inputs must have names of their own in C", "two that are " + field);
      out.input_names.push_back(field);
    });
  out.y = program.results[0];
  return out;
}

std::string filled(std::string text, const std::vector<std::pair<std::string, std::string>>& values) {
  for (const auto& [key, value] : values)
    for (std::size_t at = 0; (at = text.find(key, at)) != std::string::npos; at += value.size())
      text.replace(at, key.size(), value);
  return text;
}

}  // namespace hotloop::deploy
