//! The slots of a worker, and changing them while it runs.

use anyqueue::{Error, Result};

use crate::config::MAX_SLOTS;
use crate::worker::Worker;

impl Worker {
    /// The number of slots, as set. [`Health::slots`](crate::Health::slots) says how many of them the worker
    /// may use at the moment.
    pub fn slots(&self) -> usize {
        self.0.pool.all_slots()
    }

    /// Changes the number of slots, even while the worker runs. Returns without waiting. Later runs keep the
    /// new number.
    ///
    /// If more tasks are running than there are slots now, they run to their end, and no others start in the
    /// meantime. Messages that were [prefetched](crate::WorkerBuilder::prefetch) beyond the new number are
    /// released at once. A [heavy task](crate::Kind::slots) that takes more slots than are left gets all of
    /// them.
    ///
    /// With 0 slots the worker takes on nothing, as if all its partitions were [paused](Self::pause), until
    /// it has slots again. It still counts as live.
    ///
    /// ```
    /// # use anyqueue_worker::{Partition, TaskContext, Worker};
    /// # let _runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    /// # let _entered = _runtime.enter();
    /// # let queue = anyqueue::Queue::new(anyqueue_memory::MemoryQueue::new())?;
    /// # let worker = Worker::builder(queue).partition(Partition::new("mail"));
    /// # let worker = worker.handler("send_mail", |_: String, _: TaskContext| async { Ok(()) }).build()?;
    /// worker.set_slots(4)?; // for instance by day, when the machine has other work
    /// assert_eq!(worker.slots(), 4);
    /// # Ok::<(), anyqueue::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) for more than [`MAX_SLOTS`].
    pub fn set_slots(&self, slots: usize) -> Result<()> {
        if slots > MAX_SLOTS {
            return Err(Error::invalid(format!("{slots} slots are too many: set at most {MAX_SLOTS}")));
        }
        self.0.pool.set_slots(slots);
        Ok(())
    }
}
