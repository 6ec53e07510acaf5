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

/// A body whose time begins when it is first waited for.
pub(crate) struct Timely {
    body: Body,
    patience: Duration,
    arrived: u64,
    /// `None` as long as nothing had to be waited for: most bodies are there at once, and need no timer.
    begun: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Timely {
    pub(crate) fn of(body: Body, patience: Duration) -> Body {
        if http_body::Body::is_end_stream(&body) {
            return body;
        }
        Body::new(Self { body, patience, arrived: 0, begun: None })
    }

    fn allowed(&self) -> Duration {
        self.patience + Duration::from_secs(self.arrived / BYTES_A_SECOND)
    }

    fn has_passed(&self) -> bool {
        self.begun.as_ref().is_some_and(|(begun, _)| *begun + self.allowed() <= Instant::now())
    }

    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let allowed = self.allowed();
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
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let is_late = match &polled {
            Poll::Pending => self.poll_late(context).is_ready(),
            // A body that trickles in may be ready each time that it is read.
            Poll::Ready(Some(Ok(_))) => self.has_passed(),
            Poll::Ready(_) => false,
        };
        if is_late {
            return Poll::Ready(Some(Err(axum::Error::new(Late))));
        }
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures_util::{StreamExt as _, stream};
    use tokio::time::sleep;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(1);

    /// Returns how long it took until the body was late; each byte is taken a tenth of a second after the last.
    async fn late_after(body: Body) -> Duration {
        let (begun, mut data) = (Instant::now(), Timely::of(body, PATIENCE).into_data_stream());
        loop {
            match data.next().await.expect("more, or too late") {
                Ok(_) => sleep(PATIENCE / 10).await,
                Err(error) => {
                    assert!(is_late(&error), "{error}");
                    return begun.elapsed();
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_late_whether_nothing_comes_or_something_is_there_each_time() {
        let nothing = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        assert_eq!(late_after(nothing).await.as_secs(), 1);
        // The first byte is waited for, and from then on one is there whenever it is asked for.
        let byte = Ok::<_, Infallible>(Bytes::from_static(b"x"));
        let first = byte.clone();
        let waited_for = stream::once(async {
            sleep(PATIENCE / 2).await;
            first
        });
        let trickling = Body::from_stream(waited_for.chain(stream::repeat(byte)));
        assert_eq!(late_after(trickling).await.as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_is_there_at_once_needs_no_timer() {
        let mut body = Timely { body: Body::from("x"), patience: PATIENCE, arrived: 0, begun: None };
        let read = std::future::poll_fn(|context| http_body::Body::poll_frame(Pin::new(&mut body), context));
        assert!(read.await.unwrap().unwrap().is_data());
        assert!(body.begun.is_none() && body.arrived == 1);
    }
}
