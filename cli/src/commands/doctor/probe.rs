//! A message there and back, which shows that pushing, pulling and settling work.
//!
//! Several probes may run at once, as the replicas of a roll-out do. Each pushes one message and takes one away, whoever pushed it:
//! as many are in the queue as are still wanted, so each finds one, in whatever order the backend gives them. If each insisted on its
//! own they would take each other's.

use std::time::{Duration, Instant};

use anyqueue::{Error, ErrorKind, MessageData, Queue, QueueMessageHandler, QueueMessageStatus};

use crate::open::{self, Create};
use crate::output::duration;

pub(super) const QUEUE: &str = "anyqueue-doctor";
const PAYLOAD: &str = "a probe of anyqueue doctor";
/// How long a probe waits for a message.
const WAIT: Duration = Duration::from_secs(10);
/// What a probe that was killed leaves behind expires once nobody can wait for it any more: who took its place had pushed, at the
/// earliest, one wait before.
const TIME_TO_LIVE: Duration = Duration::from_secs(30);

/// Through a handle of its own: the one that only looks does not make the probe's queue where each queue is made by itself.
pub(super) async fn run(url: &str) -> anyqueue::Result<String> {
    let queue = Queue::new(open::storage(url, Create::AsTold).await?)?;
    queue.init().await?;
    let probed = there_and_back(&queue).await;
    queue.close().await?;
    probed
}

async fn there_and_back(queue: &Queue) -> anyqueue::Result<String> {
    let begin = Instant::now();
    let message = MessageData::new(PAYLOAD).with_time_to_live(TIME_TO_LIVE);
    queue.push(QUEUE, message).await?;
    let stored = begin.elapsed();
    let mut handler = take(queue, begin + WAIT).await?;
    handler.settle(QueueMessageStatus::Processed).await?;
    let all = duration(begin.elapsed());
    Ok(format!("pushed within {}, pulled and settled within {all}", duration(stored)))
}

/// A probe's message: one, so that others find theirs.
async fn take(queue: &Queue, until: Instant) -> anyqueue::Result<QueueMessageHandler> {
    let left = until.saturating_duration_since(Instant::now());
    let Some(handler) = queue.pull(QUEUE).max(1).wait(left).await?.pop() else {
        let text = format!("the message that was pushed did not come back: is the queue {QUEUE} paused?");
        return Err(Error::new(ErrorKind::TimedOut, text));
    };
    if handler.payload() != PAYLOAD.as_bytes() {
        // Dropped, it is released.
        let text = format!("the queue {QUEUE} holds a message of somebody else: it is for probes alone");
        return Err(Error::new(ErrorKind::Incompatible, text));
    }
    Ok(handler)
}
