#include "deploy/rtneural.h"

#include <algorithm>
#include <cmath>

#include "core/print_number.h"
#include "hotloop/error.h"
#include "hotloop/rtneural.h"
#include "io/files.h"
#include "io/json.h"

namespace hotloop {
namespace {

using Json = nlohmann::json;

constexpr std::initializer_list<const char*> activations = {"", "tanh", "relu", "sigmoid", "softmax", "elu"};

// Numbers in nested lists of one shape, rows first.
struct Numbers {
  Shape shape;
  std::vector<double> values;
};

std::string joined(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts) out += (out.empty() ? "" : "; ") + text;
  return out;
}

class Reader {
 public:
  Reader(std::string source, DType dtype) : source_(std::move(source)), dtype_(dtype) {}

  RtneuralFile read(std::string_view text) {
    Json file;
    try {
      file = io::parse_json<Json>(text);
    } catch (const Json::exception& e) {
      throw UserError("rtneural", source_ + " must be JSON", e.what(),
                      "a file that RTNeural's model_utils.save_model wrote");
    }
    if (!file.is_object() || !file.contains("in_shape") || !file.contains("layers"))
      fail("must be an object with in_shape and layers", file.is_object() ? "an object without them" : file.type_name(),
           "a file that RTNeural's model_utils.save_model wrote");
    out_.features = features_ = last_number(file["in_shape"], "in_shape");
    if (!file["layers"].is_array()) fail("layers must be a list", file["layers"].type_name());
    // Before any weights, whose shapes say nothing behind a layer that cannot be read.
    std::vector<std::string> problems;
    for_each_layer(file["layers"], [&](const Json& layer) { look_at(layer, problems); });
    if (!problems.empty())
      throw UserError("rtneural", "every layer must be one that can be read from " + source_, joined(problems),
                      "dense, gru, lstm, conv1d, prelu, batchnorm and activation");
    for_each_layer(file["layers"], [&](const Json& layer) {
      read_layer(layer);
      check_finite();
    });
    if (out_.layers.empty()) fail("there must be a layer", "none");
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(const std::string& requirement, const std::string& received,
                         const std::string& remedy = "") const {
    throw UserError("rtneural", source_ + ": " + requirement, received, remedy);
  }

  // Of the layer that was added or changed last: a number can be finite in the file and not in the dtype.
  void check_finite() const {
    if (out_.layers.empty()) return;
    out_.layers.back().params.for_each([&](const std::string& name, const Array& values) {
      for (std::int64_t i = 0; i < values.size(); ++i)
        if (!std::isfinite(values.at(i)))
          fail(where_ + ": " + name + " must be finite in " + std::string(name_of(dtype_)), print_number(values.at(i)),
               dtype_ == DType::F32 ? "weights within the range of f32, or f64" : "weights that are finite");
    });
  }

  // With where_ set.
  template <class Visit> void for_each_layer(const Json& layers, const Visit& visit) {
    int number = 0;
    for (const Json& layer : layers) {
      where_ = "layer " + std::to_string(++number);
      if (!layer.is_object() || !layer.contains("type") || !layer["type"].is_string())
        fail(where_ + " must be an object with a type", io::shown_json(layer));
      where_ += " (" + layer["type"].get<std::string>() + ")";
      visit(layer);
    }
  }

  // What of a layer cannot be read.
  void look_at(const Json& layer, std::vector<std::string>& problems) const {
    const std::string type = layer["type"];
    const auto is_one_of = [](const std::string& name, std::initializer_list<const char*> known) {
      return std::ranges::find(known, name) != known.end();
    };
    if (!is_one_of(type,
                   {"dense", "time-distributed-dense", "conv1d", "lstm", "gru", "prelu", "batchnorm", "activation"}))
      return problems.push_back(where_);
    // RTNeural's recurrent layers do not read it; a file that asks for another function is not what RTNeural computes.
    const bool reads = is_one_of(type, {"lstm", "gru"})
                           ? is_one_of(activation_of(layer), {"", "tanh"})
                           : is_one_of(type, {"prelu", "batchnorm"}) || is_one_of(activation_of(layer), activations);
    if (!reads) problems.push_back(where_ + " with activation " + activation_of(layer));
    if (type != "conv1d") return;
    // RTNeural's is causal and takes every step, whatever a file says.
    if (layer.contains("strides") && last_number(layer["strides"], "strides") != 1)
      problems.push_back(where_ + " with strides " + io::shown_json(layer["strides"]));
    if (layer.contains("padding") && layer["padding"] != "causal")
      problems.push_back(where_ + " with padding " + io::shown_json(layer["padding"]));
  }

  void read_layer(const Json& layer) {
    const std::string type = layer["type"];
    if (type == "conv1d")
      conv1d(layer);
    else if (type == "lstm")
      lstm(layer);
    else if (type == "gru")
      gru(layer);
    else if (type == "prelu")
      prelu(layer);
    else if (type == "batchnorm")
      batchnorm(layer);
    else if (type != "activation")
      dense(layer);
    if (type == "activation" || type == "dense" || type == "time-distributed-dense" || type == "conv1d")
      activation(layer);
  }

  // ---- layers; RTNeural has the weights of Keras

  void dense(const Json& layer) {
    const std::int64_t units = last_number(member(layer, "shape"), "shape");
    const bool bias = num_weights(layer) > 1;
    Tree<Array> params = {{"weight", transposed(weights(layer, 0, {features_, units}))}};
    if (bias) params.set("bias", vector(weights(layer, 1, {units})));
    add("linear", {{"units", units}, {"bias", bias}}, std::move(params), units);
  }

  void conv1d(const Json& layer) {
    const std::int64_t filters = last_number(member(layer, "shape"), "shape"),
                       kernel = last_number(member(layer, "kernel_size"), "kernel_size"),
                       dilation = last_number(member(layer, "dilation"), "dilation"),
                       groups = layer.contains("groups") ? last_number(layer["groups"], "groups") : 1;
    if (groups < 1 || features_ % groups != 0)
      fail(where_ + ": groups must divide the features", std::to_string(groups));
    const std::int64_t inputs = features_ / groups;
    const Numbers given = weights(layer, 0, {kernel, inputs, filters});
    Array weight(dtype_, {filters, inputs, kernel});
    for (std::int64_t k = 0; k < kernel; ++k)
      for (std::int64_t i = 0; i < inputs; ++i)
        for (std::int64_t o = 0; o < filters; ++o)
          weight.set((o * inputs + i) * kernel + k, at(given, (k * inputs + i) * filters + o));
    add("conv1d",
        {{"filters", filters}, {"kernel", kernel}, {"dilation", dilation}, {"groups", groups}, {"bias", true}},
        {{"weight", weight}, {"bias", vector(weights(layer, 1, {filters}))}}, filters);
  }

  void lstm(const Json& layer) {
    const std::int64_t hidden = last_number(member(layer, "shape"), "shape"), rows = 4 * hidden;
    add("lstm", {{"hidden", hidden}},
        {{"weight_ih_l0", transposed(weights(layer, 0, {features_, rows}))},
         {"weight_hh_l0", transposed(weights(layer, 1, {hidden, rows}))},
         {"bias_ih_l0", vector(weights(layer, 2, {rows}))},
         {"bias_hh_l0", Array::zeros(dtype_, {rows})}},
        hidden);
  }

  void gru(const Json& layer) {
    const std::int64_t hidden = last_number(member(layer, "shape"), "shape"), rows = 3 * hidden;
    const auto reordered = [&](const Numbers& n) { return gates_r_z_n(n, hidden); };
    const Numbers both = reordered(weights(layer, 2, {2, rows}));
    const auto bias = [&](std::int64_t which) {
      Array out(dtype_, {rows});
      for (std::int64_t i = 0; i < rows; ++i) out.set(i, at(both, which * rows + i));
      return out;
    };
    add("gru", {{"hidden", hidden}},
        {{"weight_ih_l0", transposed(reordered(weights(layer, 0, {features_, rows})))},
         {"weight_hh_l0", transposed(reordered(weights(layer, 1, {hidden, rows})))},
         {"bias_ih_l0", bias(0)},
         {"bias_hh_l0", bias(1)}},
        hidden);
  }

  void prelu(const Json& layer) {
    Numbers given = read_numbers(weight(layer, 0), where_ + ": weights[0]");
    const std::size_t count = given.values.size();
    if (count != 1 &&
        (count != static_cast<std::size_t>(features_) || given.shape[given.shape.rank() - 1] != features_))
      fail(where_ + ": weights[0] must be one number, or " + std::to_string(features_), given.shape.str());
    given.values.resize(static_cast<std::size_t>(features_), given.values[0]);
    add("prelu", {}, {{"weight", vector({{features_}, given.values})}}, features_);
  }

  // A factor and a term for each feature. The weights of dense or conv1d before it take them in; else it is a convolution of its own, which
  // sees one step and one feature.
  void batchnorm(const Json& layer) {
    const bool joins = !out_.layers.empty() &&
                       (out_.layers.back().config.type == "linear" || out_.layers.back().config.type == "conv1d");
    if (!joins)
      add("conv1d", {{"filters", features_}, {"kernel", std::int64_t{1}}, {"groups", features_}, {"bias", true}},
          {{"weight", Array::full(dtype_, {features_, 1, 1}, 1)}, {"bias", Array::zeros(dtype_, {features_})}},
          features_);
    const bool affine = num_weights(layer) > 2;
    const std::size_t first = affine ? 2 : 0;
    const Numbers mean = weights(layer, first, {features_}), variance = weights(layer, first + 1, {features_});
    const Json& epsilon = member(layer, "epsilon");
    if (!epsilon.is_number()) fail(where_ + ": epsilon must be a number", io::shown_json(epsilon));
    RtneuralLayer& before = out_.layers.back();
    Array &weight = before.params["weight"], bias = Array::zeros(dtype_, {features_});
    const std::int64_t row = weight.size() / features_;
    for (std::int64_t f = 0; f < features_; ++f) {
      const double spread = at(variance, f) + epsilon.get<double>();
      if (!(spread > 0))
        fail(where_ + ": variance + epsilon must be positive",
             print_number(spread) + " of feature " + std::to_string(f));
      const double gain = affine ? at(weights(layer, 0, {features_}), f) : 1;
      const double factor = gain / std::sqrt(spread);
      const double old = before.params.has("bias") ? before.params["bias"].at(f) : 0;
      bias.set(f, (old - at(mean, f)) * factor + (affine ? at(weights(layer, 1, {features_}), f) : 0));
      for (std::int64_t i = f * row; i < (f + 1) * row; ++i) weight.set(i, weight.at(i) * factor);
    }
    before.params.set("bias", bias);
    before.config.settings["bias"] = true;
  }

  void activation(const Json& layer) {
    const std::string name = activation_of(layer);
    if (!name.empty()) add(name, {}, {}, features_);
  }

  void add(const std::string& type, std::map<std::string, Setting> settings, Tree<Array> params, std::int64_t outputs) {
    out_.layers.push_back({{type, std::move(settings)}, features_, std::move(params)});
    features_ = outputs;
  }

  // ---- numbers

  static double at(const Numbers& n, std::int64_t i) { return n.values[static_cast<std::size_t>(i)]; }

  Array vector(const Numbers& n) const {
    Array out(dtype_, n.shape);
    for (std::int64_t i = 0; i < out.size(); ++i) out.set(i, at(n, i));
    return out;
  }
  Array transposed(const Numbers& n) const {
    const std::int64_t rows = n.shape[0], columns = n.shape[1];
    Array out(dtype_, {columns, rows});
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < columns; ++j) out.set(j * rows + i, at(n, i * columns + j));
    return out;
  }
  // Columns z, r, n as r, z, n.
  static Numbers gates_r_z_n(Numbers n, std::int64_t hidden) {
    for (auto row = n.values.begin(); row != n.values.end(); row += 3 * hidden)
      std::swap_ranges(row, row + hidden, row + hidden);
    return n;
  }

  const Json& member(const Json& layer, const std::string& key) const {
    if (!layer.contains(key)) fail(where_ + " must have " + key, "none");
    return layer[key];
  }
  std::string activation_of(const Json& layer) const {
    if (!layer.contains("activation")) return "";
    if (!layer["activation"].is_string())
      fail(where_ + ": activation must be a text", io::shown_json(layer["activation"]));
    return layer["activation"];
  }
  // A positive integer, or the last of a list.
  std::int64_t last_number(const Json& json, const std::string& what) const {
    const Json& number = json.is_array() && !json.empty() ? json.back() : json;
    if (!number.is_number_integer() || number.get<std::int64_t>() <= 0 || number.get<std::int64_t>() > 1 << 20)
      fail((where_.empty() ? "" : where_ + ": ") + what + " must end in a positive integer", io::shown_json(json));
    return number;
  }
  std::size_t num_weights(const Json& layer) const {
    const Json& all = member(layer, "weights");
    return all.is_array() ? all.size() : 0;
  }
  const Json& weight(const Json& layer, std::size_t index) const {
    if (index >= num_weights(layer))
      fail(where_ + " must have at least " + std::to_string(index + 1) + " arrays in weights",
           std::to_string(num_weights(layer)));
    return layer["weights"][index];
  }
  Numbers weights(const Json& layer, std::size_t index, const Shape& shape) const {
    const std::string what = where_ + ": weights[" + std::to_string(index) + "]";
    Numbers found = read_numbers(weight(layer, index), what);
    if (found.shape != shape) fail(what + " must have the shape " + shape.str(), found.shape.str());
    return found;
  }
  Numbers read_numbers(const Json& json, const std::string& what) const {
    Numbers out;
    std::vector<std::int64_t> extents;
    for (const Json* inner = &json; inner->is_array() && !inner->empty() && extents.size() < 4; inner = &(*inner)[0])
      extents.push_back(static_cast<std::int64_t>(inner->size()));
    append(json, extents, 0, what, out.values);
    out.shape = Shape(extents);
    return out;
  }
  void append(const Json& json, const std::vector<std::int64_t>& extents, std::size_t depth, const std::string& what,
              std::vector<double>& values) const {
    if (depth == extents.size()) {
      if (!json.is_number()) fail(what + " must be numbers", io::shown_json(json));
      values.push_back(json.get<double>());
      return;
    }
    if (!json.is_array() || static_cast<std::int64_t>(json.size()) != extents[depth])
      fail(what + " must be rows of equal length",
           json.is_array() ? std::to_string(extents[depth]) + " and " + std::to_string(json.size())
                           : io::shown_json(json));
    for (const Json& inner : json) append(inner, extents, depth + 1, what, values);
  }

  std::string source_, where_;
  DType dtype_;
  std::int64_t features_ = 0;  // of the layer that is read next
  RtneuralFile out_;
};

std::string toml_of(const nn::LayerConfig& layer) {
  std::string out = "[[model]]\ntype = \"" + layer.type + "\"\n";
  for (const auto& [key, value] : layer.settings)
    out += key + " = " +
           (std::holds_alternative<bool>(value) ? std::get<bool>(value) ? "true" : "false"
                                                : std::to_string(std::get<std::int64_t>(value))) +
           "\n";
  return out;
}

}  // namespace

RtneuralFile read_rtneural(std::string_view text, const std::string& source, DType dtype) {
  return Reader(source, dtype).read(text);
}

RtneuralModel parse_rtneural(std::string_view text, const std::string& source, DType dtype) {
  const RtneuralFile file = read_rtneural(text, source, dtype);
  std::vector<nn::LayerConfig> stack;
  Tree<Array> params;
  std::string toml;
  for (const RtneuralLayer& layer : file.layers) {
    if (!layer.params.empty()) params.set(std::to_string(stack.size()), layer.params);
    stack.push_back(layer.config);
    toml += (toml.empty() ? "" : "\n") + toml_of(layer.config);
  }
  return {nn::make_model(stack, {dtype, {1, 1, file.features}}), params, file.features, toml};
}

RtneuralModel load_rtneural(const std::filesystem::path& path, DType dtype) {
  return parse_rtneural(io::read_file(path, "rtneural"), path.string(), dtype);
}

}  // namespace hotloop
