//! What a run may use before it ends by itself, so that a process that leaks is replaced by a fresh one.

use std::num::NonZeroU64;

use crate::builder::WorkerBuilder;
use crate::memory::resident_memory;

impl WorkerBuilder {
    /// Sets how many tasks one run takes on. Then the run takes on nothing more, waits for running tasks,
    /// however long they take, and ends; [`Summary::reached`](crate::Summary::reached) says so. Messages held
    /// beyond the limit are released, uncounted. A batch counts as all of its tasks and is not cut, so the
    /// last batch can exceed the limit. Tasks that are settled without having run do not count. Default: no
    /// limit.
    pub fn max_tasks(mut self, tasks: u64) -> Self {
        self.config.max_tasks = NonZeroU64::new(tasks);
        if tasks == 0 {
            self.problems.push("a run of 0 tasks can do nothing: allow at least 1".to_owned());
        }
        self
    }

    /// Sets how much memory, in bytes, the process may occupy. When it occupies more, the run ends as with
    /// [`max_tasks`](Self::max_tasks). The worker checks this about once a second, but only after the run has
    /// taken on a task: with too low a limit, work is slow but does not stop. Memory of other processes that
    /// a handler starts does not count. Default: no limit.
    ///
    /// This needs Linux (`/proc/self/status`); elsewhere [`build`](Self::build) refuses the setting.
    pub fn max_memory(mut self, bytes: u64) -> Self {
        self.config.max_memory_bytes = Some(bytes);
        if resident_memory().is_none() {
            self.problems.push(
                "the memory of this process is not known, for there is no /proc/self/status: leave out max_memory()"
                    .to_owned(),
            );
        }
        self
    }
}
