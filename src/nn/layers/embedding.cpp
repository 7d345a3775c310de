#include "hotloop/ops.h"
#include "nn/parameters.h"
#include "nn/registry.h"

namespace hotloop::nn {
namespace {

class EmbeddingModule : public BuiltInModule {
 public:
  // feature >= 0: the ids are that one of the input's last axis, whose others are kept.
  EmbeddingModule(std::int64_t count, std::int64_t outputs, std::int64_t padding, std::int64_t feature)
      : count_(count), outputs_(outputs), padding_(padding), feature_(feature) {
    if (count <= 0) throw UserError("embedding", "count must be positive", std::to_string(count));
    if (outputs <= 0) throw UserError("embedding", "outputs must be positive", std::to_string(outputs));
    if (padding >= count)
      throw UserError("embedding", "padding must be below " + std::to_string(count), std::to_string(padding),
                      "-1 for none");
  }

  Tree<Array> init(const Seed& seed, DType dtype, Init init) const override {
    const Shape shape{count_, outputs_};
    Array weight = init == Init::Keras ? uniform(fold_in(seed, "weight"), shape, dtype, -0.05, 0.05)
                                       : normal(fold_in(seed, "weight"), shape, dtype);
    if (padding_ >= 0)
      for (std::int64_t i = 0; i < outputs_; ++i) weight.set(padding_ * outputs_ + i, 0);
    return {{"weight", weight}};
  }

  Value apply(const Tree<Value>& params, Value x, Context&) const override {
    check_parameters("embedding", params, {{"weight", {count_, outputs_}}});
    const Value weight = params["weight"];
    if (feature_ < 0) return rows_of(weight, x);
    const int last = x.rank() - 1;
    if (last < 0 || feature_ >= x.shape()[last])
      throw UserError("embedding", "the input must have feature " + std::to_string(feature_) + " on its last axis",
                      x.type().str());
    const Value embedded = rows_of(weight, take(x, last, feature_));
    const std::int64_t after = feature_ + 1;
    std::vector<Value> parts;
    if (feature_ > 0) parts.push_back(narrow(x, last, 0, feature_));
    if (after < x.shape()[last]) parts.push_back(narrow(x, last, after, x.shape()[last] - after));
    parts.push_back(embedded);
    return parts.size() == 1 ? embedded : concat(parts, last);
  }

 private:
  Value rows_of(Value weight, Value ids) const {
    // Integers as they are: cut off at 32 bits they would name other rows.
    if (!is_integer(ids.dtype())) ids = cast(ids, DType::I32);
    const Value rows = gather(weight, ids, 0);
    if (padding_ < 0) return rows;
    const Value is_padding = equal(ids, like(ids, static_cast<double>(padding_)));
    return select(broadcast_to(expand_dims(is_padding, -1), rows.shape()), stop_gradient(rows), rows);
  }

  std::int64_t count_, outputs_, padding_, feature_;
};

}  // namespace

Embedding::Embedding(std::int64_t count, std::int64_t outputs, std::int64_t padding)
    : Layer(EmbeddingModule(count, outputs, padding, -1)) {}

Layer Embedding::of_feature(std::int64_t feature, std::int64_t count, std::int64_t outputs, std::int64_t padding) {
  if (feature < 0) throw UserError("embedding", "feature must not be negative", std::to_string(feature));
  return EmbeddingModule(count, outputs, padding, feature);
}

std::vector<LayerDef> layers_embedding() {
  return {
      {"embedding",
       "a trained row for each id: (...) -> (..., units), or for one feature (..., features) -> (..., features - 1 + "
       "units)",
       {{"count", std::int64_t{0},
         "number of ids: 0 to count - 1; others are not checked, which would cost a look at each, but taken for the "
         "nearest",
         true},
        {"units", std::int64_t{0}, "numbers in a row", true},
        {"padding", std::int64_t{-1}, "id whose row stays zero; negative: none"},
        {"feature", std::int64_t{-1}, "the input's feature that holds the ids; negative: all of the input"}},
       [](const Config& config, const ValueType&) -> Layer {
         const std::int64_t count = config.integer("count"), units = config.integer("units");
         const std::int64_t padding = config.integer("padding"), feature = config.integer("feature");
         return feature < 0 ? Layer(Embedding(count, units, padding))
                            : Embedding::of_feature(feature, count, units, padding);
       }}};
}

}  // namespace hotloop::nn
