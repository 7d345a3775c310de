#include "core/index.h"
#include "hotloop/ops.h"
#include "ir/interpreters.h"
#include "ir/rewrite.h"
#include "ops/rules/arguments.h"
#include "ops/rules/loop_rules.h"

namespace hotloop::ir {
namespace {

// Takes values one after another off the front of a list.
struct Cursor {
  std::span<const Value> values;
  std::vector<Value> take(int n) {
    std::vector<Value> taken(values.begin(), values.begin() + n);
    values = values.subspan(at(n));
    return taken;
  }
};

// Of a group of loop operands: the values, then those tangents that are not zero.
struct Group {
  std::vector<Value> values;
  std::vector<bool> active;
  int num_active = 0;

  Group(std::span<const Value> primals, std::span<const Value> tangents) : values(primals.begin(), primals.end()) {
    for (const Value& t : tangents) {
      active.push_back(t.defined());
      if (t.defined()) values.push_back(t);
      num_active += t.defined();
    }
  }
  int size() const { return static_cast<int>(active.size()); }
  // The duals of this group inside a region, whose inputs come in the order of `values`.
  void take(Cursor& cursor, std::vector<Dual>& duals) const {
    const auto primals = cursor.take(size()), tangents = cursor.take(num_active);
    int next = 0;
    for (int i = 0; i < size(); ++i) duals.push_back({primals[at(i)], active[at(i)] ? tangents[at(next++)] : Value{}});
  }
  void append_types(std::vector<ValueType>& types, bool sliced = false) const {
    for (const Value& v : values) types.push_back(sliced ? ValueType{v.dtype(), v.shape().without(0)} : v.type());
  }
};

}  // namespace

std::pair<std::vector<Value>, std::vector<Value>> jvp_loop(const JvpContext& c) {
  const LoopView loop(c.node);
  const int nc = loop.num_carry(), nx = loop.num_xs(), nk = loop.num_consts();
  const auto part = [](std::span<const Value> all, int start, int size) { return all.subspan(at(start), at(size)); };
  const Group xs(part(c.primals, nc, nx), part(c.tangents, nc, nx));
  const Group consts(part(c.primals, nc + nx, nk), part(c.tangents, nc + nx, nk));
  std::vector<Value> carry_tangents(c.tangents.begin(), c.tangents.begin() + nc);

  // The carries that get a tangent: the least set that the body maps into itself.
  std::shared_ptr<Graph> body;
  std::vector<bool> active_ys;
  for (bool changed = true; changed;) {
    changed = false;
    const Group carry(part(c.primals, 0, nc), carry_tangents);
    std::vector<ValueType> types;
    carry.append_types(types);
    xs.append_types(types, true);
    consts.append_types(types);
    body = trace(
        [&](std::span<const Value> inputs) {
          Cursor cursor{inputs};
          std::vector<Dual> duals;
          carry.take(cursor, duals);
          xs.take(cursor, duals);
          consts.take(cursor, duals);
          const std::vector<Dual> results = push_forward(loop.body(), duals);
          std::vector<Value> outputs, tangents;
          for (int i = 0; i < nc; ++i) {
            const Dual& r = results[at(i)];
            outputs.push_back(r.primal);
            if (r.tangent.defined() && !carry.active[at(i)]) {
              changed = true;
              carry_tangents[at(i)] = r.primal;  // marks it; made zero below
            }
            if (carry.active[at(i)]) tangents.push_back(r.tangent.defined() ? r.tangent : zeros_of(r.primal.type()));
          }
          outputs.insert(outputs.end(), tangents.begin(), tangents.end());
          tangents.clear();
          active_ys.clear();
          for (int i = nc; i < static_cast<int>(results.size()); ++i) {
            const Dual& r = results[at(i)];
            outputs.push_back(r.primal);
            active_ys.push_back(r.tangent.defined());
            if (r.tangent.defined()) tangents.push_back(r.tangent);
          }
          outputs.insert(outputs.end(), tangents.begin(), tangents.end());
          return outputs;
        },
        types, loop.body().name());
    for (int i = 0; i < nc; ++i)
      if (changed && carry_tangents[at(i)].defined() && !carry.active[at(i)])
        carry_tangents[at(i)] = zeros_of(loop.carry(i).type());
  }

  const Group carry(part(c.primals, 0, nc), carry_tangents);
  LoopSpec spec;
  spec.carry = carry.values;
  spec.xs = xs.values;
  spec.consts = consts.values;
  if (loop.has_trip()) spec.trip = c.primals.back();
  spec.length = loop.length();
  spec.reverse = loop.reverse();
  spec.residuals = c.node.attrs.get<std::string>("residuals");
  spec.generation = c.node.generation;
  spec.body = body;
  if (loop.until() != nullptr) {
    std::vector<ValueType> types;
    carry.append_types(types);
    consts.append_types(types);
    spec.until = trace(
        [&](std::span<const Value> inputs) {
          Cursor cursor{inputs};
          std::vector<Dual> duals;
          carry.take(cursor, duals);
          consts.take(cursor, duals);
          std::vector<Value> primals;
          for (const Dual& d : duals) primals.push_back(d.primal);
          return inline_graph(*loop.until(), primals);
        },
        types, loop.until()->name());
  }
  if (loop.has_mask()) spec.mask = c.node.attrs.integers("mask");
  if (c.node.attrs.has("laned")) {
    for (int i = 0; i < nc; ++i) spec.laned.push_back(loop.laned_carry(i));
    for (int i = 0; i < nc; ++i)
      if (carry.active[at(i)]) spec.laned.push_back(loop.laned_carry(i));
    for (int i = 0; i < nx; ++i) spec.laned.push_back(loop.laned_xs(i));
    for (int i = 0; i < nx; ++i)
      if (xs.active[at(i)]) spec.laned.push_back(loop.laned_xs(i));
    for (int i = 0; i < nk; ++i) spec.laned.push_back(loop.laned_const(i));
    for (int i = 0; i < nk; ++i)
      if (consts.active[at(i)]) spec.laned.push_back(loop.laned_const(i));
  }
  const LoopResult result = hotloop::loop(spec);
  keep_idling(c.node, result);

  std::vector<Value> outputs(result.carry.begin(), result.carry.begin() + nc), tangents;
  int next = nc;
  for (int i = 0; i < nc; ++i) tangents.push_back(carry.active[at(i)] ? result.carry[at(next++)] : Value{});
  outputs.insert(outputs.end(), result.ys.begin(), result.ys.begin() + loop.num_ys());
  next = loop.num_ys();
  for (int i = 0; i < loop.num_ys(); ++i) tangents.push_back(active_ys[at(i)] ? result.ys[at(next++)] : Value{});
  outputs.push_back(result.count);
  tangents.push_back({});
  return {outputs, tangents};
}

}  // namespace hotloop::ir
