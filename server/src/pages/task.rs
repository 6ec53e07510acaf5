//! One task.

use std::sync::Arc;

use anyqueue::{Task, TaskState};
use anyqueue_worker::Failure;
use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;

use super::shell::{Shell, failed, page as answer};
use super::text::{cut, short, utc};
use crate::access;
use crate::app::App;
use crate::problem::{Answer, Problem};
use crate::wire::{Path, Query, message_id, partition};

/// The most bytes of a payload or a result that are shown.
const SHOWN_BYTES: usize = 8 << 10;

#[derive(Debug, Deserialize)]
pub(crate) struct Of {
    partition: String,
    #[serde(default)]
    said: Option<String>,
}

#[derive(Template)]
#[template(path = "task.html")]
struct TaskPage {
    shell: Shell,
    t: Shown,
}

struct Shown {
    id: String,
    partition: String,
    state: &'static str,
    state_text: String,
    facts: Vec<(&'static str, String)>,
    errors: Vec<Attempt>,
    log: Option<String>,
    result: Option<String>,
    payload: Option<String>,
    headers: Vec<(String, String)>,
    can_retry: bool,
    retry_text: &'static str,
    can_cancel: bool,
}

struct Attempt {
    head: String,
    text: String,
}

pub(crate) async fn page(
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
    of: Answer<Query<Of>>,
) -> Response {
    let found = async {
        let Query(of) = of?;
        let (name, message) = (partition(&of.partition)?, message_id(&id)?);
        let text = "nothing is known of this task: it was never pushed there, was deleted, or its end is not kept any more";
        let task = app.queue.task(&name, message).await?.ok_or_else(|| Problem::not_found(text))?;
        Ok::<_, Problem>((task, of.said))
    };
    match found.await {
        Ok((task, said)) => {
            let title =
                task.task_id.as_deref().map_or_else(|| format!("Task {id}"), |name| format!("Task {name}"));
            let shell = Shell::new(&app, "Tasks", title).saying(said);
            answer(&TaskPage { shell, t: Shown::of(&task) })
        }
        Err(problem) => failed(&app, &problem),
    }
}

impl Shown {
    fn of(task: &Task) -> Self {
        let is_dead = task.is_dead();
        let sees = access::sees_payloads();
        let waits = task.state == TaskState::Scheduled;
        let message = task.message.as_ref();
        let headers = message.map(anyqueue::MessageData::headers).into_iter().flatten();
        Self {
            id: task.id.to_string(),
            partition: task.partition.name().to_owned(),
            state: task.state.as_str(),
            state_text: task.state.as_str().replace('_', " "),
            facts: facts(task),
            errors: attempts(task.errors.as_deref()),
            log: task.log.as_deref().filter(|_| sees).map(str::to_owned),
            result: task.result.as_ref().filter(|_| sees).map(|bytes| readable(bytes)),
            payload: message.filter(|_| sees).map(|message| readable(message.payload())),
            headers: headers.map(|(name, value)| (name.clone(), cut(value, SHOWN_BYTES))).collect(),
            can_retry: is_dead || waits,
            retry_text: if waits { "Run it now" } else { "Put it back" },
            can_cancel: task.state.ended().is_none(),
        }
    }
}

fn facts(task: &Task) -> Vec<(&'static str, String)> {
    let text = |text: &Option<Arc<str>>| text.as_deref().map(str::to_owned);
    let all = [
        ("Message", Some(task.id.to_string())),
        ("Task id", text(&task.task_id)),
        ("Kind", text(&task.kind)),
        ("Session", text(&task.session_id)),
        ("Pushed", task.pushed_at.map(utc)),
        ("Due", task.due_at.map(utc)),
        ("Ended", task.ended_at.map(utc)),
        ("Kept until", task.expires_at.map(utc)),
        ("Waited", task.waited.map(short)),
        ("Ran", task.ran.map(short)),
        ("Attempts", Some(task.attempt.to_string())),
        ("Deliveries", task.delivery_count.map(|count| count.to_string())),
        ("Worker", text(&task.worker)),
        ("Reason", text(&task.reason)),
        ("Progress", text(&task.progress)),
        ("Trace", text(&task.trace)),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The failed attempts that the worker recorded; if they cannot be parsed, the text as it is.
fn attempts(errors: Option<&str>) -> Vec<Attempt> {
    let Some(errors) = errors else { return Vec::new() };
    match serde_json::from_str::<Vec<Failure>>(errors) {
        Ok(failures) => failures
            .into_iter()
            .map(|failure| Attempt {
                head: format!(
                    "{} · attempt {} {}:",
                    failure.at,
                    failure.attempt,
                    failure.kind.as_str().replace('_', " ")
                ),
                text: failure.error,
            })
            .collect(),
        Err(_) => vec![Attempt { head: String::new(), text: cut(errors, SHOWN_BYTES) }],
    }
}

/// JSON indented, other text as it is, and for bytes their number.
fn readable(bytes: &[u8]) -> String {
    if let Ok(json) = serde_json::from_slice::<serde_json::Value>(bytes)
        && let Ok(text) = serde_json::to_string_pretty(&json)
    {
        return cut(&text, SHOWN_BYTES);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => cut(text, SHOWN_BYTES),
        Err(_) => format!("{} bytes that are no text", bytes.len()),
    }
}
