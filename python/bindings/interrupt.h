// Ctrl-C while a kernel runs.
#pragma once

#include <functional>

namespace hotloop::python {

// Remembers which thread Python delivers signals to. To be called with the GIL held, from the import.
void remember_main_thread();

// Runs `work`, which may throw Cancelled, without the GIL. In Python's main thread SIGINT meanwhile asks the kernel to stop; then
// Python's own handler decides, usually by raising KeyboardInterrupt (as nb::python_error). If it raises nothing, the work, which is a pure
// function, is run again. Other threads hear nothing of it.
void run_interruptibly(const std::function<void()>& work);
// The same for work that cannot be run again, since it writes over what it reads. It is stopped only where the interrupt is sure to
// raise: in the main thread, under Python's own handler. Otherwise the handler waits for the end of the work.
void run_once_interruptibly(const std::function<void()>& work);
// The same for work of some microseconds, which keeps the GIL: SIGINT waits for its end, but for one that a call around it (a training whose
// callback this is) has heard.
void run_briefly(const std::function<void()>& work);

// For work that was stopped by Cancelled inside run_interruptibly and can be taken up where it was: raises what Python's handler raises (as
// nb::python_error), else true. To be called without the GIL.
bool goes_on_after_cancel();

}  // namespace hotloop::python
