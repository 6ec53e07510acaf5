//! Notifying other processes of the ends of tasks that they watch.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::adapter::EndWatches;
use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use crate::link::Link;

/// The shortest time between two messages of one handle.
const PAUSE: Duration = Duration::from_millis(5);

/// How long the last messages may take when the handle closes.
const FAREWELL: Duration = Duration::from_secs(1);

/// Publishes the news of a handle.
pub(crate) struct Teller {
    pub(crate) end_watches: Arc<EndWatches>,
    pub(crate) link: Arc<Link>,
    pub(crate) channel: String,
    /// The name of this handle, which ignores its own news.
    pub(crate) caller: String,
}

impl Teller {
    /// Runs until the handle closes. While there is no news it sleeps.
    pub(crate) async fn serve(self, closed: CancellationToken) {
        loop {
            let news = tokio::select! {
                () = closed.cancelled() => break,
                news = self.end_watches.news() => news,
            };
            self.tell(news).await;
            tokio::select! {
                () = closed.cancelled() => break,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
        let news = self.end_watches.news().now_or_never().unwrap_or_default();
        let _ = tokio::time::timeout(FAREWELL, self.tell(news)).await;
    }

    async fn tell(&self, news: Vec<String>) {
        for news in news {
            let mut publish = redis::cmd("PUBLISH");
            publish.arg(&self.channel).arg(write(&news, &self.caller));
            if let Err(error) = self.link.command(&publish).await {
                tracing::debug!(%error, "others were not told of the ends of tasks: those who wait will find out by polling");
            }
        }
    }
}

/// Formats news for publishing: `ends caller news`. Earlier releases do not read it as a hint.
fn write(news: &str, caller: &str) -> String {
    format!("ends {caller} {news}")
}

/// Processes what was published. Returns `false` if it is something else.
pub(crate) fn hear(text: &[u8], own: &str, end_watches: &EndWatches) -> bool {
    let read = |text| {
        let (caller, news) = std::str::from_utf8(text).ok()?.strip_prefix("ends ")?.split_once(' ')?;
        Some((caller, news))
    };
    let Some((caller, news)) = read(text) else { return false };
    caller == own || end_watches.hear(news)
}

#[cfg(test)]
mod tests {
    use anyqueue::MessageId;

    use super::*;
    use crate::hint;

    #[test]
    fn news_come_from_others_and_are_no_hints() {
        let (watches, id) = (Arc::new(EndWatches::default()), MessageId::new());
        let watch = watches.watch(id);
        let text = write(&format!("e {id}"), "other");
        assert_eq!(hint::read(text.as_bytes()), None);
        assert!(hear(text.as_bytes(), "other", &watches) && watch.ended().now_or_never().is_none());
        assert!(hear(text.as_bytes(), "me", &watches) && watch.ended().now_or_never().is_some());
        for hint in [&b"l mail 3 -1 me"[..], b"l ends 1 -1 me", b"", b"\xff", b"ends"] {
            assert!(!hear(hint, "me", &watches));
        }
    }
}
