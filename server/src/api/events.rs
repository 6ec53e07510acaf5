//! Events, as they happen.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::access::{self, Access};
use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::sampler::Sample;
use crate::wire::time_text;

type Samples = watch::Receiver<Option<Arc<Sample>>>;

/// Sends server-sent events: the state of all queues, at most once a second, whenever it has changed. Each
/// event is complete, so a client that was away misses nothing.
#[utoipa::path(
    get, path = "/v1/events", operation_id = "events", tag = "service",
    responses((status = 200, description = "Events named `sample`.", content_type = "text/event-stream", body = String))
)]
pub(crate) async fn events(State(app): State<Arc<App>>) -> Answer<Response> {
    let Ok(place) = app.polls.clone().try_acquire_owned() else {
        return Err(Problem::busy("as many requests wait as this instance allows: try again, or elsewhere"));
    };
    let access = access::caller().ok_or_else(|| access::forbidden("nobody asks"))?;
    let mut samples = app.sampler.watch();
    // The current state comes first.
    samples.mark_changed();
    let body = Body::from_stream(stream::unfold(Some((app, access, samples, place)), next));
    Ok(([(header::CONTENT_TYPE, "text/event-stream")], body).into_response())
}

/// What is watched, and the place among the requests that wait.
type Watching = (Arc<App>, Arc<Access>, Samples, OwnedSemaphorePermit);

async fn next(
    watching: Option<Watching>,
) -> Option<(Result<String, std::convert::Infallible>, Option<Watching>)> {
    let (app, access, mut samples, place) = watching?;
    loop {
        tokio::select! {
            biased;
            () = app.ending.cancelled() => return None,
            changed = samples.changed() => changed.ok()?,
        }
        let sample = samples.borrow_and_update().clone();
        if let Some(sample) = sample {
            // A caller that was let in may not be allowed any more.
            if !matches!(app.keys.still(&access).await, Ok(true)) {
                return None;
            }
            let event = event(&sample.seen_by(&access));
            return Some((Ok(event), Some((app, access, samples, place))));
        }
    }
}

fn event(sample: &Sample) -> String {
    let data = json!({
        "at": time_text(sample.at),
        "partitions": sample.partitions,
        "workers": sample.workers.as_ref().map(Vec::len),
    });
    format!("id: {}\nevent: sample\ndata: {data}\n\n", sample.number)
}
