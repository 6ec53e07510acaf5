//! What is logged: never a payload.

use anyqueue::MessageData;
use anyqueue::adapter::PushQueueStorage;
use anyqueue_testkit::recorder::{Record, Recorder};
use lapin::options::QueueDeleteOptions;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::common::{Bed, messages, part, push};

#[tokio::test]
async fn a_message_that_the_broker_returns_is_not_logged() {
    let Some(bed) = Bed::shared().await else { return };
    let recorder = Recorder::default();
    let _heard = tracing::subscriber::set_default(tracing_subscriber::registry().with(recorder.clone()));
    let (p, queue) = (part("work"), bed.open().await);
    push(&queue, &p, &messages(1)).await;
    let (_conn, channel) = bed.channel().await;
    channel.queue_delete(bed.queue(&p, 0).into(), QueueDeleteOptions::default()).await.unwrap();
    let secret = "SECRET-PAYLOAD";
    queue.push(&p, &[MessageData::new(secret)]).await.remove(0).unwrap_err();
    let bytes = format!("{:?}", secret.as_bytes());
    // Below DEBUG the client writes down each frame, for who debugs it.
    let is_log = |event: &Record| *event.metadata.level() <= tracing::Level::DEBUG;
    let log: Vec<_> = recorder.events().into_iter().filter(is_log).collect();
    let log = format!("{log:?}");
    assert!(log.contains("lapin"), "nothing of the client was heard: {log}");
    assert!(!log.contains(secret) && !log.contains(bytes.trim_matches(['[', ']'])), "{log}");
}
