//! Pushes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyqueue::{MessageData, OnDuplicate, PushOutcome};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::trace;
use crate::wire::{Content, Items, Path, answers, message_id, partition, time};

/// A message to push.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Push {
    /// Its content as text; or one of the next two.
    #[serde(default)]
    payload: Option<String>,
    /// Its content as JSON, which is stored as its text.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    json: Option<Value>,
    /// Its content as bytes, in base64.
    #[serde(default)]
    payload_base64: Option<String>,
    /// Its id, a UUID; by default a new one. A push that is repeated with the same id is stored once, where
    /// the backend declares that.
    #[serde(default)]
    id: Option<String>,
    /// The kind of task, which selects its handler.
    #[serde(default)]
    kind: Option<String>,
    /// Your name for the task.
    #[serde(default)]
    task_id: Option<String>,
    /// The session that it belongs to.
    #[serde(default)]
    session_id: Option<String>,
    /// Headers.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Its priority: the higher, the sooner.
    #[serde(default)]
    priority: Option<u8>,
    /// How long it waits before it can be pulled, in milliseconds.
    #[serde(default)]
    delay_ms: Option<u64>,
    /// When it can be pulled: RFC 3339.
    #[serde(default)]
    not_before: Option<String>,
    /// How long it waits until it gets the highest priority, in milliseconds.
    #[serde(default)]
    urgent_after_ms: Option<u64>,
    /// How long until it expires and is no longer handled, in milliseconds.
    #[serde(default)]
    time_to_live_ms: Option<u64>,
    /// Its group. Members of one group are handled in order, one after the other.
    #[serde(default)]
    group: Option<String>,
    /// Its deduplication key. Of messages with the same key, only one is stored.
    #[serde(default)]
    dedup_key: Option<String>,
    /// What happens to it if its `dedup_key` is taken.
    #[serde(default)]
    on_duplicate: Option<Taken>,
    /// How often it is retried.
    #[serde(default)]
    max_retries: Option<u32>,
    /// How long an attempt may take, in milliseconds.
    #[serde(default)]
    max_duration_ms: Option<u64>,
}

/// What happens to a message whose key is taken.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Taken {
    /// Nothing: what is there stays as it is.
    Keep,
    /// One that waits gets its content.
    Replace,
    /// The same, if this one is due earlier; it then is due when this one would be.
    Earlier,
    /// If the one that is there is being handled, this one is stored behind it.
    Behind,
}

impl Push {
    fn into_message(self, traceparent: Option<&str>) -> Answer<MessageData> {
        let Self { payload, json, payload_base64, .. } = self;
        let payload = Content { payload, json, payload_base64 }.into_bytes()?;
        let mut message = match &self.id {
            Some(id) => MessageData::with_id(message_id(id)?, payload),
            None => MessageData::from_bytes(payload),
        };
        message = trace::given(message.with_headers(self.headers.into_iter().collect()), traceparent);
        if let Some(kind) = self.kind {
            message = message.with_header(anyqueue::header::TASK_KIND, kind);
        }
        if let Some(task_id) = self.task_id {
            message = message.with_task_id(task_id);
        }
        if let Some(session_id) = self.session_id {
            message = message.with_session_id(session_id);
        }
        if let Some(priority) = self.priority {
            message = message.with_priority(priority);
        }
        message = match (self.delay_ms, self.not_before) {
            (None, None) => message,
            (Some(delay), None) => message.with_delay(Duration::from_millis(delay)),
            (None, Some(at)) => message.with_not_before(time(&at)?),
            (Some(_), Some(_)) => return Err(Problem::invalid("give delay_ms or not_before, not both")),
        };
        if let Some(wait) = self.urgent_after_ms {
            message = message.with_urgent_after(Duration::from_millis(wait));
        }
        if let Some(time_to_live) = self.time_to_live_ms {
            message = message.with_time_to_live(Duration::from_millis(time_to_live));
        }
        if let Some(group) = self.group {
            message = message.with_group(group);
        }
        if let Some(key) = self.dedup_key {
            message = message.with_dedup_key(key);
        }
        message = match self.on_duplicate {
            None | Some(Taken::Keep) => message,
            Some(Taken::Replace) => message.with_on_duplicate(OnDuplicate::Replace),
            Some(Taken::Earlier) => message.with_on_duplicate(OnDuplicate::Earlier),
            Some(Taken::Behind) => message.with_on_duplicate(OnDuplicate::Behind),
        };
        if let Some(retries) = self.max_retries {
            message = message.with_max_retries(retries);
        }
        if let Some(most) = self.max_duration_ms {
            message = message.with_max_duration(Duration::from_millis(most));
        }
        Ok(message)
    }
}

/// What happened to a pushed message.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum Pushed {
    /// Stored.
    Stored {
        /// Under this id.
        id: String,
    },
    /// Not stored: a message with the same key or id is there.
    Duplicate {
        /// Its id, where it is known.
        id: Option<String>,
    },
    /// A waiting message with the same key now has its content.
    Replaced {
        /// Its id.
        id: String,
    },
    /// Not stored, or it is not known whether it was: see `retry`.
    Error {
        /// Why.
        problem: Problem,
    },
}

impl From<anyqueue::Result<PushOutcome>> for Pushed {
    fn from(result: anyqueue::Result<PushOutcome>) -> Self {
        match result {
            Ok(PushOutcome::Stored(id)) => Self::Stored { id: id.to_string() },
            Ok(PushOutcome::Duplicate(id)) => Self::Duplicate { id: id.map(|id| id.to_string()) },
            Ok(PushOutcome::Replaced(id)) => Self::Replaced { id: id.to_string() },
            Err(error) => Self::Error { problem: error.into() },
        }
    }
}

/// Pushes messages: one object, an array of up to 1000, or as many lines of JSON. There is one answer for
/// each, in order; an invalid message does not affect the others.
#[utoipa::path(
    post, path = "/v1/partitions/{partition}/messages", operation_id = "push", tag = "work",
    params(
        ("partition" = String, Path, description = "The queue."),
        ("traceparent" = Option<String>, Header, description = "W3C trace context: for messages that have no header of that name.")
    ),
    request_body = Vec<Push>,
    responses((status = 200, description = "An answer for each.", body = Vec<Pushed>))
)]
pub(crate) async fn push(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Items { items, lines }: Items<Push>,
) -> Answer<Response> {
    app.writable()?;
    let (partition, traceparent) = (partition(&name)?, trace::of(&headers));
    let mut all: Vec<Option<Pushed>> = Vec::with_capacity(items.len());
    let mut messages = Vec::with_capacity(items.len());
    for item in items {
        match item.into_message(traceparent) {
            Ok(message) => {
                messages.push(message);
                all.push(None);
            }
            Err(problem) => all.push(Some(Pushed::Error { problem })),
        }
    }
    let pushed = push_all(&app, &partition, messages).await?;
    let mut pushed = pushed.into_iter();
    let all: Vec<Pushed> = all
        .into_iter()
        .map(|answer| answer.or_else(|| pushed.next().map(Pushed::from)))
        .map(|answer| answer.unwrap_or_else(|| Pushed::Error { problem: Problem::busy("no answer") }))
        .collect();
    Ok(answers(&all, lines))
}

/// A single message shares its call with those of other requests.
async fn push_all(
    app: &App,
    partition: &anyqueue::PartitionId,
    mut messages: Vec<MessageData>,
) -> Answer<Vec<anyqueue::Result<PushOutcome>>> {
    match messages.pop() {
        None => Ok(Vec::new()),
        Some(message) if messages.is_empty() => Ok(vec![app.queue.push(partition.clone(), message).await]),
        Some(last) => {
            messages.push(last);
            Ok(app.queue.push_many(partition.clone(), messages).await?)
        }
    }
}
