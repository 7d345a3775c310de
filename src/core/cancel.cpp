#include "core/cancel.h"

#include "hotloop/cancel.h"

namespace hotloop {
namespace {

CancelToken g_token;  // of request_cancel()
thread_local const CancelToken* g_innermost = nullptr;

}  // namespace

const CancelToken never_cancelled;

void request_cancel() noexcept { g_token.request(); }
void clear_cancel() noexcept { g_token.clear(); }

const CancelToken& cancel_token() { return g_innermost != nullptr ? *g_innermost : g_token; }
bool cancel_requested() { return cancel_token().requested(); }
void leave_if_cancelled() {
  if (cancel_requested()) throw Cancelled();
}

CancelScope::CancelScope(const CancelToken& token) : outer_(g_innermost) { g_innermost = &token; }
CancelScope::~CancelScope() { g_innermost = outer_; }

CancelWatch::CancelWatch() : token_(cancel_token()), before_(token_.state()) {
  if ((before_ & 1) != 0) throw Cancelled();
}

void CancelWatch::finish() const {
  if (token_.state() != before_) throw Cancelled();
}

}  // namespace hotloop
