//! What a run may use up before it ends by itself, so that a process that leaks is replaced by a fresh one.

use std::num::NonZeroU64;

use crate::builder::WorkerBuilder;
use crate::memory::resident_memory;

impl WorkerBuilder {
    /// How many tasks one run takes on. Then it takes on nothing more, waits for those that run, however long they take, and ends:
    /// [`Summary::reached`](crate::Summary::reached) says so. What it held beyond is released, uncounted. A batch counts as all its tasks and is not cut, so that
    /// the last one can exceed the number. Tasks that are settled without having run do not count. Default: no limit.
    pub fn max_tasks(mut self, tasks: u64) -> Self {
        self.config.max_tasks = NonZeroU64::new(tasks);
        if tasks == 0 {
            self.problems.push("a run of 0 tasks can do nothing: allow at least 1".to_owned());
        }
        self
    }

    /// How much memory, in bytes, the process may occupy. When it occupies more, the run ends as with [`max_tasks`](Self::max_tasks). It looks about once a
    /// second, and not before the run has taken on a task: with too little it is slow and does not stand still. Memory of other processes that a handler
    /// starts does not count. Default: no limit.
    ///
    /// Only Linux tells how much that is (`/proc/self/status`); elsewhere [`build`](Self::build) refuses it.
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
