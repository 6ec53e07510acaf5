//! The first page of any filter.

use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

use anyqueue::{Queue, TaskFilter, TaskState};
use anyqueue_testkit::ends::{PARTITION, RARE_KIND, REASON, WORKER};

use super::line::Line;
use crate::client::Result;
use crate::service::http::Http;

/// As many as the service shows, and the longest time that one of its looks takes.
const SHOWN: usize = 100;
const LOOK: Duration = Duration::from_millis(120);
/// The count on the page is exact up to this number.
const CAP: u64 = 10_000;

fn ago(hours: u64) -> SystemTime {
    SystemTime::now() - Duration::from_hours(hours)
}

/// Returns each filter with its name, as the library has it, and as a URL's query.
fn filters() -> Vec<(&'static str, TaskFilter, String)> {
    let text = |time| humantime::format_rfc3339_millis(time).to_string();
    let (all, since, before) = (TaskFilter::new(), ago(9), ago(8));
    let spoiled = all.clone().in_state(TaskState::Failed).in_state(TaskState::TimedOut);
    vec![
        ("all", all.clone(), String::new()),
        ("succeeded", all.clone().in_state(TaskState::Succeeded), "state=succeeded".into()),
        ("failed or timed out", spoiled, "state=failed,timed_out".into()),
        (
            "of an hour",
            all.clone().since(since).before(before),
            format!("since={}&before={}", text(since), text(before)),
        ),
        (
            "succeeded long ago, of which there is none",
            all.clone().in_state(TaskState::Succeeded).before(ago(90)),
            format!("state=succeeded&before={}", text(ago(90))),
        ),
        ("a common kind", all.clone().of_kind("send"), "kind=send".into()),
        ("a rare kind", all.clone().of_kind(RARE_KIND), format!("kind={RARE_KIND}")),
        ("a worker", all.clone().by_worker(WORKER), format!("worker={WORKER}")),
        ("a reason", all.clone().with_error(REASON), format!("error={}", REASON.replace(' ', "+"))),
        ("a kind that none has", all.of_kind("nothing"), "kind=nothing".into()),
    ]
}

pub(super) async fn by_library(queue: &Queue, rounds: usize, line: &Line, json: bool) -> Result<()> {
    for (name, filter, _) in filters() {
        let (mut times, mut found, mut unfinished) = (Vec::new(), 0, false);
        for _ in 0..rounds {
            let began = Instant::now();
            let page = queue.tasks(PARTITION, filter.clone())?.page(SHOWN, LOOK).await?;
            times.push(began.elapsed());
            (found, unfinished) = (page.tasks.len(), page.unfinished);
        }
        let line = Line { scenario: "first-page", over: Some("library"), filter: Some(name), ..line.clone() };
        let line =
            Line { scans: Some(filter.scans()), found: Some(found), unfinished: Some(unfinished), ..line };
        line.times(&times).print(json)?;
    }
    let mut times = Vec::new();
    for _ in 0..rounds {
        let began = Instant::now();
        queue.count_tasks(PARTITION, &TaskFilter::new(), CAP).await?;
        times.push(began.elapsed());
    }
    let line =
        Line { scenario: "count-to-10000", over: Some("library"), filter: Some("all"), ..line.clone() };
    line.times(&times).print(json)
}

pub(super) async fn by_http(service: SocketAddr, rounds: usize, line: &Line, json: bool) -> Result<()> {
    let mut http = Http::connect(service).await?;
    for (name, filter, query) in filters() {
        let (mut times, mut found, mut unfinished) = (Vec::new(), None, None);
        for _ in 0..rounds {
            let began = Instant::now();
            let page = http.get(&format!("/v1/tasks?partition={PARTITION}&{query}")).await?;
            times.push(began.elapsed());
            let tasks = page.get("tasks").and_then(serde_json::Value::as_array);
            (found, unfinished) =
                (tasks.map(Vec::len), page.get("unfinished").and_then(serde_json::Value::as_bool));
        }
        let line = Line { scenario: "first-page", over: Some("http"), filter: Some(name), ..line.clone() };
        Line { scans: Some(filter.scans()), found, unfinished, ..line }.times(&times).print(json)?;
    }
    Ok(())
}
