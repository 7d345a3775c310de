// docs/components.md is what the registries say. HOTLOOP_UPDATE_GOLDEN=1 writes it anew.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/class_name.h"
#include "minimizers/registry.h"
#include "nn/registry.h"
#include "optim/registry.h"
#include "test_dir.h"
#include "train/metrics.h"

namespace hotloop {
namespace {

std::string shown(const Parameter& p) {
  if (p.required) return std::holds_alternative<std::int64_t>(p.fallback) ? "an integer, required" : "required";
  if (const bool* b = std::get_if<bool>(&p.fallback)) return *b ? "`true`" : "`false`";
  std::ostringstream out;
  std::visit(
      [&](const auto& value) {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>)
          out << "`\"" << value << "\"`";
        else
          out << '`' << value << '`';
      },
      p.fallback);
  return out.str();
}

std::string without_pipes(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

// How Python writes it: "function(first, what is required, ...)", without the dots where there is nothing else to set.
std::string call(const std::string& function, std::vector<std::string> arguments,
                 const std::vector<Parameter>& parameters) {
  for (const Parameter& p : parameters)
    if (p.required) arguments.push_back(p.name);
  if (!std::ranges::all_of(parameters, &Parameter::required)) arguments.emplace_back("...");
  std::string out = function + "(";
  for (std::size_t i = 0; i < arguments.size(); ++i) out += (i == 0 ? "" : ", ") + arguments[i];
  return out + ")";
}

template <class Def>
std::string constructor(const std::string& module, const Def& def, const std::vector<std::string>& first = {}) {
  return call("hl." + module + "." + class_name(def.name), first, def.parameters);
}

std::vector<std::string> first_arguments(const nn::LayerDef& def) {
  if (def.wrap) return {"layer"};
  return nn::sized_by_input(def) ? std::vector<std::string>{"inputs"} : std::vector<std::string>{};
}

void entry(std::ostream& out, const std::string& name, const std::string& python, const std::string& summary,
           const std::vector<Parameter>& parameters, const std::string& note = "") {
  std::string sentence = summary + note;  // with a capital, unless it begins with a formula
  if (sentence.size() > 1 && std::islower(static_cast<unsigned char>(sentence[1])))
    sentence[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(sentence[0])));
  out << "### " << name << "\n\n`" << python << "`\n\n" << sentence << ".\n\n";
  if (parameters.empty()) return;
  out << "| setting | default | |\n|---|---|---|\n";
  for (const Parameter& p : parameters) {
    std::string doc = p.doc;
    for (std::size_t i = 0; i < p.choices.size(); ++i) doc += (i == 0 ? ": " : ", ") + p.choices[i];
    out << "| `" << p.name << "` | " << shown(p) << " | " << without_pipes(doc) << " |\n";
  }
  out << "\n";
}

std::string reference() {
  std::ostringstream out;
  out << "# Layers, losses, optimisers, schedules, wrappers, minimisers and metrics\n\n"
         "Every type a configuration can name, with its class in Python and its settings, which are the constructor's "
         "arguments.\nBefore these it takes `inputs`, the number of features, where that tells its size, a wrapper the "
         "`layer` or `inner` that it wraps.\nThis page is written from the registries, and a test compares it with "
         "them. "
         "The C++ constructors, with formulas and sources, are in\n`include/hotloop/nn.h`, `losses.h`, `optim.h`, "
         "`minimize.h` and `metrics.h`; how to add a type is in [adding.md](adding.md).\n\n"
         "## Layers\n\n"
         "`[[model]]` tables, one after another. Sequences are (batch, time, features). Rows with fewer steps than the "
         "longest carry\ntheir lengths along: recurrent layers stop at a row's last step, pooling and normalisation "
         "leave "
         "the other steps out.\n\n";
  for (const nn::LayerDef& def : nn::all_layers())
    entry(out, def.name, constructor("nn", def, first_arguments(def)), def.summary, def.parameters,
          def.wrap ? ". Around the layers of the `[[model.layer]]` tables below it" : "");
  out << "## Losses\n\n"
         "`[loss]`. Each is a mean over elements. With sample weights, class weights or lengths it is sum(weight * "
         "element) /\nsum(weight), and steps beyond a row's length weigh nothing.\n\n";
  for (const losses::LossDef& def : losses::all_losses())
    entry(out, def.name, constructor("losses", def), def.summary, def.parameters);
  out << "## Optimisers\n\n`[optimizer]`.\n\n";
  for (const optim::OptimizerDef& def : optim::all_optimizers())
    entry(out, def.name, constructor("optim", def), def.summary, def.parameters);
  out << "## Schedules\n\n"
         "`[[optimizer.schedule]]` tables: factors of the learning rate at each step, counted from 0 over the whole "
         "run. "
         "Several are\nmultiplied: a warm-up and a cosine, say.\n\n";
  for (const optim::ScheduleDef& def : optim::all_schedules())
    entry(out, def.name, constructor("optim", def), def.summary, def.parameters);
  out << "## Wrappers\n\n"
         "`[[optimizer.wrapper]]` tables, around the optimiser; the last one is outermost, and sees the gradients "
         "first.\n\n";
  for (const optim::WrapperDef& def : optim::all_wrappers())
    entry(out, def.name, constructor("optim", def, {"inner"}), def.summary, def.parameters);
  out << "## Minimisers\n\n"
         "`hl.minimize(fn, params, method=...)` and `minimize()`: whole minimisations of a function inside the "
         "program, of no use to a "
         "training\nrun over batches.\n\n";
  for (const minimizers::DescentDef& def : minimizers::all_descents())
    entry(out, def.name, call("hl.minimize", {"fn", "params", "method=\"" + def.name + "\""}, def.parameters),
          def.summary, def.parameters);
  out << "## Least squares\n\n"
         "`hl.least_squares(residuals, params, method=...)` and `least_squares()`.\n\n";
  for (const minimizers::LeastSquaresDef& def : minimizers::all_least_squares())
    entry(out, def.name,
          call("hl.least_squares", {"residuals", "params", "method=\"" + def.name + "\""}, def.parameters), def.summary,
          def.parameters);
  out << "## Metrics\n\n"
         "`[train] metric`, one or a list. Each is of the whole validation or test part, not a mean of batches'.\n\n";
  for (const metrics::MetricDef& def : metrics::all_metrics())
    entry(out, def.name, constructor("metrics", def), def.summary, def.parameters);
  std::string text = out.str();
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

TEST(Golden, ReferenceOfComponents) {
  const std::filesystem::path path =
      std::filesystem::path(testing::test_dir()).parent_path() / "docs" / "components.md";
  const std::string text = reference();
  if (std::getenv("HOTLOOP_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  EXPECT_EQ(content.str(), text) << "HOTLOOP_UPDATE_GOLDEN=1 golden_tests writes it anew";
}

}  // namespace
}  // namespace hotloop
