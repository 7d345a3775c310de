// Kernel programs written by hand, and a way to run them: for tests and micro-benchmarks of the backends.
#pragma once

#include <algorithm>
#include <barrier>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "schedule/kernel_ir.h"

namespace hotloop::kernel {

inline Access at(int buffer, Affine index = {}, std::vector<Indirect> indirect = {}) {
  return {buffer, std::move(index), std::move(indirect)};
}

// Buffers and variables; build() lays out the arenas (nothing shares memory).
class ProgramBuilder {
 public:
  explicit ProgramBuilder(Target target, std::int64_t max_rows = 1) {
    program_.name = "by_hand";
    program_.target = std::move(target);
    program_.max_rows = max_rows;
    program_.vars = {"rows"};
  }

  int argument(DType dtype, std::int64_t elements) {
    const int index = static_cast<int>(program_.arguments.size());
    program_.arguments.push_back({dtype, Shape{elements}});
    return add_buffer("arg", dtype, elements, Space::Argument, index);
  }
  int result(DType dtype, std::int64_t elements) {
    const int index = static_cast<int>(program_.results.size());
    program_.results.push_back({dtype, Shape{elements}});
    return add_buffer("result", dtype, elements, Space::Result, index);
  }
  int shared(DType dtype, std::int64_t elements) { return add_buffer("shared", dtype, elements, Space::Shared, 0); }
  int worker(DType dtype, std::int64_t elements) { return add_buffer("worker", dtype, elements, Space::Worker, 0); }
  int constant(const Array& data) {
    const int buffer = add_buffer("constant", data.dtype(), data.size(), Space::Constant, 0);
    program_.buffers[static_cast<std::size_t>(buffer)].data = data;
    return buffer;
  }
  Var var(const std::string& name) {
    program_.vars.push_back(name);
    return static_cast<Var>(program_.vars.size()) - 1;
  }
  template <class T> void add(T statement) { program_.body.push_back({std::move(statement)}); }

  Program build() {
    Program program = program_;
    for (Buffer& buffer : program.buffers) {
      const auto bytes = (buffer.elements * static_cast<std::int64_t>(size_of(buffer.dtype)) + 63) / 64 * 64;
      if (buffer.space != Space::Shared && buffer.space != Space::Worker) continue;
      std::int64_t& end = buffer.space == Space::Shared ? program.shared_bytes : program.worker_bytes;
      buffer.offset = std::exchange(end, end + bytes);
    }
    return program;
  }

 private:
  int add_buffer(const char* kind, DType dtype, std::int64_t elements, Space space, int index) {
    const int number = static_cast<int>(program_.buffers.size());
    Buffer buffer;
    buffer.name = kind + std::to_string(number);
    buffer.dtype = dtype;
    buffer.elements = elements;
    buffer.space = space;
    buffer.index = index;
    program_.buffers.push_back(std::move(buffer));
    return number;
  }
  Program program_;
};

// The instructions of a Map, one call each; every call returns the register.
class MapBuilder {
 public:
  MapBuilder(std::vector<Dim> dims, int num_outer, int vector_dim) {
    map_.name = "map";
    map_.dims = std::move(dims);
    map_.num_outer = num_outer;
    map_.vector_dim = vector_dim;
  }
  int load(DType dtype, Access access, int predicate = -1) {
    return push({.kind = Instr::Kind::Load, .dtype = dtype, .args = {predicate, -1, -1}, .access = std::move(access)});
  }
  int store(DType dtype, Access access, int value, int predicate = -1) {
    return push(
        {.kind = Instr::Kind::Store, .dtype = dtype, .args = {value, predicate, -1}, .access = std::move(access)});
  }
  int op(ScalarOp op, DType dtype, int a, int b = -1, int c = -1) {
    return push({.kind = Instr::Kind::Op, .op = op, .dtype = dtype, .args = {a, b, c}, .access = {}});
  }
  int index(DType dtype, Affine value) {
    return push({.kind = Instr::Kind::Index, .dtype = dtype, .access = at(-1, std::move(value))});
  }
  template <class T> int constant(T value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return push({.kind = Instr::Kind::Const, .dtype = dtype_of<T>(), .bits = bits, .access = {}});
  }
  int reduced(ScalarOp op, DType dtype, int body_register, int factor = -1) {
    if (body_end_ < 0) body_end_ = static_cast<int>(map_.instrs.size());
    return push(
        {.kind = Instr::Kind::Reduced, .op = op, .dtype = dtype, .args = {body_register, factor, -1}, .access = {}});
  }
  Map build(bool split = false) const {
    Map map = map_;
    map.split = split;
    map.body_end = body_end_ < 0 ? static_cast<int>(map.instrs.size()) : body_end_;
    return map;
  }

 private:
  int push(Instr instr) {
    map_.instrs.push_back(std::move(instr));
    return static_cast<int>(map_.instrs.size()) - 1;
  }
  Map map_;
  int body_end_ = -1;
};

// Calls a kernel with `num_workers` threads. Arenas start filled with NaN bit patterns, to catch reads of what
// nothing wrote. Results must be arrays of the program's types; they are written in place.
inline void run_kernel(const Program& program, KernelFunction function, const std::vector<Array>& arguments,
                       std::vector<Array>& results, std::int64_t rows = 1, int num_workers = 1,
                       const std::int32_t* cancel = nullptr, std::int64_t turn = 0) {
  std::vector<void*> argument_pointers, result_pointers;
  for (const Array& a : arguments) argument_pointers.push_back(const_cast<void*>(a.raw()));
  for (Array& r : results) result_pointers.push_back(r.raw());
  const auto arena = [](std::int64_t bytes) {
    const auto size = static_cast<std::size_t>(bytes + 64) / 64 * 64;
    std::shared_ptr<std::byte> memory(static_cast<std::byte*>(std::aligned_alloc(64, size)), std::free);
    std::memset(memory.get(), 0xff, size);
    return memory;
  };
  const std::shared_ptr<std::byte> shared = arena(program.shared_bytes);
  const std::int32_t never = 0;
  std::barrier team(num_workers);
  const auto work = [&](int worker) {
    const std::shared_ptr<std::byte> scratch = arena(program.worker_bytes);
    KernelContext context{};
    context.arguments = argument_pointers.data();
    context.results = result_pointers.data();
    context.shared = shared.get();
    context.scratch = scratch.get();
    context.rows = rows;
    context.turn = turn;
    context.worker = worker;
    context.num_workers = num_workers;
    context.barrier = [](void* t) { static_cast<std::barrier<>*>(t)->arrive_and_wait(); };
    context.team = &team;
    context.cancel = cancel != nullptr ? cancel : &never;
    function(&context);
    team.arrive_and_drop();  // a worker that has returned is waited for no more
  };
  std::vector<std::thread> threads;
  for (int w = 1; w < num_workers; ++w) threads.emplace_back(work, w);
  work(0);
  for (std::thread& thread : threads) thread.join();
}

// Statement after statement, some with loops in them, in a loop whose counter they use, with a variable that is only known half way.
inline Program many_statements(const Target& target) {
  constexpr std::int64_t n = 20, num_parts = 300;
  ProgramBuilder p(target);
  const int x = p.argument(DType::F32, n), count = p.argument(DType::I32, 1), y = p.result(DType::F32, num_parts * n);
  const int scratch = p.worker(DType::F32, num_parts * n);
  const Var i = p.var("i"), k = p.var("k"), m = p.var("m"), t = p.var("t");
  For outer{t, {3, -1}, true, {}, {}, {}};
  for (std::int64_t part = 0; part < num_parts; ++part) {
    if (part == num_parts / 2) outer.body.push_back({Let{m, at(count), DType::I32, 0, 10}});
    MapBuilder add({{i, {n, -1}}}, 1, 0);
    const int before =
        add.load(DType::F32, at(part == 0 ? x : scratch, Affine::of(i) + std::max<std::int64_t>(part - 1, 0) * n));
    const int number = add.op(ScalarOp::Cast, DType::F32, add.index(DType::I32, Affine::of(t) + part % 5));
    add.store(DType::F32, at(scratch, Affine::of(i) + part * n),
              add.op(ScalarOp::Fma, DType::F32, before, add.constant(0.9f), number));
    outer.body.push_back({add.build()});
    MapBuilder keep({{i, {n, -1}}}, 1, 0);
    const Access kept = at(y, Affine::of(i) + part * n);
    keep.store(DType::F32, kept,
               keep.op(ScalarOp::Add, DType::F32, keep.load(DType::F32, kept),
                       keep.load(DType::F32, at(scratch, Affine::of(i) + part * n))));
    if (part % 7 == 0)
      outer.body.push_back(
          {For{k, {part > num_parts / 2 ? 10 : 2, part > num_parts / 2 ? m : -1}, false, {}, {}, {{keep.build()}}}});
    else
      outer.body.push_back({keep.build()});
  }
  p.add(outer);
  return p.build();
}
inline std::vector<Array> arguments_of_many_statements() {
  return {Array::from<float>(std::vector<float>(20, 0.5f), Shape{20}), Array::from<std::int32_t>({4}, Shape{1})};
}

// A loop that only a cancelled call leaves, which counts, between statements that add up to 11175 before it, and after it one to another result.
inline Program long_loop_among_statements(const Target& target) {
  ProgramBuilder p(target);
  const int count = p.result(DType::I64, 1), after = p.result(DType::I64, 1);
  const Var t = p.var("t");
  const auto add_to = [](int buffer, std::int64_t amount) {
    MapBuilder add({}, 0, -1);
    add.store(DType::I64, at(buffer),
              add.op(ScalarOp::Add, DType::I64, add.load(DType::I64, at(buffer)), add.constant(amount)));
    return add.build();
  };
  for (std::int64_t k = 0; k < 150; ++k) p.add(add_to(count, k));
  p.add(For{t, {std::int64_t{1} << 40, -1}, false, {}, {}, {{add_to(count, 1)}}});
  for (std::int64_t k = 0; k < 150; ++k) p.add(add_to(after, 1));
  return p.build();
}

}  // namespace hotloop::kernel
