//! The tasks that wake waiting pulls: for hints of other calls and processes, for time, and in case a hint got lost.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::{ErrorKind, Result};
use futures_util::StreamExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::error;
use crate::hint::Hint;
use crate::limits::JITTER;
use crate::link::Link;
use crate::waiters::Wake;

/// How long until the server is tried again after it could not be asked.
const AFTER_ERROR: Duration = Duration::from_millis(250);

/// Wakes for what is due, and now and then for what was missed. While nobody waits it sleeps.
pub(crate) async fn watch(wake: Arc<Wake>, poll_interval: Duration, closed: CancellationToken) {
    let mut next_look = Instant::now() + jittered(poll_interval);
    loop {
        let waited_for = wake.is_waited_for();
        tokio::select! {
            () = closed.cancelled() => return,
            () = wake.changed() => {}
            () = until(wake.next_due()), if waited_for => wake.fire(Instant::now()),
            () = tokio::time::sleep_until(next_look), if waited_for => {
                wake.look_at_all();
                next_look = Instant::now() + jittered(poll_interval);
            }
        }
    }
}

fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(1.0 - JITTER + 2.0 * JITTER * fastrand::f64())
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

/// Receives hints on a connection of its own, from the first wait until the handle closes.
pub(crate) struct Listener {
    pub(crate) wake: Arc<Wake>,
    pub(crate) link: Arc<Link>,
    pub(crate) channel: String,
    /// The name of this handle, whose own calls are no news.
    pub(crate) caller: String,
    /// Cancelled when somebody waits for the first time.
    pub(crate) begin: CancellationToken,
}

impl Listener {
    pub(crate) async fn serve(self, closed: CancellationToken) {
        tokio::select! {
            () = closed.cancelled() => return,
            () = self.begin.cancelled() => {}
        }
        let listen = async {
            loop {
                let Err(error) = self.listen().await;
                tracing::debug!(%error, "no hints for the moment: waiting pulls poll");
                tokio::time::sleep(AFTER_ERROR).await;
            }
        };
        tokio::select! {
            () = closed.cancelled() => {}
            () = listen => {}
        }
    }

    /// Until the connection breaks. What was missed by then is found by looking.
    async fn listen(&self) -> Result<std::convert::Infallible> {
        let mut subscriber = self.link.subscriber().await?;
        let broken = |_| error(ErrorKind::Unavailable, "the connection for hints broke");
        subscriber.subscribe(&self.channel).await.map_err(broken)?;
        self.wake.look_at_all();
        let mut hints = subscriber.into_on_message();
        while let Some(message) = hints.next().await {
            if let Some((partition, hint, caller)) = Hint::read(message.get_payload_bytes())
                && (caller != self.caller || hint.ready == 0)
            {
                self.wake.hint(&partition, hint);
            }
        }
        Err(error(ErrorKind::Unavailable, "the connection for hints broke"))
    }
}
