#!/usr/bin/env python3
"""Writes the file that a new op, layer, loss, metric, optimizer, schedule, wrapper or pass consists of, working from the
start: change what it computes.

usage: ./dev new op|layer|loss|metric|optimizer|schedule|wrapper|pass NAME        NAME in snake_case
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CLANG_FORMAT = ROOT / ".venv/bin/clang-format"

OP = """\
#include <cmath>

#include "hotloop/ops.h"
#include "ops/rules/arguments.h"
#include "ops/rules/elementwise.h"

namespace hotloop {

Value @name@(Value x) { return ir::append_op("@name@", {x}); }

namespace ir {

std::vector<OpDef> ops_@name@() {
  // ScalarOp is what kernels compute; eval is the definition; 20 is the cost beside an addition's 1.
  OpDef def = unary_op("@name@", "e to the power of x", ScalarOp::Exp, Accepts::Floats, 20);
  def.eval = eval_math([](double x) { return std::exp(x); });
  def.jvp = scaled_tangent([](const JvpContext& c) { return c.outputs[0]; });
  return {def};
}

}  // namespace ir
}  // namespace hotloop
"""

LAYER = """\
#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::nn {
namespace {

class @Name@Module : public Module {
 public:
  explicit @Name@Module(std::int64_t features) : features_(features) {}

  Tree<Array> init(std::uint64_t, DType dtype, Init) const override {
    return {{"weight", Array::full(dtype, {features_}, 1.0)}};
  }
  Value apply(const Tree<Value>& params, Value x, Context&) const override {
    return x * broadcast_to(params.at("weight").leaf(), x.shape());
  }

 private:
  std::int64_t features_;
};

}  // namespace

std::vector<LayerDef> layers_@name@() {
  return {{"@name@", "each feature times a weight: (..., features) -> (..., features)", {},
           [](const Config&, const ValueType& input) -> Layer {
             return Layer(@Name@Module(input.shape[input.shape.rank() - 1]));
           }}};
}

}  // namespace hotloop::nn
"""

PASS = """\
#include "passes/pass.h"

namespace hotloop::passes {
namespace {

// One graph, its regions being done already; null when there is nothing to do.
std::shared_ptr<const Graph> rewrite(const Graph& graph, const Level&) {
  ir::Rebuild rebuild(graph);
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    if (ir::is(*node, ir::OpKind::Input)) continue;
    const bool negates_twice = node->op->name == "neg" && node->operands[0].node->op->name == "neg";
    if (negates_twice) {
      rebuild.map().set(node->result(), rebuild(node->operands[0].node->operands[0]));
      changed = true;
    } else {
      rebuild.copy(*node);
    }
  }
  return changed ? rebuild.finish() : nullptr;
}

}  // namespace

// Runs once it stands in the table of pipeline.cpp.
Pass @name@() {
  return {"@name@", "-(-x) is x", true, [](const Graph& graph, const PassOptions&) -> std::shared_ptr<const Graph> {
            return rewrite_levels(graph, rewrite);
          }};
}

}  // namespace hotloop::passes
"""

OPTIMIZER = """\
#include "hotloop/ops.h"
#include "optim/learning_rate.h"
#include "optim/registry.h"

namespace hotloop::optim {
namespace {

class @Name@Rule : public UpdateRule {
 public:
  explicit @Name@Rule(const Schedule& learning_rate) : learning_rate_("@name@", learning_rate) {}

  Tree<Array> init(const Tree<Array>&) const override { return learning_rate_.init(); }

  std::pair<Tree<Value>, Tree<Value>> update(const Tree<Value>& grads, const Tree<Value>& state,
                                             const Tree<Value>& params) const override {
    const LearningRate::Now rate = learning_rate_.now(state);
    return {map_trees([&](Value p, Value g) { return p - rate(p.dtype()) * g; }, params, grads), rate.next()};
  }

  Tree<Value> observe(const Tree<Value>& state, Value value) const override {
    return learning_rate_.observe(state, value);
  }
  bool observes() const override { return learning_rate_.observes(); }

 private:
  LearningRate learning_rate_;
};

}  // namespace

std::vector<OptimizerDef> optimizers_@name@() {
  return {{"@name@", "a step against the gradient", {{"learning_rate", 0.01, "step size"}},
           [](const Config&, const Schedule& learning_rate) -> Optimizer { return @Name@Rule(learning_rate); }}};
}

}  // namespace hotloop::optim
"""

LOSS = """\
#include "hotloop/ops.h"
#include "nn/registry.h"

namespace hotloop::losses {

std::vector<LossDef> losses_@name@() {
  return {{"@name@", "mean of the squared differences", {}, [](const Config&) -> Loss {
             return Loss(Loss::Pointwise{[](Value prediction, Value target) { return square(prediction - target); }},
                         "@name@");
           }}};
}

}  // namespace hotloop::losses
"""

METRIC = """\
#include "train/metrics.h"

namespace hotloop::metrics {

std::vector<MetricDef> metrics_@name@() {
  return {{"@name@", "mean of the differences", {}, [](const Config&) -> Metric {
             // 1: in the target's units to that power.
             return Metric::mean_of("@name@", 1, [](double prediction, double target) { return prediction - target; });
           }}};
}

}  // namespace hotloop::metrics
"""

SCHEDULE = """\
#include "hotloop/ops.h"
#include "optim/registry.h"

namespace hotloop::optim {
namespace {

class @Name@Rule : public ScheduleRule {
 public:
  explicit @Name@Rule(std::int64_t steps) : steps_(static_cast<double>(steps)) {
    if (steps < 1) throw UserError("@name@", "steps must be positive", std::to_string(steps));
  }

  // Of the learning rate, after `step` steps.
  Value factor(Value step, const Tree<Value>&) const override { return steps_ / (steps_ + cast(step, DType::F64)); }

 private:
  double steps_;
};

}  // namespace

std::vector<ScheduleDef> schedules_@name@() {
  return {{"@name@", "steps / (steps + step)", {{"steps", std::int64_t{0}, "until the factor is a half", true}},
           [](const Config& config) -> ScheduleFactor { return @Name@Rule(config.integer("steps")); }}};
}

}  // namespace hotloop::optim
"""

WRAPPER = """\
#include "hotloop/ops.h"
#include "optim/wrapper.h"

namespace hotloop::optim {
namespace {

class @Name@Rule : public Wrapper {
 public:
  @Name@Rule(Optimizer inner, double factor) : Wrapper(std::move(inner)), factor_(factor) {}

  std::pair<Tree<Value>, Tree<Value>> update(const Tree<Value>& grads, const Tree<Value>& state,
                                             const Tree<Value>& params) const override {
    return inner().update(grads.map([&](Value g) { return factor_ * g; }), state, params);
  }

 private:
  double factor_;
};

}  // namespace

std::vector<WrapperDef> wrappers_@name@() {
  return {{"@name@", "gradients times a factor", {{"factor", 1.0, "of the gradients"}},
           [](const Config& config, Optimizer inner) -> Optimizer {
             return @Name@Rule(std::move(inner), config.number("factor"));
           }}};
}

}  // namespace hotloop::optim
"""

KINDS = {
    "op": ("src/ops", OP),
    "layer": ("src/nn/layers", LAYER),
    "pass": ("src/passes", PASS),
    "loss": ("src/nn/losses", LOSS),
    "metric": ("src/train/metrics", METRIC),
    "optimizer": ("src/optim/rules", OPTIMIZER),
    "schedule": ("src/optim/schedules", SCHEDULE),
    "wrapper": ("src/optim/wrappers", WRAPPER),
}
AFTER = {
    "op": "It is differentiated, batched, compiled and tested by the suites that go through the registry.",
    "layer": 'Configurations can name it: [[model]] type = "@name@".',
    "pass": "Name it in src/passes/pipeline.cpp, where it shall run, and add a case to tests/golden/passes_test.cpp.",
    "loss": 'Configurations can name it: [loss] type = "@name@".',
    "metric": 'Configurations can name it: [train] metric = "@name@".',
    "optimizer": 'Configurations can name it: [optimizer] type = "@name@".',
    "schedule": 'Configurations can name it: [[optimizer.schedule]] type = "@name@".',
    "wrapper": 'Configurations can name it: [[optimizer.wrapper]] type = "@name@".',
}
REFERENCE = "docs/components.md has it after HOTLOOP_UPDATE_GOLDEN=1 build/release/tests/golden_tests."


def fail(requirement, received, remedy):
    sys.exit(f"[new] {requirement}. Received: {received}. Try: {remedy}")


def filled(text, name):
    camel = "".join(part.capitalize() for part in name.split("_"))
    return text.replace("@name@", name).replace("@Name@", camel)


def declare(path, after, line):
    """Inserts `line` into `path` below the line that starts with `after`."""
    lines = path.read_text().splitlines(keepends=True)
    at = next(i for i, text in enumerate(lines) if text.startswith(after))
    lines.insert(at + 1, line + "\n")
    path.write_text("".join(lines))


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in KINDS:
        fail("a kind and a name are needed", " ".join(sys.argv[1:]) or "nothing", "./dev new op softsign")
    kind, name = sys.argv[1:]
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        fail("the name must be in snake_case", name, "letters, digits and single underscores")
    folder, template = KINDS[kind]
    path = ROOT / folder / f"{name}.cpp"
    if path.exists():
        fail("the name must be free", f"{path.relative_to(ROOT)} exists", "another name")
    path.write_text(filled(template, name))
    if CLANG_FORMAT.exists():
        subprocess.run([CLANG_FORMAT, "-i", str(path)], check=True)
    print(f"wrote {path.relative_to(ROOT)}")
    if kind == "op":
        declare(ROOT / "include/hotloop/ops.h", "Value tanh(Value x);", f"Value {name}(Value x);")
        print("declared it in include/hotloop/ops.h")
    if kind == "pass":
        declare(ROOT / "src/passes/pipeline.cpp", "// One file each.", f"Pass {name}();")
        print("declared it in src/passes/pipeline.cpp")
    print(filled(AFTER[kind], name))
    if kind not in ("op", "pass"):
        print(REFERENCE)


if __name__ == "__main__":
    main()
