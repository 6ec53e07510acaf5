//! Pushing a task, or running it in this process if the queue cannot be reached.

use std::future::Future;

use anyqueue::{Error, ErrorKind, IntoPartitionId, MessageData, PushOutcome, Pusher, Result};

/// When a task may be run in this process instead of being pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fallback {
    /// Never: the error is returned.
    Never,
    /// If the queue cannot be reached and the message is certainly not stored. The task runs once.
    IfCertain,
    /// Also if the message may have been stored, for instance if the response was lost. The task may run a
    /// second time from the queue, so it must tolerate that.
    Always,
}

/// What became of the task.
#[derive(Clone, Debug)]
#[must_use = "it says whether the task was pushed or has run"]
#[non_exhaustive]
pub enum PushedOrRan<T> {
    /// It is in the queue.
    Pushed(PushOutcome),
    /// It was run here.
    Ran {
        /// What the task returned.
        result: T,
        /// Why it could not be pushed.
        error: Error,
        /// Whether its message may be in the queue all the same; only possible with [`Fallback::Always`].
        may_be_pushed: bool,
    },
}

/// Pushes a message, or runs the task here and now if the queue cannot be reached.
///
/// The task runs if the push fails with [`Unavailable`](ErrorKind::Unavailable) or
/// [`TimedOut`](ErrorKind::TimedOut), and `fallback` allows it. This is only known after the queue's timeouts
/// and [repetitions](anyqueue::RetryPolicy). `run` gets the message, with the id under which it was pushed.
///
/// A task that runs here has no retries, no lease, and no entry in the ledger.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use anyqueue_worker::{Fallback, PushedOrRan, push_or_run, task};
///
/// async fn send_mail(to: &str) -> std::io::Result<()> {
///     println!("hello {to}");
///     Ok(())
/// }
///
/// # let queue = anyqueue::Queue::new(anyqueue_memory::MemoryQueue::new())?;
/// let to = "a@example.org";
/// let message = task("send_mail", &to)?;
/// match push_or_run(&queue.pusher(), "mail", message, Fallback::IfCertain, |_| send_mail(to)).await? {
///     PushedOrRan::Pushed(_) => println!("a worker sends it"),
///     PushedOrRan::Ran { result, .. } => println!("sent here: {result:?}"),
///     _ => {}
/// }
/// # Ok::<(), anyqueue::Error>(()) }).unwrap();
/// ```
///
/// # Errors
/// The error of the push, if it is of another kind or `fallback` does not allow the task to run.
/// [`Error::is_uncertain`] says whether the message may have been stored.
///
/// # Cancellation
/// Dropping the future leaves the message either stored or not stored, or drops the running task.
pub async fn push_or_run<F, Fut>(
    pusher: &Pusher,
    partition: impl IntoPartitionId,
    message: MessageData,
    fallback: Fallback,
    run: F,
) -> Result<PushedOrRan<Fut::Output>>
where
    F: FnOnce(MessageData) -> Fut,
    Fut: Future,
{
    let error = match pusher.push(partition, message.clone()).await {
        Ok(outcome) => return Ok(PushedOrRan::Pushed(outcome)),
        Err(error) => error,
    };
    if !fallback.allows(&error) {
        return Err(error);
    }
    tracing::warn!(id = %message.id(), %error, "the queue cannot be reached: the task runs here");
    let may_be_pushed = error.is_uncertain();
    Ok(PushedOrRan::Ran { result: run(message).await, error, may_be_pushed })
}

impl Fallback {
    fn allows(self, error: &Error) -> bool {
        let is_out_of_reach = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::TimedOut);
        is_out_of_reach
            && match self {
                Self::Never => false,
                Self::IfCertain => !error.is_uncertain(),
                Self::Always => true,
            }
    }
}
