#include "ode/saving.h"

#include <cmath>
#include <limits>

#include "core/print_number.h"
#include "hotloop/error.h"
#include "hotloop/ops.h"
#include "ode/interpolant.h"
#include "ops/composed/bounded_while.h"

namespace hotloop::ode {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

Value unreached(DType dtype, Shape shape, std::int64_t rows) {
  return constant(infinity, dtype, shape.with_inserted(0, rows));
}

// rows[index] = row.
Value set_row(Value rows, Value index, Value row) {
  std::vector<Value> starts = {index};
  for (int i = 0; i < row.rank(); ++i) starts.push_back(constant(0, DType::I32));
  return dynamic_update(rows, expand_dims(row, 0), starts);
}

Value element(Value x, Value index) {
  const Value starts[] = {index};
  return reshape(dynamic_slice(x, starts, {1}), {});
}

}  // namespace

Saver::Saver(const SaveAt& saveat, const Leaves& y0, Scalar t0, Scalar t1, Scalar direction, DType time_dtype,
             std::int64_t max_steps)
    : saveat_(saveat), y0_(y0), direction_(direction), time_dtype_(time_dtype), max_steps_(max_steps) {
  const bool known = t0.is_number() && t1.is_number();
  // As they will be, in the dtype of the times.
  const auto rounded = [&](double t) {
    return time_dtype == DType::F32 ? static_cast<double>(static_cast<float>(t)) : t;
  };
  maybe_passed_ = !known || saveat.ts_value.defined();
  maybe_nowhere_ = !known || rounded(t0.number()) == rounded(t1.number());
  if (!saveat.ts.empty()) {
    if (saveat.ts_value.defined()) throw UserError("ode.solve", "SaveAt takes ts as numbers or as a value", "both");
    // Of what is not known to go one way, the first two times that differ say which.
    double sign = direction.is_number() ? direction.number() : 0;
    const double first = known ? rounded(t0.number()) : 0, end = known ? rounded(t1.number()) : 0;
    Array times(time_dtype, {static_cast<std::int64_t>(saveat.ts.size())});
    for (std::size_t i = 0; i < saveat.ts.size(); ++i) {
      const double t = rounded(saveat.ts[i]);
      const auto text = [&] { return "ts[" + std::to_string(i) + "] = " + print_number(t); };
      if (std::isnan(t)) throw UserError("ode.solve", "ts must be numbers", text());
      const double later = i > 0 ? t - rounded(saveat.ts[i - 1]) : 0;
      if (sign == 0 && later != 0) sign = later > 0 ? 1 : -1;
      if (sign * later < 0)
        throw UserError("ode.solve", "ts must be sorted in the direction of integration",
                        text() + " after " + print_number(saveat.ts[i - 1]), "sort them");
      if (known && (sign * (t - first) < 0 || sign * (end - t) < 0))
        throw UserError("ode.solve", "ts must lie between t0 and t1",
                        text() + ", from " + print_number(t0.number()) + " to " + print_number(t1.number()));
      times.set(static_cast<std::int64_t>(i), t);
    }
    ts_ = constant(times);
  } else if (saveat.ts_value.defined()) {
    const Value v = saveat.ts_value;
    if (v.rank() != 1 || !is_float(v.dtype()))
      throw UserError("ode.solve", "ts must be a list of float times", v.type().str(),
                      is_float(v.dtype()) ? "reshape() it to one axis" : "cast() it to a float");
    ts_ = v.dtype() == time_dtype ? v : cast(v, time_dtype);
  }
  if (ts_.defined())
    ts_ = direction.is_number() ? (direction.number() > 0 ? ts_ : -ts_) : direction.as(time_dtype) * ts_;
}

Value Saver::to_t(Value s) const {
  return direction_.is_number() ? (direction_.number() > 0 ? s : -s) : direction_.as(time_dtype_) * s;
}

Saved Saver::start(std::size_t degree, Value start, Value end) const {
  Saved saved;
  if (ts_.defined()) {
    saved.next = constant(0, DType::I32);
    for (const Value& leaf : y0_) {
      Value rows = unreached(leaf.dtype(), leaf.shape(), ts_.shape()[0]);
      if (maybe_nowhere_) {
        const Value begin = broadcast_to(start, ts_.shape());
        Value there = bit_and(equal(ts_, begin), broadcast_to(greater_equal(start, end), ts_.shape()));
        for (int i = 0; i < leaf.rank(); ++i) there = expand_dims(there, i + 1);
        rows = select(broadcast_to(there, rows.shape()), broadcast_to(expand_dims(leaf, 0), rows.shape()), rows);
      }
      saved.at_ts.push_back(rows);
    }
  }
  if (saveat_.steps) {
    saved.step_times = unreached(time_dtype_, {}, max_steps_);
    for (const Value& leaf : y0_) saved.at_steps.push_back(unreached(leaf.dtype(), leaf.shape(), max_steps_));
  }
  if (saveat_.dense) {
    saved.starts = saved.ends = saved.lengths = unreached(time_dtype_, {}, max_steps_);
    for (std::size_t j = 0; j <= degree; ++j) {
      Leaves rows;
      for (const Value& leaf : y0_)
        rows.push_back(constant(0, leaf.dtype(), leaf.shape().with_inserted(0, max_steps_)));
      saved.coefficients.push_back(rows);
    }
    // What is evaluated where no step was taken.
    for (std::size_t i = 0; i < y0_.size(); ++i)
      saved.coefficients[0][i] = set_row(saved.coefficients[0][i], constant(0, DType::I32), y0_[i]);
  }
  return saved;
}

void Saver::save(Saved& saved, const TakenStep& step, const std::string& residuals) const {
  if (ts_.defined()) {
    std::vector<Value> init = {saved.next};
    init.insert(init.end(), saved.at_ts.begin(), saved.at_ts.end());
    const Value last = constant(static_cast<double>(ts_.shape()[0]), DType::I32);
    const auto due = [&](std::span<const Value> v) {
      const Value reached = bit_and(less(v[0], last), less_equal(element(ts_, v[0]), step.end));
      return step.keep.defined() ? bit_and(step.keep, reached) : reached;
    };
    // A step that time does not resolve has no length; the only row in it is its start.
    const Value length = maximum(step.t1 - step.t0, like(step.t0, std::numeric_limits<float>::min()));
    const auto write = [&](std::span<const Value> v) {
      const Value x = (element(ts_, v[0]) - step.t0) / length;
      const Value passed = less(element(ts_, v[0]), step.t0 - step.margin);
      std::vector<Value> next = {v[0] + 1};
      const Leaves y = interpolate(step.y0, step.result.interpolant, x);
      for (std::size_t i = 0; i < y.size(); ++i) {
        Value row = y[i];
        // What steps have passed before it came up is not there any more.
        if (maybe_passed_)
          row = select(broadcast_to(passed, row.shape()), constant(infinity, row.dtype(), row.shape()), row);
        next.push_back(set_row(v[i + 1], v[0], row));
      }
      return next;
    };
    const auto rows = ir::bounded_while("ode.solve", due, write, init, ts_.shape()[0], residuals).carry;
    saved.next = rows[0];
    saved.at_ts.assign(rows.begin() + 1, rows.end());
  }
  // A rejected step writes a row too, which the next one writes over.
  const auto kept = [&](Value value, double otherwise) {
    return step.keep.defined() ? select(step.keep, value, constant(otherwise, value.dtype(), value.shape())) : value;
  };
  if (saveat_.steps) {
    saved.step_times = set_row(saved.step_times, step.index, kept(step.end, infinity));
    for (std::size_t i = 0; i < step.y1.size(); ++i)
      saved.at_steps[i] = set_row(saved.at_steps[i], step.index, kept(step.y1[i], infinity));
  }
  if (saveat_.dense) {
    saved.starts = set_row(saved.starts, step.index, kept(step.t0, infinity));
    saved.ends = set_row(saved.ends, step.index, kept(step.end, infinity));
    saved.lengths = set_row(saved.lengths, step.index, kept(step.t1 - step.t0, infinity));
    for (std::size_t j = 0; j < saved.coefficients.size(); ++j)
      for (std::size_t i = 0; i < step.y0.size(); ++i)
        saved.coefficients[j][i] =
            set_row(saved.coefficients[j][i], step.index, j == 0 ? step.y0[i] : step.result.interpolant[j - 1][i]);
  }
}

std::pair<Value, Leaves> Saver::rows(const Saved& saved, const Leaves& y0, Value t0, const Leaves& y1, Value t1) const {
  std::vector<Value> times;
  std::vector<Leaves> parts;
  const auto add_one = [&](Value t, const Leaves& y) {
    times.push_back(expand_dims(t, 0));
    Leaves row;
    for (const Value& leaf : y) row.push_back(expand_dims(leaf, 0));
    parts.push_back(row);
  };
  if (saveat_.t0) add_one(t0, y0);
  if (ts_.defined()) {
    times.push_back(ts_);
    parts.push_back(saved.at_ts);
  }
  if (saveat_.steps) {
    times.push_back(saved.step_times);
    parts.push_back(saved.at_steps);
  }
  if (saveat_.t1) add_one(t1, y1);
  if (times.empty()) return {};
  Leaves ys;
  for (std::size_t i = 0; i < y0.size(); ++i) {
    std::vector<Value> pieces;
    for (const Leaves& part : parts) pieces.push_back(part[i]);
    ys.push_back(pieces.size() == 1 ? pieces[0] : concat(pieces, 0));
  }
  return {to_t(times.size() == 1 ? times[0] : concat(times, 0)), ys};
}

SaveAt SaveAt::end() {
  SaveAt saveat;
  saveat.t1 = true;
  return saveat;
}
SaveAt SaveAt::times(std::vector<double> ts) {
  SaveAt saveat;
  saveat.ts = std::move(ts);
  return saveat;
}
SaveAt SaveAt::times(Value ts) {
  SaveAt saveat;
  saveat.ts_value = ts;
  return saveat;
}
SaveAt SaveAt::every_step() {
  SaveAt saveat;
  saveat.steps = true;
  return saveat;
}
SaveAt SaveAt::interpolation() {
  SaveAt saveat;
  saveat.dense = true;
  return saveat;
}

}  // namespace hotloop::ode
