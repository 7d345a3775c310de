#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/nearest.h"
#include "hotloop/ops.h"
#include "nn/activations.h"
#include "nn/registry.h"
#include "ops/composed/log_softmax.h"

namespace hotloop::nn {
namespace {

// A function of x and of one number, if it has a parameter.
struct Definition {
  const char* name;
  const char* summary;
  Value (*function)(Value x, double parameter);
  const char* parameter = nullptr;
  double fallback = 0;
  const char* parameter_doc = "";
};

// x between low and high. Derivative 0 at the ends too, as relu's at 0 and PyTorch's (clip's is half there); a NaN passes.
Value limited(Value x, double low, double high) {
  const Value least = like(x, low), most = like(x, high);
  return select(less_equal(x, least), least, select(greater_equal(x, most), most, x));
}

Value log_softmax_of_last_axis(Value x, double) {
  if (x.rank() < 1) throw UserError("log_softmax", "the input must have a last axis", x.type().str());
  return log_softmax(x, -1);
}

// Above 0 the exponential is of 0, so that the branch not taken cannot overflow in the derivative; at 0 it is of x itself, whose derivative is
// that of both sides there.
Value elu(Value x, double alpha) {
  const Value is_above = greater(x, like(x, 0));
  return select(is_above, x, alpha * expm1(select(is_above, like(x, 0), x)));
}

// Klambauer et al. 2017, equation 14.
constexpr double selu_alpha = 1.6732632423543772848, selu_scale = 1.0507009873554804934;

Value gelu_tanh(Value x, double) {
  const double root = std::sqrt(2 / std::numbers::pi);
  return 0.5 * x * (1.0 + tanh(root * (x + 0.044715 * x * square(x))));
}

const Definition definitions[] = {
    {"elu", "x, or alpha (exp(x) - 1) below 0 (Clevert et al. 2016)", elu, "alpha", 1.0, "limit toward minus infinity"},
    {"exponential", "exp(x)", [](Value x, double) { return exp(x); }},
    {"gelu", "x times the normal distribution function of x, exact", [](Value x, double) { return gelu(x); }},
    {"gelu_tanh", "gelu's approximation by tanh (Hendrycks and Gimpel 2016)", gelu_tanh},
    {"hard_sigmoid_keras2", "clip(0.2 x + 0.5, 0, 1): Keras 2's, and old recurrent layers' gates",
     [](Value x, double) { return limited(0.2 * x + 0.5, 0, 1); }},
    {"hard_sigmoid_keras3", "clip(x / 6 + 0.5, 0, 1): Keras 3's and PyTorch's",
     [](Value x, double) { return limited(x / 6.0 + 0.5, 0, 1); }},
    {"hard_tanh", "clip(x, -1, 1)", [](Value x, double) { return limited(x, -1, 1); }},
    {"leaky_relu", "max(x, slope x)",
     [](Value x, double slope) { return select(greater(x, like(x, 0)), x, slope * x); }, "slope", 0.01,
     "of the negative half (Keras has 0.3)"},
    {"log_softmax", "logarithm of softmax", log_softmax_of_last_axis},
    {"mish", "x tanh(softplus(x)) (Misra 2020)", [](Value x, double) { return x * tanh(softplus(x)); }},
    {"relu", "max(x, 0)", [](Value x, double) { return relu(x); }},
    {"relu6", "clip(x, 0, 6)", [](Value x, double) { return limited(x, 0, 6); }},
    {"selu", "self-normalising elu (Klambauer et al. 2017)",
     [](Value x, double) { return selu_scale * elu(x, selu_alpha); }},
    {"sigmoid", "1 / (1 + exp(-x))", [](Value x, double) { return sigmoid(x); }},
    {"silu", "x sigmoid(x), also called swish", [](Value x, double) { return x * sigmoid(x); }},
    {"softmax", "exp(x) / sum of exp(x) along the last axis", [](Value x, double) { return softmax(x, -1); }},
    {"softplus", "log(1 + exp(x))", [](Value x, double) { return softplus(x); }},
    {"softsign", "x / (1 + |x|)", [](Value x, double) { return x / (1.0 + abs(x)); }},
    {"tanh", "hyperbolic tangent", [](Value x, double) { return tanh(x); }},
};

const Definition& definition_of(const std::string& name) {
  const auto it = std::ranges::find(definitions, name, &Definition::name);
  if (it == std::end(definitions))
    throw UserError("activation", "the function must be one that exists", "'" + name + "'",
                    nearest_hint(name, activation_names()));
  return *it;
}

class ActivationModule : public BuiltInModule {
 public:
  explicit ActivationModule(ActivationFunction function) : function_(std::move(function)) {}

  Tree<Array> init(const Seed&, DType, Init) const override { return {}; }
  Value apply(const Tree<Value>&, Value x, Context&) const override { return function_(x); }

 private:
  ActivationFunction function_;
};

Layer make(const Definition& definition, double parameter) {
  return ActivationModule([f = definition.function, parameter](Value x) { return f(x, parameter); });
}

}  // namespace

ActivationFunction activation_function(const std::string& name, std::optional<double> parameter) {
  const Definition& definition = definition_of(name);
  return [&definition, number = parameter.value_or(definition.fallback)](Value x) {
    return definition.function(x, number);
  };
}

std::vector<std::string> activation_names() {
  std::vector<std::string> names;
  for (const Definition& definition : definitions) names.push_back(definition.name);
  return names;
}

Activation::Activation(const std::string& name) : Layer(ActivationModule(activation_function(name))) {}

Activation::Activation(const std::string& name, double parameter) : Layer(make(definition_of(name), parameter)) {
  if (definition_of(name).parameter == nullptr)
    throw UserError("activation", "the function must have a parameter", "'" + name + "' has none",
                    "leave the parameter out");
}

std::vector<LayerDef> layers_activation() {
  std::vector<LayerDef> defs;
  for (const Definition& d : definitions) {
    std::vector<Parameter> parameters;
    if (d.parameter != nullptr) parameters.push_back({d.parameter, d.fallback, d.parameter_doc});
    defs.push_back({d.name, std::string(d.summary) + ": shape unchanged", parameters,
                    [&d](const Config& config, const ValueType&) -> Layer {
                      return make(d, d.parameter == nullptr ? 0 : config.number(d.parameter));
                    }});
  }
  return defs;
}

}  // namespace hotloop::nn
