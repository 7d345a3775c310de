// What each op computes at a point of a Map (map_builder.h), from what its operands are there.
#include <optional>
#include <vector>

#include "core/reshape_groups.h"
#include "hotloop/error.h"
#include "ir/op_def.h"
#include "schedule/map_builder.h"

namespace hotloop {

using ir::OpKind;
using ir::ScalarOp;
using kernel::Affine;

int MapBuilder::emit_clamped(Value index_value, const Index& index, int predicate, std::int64_t high) {
  const DType d = index_value.dtype();
  const int raw = emit(index_value, index, predicate);
  const int low = op(ScalarOp::Max, d, raw, constant(d, 0));
  // A dtype that does not reach `high` is limited to its last number, which constant() makes of it.
  return op(ScalarOp::Min, d, low, constant(d, static_cast<double>(high)));
}

std::vector<kernel::Indirect> MapBuilder::starts_of(const Node& node, std::size_t first, const Shape& part,
                                                    const Storage& whole, const Index& index, int predicate) {
  std::vector<kernel::Indirect> indirect;
  const int lanes = node.operands.size() > first ? node.operands[first].rank() : 0;
  const Index lane(index.begin(), index.begin() + lanes);
  for (int i = lanes; i < part.rank(); ++i) {
    const std::int64_t room = node.operands[0].shape()[i] - part[i];
    if (room == 0) continue;
    const Value start = node.operands[first + static_cast<std::size_t>(i - lanes)];
    indirect.push_back(
        {emit_clamped(start, lane, lanes > 0 ? predicate : -1, room), whole.strides[static_cast<std::size_t>(i)]});
  }
  return indirect;
}

int MapBuilder::emit_compute(Value v, const Index& index, int predicate) {
  const Node& node = *v.node;
  if (short_dots_ != nullptr)
    if (const auto it = short_dots_->find(key_of(v)); it != short_dots_->end())
      return emit_short_dot(it->second, index, predicate);
  const auto& in = node.operands;
  const auto axis_of = [](std::int64_t a) { return static_cast<std::size_t>(a); };
  switch (node.op->kind) {
    case OpKind::Elementwise: {
      int args[3] = {-1, -1, -1};
      HOTLOOP_CHECK(in.size() <= 3 && node.op->scalar != ScalarOp::None, "elementwise op " + node.op->name);
      for (std::size_t i = 0; i < in.size(); ++i) args[i] = emit(in[i], index, predicate);
      return op(node.op->scalar, v.dtype(), args[0], args[1], args[2]);
    }
    case OpKind::StopGradient: return emit(in[0], index, predicate);
    case OpKind::Constant: {
      const auto storage = context_.find(v);
      return load(*storage, v.dtype(), index, predicate);
    }
    case OpKind::Iota: {
      const int axis = static_cast<int>(node.attrs.integer("axis"));
      return integer_index(context_.global_index(v, axis, index[axis_of(axis)]), v.dtype());
    }
    case OpKind::Extent: {
      const kernel::Extent e = context_.total_rows(in[0], static_cast<int>(node.attrs.integer("axis")));
      return e.is_static() ? constant(v.dtype(), static_cast<double>(e.bound))
                           : integer_index(Affine::of(e.var), v.dtype());
    }
    case OpKind::RandomBits: return emit_random_bits(v, index, predicate);
    case OpKind::Transpose:
    case OpKind::Broadcast:
    case OpKind::Slice:
    case OpKind::Reverse:
    case OpKind::Windows:
    case OpKind::Reshape: return emit_view(v, index, predicate);
    case OpKind::Pad: {
      const auto& low = node.attrs.integers("low");
      Index source;
      int inside = predicate;
      for (std::size_t i = 0; i < index.size(); ++i) {
        const int axis = static_cast<int>(i);
        source.push_back(index[i] + Affine(-low[i]));
        const std::int64_t n = in[0].shape()[axis];
        if (n == v.shape()[axis]) continue;
        if (const Affine& known = source.back(); known.terms.empty()) {
          if (known.constant < 0 || known.constant >= n) return emit(in[1], {}, predicate);
          continue;
        }
        const auto both = [&](ScalarOp test, std::int64_t bound) {
          const int holds = compare_index(test, source.back(), bound, v.shape()[axis]);
          inside = inside < 0 ? holds : op(ScalarOp::And, DType::Bool, inside, holds);
        };
        // A slice of what was padded may reach over one end, or over none.
        const auto [first, last] = range_of(source.back());
        if (low[i] > 0 && first < 0) both(ScalarOp::Ge, 0);
        if (low[i] + n < v.shape()[axis] && last >= n) both(ScalarOp::Lt, n);
      }
      const int value = emit(in[0], source, inside);
      if (inside == predicate) return value;
      return op(ScalarOp::Select, v.dtype(), inside, value, emit(in[1], {}, predicate));
    }
    case OpKind::Reduce: {  // over axes of extent 1, or of a short row
      if (context_.is_short_row(in[0])) return emit_short_reduction(v, index, predicate);
      Index source = index;
      for (std::int64_t a : node.attrs.integers("axes")) {
        HOTLOOP_CHECK(in[0].shape()[static_cast<int>(a)] == 1, "a reduction is not in memory");
        source.insert(source.begin() + a, Affine(0));
      }
      return emit(in[0], source, predicate);
    }
    case OpKind::Concat: {
      const auto axis = static_cast<int>(node.attrs.integer("axis"));
      const Affine along = index[axis_of(axis)];
      const auto [first, last] = range_of(along);
      std::int64_t begin = 0;
      int result = -1;
      for (const Value& piece : in) {
        const std::int64_t n = piece.shape()[axis], end = begin + n;
        if (first < end && last >= begin) {
          int inside = predicate, follows = -1;
          const auto test = [&](ScalarOp which, std::int64_t bound) {
            const int holds = compare_index(which, along, bound, v.shape()[axis]);
            inside = inside < 0 ? holds : op(ScalarOp::And, DType::Bool, inside, holds);
            return holds;
          };
          if (first < begin) follows = test(ScalarOp::Ge, begin);
          if (last >= end) test(ScalarOp::Lt, end);
          Index source = index;
          source[axis_of(axis)] = n == 1 ? Affine(0) : along + Affine(-begin);
          const int value = emit(piece, source, inside);
          result = result < 0 ? value : op(ScalarOp::Select, v.dtype(), follows, value, result);
        }
        begin = end;
      }
      HOTLOOP_CHECK(result >= 0 || predicate >= 0, "an index beyond the ends of a concatenation");
      return result >= 0 ? result : constant(v.dtype(), 0);  // no point asks for it
    }
    case OpKind::Gather: {
      const std::size_t axis = axis_of(node.attrs.integer("axis"));
      const Value x = in[0], indices = in[1];
      const auto storage = context_.find(x);
      HOTLOOP_CHECK(storage.has_value(), "gather reads memory");
      const int lanes = ir::num_lane_axes(node.attrs);
      const auto index_rank = static_cast<std::ptrdiff_t>(indices.rank() - lanes);
      const auto first = index.begin() + static_cast<std::ptrdiff_t>(axis);
      Index which(index.begin(), index.begin() + lanes);
      which.insert(which.end(), first, first + index_rank);
      const int at = emit_clamped(indices, which, predicate, x.shape()[static_cast<int>(axis)] - 1);
      Index source(index.begin(), first);
      source.push_back(Affine(0));
      source.insert(source.end(), first + index_rank, index.end());
      return load(*storage, v.dtype(), source, predicate, {{at, storage->strides[axis]}});
    }
    case OpKind::DynamicSlice: {
      const auto storage = context_.find(in[0]);
      HOTLOOP_CHECK(storage.has_value(), "dynamic_slice reads memory");
      return load(*storage, v.dtype(), index, predicate, starts_of(node, 1, v.shape(), *storage, index, predicate));
    }
    default:
      throw InternalError(
          __FILE__, __LINE__,
          "op " + node.op->name + " of type " + v.type().str() + " has no expression and is not in memory");
  }
}

namespace {

// Index into the operand of a strided view; nothing for a reshape that merges axes.
std::optional<std::vector<Affine>> index_through(const Node& node, const std::vector<Affine>& index) {
  using Index = std::vector<Affine>;
  const Value v{const_cast<Node*>(&node), 0};
  const auto& in = node.operands;
  const auto axis_of = [](std::int64_t a) { return static_cast<std::size_t>(a); };
  switch (node.op->kind) {
    case OpKind::Transpose: {
      const auto& p = node.attrs.integers("permutation");
      Index source(index.size());
      for (std::size_t i = 0; i < index.size(); ++i) source[axis_of(p[i])] = index[i];
      return source;
    }
    case OpKind::Broadcast: {
      Index source;
      const auto& axes = node.attrs.integers("axes");
      for (int i = 0; i < in[0].rank(); ++i) source.push_back(index[axis_of(axes[static_cast<std::size_t>(i)])]);
      return source;
    }
    case OpKind::Slice: {
      const auto& start = node.attrs.integers("start");
      const auto& step = node.attrs.integers("step");
      Index source;
      for (std::size_t i = 0; i < index.size(); ++i)
        source.push_back(index[i] * (step.empty() ? 1 : step[i]) + Affine(start[i]));
      return source;
    }
    case OpKind::Reverse: {
      Index source = index;
      for (std::int64_t a : node.attrs.integers("axes"))
        source[axis_of(a)] = index[axis_of(a)] * -1 + Affine(v.shape()[static_cast<int>(a)] - 1);
      return source;
    }
    case OpKind::Windows: {
      const std::size_t axis = axis_of(node.attrs.integer("axis"));
      Index source = index;
      source[axis] = index[axis] * node.attrs.integer("stride") + index[axis + 1] * node.attrs.integer("dilation");
      source.erase(source.begin() + static_cast<std::ptrdiff_t>(axis) + 1);
      return source;
    }
    case OpKind::Reshape: {
      // Affine when no group merges axes, or at one number; else the operand must be a view in memory.
      Index source(static_cast<std::size_t>(in[0].rank()), Affine(0));
      bool affine = true;
      for (const ReshapeGroup& g : reshape_groups(in[0].shape(), v.shape())) {
        std::int64_t run = 1;
        Affine sum;
        for (std::size_t i = g.out.size(); i-- > 0;) {
          sum = sum + index[axis_of(g.out[i])] * run;
          run *= v.shape()[g.out[i]];
        }
        if (g.in.size() == 1) {
          source[axis_of(g.in[0])] = sum;
          continue;
        }
        affine = affine && sum.terms.empty();
        for (std::size_t i = g.in.size(); affine && i-- > 0;) {
          const std::int64_t n = in[0].shape()[g.in[i]];
          source[axis_of(g.in[i])] = Affine(sum.constant % n);
          sum.constant /= n;
        }
      }
      if (affine) return source;
      return std::nullopt;
    }
    default: throw InternalError(__FILE__, __LINE__, "op " + node.op->name + " is no view");
  }
}

}  // namespace

int MapBuilder::emit_view(Value v, const Index& index, int predicate) {
  const Node& node = *v.node;
  const Value operand = node.operands[0];
  const bool crosses = context_.crosses_tiles(node);
  Index at = index;
  for (int i = 0; crosses && i < v.rank(); ++i)
    at[static_cast<std::size_t>(i)] = context_.global_index(v, i, at[static_cast<std::size_t>(i)]);
  auto source = index_through(node, at);
  if (!source) {
    const auto storage = context_.find(v);
    HOTLOOP_CHECK(storage.has_value(), "a merging reshape is not in memory");
    return load(*storage, v.dtype(), index, predicate);
  }
  for (int i = 0; crosses && i < operand.rank(); ++i)
    (*source)[static_cast<std::size_t>(i)] = context_.local_index(operand, i, (*source)[static_cast<std::size_t>(i)]);
  return emit(operand, *source, predicate);
}

int MapBuilder::emit_random_bits(Value v, const Index& index, int predicate) {
  const Value key = v.node->operands[0];
  const int lanes = key.rank() - 1;
  Affine flat;
  std::int64_t stride = 1;
  for (int i = v.rank() - 1; i >= lanes; --i) {
    flat = flat + context_.global_index(v, i, index[static_cast<std::size_t>(i)]) * stride;
    stride *= v.shape()[i];
  }
  const auto key_word = [&](int i) {
    Index at(index.begin(), index.begin() + lanes);
    at.emplace_back(i);
    return emit(key, at, lanes > 0 ? predicate : -1);
  };
  const int key0 = key_word(0), key1 = key_word(1);
  return op(ScalarOp::Random, DType::U32, integer_index(flat, DType::U32), key0, key1);
}

}  // namespace hotloop
