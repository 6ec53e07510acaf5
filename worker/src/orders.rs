//! Orders that others give a worker while it runs.

use anyqueue::MessageId;

use crate::stop::CancelReason;
use crate::worker::Worker;

impl Worker {
    /// Makes the worker take on nothing new, from any partition, until this is called with `false`. Running
    /// tasks continue. Partitions that are [paused](Self::pause) stay paused when the worker resumes.
    pub fn set_quiet(&self, quiet: bool) {
        self.0.control().quiet = quiet;
        self.0.pool.changed.notify_one();
    }

    /// Whether [`set_quiet`](Self::set_quiet) told the worker to take on nothing new.
    pub fn is_quiet(&self) -> bool {
        self.0.control().quiet
    }

    /// Asks the handler of a running task to stop, like
    /// [`Queue::request_cancel`](anyqueue::Queue::request_cancel), which works from any process, but at once.
    /// Returns whether this worker runs the task.
    pub fn cancel(&self, id: MessageId) -> bool {
        let task = self.0.pool.running.find(id);
        task.inspect(|task| task.cancel(CancelReason::CancelRequested)).is_some()
    }
}
