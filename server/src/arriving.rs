//! A managing request before its handler sees it: the queue that it names, and whether its body arrives
//! completely.

use std::io::ErrorKind::{InvalidData, InvalidInput};
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::{FromRequestParts as _, Query, RawPathParams};
use axum::http::request::Parts;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::noted::Notes;
use crate::timely::is_late;
use crate::trail::LEFT;

/// The name of the parameter, in path or query, that names a queue.
const QUEUE: &str = "partition";

/// Notes the queue that the path or the query names: the rest may never arrive.
pub(crate) async fn note_queue(parts: &mut Parts, notes: &Notes) {
    if let Ok(path) = RawPathParams::from_request_parts(parts, &()).await {
        path.iter().filter(|(name, _)| *name == QUEUE).for_each(|(_, queue)| notes.queue(queue));
    }
    if let Ok(Query(query)) = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri) {
        query.iter().filter(|(name, _)| name == QUEUE).for_each(|(_, queue)| notes.queue(queue));
    }
}

/// A body that may be cut off: then the sender has left, and receives no response.
pub(crate) struct Arriving {
    body: Body,
    notes: Notes,
}

impl Arriving {
    pub(crate) fn of(body: Body, notes: Notes) -> Body {
        Body::new(Self { body, notes })
    }
}

/// Whether the body is malformed, rather than cut off.
fn is_malformed(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    causes.any(|error| {
        let io = error.downcast_ref::<std::io::Error>();
        io.is_some_and(|io| matches!(io.kind(), InvalidData | InvalidInput))
    })
}

impl http_body::Body for Arriving {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Err(error))) = &polled
            && !is_late(error)
            && !is_malformed(error)
        {
            self.notes.decide(LEFT);
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
