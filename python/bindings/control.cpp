// scan, while_loop and cond on flat carries; hotloop/_control.py adds the trees.
#include <nanobind/stl/string.h>

#include "hotloop/ops.h"
#include "tracer.h"

namespace hotloop::python {

void bind_control(nb::module_& m) {
  // body(list of carry, list of x) -> (list of carry, list of y)
  m.def("scan", [](nb::callable body, nb::handle init, nb::handle xs, std::int64_t length, bool reverse) {
    std::size_t num_carry = 0;
    const auto initial = to_values(init, "scan"), sequences = to_values(xs, "scan");
    const ScanBody step = [&](std::span<const Value> carry, std::span<const Value> x) {
      std::vector<Value> inputs(carry.begin(), carry.end());
      inputs.insert(inputs.end(), x.begin(), x.end());
      const auto results = traced_function(nb::cast<nb::callable>(nb::cpp_function([&](nb::list all) {
        nb::list c, s;
        for (std::size_t i = 0; i < nb::len(all); ++i) (i < carry.size() ? c : s).append(all[i]);
        const nb::tuple pair = nb::cast<nb::tuple>(body(c, s));
        num_carry = nb::len(nb::handle(pair[0]));
        nb::list joined;
        for (const nb::handle v : pair[0]) joined.append(v);
        for (const nb::handle v : pair[1]) joined.append(v);
        return joined;
      })))(inputs);
      const auto middle = results.begin() + static_cast<std::ptrdiff_t>(num_carry);
      return std::pair(std::vector<Value>(results.begin(), middle), std::vector<Value>(middle, results.end()));
    };
    const auto [carry, ys] = scan(step, initial, sequences, {.length = length, .reverse = reverse});
    return nb::make_tuple(to_tracers(carry), to_tracers(ys));
  });
  m.def("while_loop", [](nb::callable cond, nb::callable body, nb::handle init, std::int64_t max_steps) {
    const auto test = traced_function(std::move(cond));
    return to_tracers(while_loop([&](std::span<const Value> carry) { return test(carry).at(0); },
                                 traced_function(std::move(body)), to_values(init, "while_loop"), max_steps));
  });
  m.def("cond", [](nb::handle predicate, nb::callable if_true, nb::callable if_false, nb::handle operands) {
    return to_tracers(cond(to_value(predicate, "cond"), traced_function(std::move(if_true)),
                           traced_function(std::move(if_false)), to_values(operands, "cond")));
  });
}

}  // namespace hotloop::python
