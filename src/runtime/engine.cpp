#include "runtime/engine.h"

#include "core/cancel.h"
#include "hotloop/error.h"

namespace hotloop::runtime {
namespace {

class AnySeat final : public Engine::Seat {
 public:
  explicit AnySeat(const Engine& engine) : engine_(engine) {}
  void run(void* const* inputs, void* const* outputs, std::int64_t rows) override {
    const CancelScope scope(never_cancelled);
    engine_.run(inputs, outputs, rows);
  }

 private:
  const Engine& engine_;
};

}  // namespace

Engine::Clocked Engine::clocked() const {
  throw InternalError(__FILE__, __LINE__, "this engine runs no kernel that could have clocks");
}

std::unique_ptr<Engine::Seat> Engine::seat() const { return std::make_unique<AnySeat>(*this); }

}  // namespace hotloop::runtime
