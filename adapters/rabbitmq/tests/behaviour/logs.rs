//! What is logged: never a payload.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use anyqueue::MessageData;
use anyqueue::adapter::PushQueueStorage;
use lapin::options::QueueDeleteOptions;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

use crate::common::{Bed, messages, part, push};

/// Writes down all that is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl<S: tracing::Subscriber> Layer<S> for Log {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        // Below it the client writes down each frame; that is for who debugs it.
        if *event.metadata().level() <= tracing::Level::DEBUG {
            let mut log = self.0.lock().unwrap();
            writeln!(log, "{} {event:?}", event.metadata().target()).unwrap();
            event.record(&mut |field: &tracing::field::Field, value: &dyn std::fmt::Debug| {
                writeln!(log, "{field}={value:?}").unwrap();
            });
        }
    }
}

#[tokio::test]
async fn a_message_that_the_broker_returns_is_not_logged() {
    let Some(bed) = Bed::shared().await else { return };
    let log = Log::default();
    let _heard = tracing::subscriber::set_default(tracing_subscriber::registry().with(log.clone()));
    let (p, queue) = (part("work"), bed.open().await);
    push(&queue, &p, &messages(1)).await;
    let (_conn, channel) = bed.channel().await;
    channel.queue_delete(bed.queue(&p, 0).into(), QueueDeleteOptions::default()).await.unwrap();
    let secret = "SECRET-PAYLOAD";
    queue.push(&p, &[MessageData::new(secret)]).await.remove(0).unwrap_err();
    let bytes = format!("{:?}", secret.as_bytes());
    let log = log.0.lock().unwrap();
    assert!(log.contains("lapin"), "nothing of the client was heard: {log}");
    assert!(!log.contains(secret) && !log.contains(bytes.trim_matches(['[', ']'])), "{log}");
}
