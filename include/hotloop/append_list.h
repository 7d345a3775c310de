// AppendList: the compiled programs of a function, found without a lock.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

namespace hotloop::detail {

// A list that only grows. Any thread may search it at any time; those that add take turns by a lock of theirs.
template <class T> class AppendList {
 public:
  AppendList() = default;
  AppendList(const AppendList&) = delete;
  AppendList& operator=(const AppendList&) = delete;
  ~AppendList() {
    // Unlinked one by one: a long list must not recurse.
    std::unique_ptr<Entry> entry(head_.load(std::memory_order_relaxed));
    while (entry) entry = std::move(entry->next);
  }

  // The newest that `fits`; nullptr if none does. It stays where it is.
  template <class F> const T* find(const F& fits) const {
    for (const Entry* e = head_.load(std::memory_order_acquire); e != nullptr; e = e->next.get())
      if (fits(e->item)) return &e->item;
    return nullptr;
  }
  const T& add(T item) {
    auto entry = std::make_unique<Entry>(Entry{std::move(item), nullptr});
    entry->next.reset(head_.load(std::memory_order_relaxed));
    head_.store(entry.get(), std::memory_order_release);
    return entry.release()->item;
  }

 private:
  struct Entry {
    T item;
    std::unique_ptr<Entry> next;
  };
  std::atomic<Entry*> head_{nullptr};
};

}  // namespace hotloop::detail
