//! A pool of bounded size over a set that is too large to enqueue.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use anyqueue::{Bytes, Error, IntoPartitionId, MessageData, MessageId, PushOutcome, Queue, Result};
use serde::{Deserialize, Serialize};

use crate::context::TaskContext;
use crate::error::{TaskError, TaskResult};
use crate::message::header::{CURSOR, KIND};

/// The most parts that a work set can have.
pub const MAX_WIDTH: usize = 10_000;
/// The longest cursor, in bytes.
pub const MAX_CURSOR_BYTES: usize = 1024;
/// The default for how many items a run takes on.
const CHUNK: usize = 100;

/// Which part of a source to read. Each item belongs to exactly one part, for instance to the part whose
/// number is the item's key modulo `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(clippy::exhaustive_structs, reason = "a part of a whole is nothing else")]
pub struct Part {
    /// From 0 to `of` − 1.
    pub number: usize,
    /// How many parts there are.
    pub of: usize,
}

/// Where the items of a [`WorkSet`] come from, in an order that does not change: a table by its key, a
/// directory by its names.
pub trait WorkSource: Send + Sync + 'static {
    /// One piece of work.
    type Item: Send + 'static;

    /// Returns up to `max` items of a part that come after the item with the cursor `after`, each with its
    /// own cursor; without a cursor, the first items. If it returns none, the part is done. Items that are
    /// added to the source in the meantime are found if they come after the cursor.
    ///
    /// # Errors
    /// Treated like the errors of a handler: the run is retried, from the same cursor.
    fn next(
        &self,
        part: Part,
        after: Option<&str>,
        max: usize,
    ) -> impl Future<Output = std::result::Result<Vec<(String, Self::Item)>, TaskError>> + Send;
}

/// Works through a set of any size with a few messages: `width` messages, each of which stands for a part of
/// the set and carries a cursor.
///
/// A run of such a message takes the next items of its part, passes them one by one to the handler, and puts
/// the message back with the cursor of the last item, in one step where the backend
/// [can](anyqueue::adapter::Capabilities::moves) do that. So a set of a million rows keeps only `width`
/// messages in the queue and as many chunks in memory. When a process dies, the set continues from where it
/// was, and no item is skipped. Items that a killed or failed run processed after the last stored cursor are
/// processed again: make the handler idempotent. A shutdown stores the cursor first.
///
/// An item whose handler fails holds up its part: the message is retried from that item according to the
/// [`Retry`](crate::Retry) policy. In the end it goes to the dead letters with its cursor, and a redrive
/// continues from there.
///
/// ```
/// use anyqueue::Queue;
/// use anyqueue_worker::{Part, Partition, TaskContext, TaskError, WorkSet, WorkSource, Worker};
///
/// /// The numbers below a million; a table would be asked `WHERE id > cursor AND id % of = number ORDER BY id LIMIT max`.
/// struct Numbers(u64);
///
/// impl WorkSource for Numbers {
///     type Item = u64;
///     async fn next(&self, part: Part, after: Option<&str>, max: usize) -> Result<Vec<(String, u64)>, TaskError> {
///         let step = part.of as u64;
///         let first = match after {
///             Some(cursor) => cursor.parse::<u64>()? + step,
///             None => part.number as u64,
///         };
///         Ok((first..self.0).step_by(part.of).take(max).map(|number| (number.to_string(), number)).collect())
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let queue = Queue::new(anyqueue_memory::MemoryQueue::new())?;
/// let numbers = WorkSet::new("numbers", 4, Numbers(1000))?;
/// numbers.start(&queue, "sets").await?;
///
/// let worker = Worker::builder(queue)
///     .partition(Partition::new("sets"))
///     .work_set(numbers, |number: u64, _: TaskContext| async move {
///         assert!(number < 1000);
///         Ok(())
///     })
///     .build()?;
/// worker.run_once().await?; // until nothing waits
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
#[must_use = "start it, and give it to a worker"]
pub struct WorkSet<S> {
    name: Arc<str>,
    width: usize,
    chunk: usize,
    source: Arc<S>,
}

impl<S: WorkSource> WorkSet<S> {
    /// Makes a set of this name in `width` parts. Up to `width` of its items are worked on at once, in all
    /// processes together.
    ///
    /// # Errors
    /// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) for a name that is empty or has more than 128
    /// bytes, and for a width of 0 or above [`MAX_WIDTH`].
    pub fn new(name: impl Into<Arc<str>>, width: usize, source: S) -> Result<Self> {
        let name = name.into();
        if name.is_empty() || name.len() > 128 {
            return Err(Error::invalid(format!(
                "the name of a work set has {} bytes: 1 to 128 are allowed",
                name.len()
            )));
        }
        if !(1..=MAX_WIDTH).contains(&width) {
            return Err(Error::invalid(format!("a work set of {width} parts: 1 to {MAX_WIDTH} are allowed")));
        }
        Ok(Self { name, width, chunk: CHUNK, source: Arc::new(source) })
    }

    /// Sets how many items a run takes on at most, which then share one settlement. At least 1. Default: 100.
    pub fn chunk(mut self, items: usize) -> Self {
        self.chunk = items.max(1);
        self
    }

    /// Pushes the messages of all parts that are not in the queue already, and returns how many it pushed.
    /// Any process may call it again: if ids are unique
    /// ([`unique_ids`](anyqueue::adapter::Capabilities::unique_ids)), a part that is under way is left alone.
    /// A part that has ended begins again.
    ///
    /// # Errors
    /// Those of a push. Messages pushed before the error stay in the queue.
    ///
    /// # Cancellation
    /// Dropping the future leaves each part either started or not.
    pub async fn start(&self, queue: &Queue, partition: impl IntoPartitionId) -> Result<usize> {
        let message = |number| self.message(Part { number, of: self.width });
        let messages = (0..self.width).map(message).collect::<Result<_>>()?;
        let mut started = 0;
        for outcome in queue.push_many(partition, messages).await? {
            started += usize::from(matches!(outcome?, PushOutcome::Stored(_)));
        }
        Ok(started)
    }

    fn message(&self, part: Part) -> Result<MessageData> {
        let id =
            MessageId::from_foreign(&format!("work set {} part {} of {}", self.name, part.number, part.of));
        let payload = serde_json::to_vec(&part)
            .map_err(|error| Error::invalid("a part cannot be written as JSON").with_source(error))?;
        let task_id = format!("{} {}/{}", self.name, part.number + 1, part.of);
        Ok(MessageData::with_id(id, payload).with_header(KIND, self.kind()).with_task_id(task_id))
    }

    /// The kind of its messages.
    pub(crate) fn kind(&self) -> String {
        format!("work-set {}", self.name)
    }

    /// The function that runs its messages.
    pub(crate) fn runner<F, Fut>(self, handler: F) -> impl Fn(Bytes, TaskContext) -> RunFuture
    where
        F: Fn(S::Item, TaskContext) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = TaskResult> + Send + 'static,
    {
        let (source, handler) = (self.source, Arc::new(handler));
        move |payload, task| {
            let (source, handler) = (source.clone(), handler.clone());
            Box::pin(async move { run(&*source, &*handler, self.chunk, &payload, task).await })
        }
    }
}

type RunFuture = std::pin::Pin<Box<dyn Future<Output = TaskResult> + Send>>;

/// Takes on the next items of a part. Notes the cursor after each item, so that the work done is kept
/// whatever ends the run.
async fn run<S, F, Fut>(
    source: &S,
    handler: &F,
    chunk: usize,
    payload: &[u8],
    task: TaskContext,
) -> TaskResult
where
    S: WorkSource,
    F: Fn(S::Item, TaskContext) -> Fut + Send + Sync,
    Fut: Future<Output = TaskResult> + Send,
{
    let part: Part = serde_json::from_slice(payload)?;
    let after = task.message().headers().get(CURSOR).cloned();
    for (cursor, item) in source.next(part, after.as_deref(), chunk).await? {
        if cursor.len() > MAX_CURSOR_BYTES {
            let text = format!("a cursor has {} bytes: at most {MAX_CURSOR_BYTES} are allowed", cursor.len());
            return Err(TaskError::permanent(text));
        }
        handler(item, task.clone()).await?;
        task.go_on_after(cursor);
        if task.cancel_reason().is_some() {
            break;
        }
    }
    Ok(())
}

impl<S> fmt::Debug for WorkSet<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkSet")
            .field("name", &self.name)
            .field("width", &self.width)
            .field("chunk", &self.chunk)
            .finish_non_exhaustive()
    }
}
