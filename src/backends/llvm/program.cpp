// The body of a program: control flow in the entry function, calls for everything that computes.
#include "backends/llvm/code.h"

#include <cstddef>
#include <optional>
#include <span>

#include "backends/backend.h"
#include "backends/llvm/clocks.h"
#include "backends/llvm/held_values.h"
#include "backends/llvm/loop_memory.h"
#include "core/cancel.h"
#include "hotloop/error.h"
#include "schedule/parts.h"

namespace hotloop::codegen {

using kernel::Block;
using kernel::For;
using kernel::Grid;
using kernel::Let;
using Values = Code::Values;

namespace {

llvm::Constant* constant_data(ModuleState& state, int index) {
  const kernel::Buffer& buffer = state.buffer(index);
  llvm::Constant*& known = state.constants[index];
  if (known != nullptr) return known;
  const llvm::StringRef bytes(static_cast<const char*>(buffer.data.raw()), buffer.data.bytes());
  auto* data = llvm::ConstantDataArray::getString(state.context(), bytes, false);
  auto* global = new llvm::GlobalVariable(state.module, data->getType(), true, llvm::GlobalValue::InternalLinkage, data,
                                          buffer.name);
  global->setAlignment(llvm::Align(kernel::vector_bytes));
  return known = global;
}

using Statements = std::span<const kernel::Stmt>;

// Writes one function: the kernel, or a part of it.
class ProgramEmitter {
 public:
  ProgramEmitter(ModuleState& state, llvm::Function* function)
      : state_(state),
        setup_(state, llvm::BasicBlock::Create(state.context(), "entry", function)),
        code_(state, llvm::BasicBlock::Create(state.context(), "body", function)) {
    context_ = function->getArg(0);
    exit_ = llvm::BasicBlock::Create(state.context(), "exit", function);
    const auto field = [&](std::size_t offset, llvm::Type* type) -> Value* {
      return setup_.b.CreateLoad(type, setup_.offset(context_, static_cast<std::int64_t>(offset)));
    };
    llvm::Type* pointer = code_.b.getPtrTy();
    llvm::Type* i64 = code_.b.getInt64Ty();
    frame_.worker = field(offsetof(KernelContext, worker), i64);
    frame_.num_workers = field(offsetof(KernelContext, num_workers), i64);
    frame_.turn = field(offsetof(KernelContext, turn), i64);
    barrier_ = field(offsetof(KernelContext, barrier), pointer);
    team_ = field(offsetof(KernelContext, team), pointer);
    frame_.cancel = field(offsetof(KernelContext, cancel), pointer);
    frame_.vars.resize(std::max<std::size_t>(1, state.program.vars.size()));
    frame_.vars[kernel::rows_var] = field(offsetof(KernelContext, rows), i64);
    arguments_ = field(offsetof(KernelContext, arguments), pointer);
    results_ = field(offsetof(KernelContext, results), pointer);
    shared_ = field(offsetof(KernelContext, shared), pointer);
    scratch_ = field(offsetof(KernelContext, scratch), pointer);
    bases_.resize(state.program.buffers.size());
    frame_.buffer = [this](int index) { return base(index); };
    held_.emplace(state.module, state.program);
    frame_.held = &*held_;
  }

  void emit() {
    if (state_.clocks != nullptr) state_.clocks->start(code_);
    block(state_.program.body);
    finish();
    code_.b.CreateRetVoid();
  }

 private:
  // Only of the buffers that this function uses.
  Value* base(int index) {
    Value*& known = bases_[static_cast<std::size_t>(index)];
    if (known != nullptr) return known;
    const kernel::Buffer& buffer = state_.buffer(index);
    const auto entry = [&](Value* table) -> Value* {
      return setup_.b.CreateLoad(setup_.b.getPtrTy(), setup_.offset(table, buffer.index * std::int64_t{8}));
    };
    switch (buffer.space) {
      case kernel::Space::Argument: known = entry(arguments_); break;
      case kernel::Space::Result: known = entry(results_); break;
      case kernel::Space::Shared: known = setup_.offset(shared_, buffer.offset); break;
      case kernel::Space::Worker: known = setup_.offset(scratch_, buffer.offset); break;
      case kernel::Space::Constant: known = constant_data(state_, index); break;
    }
    held_->lies_at(index, known);
    return known;
  }

  // Leaves the cursor at the end of the function, which every way out reaches.
  void finish() {
    llvm::BasicBlock* body = &*std::next(setup_.b.GetInsertBlock()->getIterator());
    setup_.b.CreateBr(body);
    code_.b.CreateBr(exit_);
    code_.b.SetInsertPoint(exit_);
  }

  void block(const Block& statements) {
    for (const kernel::Part& part : kernel::parts_of(statements)) {
      const Statements some = Statements(statements).subspan(part.begin, part.end - part.begin);
      if (part.own_function)
        call_part(some);
      else
        in_line(some);
    }
  }

  void in_line(Statements statements) {
    const Block apart = with_sums_apart(state_, statements);
    if (!apart.empty()) statements = apart;
    for (std::size_t i = 0, count = 0; i < statements.size(); i += count) {
      const bool together = i + 1 < statements.size() && emit_together(statements[i], statements[i + 1]);
      if (!together) std::visit([this](const auto& node) { emit(node); }, statements[i].node);
      count = together ? 2 : 1;
      if (state_.clocks != nullptr) state_.clocks->read(code_, frame_, statements.subspan(i, count));
    }
  }

  // A function of its own, called here: it has the context and the variables in scope, and says whether it left early.
  void call_part(Statements statements) {
    hotloop::leave_if_cancelled();
    std::vector<Value*> args{context_, frame_.turn};
    std::vector<std::size_t> vars;
    for (std::size_t v = 0; v < frame_.vars.size(); ++v) {
      if (v == kernel::rows_var || frame_.vars[v] == nullptr) continue;
      vars.push_back(v);
      args.push_back(frame_.vars[v]);
    }
    std::vector<llvm::Type*> types;
    for (const Value* arg : args) types.push_back(arg->getType());
    llvm::Function* function =
        state_.create_function("part", llvm::FunctionType::get(code_.b.getInt1Ty(), types, false), false);
    ProgramEmitter part(state_, function);
    part.one_worker_ = one_worker_;
    part.frame_.loop_depth = frame_.loop_depth;
    part.frame_.turn = function->getArg(1);
    for (std::size_t i = 0; i < vars.size(); ++i)
      part.frame_.vars[vars[i]] = function->getArg(static_cast<unsigned>(i + 2));
    part.in_line(statements);
    llvm::BasicBlock* last = part.code_.b.GetInsertBlock();
    part.finish();
    llvm::PHINode* left = part.code_.b.CreatePHI(code_.b.getInt1Ty(), 2);
    for (llvm::BasicBlock* from : llvm::predecessors(part.exit_))
      left->addIncoming(code_.b.getInt1(from != last), from);
    part.code_.b.CreateRet(left);
    held_->clear();
    branch_away(code_.b.CreateCall(function, args), exit_, "running");
  }

  // What runs again and again is worth its own code at each place.
  HeldValues* held() { return frame_.loop_depth > 0 ? &*held_ : nullptr; }

  // Emits both, or nothing.
  bool emit_together(const kernel::Stmt& first, const kernel::Stmt& second) {
    const bool dot_first = std::holds_alternative<kernel::Dot>(first.node);
    const auto* dot = std::get_if<kernel::Dot>(dot_first ? &first.node : &second.node);
    const auto* map = std::get_if<kernel::Map>(dot_first ? &second.node : &first.node);
    if (dot == nullptr || map == nullptr || (map->split && !one_worker_)) return false;
    return (dot_first && emit_dot_and_map(code_, frame_, *dot, *map, held())) ||
           emit_dot_and_sum(code_, frame_, *dot, *map, held());
  }

  void emit(const kernel::Map& map) { emit_map(code_, frame_, map, !one_worker_, held()); }
  void emit(const kernel::Dot& dot) { emit_dot(code_, frame_, dot, held()); }
  void emit(const kernel::Pack& pack) {
    emit_pack(code_, frame_, pack, !one_worker_);
    held_->forget(pack.target);
  }

  void emit(const kernel::Single& single) {
    held_->clear();
    const std::size_t outside = lets_.size();
    code_.when(code_.b.CreateICmpEQ(frame_.worker, code_.i64(0)), [&] { alone(single.body); });
    held_->clear();
    leave_scope(outside);
  }

  void emit(const kernel::Sections& all) {
    const std::int64_t rounds = all.num_rounds();
    held_->clear();
    if (rounds == 1) return round_of(all, code_.i64(0));
    code_.loop(code_.i64(0), code_.i64(rounds), 1, [&](Value* round) {
      leave_if_cancelled();
      round_of(all, round);
      code_.when(code_.b.CreateICmpNE(round, code_.i64(rounds - 1)), [&] { emit(kernel::Barrier{}); });
    });
  }

  void round_of(const kernel::Sections& all, Value* round) {
    auto& b = code_.b;
    Value* const twice = b.CreateShl(frame_.num_workers, code_.i64(1));
    for (std::size_t i = 0; i < all.sections.size(); ++i) {
      const kernel::Section& section = all.sections[i];
      Value* place = b.CreateURem(code_.i64(static_cast<std::int64_t>(i)), twice);
      Value* back = b.CreateSub(b.CreateSub(twice, code_.i64(1)), place);
      Value* runner = b.CreateSelect(b.CreateICmpSLT(place, frame_.num_workers), place, back);
      Value* runs = b.CreateICmpEQ(frame_.worker, runner);
      Value* chunk = b.CreateSub(round, code_.i64(section.delay));
      if (all.num_rounds() > 1) runs = b.CreateAnd(runs, b.CreateICmpULT(chunk, code_.i64(all.num_chunks())));
      const std::size_t outside = lets_.size();
      code_.when(runs, [&] {
        if (section.first >= 0) {
          Value* number = all.reverse ? b.CreateSub(code_.i64(all.num_chunks() - 1), chunk) : chunk;
          Value* first = b.CreateMul(number, code_.i64(all.chunk));
          Value* left = b.CreateSub(code_.i64(all.trip), first);
          set(section.first, first);
          set(section.steps, b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, code_.i64(all.chunk)));
        }
        alone(section.body);
        held_->clear();
      });
      set(section.first, nullptr);
      set(section.steps, nullptr);
      leave_scope(outside);
    }
  }

  void emit(const kernel::Barrier&) {
    held_->clear();
    code_.when(code_.b.CreateICmpNE(frame_.num_workers, code_.i64(1)), [&] {
      auto* type = llvm::FunctionType::get(code_.b.getVoidTy(), {code_.b.getPtrTy()}, false);
      code_.b.CreateCall(type, barrier_, {team_});
    });
  }

  void emit(const Let& let) {
    const auto read = [&] {
      Value* value = code_.load(let.dtype, frame_.address(code_, let.source), 0, 1, nullptr);
      llvm::Type* i64 = code_.b.getInt64Ty();
      return let.dtype == DType::U32 ? code_.b.CreateZExtOrTrunc(value, i64) : code_.b.CreateSExtOrTrunc(value, i64);
    };
    Value* value = let.number ? frame_.affine(code_, *let.number) : read();
    value = code_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, value, code_.i64(let.low));
    set(let.var, code_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, value, code_.i64(let.high)));
    lets_.push_back(let.var);
  }

  void emit(const For& loop) {
    Value* trip = frame_.extent(code_, loop.trip);
    Value* const turn = frame_.turn;
    const std::size_t outside = lets_.size();
    ++frame_.loop_depth;
    const LoopMemory memory(state_.program, loop);
    // What the loop writes is known in it, and after it, only where it is passed on from iteration to iteration.
    std::vector<int> carried;
    // What writes very many is cut into functions, for which nothing is held.
    constexpr std::size_t most_written = 256;
    const bool is_followed = memory.is_straight() && memory.written().size() <= most_written;
    if (is_followed && one_worker_) carried = memory.carried();
    Values start;
    for (const int buffer : carried) start.push_back(all_of(buffer));
    if (is_followed) {
      for (const int buffer : memory.written()) {
        base(buffer);  // where it lies must be known: others may have lain there before
        held_->forget(buffer);
      }
    } else {
      held_->clear();
    }
    const HeldValues::Knowledge before = held_->knowledge();

    llvm::BasicBlock* done = new_block("for.done");
    std::vector<llvm::PHINode*> after;
    const auto phis = [&](llvm::BasicBlock* block) {
      llvm::IRBuilder<> b(block);
      std::vector<llvm::PHINode*> nodes;
      for (const Value* value : start) nodes.push_back(b.CreatePHI(value->getType(), 2));
      return nodes;
    };
    const auto join = [&](const std::vector<llvm::PHINode*>& nodes, const Values& values) {
      for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i]->addIncoming(values[i], code_.b.GetInsertBlock());
    };
    const auto know = [&](const std::vector<llvm::PHINode*>& nodes) {
      for (std::size_t i = 0; i < nodes.size(); ++i) held_->keep(carried[i], nodes[i]);
    };
    const std::vector<llvm::PHINode*> ends = phis(done);
    const auto next_of = [&] {
      Values next;
      for (const int buffer : carried) next.push_back(all_of(buffer));
      return next;
    };

    llvm::BasicBlock* head = new_block("for");
    llvm::BasicBlock* const entry = code_.b.GetInsertBlock();
    join(ends, start);
    code_.b.CreateCondBr(code_.b.CreateICmpSLT(code_.i64(0), trip), head, done);
    code_.b.SetInsertPoint(head);
    llvm::PHINode* iv = code_.b.CreatePHI(code_.b.getInt64Ty(), 2);
    iv->addIncoming(code_.i64(0), entry);
    const std::vector<llvm::PHINode*> current = phis(head);
    for (std::size_t i = 0; i < current.size(); ++i) current[i]->addIncoming(start[i], entry);
    know(current);

    frame_.turn = iv;
    set(loop.counter, loop.reverse ? code_.b.CreateSub(code_.b.CreateSub(trip, code_.i64(1)), iv) : iv);
    leave_if_cancelled();  // also inside a tile, where a loop may run for minutes
    block(loop.test);
    if (loop.stop) {
      code_.held = held();
      Value* stop = code_.load(DType::Bool, frame_.address(code_, *loop.stop), 0, 1, nullptr);
      code_.held = nullptr;
      join(ends, next_of());
      branch_away(stop, done, "for.body");
    }
    block(loop.body);
    const Values next = next_of();
    join(current, next);
    join(ends, next);
    Value* iv_next = code_.b.CreateNSWAdd(iv, code_.i64(1));
    iv->addIncoming(iv_next, code_.b.GetInsertBlock());
    code_.b.CreateCondBr(code_.b.CreateICmpSLT(iv_next, trip), head, done);

    --frame_.loop_depth;
    frame_.turn = turn;
    done->moveAfter(&code_.b.GetInsertBlock()->getParent()->back());
    code_.b.SetInsertPoint(done);
    held_->restore(before);
    know(ends);
    if (frame_.loop_depth == 0) held_->clear();  // what stands outside all loops does not say what it writes
    set(loop.counter, nullptr);
    leave_scope(outside);
  }

  // The elements of a small buffer, from the first lane on.
  Value* all_of(int index) {
    const kernel::Buffer& buffer = state_.buffer(index);
    const int lanes = buffer.elements == 1 ? 1 : lanes_of(buffer.dtype);
    Value* address = base(index);
    if (Value* value = held_->all_of(index, lanes)) return value;
    return code_.load(buffer.dtype, address, lanes == 1 ? 0 : 1, lanes, nullptr);
  }

  void emit(const Grid& grid) {
    const std::size_t outside = lets_.size();
    Value* total = frame_.extent(code_, grid.total);
    Value* tile_rows = code_.i64(grid.tile_rows);
    Value* tiles = code_.b.CreateUDiv(code_.b.CreateAdd(total, code_.i64(grid.tile_rows - 1)), tile_rows);
    held_->clear();
    // Blocks are dealt in turn; a block without tiles still runs its prologue, which may clear partial sums.
    llvm::Function* function = code_.b.GetInsertBlock()->getParent();
    llvm::BasicBlock* before = code_.b.GetInsertBlock();
    llvm::BasicBlock* head = new_block("grid");
    llvm::BasicBlock* done = new_block("grid.done");
    code_.b.CreateCondBr(code_.b.CreateICmpSLT(frame_.worker, code_.i64(grid.num_blocks)), head, done);
    code_.b.SetInsertPoint(head);
    llvm::PHINode* number = code_.b.CreatePHI(code_.b.getInt64Ty(), 2, "block");
    number->addIncoming(frame_.worker, before);
    leave_if_cancelled();
    set(grid.block, number);
    alone(grid.prologue);
    held_->clear();
    Value* first = code_.b.CreateMul(number, code_.i64(grid.tiles_per_block));
    Value* last = code_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, tiles,
                                                code_.b.CreateAdd(first, code_.i64(grid.tiles_per_block)));
    code_.loop(first, last, 1, [&](Value* tile) {
      Value* row0 = code_.b.CreateMul(tile, tile_rows);
      set(grid.row0, row0);
      set(grid.rows, code_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, tile_rows, code_.b.CreateSub(total, row0)));
      alone(grid.body);
      held_->clear();
    });
    Value* next = code_.b.CreateAdd(number, frame_.num_workers);
    number->addIncoming(next, code_.b.GetInsertBlock());
    code_.b.CreateCondBr(code_.b.CreateICmpSLT(next, code_.i64(grid.num_blocks)), head, done);
    done->moveAfter(&function->back());
    code_.b.SetInsertPoint(done);
    for (const kernel::Var v : {grid.block, grid.row0, grid.rows}) set(v, nullptr);
    leave_scope(outside);
  }

  // Statements that one worker runs on its own: nothing in them is split.
  void alone(const Block& statements) {
    const bool outside = one_worker_;
    one_worker_ = true;
    block(statements);
    one_worker_ = outside;
  }

  void leave_if_cancelled() { branch_away(code_.is_cancelled(frame_.cancel), exit_, "running"); }

  // To `target` if `condition`, else on to a new block.
  void branch_away(Value* condition, llvm::BasicBlock* target, const char* name) {
    llvm::BasicBlock* next = new_block(name);
    code_.b.CreateCondBr(condition, target, next);
    code_.b.SetInsertPoint(next);
  }

  llvm::BasicBlock* new_block(const char* name) {
    return llvm::BasicBlock::Create(state_.context(), name, code_.b.GetInsertBlock()->getParent());
  }

  void set(kernel::Var v, Value* value) {
    if (v < 0) return;
    frame_.vars[static_cast<std::size_t>(v)] = value;
    held_->rebinds(v);
  }

  // What was read inside a statement is not known after it.
  void leave_scope(std::size_t outside) {
    for (; lets_.size() > outside; lets_.pop_back()) set(lets_.back(), nullptr);
  }

  ModuleState& state_;
  Code setup_;  // at the end of what comes before the first statement
  Code code_;
  Frame frame_;
  Value* context_;
  llvm::BasicBlock* exit_;
  Value *barrier_, *team_, *arguments_, *results_, *shared_, *scratch_;
  std::vector<Value*> bases_;      // of buffers, once they are used
  std::vector<kernel::Var> lets_;  // in scope, in the order in which they were read
  bool one_worker_ = false;        // inside a Grid, Single or section
  std::optional<HeldValues> held_;
};

}  // namespace

void emit_program(ModuleState& state) {
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(state.context()),
                                       {llvm::PointerType::getUnqual(state.context())}, false);
  ProgramEmitter(state, state.create_function("hotloop_kernel", type, true)).emit();
}

}  // namespace hotloop::codegen
