#include "nn/own_modules.h"

#include <utility>

namespace hotloop::nn {
namespace {
thread_local OwnModules* g_modules = nullptr;
}

OwnModules::OwnModules() : outer_(std::exchange(g_modules, this)) {}
OwnModules::~OwnModules() { g_modules = outer_; }

OwnCall::OwnCall(const std::shared_ptr<const Module>& module, const Tree<Value>& inputs) {
  if (g_modules == nullptr || dynamic_cast<const KnownSteps*>(module.get()) != nullptr) return;
  noted_ = std::exchange(g_modules, nullptr);
  noted_->calls_.push_back({module, inputs.map([](const Value& v) { return v.type(); })});
}

OwnCall::~OwnCall() {
  if (noted_ != nullptr) g_modules = noted_;
}

}  // namespace hotloop::nn
