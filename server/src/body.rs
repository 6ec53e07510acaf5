//! A response that hands out messages: if it is never sent, they are released.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;

use crate::app::App;
use crate::held::Held;

/// Releases deliveries when it is dropped, unless they have left.
pub(crate) struct ReleaseOnDrop {
    app: Arc<App>,
    held: Vec<Held>,
}

impl ReleaseOnDrop {
    pub(crate) fn new(app: Arc<App>, held: Vec<Held>) -> Self {
        Self { app, held }
    }

    pub(crate) fn left(&mut self) -> Vec<Held> {
        std::mem::take(&mut self.held)
    }
}

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let (app, held) = (self.app.clone(), std::mem::take(&mut self.held));
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { app.release(held).await });
        }
    }
}

/// The body of a response. Once its bytes are polled, they count as sent: if the client is gone by then, its
/// next pull says so.
pub(crate) struct HandOut {
    bytes: Option<Bytes>,
    release: ReleaseOnDrop,
    sent: Option<Sent>,
}

/// Called with the deliveries once they are sent.
pub(crate) type Sent = Box<dyn FnOnce(Vec<Held>) + Send + Sync>;

impl HandOut {
    pub(crate) fn new(bytes: Bytes, release: ReleaseOnDrop, sent: Sent) -> Self {
        Self { bytes: Some(bytes), release, sent: Some(sent) }
    }
}

impl Body for HandOut {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(bytes) = self.bytes.take() else { return Poll::Ready(None) };
        let held = self.release.left();
        if let Some(sent) = self.sent.take() {
            sent(held);
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
