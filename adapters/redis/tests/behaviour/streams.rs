//! Streams, whose settlements bring the next deliveries with them, two calls at a time.

use anyqueue::{MessageData, Queue, QueueMessageStatus::Processed, SettleOutcome};
use futures_util::StreamExt as _;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::common::{Bed, SOON};

const MESSAGES: u32 = 5_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stream_whose_settlements_overlap_keeps_push_order() {
    let Some(bed) = Bed::find().await else { return };
    let queue = Queue::new(bed.open().await).unwrap();
    let messages = (0..MESSAGES).map(|number| MessageData::new(number.to_be_bytes())).collect();
    queue.push_many("p", messages).await.unwrap();
    let mut stream = queue.stream("p").window(64).build().unwrap();
    let mut settling = JoinSet::new();
    for expected in 0..MESSAGES {
        let mut delivery = timeout(SOON, stream.next()).await.unwrap().unwrap().unwrap();
        assert_eq!(delivery.payload(), expected.to_be_bytes(), "number {expected}");
        settling.spawn(async move { delivery.settle(Processed).await.unwrap() });
    }
    while let Some(settled) = settling.join_next().await {
        assert_eq!(settled.unwrap(), SettleOutcome::Settled);
    }
    assert_eq!(queue.counts("p").await.unwrap().ready, Some(0));
}
