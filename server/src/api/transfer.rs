//! Moves what people have set out of one service and into another: schedules, limits, and which queues are
//! paused.

use std::sync::Arc;

use anyqueue::{ErrorKind, Page, PartitionId};
use anyqueue_control::limits::{LimitInfo, Limits};
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::limits::PutLimit;
use super::schedule::PutSchedule;
use crate::app::App;
use crate::problem::{Answer, Problem};

/// The most queues that an export examines.
const MAX_PARTITIONS: usize = 100_000;
/// How many queues are listed at a time.
const PAGE: usize = 100;

/// One line of an export.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(tag = "what", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum Line {
    /// A schedule.
    Schedule {
        /// Its name.
        name: String,
        /// Whether its times pass without a task.
        paused: bool,
        /// The request that stores it.
        put: Box<PutSchedule>,
    },
    /// A limit.
    Limit {
        /// Its name.
        name: String,
        /// The request that stores it.
        put: PutLimit,
    },
    /// A queue that is paused.
    Pause {
        /// Its name.
        partition: String,
    },
    /// Something that could not be read, and is missing here.
    Unreadable {
        /// Its name.
        name: String,
        /// Why.
        error: String,
    },
    /// The last line: if it is missing, the export is incomplete.
    End {
        /// How many lines precede it.
        count: usize,
        /// What this backend does not keep, or cannot list.
        without: Vec<String>,
    },
}

impl Line {
    fn limit(info: &LimitInfo) -> Self {
        let name = info.name.clone();
        if let Some(put) = PutLimit::of(info) {
            return Self::Limit { name, put };
        }
        Self::Unreadable { name, error: "it is for something that this release does not know".to_owned() }
    }

    fn unreadable((name, error): &(String, anyqueue::Error)) -> Self {
        Self::Unreadable { name: name.clone(), error: error.to_string() }
    }
}

/// The lines gathered for an export.
#[derive(Default)]
struct Gathered {
    lines: Vec<Line>,
    without: Vec<String>,
}

impl Gathered {
    /// Adds these lines, or notes that the backend has no such thing.
    fn add(&mut self, what: &str, found: Answer<Vec<Line>>) -> Answer<()> {
        match found {
            Ok(found) => self.lines.extend(found),
            Err(problem) if problem.kind == ErrorKind::Unsupported.as_str() => {
                self.without.push(what.to_owned());
            }
            Err(problem) => return Err(problem),
        }
        Ok(())
    }
}

async fn schedules(app: &App) -> Answer<Vec<Line>> {
    let found = app.scheduler()?.list().await?;
    let schedules = found.schedules.iter().map(|info| Line::Schedule {
        name: info.schedule.name.clone(),
        paused: info.is_paused,
        put: Box::new(PutSchedule::of(info)),
    });
    Ok(schedules.chain(found.unreadable.iter().map(Line::unreadable)).collect())
}

async fn limits(app: &App) -> Answer<Vec<Line>> {
    let found = Limits::new(app.store()?.clone()).list().await?;
    Ok(found.limits.iter().map(Line::limit).chain(found.unreadable.iter().map(Line::unreadable)).collect())
}

async fn pauses(app: &App) -> Answer<Vec<Line>> {
    let (mut lines, mut after, mut seen) = (Vec::new(), None::<PartitionId>, 0);
    loop {
        let names = app.queue.partitions(Page::of(PAGE).after(after.take())).await?;
        for name in &names {
            if app.queue.is_paused(name).await? {
                lines.push(Line::Pause { partition: name.name().to_owned() });
            }
        }
        seen += names.len();
        if seen > MAX_PARTITIONS {
            return Err(Problem::invalid(format!("there are more than {MAX_PARTITIONS} queues to look at")));
        }
        after = names.last().filter(|_| names.len() == PAGE).cloned();
        if after.is_none() {
            return Ok(lines);
        }
    }
}

/// Exports schedules, limits and pauses, one line of JSON for each. The last line is `{"what":"end",…}`; if
/// it is missing, the export is incomplete. Tokens, keys, workers, who holds how much of a limit, and when a
/// schedule ran last are not part of it. It needs the right `admin`, because it contains what schedules push.
#[utoipa::path(
    get, path = "/v1/export", operation_id = "export", tag = "service",
    responses((status = 200, description = "Lines of JSON.", body = Line, content_type = "application/x-ndjson"))
)]
pub(crate) async fn export(State(app): State<Arc<App>>) -> Answer<Response> {
    let mut gathered = Gathered::default();
    gathered.add("schedules", schedules(&app).await)?;
    gathered.add("limits", limits(&app).await)?;
    gathered.add("pauses", pauses(&app).await)?;
    let Gathered { lines, without } = gathered;
    let end = Line::End { count: lines.len(), without };
    let lines = lines.into_iter().chain([end]).map(|line| {
        let mut bytes = serde_json::to_vec(&line)?;
        bytes.push(b'\n');
        Ok::<_, serde_json::Error>(bytes)
    });
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(stream::iter(lines)))
        .into_response())
}
