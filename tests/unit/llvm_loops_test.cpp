// Loops whose small statements are emitted in place: what passes from one iteration to the next stays in registers, and what is
// known to lie in memory is forgotten as soon as something else may have been written there.
#include "llvm_backend.h"

namespace hotloop::kernel {
namespace {

class LlvmLoops : public LlvmBackend {
 protected:
  Var i_ = -1;  // of all Maps

  // to[at] = from[at] * factor + shift for n elements.
  Stmt change(DType dtype, std::int64_t n, Access to, Access from, double factor, double shift) const {
    MapBuilder m({{i_, {n, -1}}}, 1, 0);
    const auto number = [&](double x) { return dtype == f32 ? m.constant(static_cast<float>(x)) : m.constant(x); };
    to.index = to.index + Affine::of(i_);
    from.index = from.index + Affine::of(i_);
    m.store(dtype, to, m.op(ScalarOp::Fma, dtype, m.load(dtype, from), number(factor), number(shift)));
    return {m.build()};
  }
  // total += from, both n elements.
  Stmt accumulate(DType dtype, std::int64_t n, int total, Access from) const {
    MapBuilder m({{i_, {n, -1}}}, 1, 0);
    from.index = from.index + Affine::of(i_);
    const Access to = at(total, Affine::of(i_));
    m.store(dtype, to, m.op(ScalarOp::Add, dtype, m.load(dtype, to), m.load(dtype, from)));
    return {m.build()};
  }
  static Stmt count(int counter) {
    MapBuilder m({}, 0, -1);
    m.store(i32, at(counter), m.op(ScalarOp::Add, i32, m.load(i32, at(counter)), m.constant(std::int32_t{1})));
    return {m.build()};
  }
  static std::size_t times(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t from = text.find(part); from != std::string::npos; from = text.find(part, from + 1)) ++found;
    return found;
  }
};

// A loop that may stop at once, in the middle or not at all, and in it one whose length is known at run time.
TEST_P(LlvmLoops, SmallStatesPassFromIterationToIteration) {
  for (const DType dtype : {f32, f64}) {
    for (const std::int64_t n : {1, 3, 4, 7}) {
      for (const std::int32_t limit : {0, 4, 9}) {
        ProgramBuilder p(target());
        const int last = p.argument(i32, 1), x = p.argument(dtype, n), y = p.result(dtype, n), sum = p.result(dtype, n),
                  steps = p.result(i32, 1), rows = p.result(dtype, 6 * n);
        const int state = p.shared(dtype, n), total = p.shared(dtype, n), counter = p.shared(i32, 1),
                  done = p.shared(DType::Bool, 1), stack = p.shared(dtype, 6 * n);
        const Var t = p.var("t"), s = p.var("s"), length = p.var("length");
        i_ = p.var("i");
        Block body = {change(dtype, n, at(state), at(x), 1, 0.5), change(dtype, n, at(total), at(x), 0, 1)};
        MapBuilder clear({}, 0, -1);
        clear.store(i32, at(counter), clear.constant(std::int32_t{0}));
        body.push_back({clear.build()});
        For loop{t, {6, -1}, false, {}, at(done), {}};
        MapBuilder test({}, 0, -1);
        test.store(DType::Bool, at(done),
                   test.op(ScalarOp::Ge, DType::Bool, test.load(i32, at(counter)), test.load(i32, at(last))));
        loop.test.push_back({test.build()});
        loop.body.push_back(change(dtype, n, at(stack, Affine::of(t, n)), at(state), 0.75, -0.25));
        loop.body.push_back({Let{length, at(counter), i32, 0, 3}});
        loop.body.push_back(
            {For{s,
                 {3, length},
                 true,
                 {},
                 {},
                 {accumulate(dtype, n, total, at(state)), change(dtype, n, at(state), at(state), -0.5, 1)}}});
        loop.body.push_back(accumulate(dtype, n, state, at(stack, Affine::of(t, n))));
        loop.body.push_back(change(dtype, n, at(rows, Affine::of(t, n)), at(state), 2, 0));
        loop.body.push_back(count(counter));
        body.push_back({loop});
        body.push_back(change(dtype, n, at(y), at(state), 1, 0));
        body.push_back(change(dtype, n, at(sum), at(total), 1, 0));
        MapBuilder keep({}, 0, -1);
        keep.store(i32, at(steps), keep.load(i32, at(counter)));
        body.push_back({keep.build()});
        p.add(Single{body});
        const Program program = p.build();
        check(program, {1}, 1, {Array::from<std::int32_t>({limit}, Shape{1})});
        if (HasFatalFailure()) return;
        const std::string source = compile_llvm(program, {.keep_source = true, .cache_dir = {}})->source;
        const std::string type = dtype == f32 ? "float" : "double", lanes = dtype == f32 ? "<16 x " : "<8 x ";
        // State and total, where the loops begin and behind them.
        EXPECT_EQ(times(source, "phi " + (n == 1 ? type : lanes + type + ">") + " ["), n == 1 ? 0u : 8u) << source;
        EXPECT_GE(times(source, "phi i32 ["), 2u);
      }
    }
  }
}

// A buffer that lies where another one did: what was known of that one is not taken for it, be it written in a loop or outside all.
TEST_P(LlvmLoops, BuffersThatLieWhereOthersDid) {
  for (const bool outside : {false, true}) {
    ProgramBuilder p(target());
    const int x = p.argument(f32, 3), y = p.result(f32, 3), z = p.result(f32, 3);
    const int before = p.shared(f32, 3), after = p.shared(f32, 3), large = p.shared(f32, 3 * 400);
    const Var t = p.var("t"), u = p.var("u"), k = p.var("k");
    i_ = p.var("i");
    // Not emitted in place.
    MapBuilder sums({{i_, {3, -1}}, {k, {400, -1}}}, 1, 1);
    const int sum = sums.reduced(ScalarOp::Add, f32, sums.load(f32, at(large, Affine::of(i_, 400) + Affine::of(k))));
    sums.store(f32, at(after, Affine::of(i_)), sum);
    Block body = {change(f32, 3, at(before), at(x), 1, 0), change(f32, 1200, at(large), at(large), 0, 0.5)};
    body.push_back({For{t, {3, -1}, false, {}, {}, {change(f32, 3, at(before), at(before), 2, 1)}}});
    body.push_back(change(f32, 3, at(y), at(before), 1, 0));
    if (outside) body.push_back({sums.build()});
    body.push_back(
        {For{u, {2, -1}, false, {}, {}, {outside ? change(f32, 3, at(after), at(after), 3, 1) : Stmt{sums.build()}}}});
    body.push_back(change(f32, 3, at(z), at(after), 1, 0));
    p.add(Single{body});
    Program program = p.build();
    program.buffers[static_cast<std::size_t>(after)].offset = program.buffers[static_cast<std::size_t>(before)].offset;
    check(program);
    if (HasFatalFailure()) return;
  }
}

// A row of a stack is known while its index is; any write to another row, or through another variable, may have been to the same one.
TEST_P(LlvmLoops, RowsOfAStack) {
  for (const std::int64_t n : {2, 3, 16, 20}) {
    ProgramBuilder p(target());
    const int x = p.argument(f32, n), y = p.result(f32, 5 * n), z = p.result(f32, 5 * n);
    const int stack = p.shared(f32, 5 * n + 1);
    const Var t = p.var("t"), u = p.var("u");
    i_ = p.var("i");
    For loop{t, {5, -1}, false, {}, {}, {}};
    const Affine row = Affine::of(t, n);
    loop.body.push_back(change(f32, n, at(stack, row), at(x), 1, 1));
    loop.body.push_back({For{u,
                             {4, -1},
                             false,
                             {},
                             {},
                             {change(f32, n, at(stack, Affine::of(u, n)), at(x), 2, -1),
                              change(f32, n, at(z, row), at(stack, row), 1, 0)}}});
    loop.body.push_back(change(f32, n, at(y, row), at(stack, row), 1, 0));
    loop.body.push_back(change(f32, n, at(stack, row + 1), at(x), 3, 0));  // overlaps the row by all but an element
    loop.body.push_back(change(f32, n, at(z, row), at(stack, row), 1, 0));
    Block body = {change(f32, n, at(stack, 4 * n), at(x), 0, 0)};
    body.push_back({loop});
    p.add(Single{body});
    check(p.build());
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, LlvmLoops, testing::ValuesIn(hotloop::kernel::native_targets),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace hotloop::kernel
