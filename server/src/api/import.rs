//! The import of an export: line by line, with a response to each.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyqueue_control::Precondition;
use anyqueue_control::limits::{Limit, Limits};
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::schedule::PutSchedule;
use super::transfer::Line;
use crate::app::App;
use crate::etag::not_as_expected;
use crate::noted;
use crate::problem::{Answer, Problem};
use crate::wire::{Items, Query, answers, partition};

/// How to import.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct How {
    /// Whether to change nothing and only say what would happen to each line.
    #[serde(default)]
    dry_run: bool,
}

/// What happened to a line, or would happen.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum Imported {
    /// It is new.
    Created,
    /// It existed with another content.
    Changed,
    /// It existed with the same content, and was left alone.
    Unchanged,
    /// There is nothing to set: the last line, or a line for an entry that could not be read.
    Skipped,
    /// It was not set, or it is not known whether it was. See `retry`.
    Error {
        /// Why.
        problem: Problem,
    },
}

impl Imported {
    fn as_str(&self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
            Self::Skipped => "skipped",
            Self::Error { .. } => "failed",
        }
    }
}

/// How many lines had which outcome, for the audit trail.
#[derive(Default)]
struct Tally(BTreeMap<&'static str, BTreeMap<&'static str, usize>>);

impl Tally {
    /// Noted after each line: the client may leave before the next one.
    fn add(&mut self, what: &'static str, imported: &Imported) {
        let of = self.0.entry(what).or_default();
        *of.entry(imported.as_str()).or_default() += 1;
        let counts: Vec<_> = of.iter().map(|(outcome, count)| format!("{count} {outcome}")).collect();
        noted::detail(what, counts.join(", "));
    }
}

/// Imports what an export wrote, line by line. Each line replaces the entry of the same name; other entries
/// stay. There is one answer for each line, in order. Importing the same lines again changes nothing, so an
/// interrupted import can be repeated. Up to 1000 lines; send more in parts. With `dry_run` nothing is set,
/// so a read-only service accepts it too.
#[utoipa::path(
    post, path = "/v1/import", operation_id = "import", tag = "service", params(How),
    request_body(content = Line, content_type = "application/x-ndjson"),
    responses((status = 200, description = "An answer for each line.", body = Vec<Imported>))
)]
pub(crate) async fn import(
    State(app): State<Arc<App>>,
    Query(how): Query<How>,
    Items { items, lines }: Items<Value>,
) -> Answer<Response> {
    if !how.dry_run {
        app.writable()?;
    }
    noted::detail("dry run", if how.dry_run { "nothing was changed" } else { "no" });
    let (mut all, mut tally) = (Vec::with_capacity(items.len()), Tally::default());
    // In order, one after the other: of two lines with the same name, the last one counts.
    for item in items {
        let line = serde_json::from_value(item);
        let what = line.as_ref().map_or("other lines", what);
        let imported = match line {
            Ok(line) => set(&app, line, how.dry_run).await,
            Err(error) => Err(Problem::invalid(format!("this is not a line of an export: {error}"))),
        };
        let imported = imported.unwrap_or_else(|problem| Imported::Error { problem });
        tally.add(what, &imported);
        all.push(imported);
    }
    Ok(answers(&all, lines))
}

/// What a line is about, for the audit trail.
fn what(line: &Line) -> &'static str {
    match line {
        Line::Schedule { .. } => "schedules",
        Line::Limit { .. } => "limits",
        Line::Pause { .. } => "pauses",
        Line::Unreadable { .. } | Line::End { .. } => "other lines",
    }
}

async fn set(app: &App, line: Line, dry: bool) -> Answer<Imported> {
    match line {
        Line::Schedule { name, paused, put } => schedule(app, name, paused, *put, dry).await,
        Line::Limit { name, put } => limit(app, &name, &put.into_limit()?, dry).await,
        Line::Pause { partition: name } => pause(app, &name, dry).await,
        Line::Unreadable { .. } | Line::End { .. } => Ok(Imported::Skipped),
    }
}

async fn schedule(app: &App, name: String, paused: bool, put: PutSchedule, dry: bool) -> Answer<Imported> {
    let (scheduler, schedule) = (app.scheduler()?, put.into_schedule(name.clone())?);
    scheduler.check(&schedule)?;
    let there = scheduler.get(&name).await?;
    let imported = match &there {
        None => Imported::Created,
        Some(there) if there.schedule == schedule && there.is_paused == paused => Imported::Unchanged,
        Some(_) => Imported::Changed,
    };
    if dry || matches!(imported, Imported::Unchanged) {
        return Ok(imported);
    }
    let expected = as_it_was(there.map(|there| there.revision));
    let stored = scheduler.set_if(&schedule, paused, &expected).await?;
    stored.map(|_| imported).ok_or_else(|| not_as_expected("schedule", &name))
}

async fn limit(app: &App, name: &str, limit: &Limit, dry: bool) -> Answer<Imported> {
    let limits = Limits::new(app.store()?.clone());
    limits.check(name, limit)?;
    let there = limits.get(name).await?;
    let imported = match &there {
        None => Imported::Created,
        Some(there) if (limit.of(), limit.most(), limit.starts()) == (&there.of, there.cap, there.rate) => {
            Imported::Unchanged
        }
        Some(_) => Imported::Changed,
    };
    if dry || matches!(imported, Imported::Unchanged) {
        return Ok(imported);
    }
    let put = limits.put_if(name, limit, &as_it_was(there.map(|there| there.tag))).await?;
    put.map(|_| imported).ok_or_else(|| not_as_expected("limit", name))
}

async fn pause(app: &App, name: &str, dry: bool) -> Answer<Imported> {
    let partition = partition(name)?;
    if app.queue.is_paused(&partition).await? {
        return Ok(Imported::Unchanged);
    }
    if !dry {
        app.queue.pause(&partition).await?;
    }
    Ok(Imported::Changed)
}

/// So that the response says what was really done.
fn as_it_was(revision: Option<String>) -> Precondition {
    revision.map_or(Precondition::Absent, |revision| Precondition::Revision(vec![revision]))
}
