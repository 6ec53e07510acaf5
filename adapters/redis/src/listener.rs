//! The tasks that wake waiting pulls: for hints from other calls and processes, for delays and leases that
//! end, and in case a hint was lost.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::{EndWatches, Waiters};
use anyqueue::{ErrorKind, Result};
use futures_util::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::end_news;
use crate::error::ERRORS;
use crate::hint;
use crate::limits::JITTER;
use crate::link::Link;

/// How long after an error the server is asked again.
const AFTER_ERROR: Duration = Duration::from_millis(250);

/// Wakes pulls for what is due, and polls now and then in case a hint was lost. While no pull waits it
/// sleeps.
pub(crate) async fn watch(waiters: Arc<Waiters>, poll_interval: Duration, closed: CancellationToken) {
    let jittered = || poll_interval.mul_f64(1.0 - JITTER + 2.0 * JITTER * fastrand::f64());
    let poll = || {
        waiters.wake_each(1);
        std::future::ready(jittered())
    };
    tokio::select! {
        () = closed.cancelled() => {}
        () = waiters.watch(jittered(), poll) => {}
    }
}

/// Receives hints on its own connection, from the first wait until the handle closes.
pub(crate) struct Listener {
    pub(crate) waiters: Arc<Waiters>,
    pub(crate) end_watches: Arc<EndWatches>,
    pub(crate) link: Arc<Link>,
    pub(crate) channel: String,
    /// The name of this handle, which ignores hints from its own calls.
    pub(crate) caller: String,
    /// Cancelled when a pull waits for the first time.
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

    /// Listens until the connection breaks. Hints missed until then are made up for by a look.
    async fn listen(&self) -> Result<std::convert::Infallible> {
        let mut subscriber = self.link.subscriber().await?;
        let broken = |_| ERRORS.error(ErrorKind::Unavailable, "the connection for hints broke");
        subscriber.subscribe(&self.channel).await.map_err(broken)?;
        self.waiters.wake_each(1);
        self.end_watches.missed();
        let mut hints = subscriber.into_on_message();
        while let Some(message) = hints.next().await {
            let text = message.get_payload_bytes();
            if end_news::hear(text, &self.caller, &self.end_watches) {
                continue;
            }
            if let Some((partition, hint, caller)) = hint::read(text)
                && (caller != self.caller || hint.ready == 0)
            {
                self.waiters.hint(&partition, hint);
            }
        }
        Err(ERRORS.error(ErrorKind::Unavailable, "the connection for hints broke"))
    }
}
