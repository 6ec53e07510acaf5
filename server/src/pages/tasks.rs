//! Tasks that match a filter; the filter is the address of the page.

use std::sync::Arc;

use anyqueue::{Task, TaskFilter, TaskState};
use askama::Template;
use axum::extract::{RawQuery, State};
use axum::http::Uri;
use axum::response::Response;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::bulk::{offered, place};
use super::ended::{Ended, ended};
use super::partition::Asked;
use super::shell::{Shell, page as answer};
use super::text::{cut, moment_or_dash, short_or_dash};
use crate::app::App;
use crate::filter::{Filter, LOOK, first, further};
use crate::problem::{Answer, Problem};
use crate::wire::partition;

/// The most tasks that are shown.
const SHOWN: usize = 100;
/// The most tasks that are counted.
const CAP: u64 = 10_000;
/// The longest reason that is shown.
const REASON_BYTES: usize = 200;

#[derive(Template)]
#[template(path = "tasks.html")]
struct TasksPage {
    shell: Shell,
    form: Form,
    names: Vec<String>,
    states: [&'static str; 8],
    found: Option<Result<Found, String>>,
    ended: Option<Ended>,
}

#[derive(Default)]
struct Form {
    partition: String,
    state: String,
    kind: String,
    worker: String,
    task_id_prefix: String,
    error: String,
    since: String,
}

struct Found {
    count: String,
    scans: bool,
    tasks: Vec<Row>,
    more: bool,
    /// Whether the time was over before all tasks had been examined.
    unfinished: bool,
    /// Where the same filter continues after the tasks that were examined.
    further: Option<String>,
    query: String,
    /// The actions that are possible on all of them: the action, the text of its link, and whether it takes
    /// something away.
    actions: Vec<(&'static str, &'static str, bool)>,
}

struct Row {
    id: String,
    short: String,
    task_id: String,
    state: &'static str,
    state_text: String,
    kind: String,
    pushed: String,
    ended: String,
    ran: String,
    attempt: u32,
    worker: String,
    reason: String,
}

impl Row {
    fn of(task: &Task) -> Self {
        let text = |text: &Option<Arc<str>>| text.as_deref().unwrap_or_default().to_owned();
        let id = task.id.to_string();
        Self {
            short: id.rsplit('-').next().unwrap_or_default().to_owned(),
            id,
            task_id: text(&task.task_id),
            state: task.state.as_str(),
            state_text: task.state.as_str().replace('_', " "),
            kind: text(&task.kind),
            pushed: moment_or_dash(task.pushed_at),
            ended: moment_or_dash(task.ended_at),
            ran: short_or_dash(task.ran),
            attempt: task.attempt,
            worker: text(&task.worker),
            reason: cut(&text(&task.reason), REASON_BYTES),
        }
    }
}

pub(crate) async fn page(State(app): State<Arc<App>>, RawQuery(query): RawQuery) -> Response {
    let names = app.sample().await.partitions.iter().map(|queue| queue.partition.clone()).collect();
    let states = TaskState::ALL.map(TaskState::as_str);
    let (query, asked) = without_asked(&query.unwrap_or_default());
    let (form, found, ended) = match read::<Filter>(&query) {
        Err(_) if query.is_empty() => (Form::default(), None, None),
        Err(problem) => (Form::default(), Some(Err(problem.detail)), None),
        Ok(filter) => {
            let found = found(&app, &filter, query).await;
            let ended = ended_of(&app, &filter, asked.span.as_deref()).await;
            (Form::of(filter), Some(found.map_err(|problem| problem.detail)), ended)
        }
    };
    // A page that scans tasks does not reload itself.
    let scans =
        matches!(&found, Some(Ok(found)) if found.scans || found.unfinished) || !matches!(found, Some(Ok(_)));
    let shell = Shell::new(&app, "Tasks", "Tasks").saying(asked.said);
    let shell = if scans { shell.still() } else { shell };
    answer(&TasksPage { shell, form, names, states, found, ended })
}

/// Separates the filter, as it was given, from what else the page is asked for.
fn without_asked(query: &str) -> (String, Asked) {
    let is_asked = |pair: &&str| pair.starts_with("said=") || pair.starts_with("span=");
    let (asked, filter): (Vec<&str>, Vec<&str>) = query.split('&').partition(is_asked);
    (filter.join("&"), read(&asked.join("&")).unwrap_or_default())
}

/// The tasks that ended in the queue, if the filter names nothing but the queue and perhaps a kind: counts
/// know no more about a task.
async fn ended_of(app: &App, filter: &Filter, span: Option<&str>) -> Option<Ended> {
    if filter.pairs().iter().any(|(name, _)| !matches!(*name, "partition" | "kind")) {
        return None;
    }
    let name = partition(&filter.partition).ok()?;
    let kind = filter.kind.as_deref().filter(|kind| !kind.is_empty());
    ended(app, span, &[name.name()], kind, |span| format!("{}&{span}", place(filter))).await
}

fn read<T: DeserializeOwned>(query: &str) -> Answer<T> {
    let uri: Uri = format!("/tasks?{query}").parse().map_err(|_| Problem::invalid("this is no query"))?;
    let read = axum::extract::Query::try_from_uri(&uri).map(|query| query.0);
    read.map_err(|error| Problem::invalid(format!("the query of /tasks: {}", error.body_text())))
}

impl Form {
    fn of(filter: Filter) -> Self {
        Self {
            partition: filter.partition,
            state: filter.state.unwrap_or_default(),
            kind: filter.kind.unwrap_or_default(),
            worker: filter.worker.unwrap_or_default(),
            task_id_prefix: filter.task_id_prefix.unwrap_or_default(),
            error: filter.error.unwrap_or_default(),
            since: filter.since.unwrap_or_default(),
        }
    }
}

async fn found(app: &App, filter: &Filter, query: String) -> Result<Found, Problem> {
    let wanted = filter.build()?;
    let scans = wanted.scans();
    let page = first(app.queue.tasks(filter.partition.as_str(), wanted.clone())?, SHOWN).await?;
    let (more, unfinished) = (page.more, page.unfinished);
    let count = match (more, unfinished) {
        (false, false) => format!("{} found", page.tasks.len()),
        (false, true) => format!("{} found so far", page.tasks.len()),
        (true, _) if scans => format!("The first {SHOWN}"),
        (true, _) => counted(app, filter, &wanted).await?,
    };
    let further = further(&page).map(|before| place(&Filter { before: Some(before), ..filter.clone() }));
    let (tasks, actions) = (page.tasks.iter().map(Row::of).collect(), offered(filter));
    Ok(Found { count, scans, tasks, more, unfinished, further, query, actions })
}

/// How many tasks there are, if that is known in time.
async fn counted(app: &App, filter: &Filter, wanted: &TaskFilter) -> Result<String, Problem> {
    let counting = app.queue.count_tasks(filter.partition.as_str(), wanted, CAP);
    let Ok(count) = timeout(LOOK, counting).await else { return Ok(format!("The first {SHOWN}")) };
    let count = count?;
    let least = if count.exact { "" } else { "At least " };
    Ok(format!("{least}{} found; the first {SHOWN}", count.value))
}
