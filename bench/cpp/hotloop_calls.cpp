// What a call costs: a matrix times a vector.
#include <memory>
#include <vector>

#include "hotloop/hotloop.h"
#include "hotloop_kinds.h"

namespace hotloop::bench {

Prepared matvec(const Sizes&, const Arrays& inputs, int threads) {
  struct Now {
    Executable run;
    Array a, v, y;
    void *in[2], *out[1];
  };
  CompileOptions options;
  options.threads = threads;
  const Array a = inputs.at("a"), v = inputs.at("v");
  const std::vector<ValueType> types = {a.type(), v.type()};
  const auto now = std::make_shared<Now>(
      Now{compile(trace([](std::span<const Value> in) { return std::vector<Value>{matmul(in[0], in[1])}; }, types),
                  options),
          a,
          v,
          Array(DType::F32, {a.shape()[0]}),
          {},
          {}});
  now->in[0] = now->a.raw();
  now->in[1] = now->v.raw();
  now->out[0] = now->y.raw();
  const auto call = [now] { now->run.run_raw(now->in, now->out, 1); };
  call();
  return {call, {{"y", now->y.clone()}}, 1, "run_raw"};
}

}  // namespace hotloop::bench
