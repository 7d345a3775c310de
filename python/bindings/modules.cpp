// Layers, losses, and cells and layers that are written in Python; hotloop/nn and hotloop/losses.py make classes of them.
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>

#include "components.h"
#include "core/class_name.h"
#include "depth.h"
#include "gil.h"
#include "hotloop/dataset.h"
#include "hotloop/error.h"
#include "hotloop/init.h"
#include "hotloop/losses.h"
#include "hotloop/nn.h"
#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::python {
namespace {

const char* name_of_init(nn::Init init) { return init == nn::Init::Torch ? "torch" : "keras"; }

Tree<Array> in_dtype(const Tree<Array>& tree, DType dtype) {
  return tree.map([&](const Array& a) { return is_float(a.dtype()) && a.dtype() != dtype ? a.cast(dtype) : a; });
}

// As Python code is given a seed: a plain integer wherever that says all.
nb::object seed_object(const nn::Seed& seed) {
  return seed.generator() == nn::Generator::Philox ? nb::cast(seed.value()) : nb::cast(seed);
}

// An integer, or what seed_object() gave.
nn::Seed seed_of(nb::handle seed) {
  if (nb::isinstance<nn::Seed>(seed)) return nb::cast<nn::Seed>(seed);
  return seed_number(seed, "init");
}

// Parameters are saved under their names, and given back as nested dicts: anything else would come back as another tree than was made.
void check_dicts(nb::handle params, const std::string& path) {
  const Depth depth(" in parameters");
  for (const auto& [key, value] : nb::cast<nb::dict>(params)) {
    const std::string name = path + nb::cast<std::string>(nb::str(key));
    if (nb::isinstance<nb::dict>(value)) {
      check_dicts(value, name + ".");
    } else if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
      throw UserError("init", "parameters must be arrays in nested dicts",
                      name + " = a " + nb::cast<std::string>(value.type().attr("__name__")),
                      "{\"0\": ..., \"1\": ...} for several, hl.asarray(...) for one array of numbers");
    }
  }
}

// init(seed), or init(seed, init) if it takes both.
Tree<Array> python_init(nb::handle self, const nn::Seed& seed, DType dtype, nn::Init init) {
  const GilAcquired gil;
  const nb::object params = self.attr("_init_for_engine")(seed_object(seed), name_of_init(init));
  if (!nb::isinstance<nb::dict>(params))
    throw UserError("init", "a cell's or layer's init must return a dict of arrays, {} for none",
                    nb::cast<std::string>(nb::repr(params.type())));
  check_dicts(params, "");
  return in_dtype(array_tree(params, "init"), dtype);
}

// The values of a state tree, floats in `dtype`.
Tree<Value> state_tree(nb::handle state, DType dtype, const std::string& what) {
  return value_tree(state, what).map([&](Value v) {
    return is_float(v.dtype()) && v.dtype() != dtype ? cast(v, dtype) : v;
  });
}

// class MyCell(hl.nn.Cell)
class PythonCell : public nn::Cell {
 public:
  explicit PythonCell(nb::handle self) : self_(shared(self)) {}

  Tree<Array> init(const nn::Seed& seed, DType dtype, nn::Init init) const override {
    return python_init(self_.get(), seed, dtype, init);
  }

  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    const GilAcquired gil;
    const ScopeGuard scope;
    const nb::object state = nb::handle(self_.get()).attr("initial_state")(batch);
    structure_ = flatten(state).second;
    return state_tree(state, dtype, "initial_state");
  }

  std::pair<Tree<Value>, Value> step(const Tree<Value>& params, const Tree<Value>& state, Value x) const override {
    const GilAcquired gil;
    const ScopeGuard scope;
    std::vector<nb::object> leaves;
    for (const Value& v : state.flatten()) leaves.push_back(tracer(v));
    // A state that came from elsewhere, before initial_state was ever called, is taken as nested dicts.
    const bool known = structure_.num_leaves() == leaves.size() && structure_.num_leaves() > 0;
    const nb::object given = known ? unflatten(structure_, leaves) : to_dicts(state);
    const nb::object result = nb::handle(self_.get())(to_dicts(params), given, tracer(x));
    if (!nb::isinstance<nb::tuple>(result) || nb::len(result) != 2)
      throw UserError("cell", "a cell must return (state, y)", nb::cast<std::string>(nb::repr(result.type())));
    const Structure& wanted = known ? structure_ : flatten(given).second;
    const auto next = flatten_like(wanted, nb::object(result[0]), "cell");
    std::vector<Value> values;
    for (std::size_t i = 0; i < next.size(); ++i) values.push_back(to_value(next[i], "cell"));
    return {state.unflatten(values), to_value(nb::object(result[1]), "cell")};
  }

 private:
  std::shared_ptr<PyObject> self_;
  mutable Structure structure_{Tokens{}};  // of the state; written while tracing, under the GIL
};

const char* name_of_float(DType dtype) { return dtype == DType::F64 ? "float64" : "float32"; }

// class MyLayer(hl.nn.Module)
class PythonModule : public nn::MultiInputModule, public nn::KnownSteps {  // hotloop/nn/_streams.py looks at its steps
 public:
  // `inputs`: of the tree that apply() is given; none: one array.
  explicit PythonModule(nb::handle self, std::optional<Structure> inputs = {})
      : self_(shared(self)), inputs_(std::move(inputs)) {}

  Tree<Array> init(const nn::Seed& seed, DType dtype, nn::Init init) const override {
    return python_init(self_.get(), seed, dtype, init);
  }

  // The layers that are its attributes keep states and buffers, and want keys and lengths: hotloop/nn/_own.py hands them on.
  Value apply_inputs(const Tree<Value>& params, const Tree<Value>& inputs, nn::Context& context) const override {
    const GilAcquired gil;
    const ScopeGuard scope;
    const auto known = [](const Value& v) { return v.defined() ? tracer(v) : nb::none(); };
    const nb::object result =
        nb::handle(self_.get())
            .attr("_apply_for_engine")(to_dicts(params), as_given(inputs), known(context.key),
                                       context.state ? to_dicts(*context.state) : nb::none(), known(context.lengths),
                                       to_dicts(context.buffers), context.training, context.reverse);
    const Value y = to_value(nb::object(result[0]), "layer");
    if (context.state) context.state = value_tree(nb::object(result[1]), "layer");
    context.buffers = value_tree(nb::object(result[2]), "layer");
    const Value x = inputs.flatten()[data::timed_input(inputs.map([](const Value& v) { return v.type(); }))];
    if (y.rank() < 2 || x.rank() < 2 || y.shape()[1] != x.shape()[1]) context.lengths = {};
    return y;
  }

  Tree<Value> initial_state(std::int64_t batch, DType dtype) const override {
    const GilAcquired gil;
    const ScopeGuard scope;
    return state_tree(nb::handle(self_.get()).attr("_initial_state_for_engine")(batch, name_of_float(dtype)), dtype,
                      "initial_state");
  }

  Tree<Array> init_buffers(DType dtype) const override {
    const GilAcquired gil;
    return array_tree(nb::handle(self_.get()).attr("_init_buffers_for_engine")(name_of_float(dtype)), "init_buffers");
  }

 private:
  nb::object as_given(const Tree<Value>& inputs) const {
    if (!inputs_) return to_dicts(inputs);
    std::vector<nb::object> leaves;
    for (const Value& v : inputs.flatten()) leaves.push_back(tracer(v));
    return unflatten(*inputs_, leaves);
  }

  std::shared_ptr<PyObject> self_;
  std::optional<Structure> inputs_;
};

// A layer around others has `wrap` in place of `make`. (A template, so that the member is looked for when it is there.)
template <class Def> bool wraps_layers(const Def& def) {
  if constexpr (requires { def.wrap; }) return static_cast<bool>(def.wrap);
  return false;
}
template <class Def> nn::Layer wrapped(const Def& def, const Config& config, nn::Layer inner) {
  if constexpr (requires { def.wrap; }) return def.wrap(config, std::move(inner));
  throw UserError(def.name, "the layer takes no other layer");
}

nn::Layer make_layer(const std::string& name, nb::dict settings, nb::object inputs) {
  const nn::LayerDef& def = nn::layer_def(name);
  const Config config = config_of(def, settings);
  const std::int64_t features = inputs.is_none() ? 1 : integer_of(inputs, name, "inputs");
  if (features < 1) throw UserError(name, "inputs must be positive", std::to_string(features));
  // What is not a sequence layer may refuse one, and the other way round.
  try {
    return def.make(config, {DType::F32, {1, 1, features}});
  } catch (const UserError&) {
    try {
      return def.make(config, {DType::F32, {1, features}});
    } catch (const UserError&) {
    }
    throw;
  }
}

// (y, state or None, buffers)
nb::tuple apply(const nn::Layer& layer, nb::handle params, nb::handle x, nb::object key, nb::object state,
                nb::object lengths, nb::object buffers, bool training, bool reverse, bool padding_is_zero) {
  nn::Context context;
  if (!key.is_none()) context.key = to_value(key, "key");
  if (!lengths.is_none()) context.lengths = to_value(lengths, "lengths");
  if (!buffers.is_none()) context.buffers = value_tree(buffers, "buffers");
  context.training = training;
  context.reverse = reverse;
  context.padding_is_zero = padding_is_zero;
  std::optional<Structure> structure;
  if (!state.is_none()) {
    structure = flatten(state).second;
    context.state = value_tree(state, "state");
  }
  const Value y = layer.apply(value_tree(params, "params"), value_tree(x, "x"), context);
  nb::object next = nb::none();
  if (structure) {
    std::vector<nb::object> leaves;
    for (const Value& v : context.state->flatten()) leaves.push_back(tracer(v));
    next = unflatten(*structure, leaves);
  }
  return nb::make_tuple(tracer(y), next, to_dicts(context.buffers));
}

void bind_layers(nb::module_& m) {
  nb::class_<nn::Seed>(m, "Seed").def("__index__", &nn::Seed::value).def("__repr__", [](const nn::Seed& seed) {
    return "Seed(" + std::to_string(seed.value()) + ", generator=\"" + std::string(nn::name_of(seed.generator())) +
           "\")";
  });
  nb::class_<nn::Layer>(m, "Layer")
      .def("init",
           [](const nn::Layer& l, nb::handle seed, nb::handle dtype, nb::handle init, const std::string& generator) {
             // A layer that stands in another is given a seed, which knows its generator.
             const nn::Seed from = nb::isinstance<nn::Seed>(seed)
                                       ? seed_of(seed)
                                       : nn::Seed(seed_of(seed).value(), nn::generator_from_name(generator));
             const DType wanted = dtype_of_python(dtype);
             if (!is_float(wanted))
               throw UserError("init", "parameters must be float32 or float64", std::string(name_of(wanted)));
             return to_dicts(l.init(from, wanted, init_of(init)));
           })
      .def("init_buffers",
           [](const nn::Layer& l, nb::handle dtype) { return to_dicts(l.init_buffers(dtype_of_python(dtype))); })
      .def("initial_state", [](const nn::Layer& l, std::int64_t batch,
                               nb::handle dtype) { return to_dicts(l.initial_state(batch, dtype_of_python(dtype))); })
      .def("apply", &apply, nb::arg("params"), nb::arg("x"), nb::arg("key").none(), nb::arg("state").none(),
           nb::arg("lengths").none(), nb::arg("buffers").none(), nb::arg("training"), nb::arg("reverse"),
           nb::arg("padding_is_zero") = false);
  m.def("class_name", &class_name);
  m.def("layer_definitions", [] {
    nb::list all;
    for (const nn::LayerDef& def : nn::all_layers())
      all.append(nb::make_tuple(definition(def), nn::sized_by_input(def), wraps_layers(def)));
    return all;
  });
  m.def("make_layer", &make_layer, nb::arg("name"), nb::arg("settings"), nb::arg("inputs").none());
  m.def("wrap_layer", [](const std::string& name, nb::dict settings, const nn::Layer& inner) {
    const nn::LayerDef& def = nn::layer_def(name);
    return wrapped(def, config_of(def, settings), inner);
  });
  m.def("sequential", [](std::vector<nn::Layer> layers) -> nn::Layer { return nn::Sequential(std::move(layers)); });
  m.def("recurrent",
        [](nb::handle cell) -> nn::Layer { return nn::Recurrent(std::make_shared<const PythonCell>(cell)); });
  m.def(
      "python_layer",
      [](nb::handle module, nb::handle inputs) {
        std::optional<Structure> structure;
        if (!inputs.is_none()) structure = nb::cast<Structure>(inputs);
        return nn::Layer(std::make_shared<const PythonModule>(module, std::move(structure)));
      },
      nb::arg("module"), nb::arg("inputs").none());
  // Which of the leaves, whose shapes these are, the lengths are of.
  m.def("timed_input", [](const std::vector<std::vector<std::int64_t>>& shapes) {
    Tree<ValueType> types;
    for (std::size_t i = 0; i < shapes.size(); ++i)
      types.set(std::to_string(i), ValueType{DType::F32, Shape(shapes[i])});
    return data::timed_input(types);
  });
  m.def(
      "layer_norm",
      [](nb::handle x, nb::handle weight, nb::handle bias, double epsilon) {
        return tracer(nn::layer_norm(to_value(x, "layer_norm"), to_value(weight, "layer_norm"),
                                     to_value(bias, "layer_norm"), epsilon));
      },
      nb::arg("x").none(), nb::arg("weight").none(), nb::arg("bias").none(), nb::arg("epsilon"));
  m.def(
      "fold_in", [](nb::handle seed, const std::string& name) { return seed_object(nn::fold_in(seed_of(seed), name)); },
      nb::arg("seed").none(), nb::arg("name"));
  const auto shape = [](nb::handle dims) { return Shape(nb::cast<std::vector<std::int64_t>>(dims)); };
  m.def(
      "uniform",
      [shape](nb::handle seed, nb::handle dims, nb::handle dtype, double low, double high) {
        return to_python(nn::uniform(seed_of(seed), shape(dims), dtype_of_python(dtype), low, high));
      },
      nb::arg("seed").none(), nb::arg("shape"), nb::arg("dtype").none(), nb::arg("low"), nb::arg("high"));
  m.def(
      "normal",
      [shape](nb::handle seed, nb::handle dims, nb::handle dtype, double stddev) {
        return to_python(nn::normal(seed_of(seed), shape(dims), dtype_of_python(dtype), stddev));
      },
      nb::arg("seed").none(), nb::arg("shape"), nb::arg("dtype").none(), nb::arg("stddev"));
  m.def(
      "glorot_uniform",
      [shape](nb::handle seed, nb::handle dims, nb::handle dtype) {
        return to_python(nn::glorot_uniform(seed_of(seed), shape(dims), dtype_of_python(dtype)));
      },
      nb::arg("seed").none(), nb::arg("shape"), nb::arg("dtype").none());
  m.def(
      "orthogonal",
      [shape](nb::handle seed, nb::handle dims, nb::handle dtype) {
        return to_python(nn::orthogonal(seed_of(seed), shape(dims), dtype_of_python(dtype)));
      },
      nb::arg("seed").none(), nb::arg("shape"), nb::arg("dtype").none());
}

void bind_losses(nb::module_& m) {
  nb::class_<losses::Loss>(m, "Loss")
      .def_prop_ro("name", &losses::Loss::name)
      .def_prop_ro("has_classes", &losses::Loss::has_classes)
      .def_prop_ro("compares_sequences", &losses::Loss::compares_sequences)
      .def_prop_ro("distribution",
                   [](const losses::Loss& loss) -> nb::object {
                     const losses::Distribution* distribution = loss.distribution();
                     if (distribution == nullptr) return nb::none();
                     nb::list widths;
                     for (const auto& statistic : distribution->statistics) widths.append(statistic.is_width);
                     return nb::make_tuple(distribution->num_outputs, distribution->point, widths);
                   })
      .def_prop_ro("has_bounded_targets", [](const losses::Loss& loss) { return loss.targets().is_bounded(); })
      .def(
          "statistics",
          [](const losses::Loss& loss, nb::handle prediction) {
            return to_dicts(loss.statistics(to_value(prediction, "loss")));
          },
          nb::arg("prediction"))
      .def(
          "apply",
          [](const losses::Loss& loss, nb::handle prediction, nb::handle target, nb::object samples, nb::object classes,
             nb::object lengths) {
            const Value p = to_value(prediction, "loss"), t = to_value(target, "loss");
            if (samples.is_none() && classes.is_none() && lengths.is_none()) return tracer(loss(p, t));
            losses::Weights weights;
            if (!samples.is_none()) weights.samples = cast(to_value(samples, "sample_weights"), p.dtype());
            if (!classes.is_none()) weights.classes = cast(to_value(classes, "class_weights"), p.dtype());
            if (!lengths.is_none()) weights.lengths = cast(to_value(lengths, "lengths"), DType::I32);
            return tracer(loss(p, t, weights).loss);
          },
          nb::arg("prediction"), nb::arg("target"), nb::arg("samples").none(), nb::arg("classes").none(),
          nb::arg("lengths").none());
  m.def("loss_definitions", [] { return definitions(losses::all_losses()); });
  m.def("make_loss",
        [](const std::string& name, nb::dict settings) { return losses::make_loss(name, settings_of(settings)); });
  m.def("python_loss", [](nb::callable fn, const std::string& name) {
    return losses::Loss(losses::Loss::Function([fn = shared(fn)](Value prediction, Value target) {
                          const GilAcquired gil;
                          const ScopeGuard scope;
                          return to_value(nb::handle(fn.get())(tracer(prediction), tracer(target)), "loss");
                        }),
                        name);
  });
}

}  // namespace

void bind_modules(nb::module_& m) {
  bind_layers(m);
  bind_losses(m);
}

}  // namespace hotloop::python
