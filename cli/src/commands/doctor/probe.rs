//! A round trip of one message, which shows that pushing, pulling and settling work.
//!
//! Several probes can run at once, for example from the replicas of a deployment. Each pushes one message and
//! takes one, no matter whose: the queue then always holds one for each probe that still needs one. If each
//! waited for its own message, they would take each other's.

use std::time::{Duration, Instant};

use anyqueue::{Delivery, Error, ErrorKind, MessageData, Queue, QueueMessageStatus};

use crate::open::{self, Create};
use crate::output::duration;

pub(super) const QUEUE: &str = "anyqueue-doctor";
const PAYLOAD: &str = "a probe of anyqueue doctor";
/// How long a probe waits for a message.
const WAIT: Duration = Duration::from_secs(10);
/// The message of a killed probe expires once no other probe can still be waiting for it.
const TIME_TO_LIVE: Duration = Duration::from_secs(30);

/// Uses a handle of its own: the other handle was opened so as not to create anything, and could not create
/// the probe's queue.
pub(super) async fn run(url: &str) -> anyqueue::Result<String> {
    let queue = Queue::new(open::storage(url, Create::AsUrlSays).await?)?;
    queue.init().await?;
    let probed = round_trip(&queue).await;
    queue.close().await?;
    probed
}

async fn round_trip(queue: &Queue) -> anyqueue::Result<String> {
    let begin = Instant::now();
    let message = MessageData::new(PAYLOAD).with_time_to_live(TIME_TO_LIVE);
    queue.push(QUEUE, message).await?;
    let stored = begin.elapsed();
    let mut handler = take(queue, begin + WAIT).await?;
    handler.settle(QueueMessageStatus::Processed).await?;
    let all = duration(begin.elapsed());
    Ok(format!("pushed within {}, pulled and settled within {all}", duration(stored)))
}

/// Takes one probe's message, and no more, so that other probes find theirs.
async fn take(queue: &Queue, until: Instant) -> anyqueue::Result<Delivery> {
    let left = until.saturating_duration_since(Instant::now());
    let Some(handler) = queue.pull(QUEUE).max(1).wait(left).await?.pop() else {
        let text = format!("the message that was pushed did not come back: is the queue {QUEUE} paused?");
        return Err(Error::new(ErrorKind::TimedOut, text));
    };
    if handler.payload() != PAYLOAD.as_bytes() {
        // When it is dropped, the message is released.
        let text =
            format!("the queue {QUEUE} holds a message that is not from a probe: use it for nothing else");
        return Err(Error::new(ErrorKind::Incompatible, text));
    }
    Ok(handler)
}
