// The machine's CUDA device, which remembers its last launch, so that it can be launched again and again without what goes there and comes back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "backends/cuda/device.h"

namespace hotloop::bench {

struct Launch {
  cuda::Stream* stream = nullptr;
  cuda::Code* code = nullptr;
  cuda::LaunchShape shape;
  cuda::KernelArguments arguments;

  void again() const { stream->launch(*code, shape, arguments); }
};

class RecordingStream final : public cuda::Stream {
 public:
  RecordingStream(std::unique_ptr<cuda::Stream> inner, Launch& last) : inner_(std::move(inner)), last_(last) {}
  void copy_in(cuda::Address to, const void* from, std::size_t bytes) override { inner_->copy_in(to, from, bytes); }
  void copy_out(void* to, cuda::Address from, std::size_t bytes) override { inner_->copy_out(to, from, bytes); }
  void fill(cuda::Address at, unsigned char byte, std::size_t bytes) override { inner_->fill(at, byte, bytes); }
  void launch(cuda::Code& code, const cuda::LaunchShape& shape, const cuda::KernelArguments& arguments) override {
    last_ = {inner_.get(), &code, shape, arguments};
    last_.again();
  }
  bool is_done() override { return inner_->is_done(); }
  void wait() override { inner_->wait(); }

 private:
  std::unique_ptr<cuda::Stream> inner_;
  Launch& last_;
};

class RecordingDevice final : public cuda::Device {
 public:
  explicit RecordingDevice(cuda::Device& inner) : inner_(inner) {}
  const cuda::DeviceInfo& info() const override { return inner_.info(); }
  std::unique_ptr<cuda::Code> compile(const std::string& source, const cuda::CodeOptions& options) override {
    return inner_.compile(source, options);
  }
  cuda::Address allocate(std::size_t bytes) override { return inner_.allocate(bytes); }
  void release(cuda::Address at) noexcept override { inner_.release(at); }
  void* allocate_pinned(std::size_t bytes) override { return inner_.allocate_pinned(bytes); }
  void release_pinned(void* at) noexcept override { inner_.release_pinned(at); }
  std::unique_ptr<cuda::Stream> stream() override { return std::make_unique<RecordingStream>(inner_.stream(), last_); }
  // Valid while the executable lives that made it.
  const Launch& last_launch() const { return last_; }

 private:
  cuda::Device& inner_;
  Launch last_;
};

}  // namespace hotloop::bench
