// AppendList: the compiled programs of a function, found without a lock.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

namespace hotloop::detail {

// A list that only grows. Any thread may search it and add to it at any time.
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
    Entry* const entry = std::make_unique<Entry>(Entry{std::move(item), nullptr}).release();
    Entry* head = head_.load(std::memory_order_relaxed);
    do {
      static_cast<void>(entry->next.release());  // another's
      entry->next.reset(head);
    } while (!head_.compare_exchange_weak(head, entry, std::memory_order_release, std::memory_order_relaxed));
    return entry->item;
  }

 private:
  struct Entry {
    T item;
    std::unique_ptr<Entry> next;
  };
  std::atomic<Entry*> head_{nullptr};
};

}  // namespace hotloop::detail
