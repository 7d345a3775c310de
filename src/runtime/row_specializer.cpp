#include "runtime/row_specializer.h"

#include "ir/resize.h"
#include "schedule/desugar.h"

namespace hotloop::runtime {

RowSpecializer::RowSpecializer(const Graph& graph, const std::vector<int>& batch_axes)
    : graph_(desugar(graph)), axes_(*graph_, batch_axes), class_(variable_batch_class(*graph_, axes_, batch_axes)) {
  for (const Value& v : graph_->outputs()) output_axes_.push_back(axes_.axis_in(v, class_));
}

std::shared_ptr<const Graph> RowSpecializer::with_rows(std::int64_t rows) const {
  return ir::resized(*graph_, [&](Value v) {
    Shape shape = v.shape();
    for (int axis = 0; axis < v.rank(); ++axis)
      if (axes_.axis_class(v, axis) == class_) shape[axis] = rows;
    return shape;
  });
}

}  // namespace hotloop::runtime
