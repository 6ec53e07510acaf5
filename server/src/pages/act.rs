//! Actions on pages: each is requested by a form, and leads back to a page that shows the outcome.

use std::sync::Arc;

use anyqueue_control::registry::Order;
use axum::extract::{Form, State};
use axum::response::Response;
use serde::Deserialize;

use super::shell::{back, encoded, no_action, or_failed};
use super::text::many;
use crate::app::App;
use crate::manage::{cancel, note_dead, retry};
use crate::noted;
use crate::reasons::without_numbers;
use crate::wire::{Path, Query, message_id, partition};

/// The most dead letters that one request puts back.
const MAX_REDRIVEN: usize = 10_000;

pub(crate) async fn on_partition(
    State(app): State<Arc<App>>,
    Path((name, action)): Path<(String, String)>,
) -> Response {
    let done = async {
        app.writable()?;
        let queue = partition(&name)?;
        let said = match action.as_str() {
            "pause" => app.queue.pause(queue).await.map(|()| "It is paused.")?,
            "resume" => app.queue.resume(queue).await.map(|()| "It delivers again.")?,
            other => return Err(no_action(other)),
        };
        Ok(back(&format!("/partitions/{}", encoded(&name)), said))
    };
    or_failed(&app, done.await)
}

#[derive(Debug, Deserialize)]
pub(crate) struct OfTask {
    partition: String,
}

pub(crate) async fn on_task(
    State(app): State<Arc<App>>,
    Path((id, action)): Path<(String, String)>,
    Query(of): Query<OfTask>,
) -> Response {
    let done = async {
        app.writable()?;
        let (queue, message) = (partition(&of.partition)?, message_id(&id)?);
        let said = match action.as_str() {
            "cancel" => match cancel(&app.queue, &queue, message).await? {
                "removed" => "It is cancelled.",
                _ => "Whoever runs it will hear of it.",
            },
            "retry" => match retry(&app.queue, &queue, message).await? {
                "put_back" => "It is put back.",
                _ => "It is due now.",
            },
            other => return Err(no_action(other)),
        };
        Ok(back(&format!("/tasks/{id}?partition={}", encoded(&of.partition)), said))
    };
    or_failed(&app, done.await)
}

pub(crate) async fn on_worker(
    State(app): State<Arc<App>>,
    Path((worker, order)): Path<(String, String)>,
) -> Response {
    let done = async {
        app.writable()?;
        let told = match order.as_str() {
            "quiet" => Order::Quiet,
            "resume" => Order::Resume,
            "stop" => Order::Stop,
            "recycle" => Order::Recycle,
            other => return Err(no_action(other)),
        };
        let known = app.registry()?.order(&worker, told).await?;
        let said =
            if known { "It will hear it with its next beat." } else { "There is no such worker any more." };
        Ok(back("/workers", said))
    };
    or_failed(&app, done.await)
}

/// The dead letters that are meant.
#[derive(Debug, Deserialize)]
pub(crate) struct Which {
    partition: String,
    #[serde(default)]
    reason: Option<String>,
}

pub(crate) async fn on_dead(
    State(app): State<Arc<App>>,
    Path(action): Path<String>,
    Form(which): Form<Which>,
) -> Response {
    let done = async {
        app.writable()?;
        let dead = app.queue.dead_letters(partition(&which.partition)?)?;
        let said = match action.as_str() {
            "purge" => {
                let deleted = dead.purge().await?;
                noted::detail("deleted", deleted);
                format!("{}.", many(deleted, "is deleted", "are deleted"))
            }
            "redrive" => {
                note_dead(None, which.reason.as_deref());
                let mut redrive = dead.redrive().limit(MAX_REDRIVEN);
                if let Some(reason) = which.reason.clone() {
                    redrive = redrive.filter(move |message| {
                        let why = message.headers().get(anyqueue::header::DEAD_REASON);
                        without_numbers(why.map_or("no reason", String::as_str)) == reason
                    });
                }
                let done = redrive.await?;
                noted::detail("put back", done.moved);
                let more = if done.more { " There may be more." } else { "" };
                format!("{}.{more}", many(done.moved, "is put back", "are put back"))
            }
            other => return Err(no_action(other)),
        };
        Ok(back(&format!("/dead?partition={}", encoded(&which.partition)), &said))
    };
    or_failed(&app, done.await)
}
