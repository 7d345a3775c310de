// The body of a program: control flow in the entry function, calls for everything that computes.
#include "backends/llvm/code.h"

#include <cstddef>
#include <optional>

#include "backends/backend.h"
#include "backends/llvm/held_values.h"
#include "hotloop/error.h"

namespace hotloop::codegen {

using kernel::Block;
using kernel::For;
using kernel::Grid;
using kernel::Let;

namespace {

llvm::Constant* constant_data(ModuleState& state, const kernel::Buffer& buffer) {
  const llvm::StringRef bytes(static_cast<const char*>(buffer.data.raw()), buffer.data.bytes());
  auto* data = llvm::ConstantDataArray::getString(state.context(), bytes, false);
  auto* global = new llvm::GlobalVariable(state.module, data->getType(), true, llvm::GlobalValue::InternalLinkage, data,
                                          buffer.name);
  global->setAlignment(llvm::Align(kernel::vector_bytes));
  return global;
}

class ProgramEmitter {
 public:
  ProgramEmitter(ModuleState& state, llvm::Function* function)
      : state_(state), code_(state, llvm::BasicBlock::Create(state.context(), "entry", function)) {
    context_ = function->getArg(0);
    exit_ = llvm::BasicBlock::Create(state.context(), "exit", function);
    const auto field = [&](std::size_t offset, llvm::Type* type) -> Value* {
      return code_.b.CreateLoad(type, code_.offset(context_, static_cast<std::int64_t>(offset)));
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
    Value* arguments = field(offsetof(KernelContext, arguments), pointer);
    Value* results = field(offsetof(KernelContext, results), pointer);
    Value* shared = field(offsetof(KernelContext, shared), pointer);
    Value* scratch = field(offsetof(KernelContext, scratch), pointer);
    for (const kernel::Buffer& buffer : state.program.buffers) {
      const auto entry = [&](Value* table) -> Value* {
        return code_.b.CreateLoad(pointer, code_.offset(table, buffer.index * std::int64_t{8}));
      };
      Value* base = nullptr;
      switch (buffer.space) {
        case kernel::Space::Argument: base = entry(arguments); break;
        case kernel::Space::Result: base = entry(results); break;
        case kernel::Space::Shared: base = code_.offset(shared, buffer.offset); break;
        case kernel::Space::Worker: base = code_.offset(scratch, buffer.offset); break;
        case kernel::Space::Constant: base = constant_data(state, buffer); break;
      }
      frame_.buffers.push_back(base);
    }
    held_.emplace(state.module, state.program, frame_.buffers);
  }

  void emit() {
    block(state_.program.body);
    code_.b.CreateBr(exit_);
    code_.b.SetInsertPoint(exit_);
    code_.b.CreateRetVoid();
  }

 private:
  void block(const Block& statements) {
    for (const kernel::Stmt& statement : statements) {
      std::visit([this](const auto& node) { emit(node); }, statement.node);
    }
  }

  // What runs again and again is worth its own code at each place.
  HeldValues* held() { return loop_depth_ > 0 ? &*held_ : nullptr; }

  void emit(const kernel::Map& map) { emit_map(code_, frame_, map, !one_worker_, held()); }
  void emit(const kernel::Dot& dot) { emit_dot(code_, frame_, dot, held()); }
  void emit(const kernel::Pack& pack) {
    emit_pack(code_, frame_, pack);
    held_->forget(pack.target);
  }

  void emit(const kernel::Single& single) {
    held_->clear();
    code_.when(code_.b.CreateICmpEQ(frame_.worker, code_.i64(0)), [&] { alone(single.body); });
    held_->clear();
  }

  void emit(const kernel::Barrier&) {
    held_->clear();
    code_.when(code_.b.CreateICmpNE(frame_.num_workers, code_.i64(1)), [&] {
      auto* type = llvm::FunctionType::get(code_.b.getVoidTy(), {code_.b.getPtrTy()}, false);
      code_.b.CreateCall(type, barrier_, {team_});
    });
  }

  void emit(const Let& let) {
    Value* value = code_.load(let.dtype, frame_.address(code_, let.source), 0, 1, nullptr);
    llvm::Type* i64 = code_.b.getInt64Ty();
    value = let.dtype == DType::U32 ? code_.b.CreateZExtOrTrunc(value, i64) : code_.b.CreateSExtOrTrunc(value, i64);
    value = code_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smax, value, code_.i64(let.low));
    set(let.var, code_.b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, value, code_.i64(let.high)));
  }

  void emit(const For& loop) {
    Value* trip = frame_.extent(code_, loop.trip);
    llvm::BasicBlock* done = new_block("for.done");
    Value* const turn = frame_.turn;
    held_->clear();
    ++loop_depth_;
    code_.loop(code_.i64(0), trip, 1, [&](Value* iv) {
      frame_.turn = iv;
      set(loop.counter, loop.reverse ? code_.b.CreateSub(code_.b.CreateSub(trip, code_.i64(1)), iv) : iv);
      leave_if_cancelled();  // also inside a tile, where a loop may run for minutes
      block(loop.test);
      if (loop.stop) {
        Value* stop = code_.load(DType::Bool, frame_.address(code_, *loop.stop), 0, 1, nullptr);
        branch_away(stop, done, "for.body");
      }
      block(loop.body);
    });
    --loop_depth_;
    held_->clear();
    frame_.turn = turn;
    code_.b.CreateBr(done);
    code_.b.SetInsertPoint(done);
    set(loop.counter, nullptr);
  }

  void emit(const Grid& grid) {
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
    if (v >= 0) frame_.vars[static_cast<std::size_t>(v)] = value;
  }

  ModuleState& state_;
  Code code_;
  Frame frame_;
  Value* context_;
  llvm::BasicBlock* exit_;
  Value* barrier_;
  Value* team_;
  bool one_worker_ = false;  // inside a Grid or Single
  int loop_depth_ = 0;
  std::optional<HeldValues> held_;
};

}  // namespace

void emit_program(ModuleState& state) {
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(state.context()),
                                       {llvm::PointerType::getUnqual(state.context())}, false);
  ProgramEmitter(state, state.create_function("hotloop_kernel", type, true)).emit();
}

}  // namespace hotloop::codegen
