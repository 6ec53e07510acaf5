//! The body of a request, which has to arrive in time.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep};

/// A body may take a second longer for each of these that have arrived: a client that sends at this pace is
/// slow, but no attacker.
const BYTES_A_SECOND: u64 = 64 << 10;

/// The body did not arrive in time.
#[derive(Debug)]
pub(crate) struct Late;

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body did not arrive in time")
    }
}

impl std::error::Error for Late {}

/// Whether reading a body failed because it was late.
pub(crate) fn is_late(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(<dyn std::error::Error>::is::<Late>)
}

/// A body whose time begins when it is first read.
pub(crate) struct Timely {
    body: Body,
    patience: Duration,
    arrived: u64,
    begun: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Timely {
    pub(crate) fn of(body: Body, patience: Duration) -> Body {
        Body::new(Self { body, patience, arrived: 0, begun: None })
    }

    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let allowed = self.patience + Duration::from_secs(self.arrived / BYTES_A_SECOND);
        let (begun, end) = self.begun.get_or_insert_with(|| {
            let now = Instant::now();
            (now, Box::pin(tokio::time::sleep_until(now + allowed)))
        });
        let until = *begun + allowed;
        if end.deadline() != until {
            end.as_mut().reset(until);
        }
        end.as_mut().poll(context)
    }
}

impl http_body::Body for Timely {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // The time is checked first: a body that trickles in would be ready each time.
        if self.poll_late(context).is_ready() {
            return Poll::Ready(Some(Err(axum::Error::new(Late))));
        }
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.arrived += frame.data_ref().map_or(0, |data| data.len() as u64);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
