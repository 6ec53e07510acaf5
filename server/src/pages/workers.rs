//! The registered workers.

use std::sync::Arc;
use std::time::Duration;

use anyqueue_control::registry::WorkerInfo;
use askama::Template;
use axum::extract::State;
use axum::response::Response;

use super::partition::Said;
use super::shell::{Shell, page as answer};
use super::text::{short, utc};
use crate::app::App;
use crate::problem::Problem;
use crate::wire::Query;

/// The most tasks of a worker that are shown.
const SHOWN: usize = 50;

#[derive(Template)]
#[template(path = "workers.html")]
struct WorkersPage {
    shell: Shell,
    workers: Result<Vec<Worker>, String>,
}

struct Worker {
    name: String,
    state: &'static str,
    about: String,
    order: Option<String>,
    held: Vec<Held>,
    orders: Vec<&'static str>,
}

struct Held {
    id: String,
    partition: String,
    kind: String,
    attempt: u32,
    ran: String,
    progress: String,
}

pub(crate) async fn page(State(app): State<Arc<App>>, Query(said): Query<Said>) -> Response {
    let found = async { Ok::<_, Problem>(app.registry()?.list().await?) };
    let workers = match found.await {
        Ok(found) => Ok(found.workers.iter().map(Worker::of).collect()),
        Err(problem) => Err(problem.detail),
    };
    answer(&WorkersPage { shell: Shell::new(&app, "Workers", "Workers").saying(said.said), workers })
}

impl Worker {
    fn of(info: &WorkerInfo) -> Self {
        let memory = info.memory_bytes.map_or_else(String::new, |bytes| format!(", {} MiB", bytes >> 20));
        let about = format!(
            "Process {} on {}, up {}; serves {}; {} of {} slots{memory}; heard of at {}.",
            info.pid,
            info.host,
            short(info.up),
            info.partitions.join(", "),
            info.running,
            info.slots,
            utc(info.seen_at)
        );
        let is_quiet = info.state.as_str() == "quiet";
        Self {
            name: info.name.clone(),
            state: info.state.as_str(),
            about,
            order: info.order.and_then(|order| serde_json::to_value(order).ok()?.as_str().map(str::to_owned)),
            held: info.held.iter().take(SHOWN).map(Held::of).collect(),
            orders: vec![if is_quiet { "resume" } else { "quiet" }, "recycle", "stop"],
        }
    }
}

impl Held {
    fn of(task: &anyqueue_control::registry::HeldTask) -> Self {
        Self {
            id: task.id.clone(),
            partition: task.partition.clone(),
            kind: task.kind.clone(),
            attempt: task.attempt,
            ran: short(Duration::from_millis(task.ran_ms)),
            progress: task.progress.clone().unwrap_or_default(),
        }
    }
}
