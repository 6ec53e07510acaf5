//! A response during which work goes on: the outcome of its request is entered in the trail at its end.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::runtime::Handle;

use crate::trail::Entered;

/// Enters the outcome of a request before the response leaves; if work goes on during the response, at its
/// end.
pub(crate) async fn follow(entered: Entered, response: Response) -> Response {
    let status = response.status();
    if http_body::Body::size_hint(response.body()).exact().is_some() {
        entered.end(status).await;
        return response;
    }
    response.map(|body| Body::new(Followed { body, status, end: End::Open(Some(Box::new(entered))) }))
}

/// A response during which work goes on.
struct Followed {
    body: Body,
    status: StatusCode,
    end: End,
}

enum End {
    /// Not entered yet; `None` once it was taken.
    Open(Option<Box<Entered>>),
    Entering(Pin<Box<dyn Future<Output = ()> + Send>>),
    Entered,
}

impl http_body::Body for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Self { body, status, end } = self.get_mut();
        loop {
            match end {
                End::Open(entered) => {
                    let entered = match ready!(Pin::new(&mut *body).poll_frame(context)) {
                        Some(frame) => return Poll::Ready(Some(frame)),
                        None => entered.take(),
                    };
                    *end = match entered {
                        Some(entered) => End::Entering(Box::pin(entered.end(*status))),
                        None => End::Entered,
                    };
                }
                End::Entering(entering) => {
                    ready!(entering.as_mut().poll(context));
                    *end = End::Entered;
                }
                End::Entered => return Poll::Ready(None),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.end, End::Entered)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Followed {
    /// The client has gone away before the end: what was done until then is entered.
    fn drop(&mut self) {
        let End::Open(entered) = &mut self.end else { return };
        if let (Some(entered), Ok(runtime)) = (entered.take(), Handle::try_current()) {
            entered.notes.detail("cut", "the client did not read to the end");
            runtime.spawn(entered.end(self.status));
        }
    }
}

#[cfg(test)]
mod tests {
    use anyqueue::{Page, Queue};
    use anyqueue_control::audit::Audit;
    use anyqueue_memory::MemoryQueue;
    use axum::response::IntoResponse as _;
    use futures_util::{StreamExt as _, stream};

    use super::*;
    use crate::access::{Access, Who};
    use crate::noted::Notes;
    use crate::trail::Trail;

    async fn entered() -> (Entered, Audit) {
        let store = Queue::new(MemoryQueue::new()).unwrap().control().unwrap();
        let (trail, access) = (Trail::new(Some(&store), false), Access::everything(Who::Anybody));
        let entered =
            trail.begin(&access, None, "POST", "/v1/tasks/bulk", Notes::default()).await.unwrap().unwrap();
        (entered, Audit::new(store))
    }

    async fn status(audit: &Audit) -> Option<(u16, usize)> {
        let outcome = audit.list(Page::of(1)).await.unwrap().entries.remove(0).outcome?;
        Some((outcome.status, outcome.details.len()))
    }

    #[tokio::test]
    async fn what_came_of_a_long_answer_is_entered_at_its_end() {
        let (entered, audit) = entered().await;
        let lines = stream::iter([Ok::<_, std::io::Error>("a"), Ok("b")]);
        let response = follow(entered, Body::from_stream(lines).into_response()).await;
        let mut frames = response.into_body().into_data_stream();
        assert_eq!(
            (frames.next().await.unwrap().unwrap(), frames.next().await.unwrap().unwrap()),
            ("a".into(), "b".into())
        );
        assert_eq!(status(&audit).await, None, "it goes on");
        assert!(frames.next().await.is_none());
        assert_eq!(status(&audit).await, Some((200, 0)));
    }

    #[tokio::test]
    async fn of_an_answer_that_is_not_read_to_its_end_that_is_entered() {
        let (entered, audit) = entered().await;
        let lines = stream::iter([Ok::<_, std::io::Error>("a")]).chain(stream::pending());
        let response = follow(entered, Body::from_stream(lines).into_response()).await;
        let mut frames = response.into_body().into_data_stream();
        frames.next().await.unwrap().unwrap();
        drop(frames);
        let ended = async {
            while status(&audit).await != Some((200, 1)) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), ended).await.unwrap();
    }
}
