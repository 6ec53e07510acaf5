//! What others tell a worker to do while it runs.

use anyqueue::MessageId;

use crate::stop::CancelReason;
use crate::worker::Worker;

impl Worker {
    /// Takes on nothing new, from any partition, until it is told otherwise. Running tasks continue. Partitions that are
    /// [paused](Self::pause) stay so when the worker goes on.
    pub fn set_quiet(&self, quiet: bool) {
        self.0.control().quiet = quiet;
        self.0.pool.changed.notify_one();
    }

    /// Whether it was told to take on nothing new.
    pub fn is_quiet(&self) -> bool {
        self.0.control().quiet
    }

    /// Asks the handler of a running task to stop, as [`Queue::request_cancel`](anyqueue::Queue::request_cancel) does from anywhere, but at once. Returns
    /// whether this worker runs it.
    pub fn cancel(&self, id: MessageId) -> bool {
        let task = self.0.pool.running.find(id);
        task.inspect(|task| task.cancel(CancelReason::CancelRequested)).is_some()
    }
}
