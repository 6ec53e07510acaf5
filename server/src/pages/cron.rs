//! Schedules: what is pushed, and when.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyqueue::PushOutcome;
use anyqueue::header::TASK_KIND;
use anyqueue_control::cron::{LastRun, ScheduleInfo, Schedules};
use anyqueue_control::{Deleted, Precondition};
use askama::Template;
use axum::extract::{Form, State};
use axum::response::Response;
use serde::Deserialize;

use super::confirm::Confirm;
use super::partition::Said;
use super::shell::{Shell, back, failed, no_action, or_failed, page as answer};
use super::text::{cut, short, utc};
use crate::access;
use crate::app::App;
use crate::checked;
use crate::etag::not_as_expected;
use crate::noted;
use crate::problem::{Answer, Problem};
use crate::wire::{Path, Query};

/// The most schedules that are shown.
const SHOWN: usize = 200;
/// How many of the next times are shown.
const NEXT: usize = 5;
/// If a schedule has been due for longer than this, nobody runs it.
const LATE: Duration = Duration::from_mins(1);
/// The longest reason that is shown.
const REASON_BYTES: usize = 500;

#[derive(Template)]
#[template(path = "cron.html")]
struct CronPage {
    shell: Shell,
    found: Result<Found, String>,
}

struct Found {
    schedules: Vec<Shown>,
    unreadable: Vec<(String, String)>,
    all: usize,
}

struct Shown {
    name: String,
    is_paused: bool,
    late: Option<String>,
    spec: String,
    zone: String,
    partition: String,
    kind: String,
    next: Vec<Next>,
    last: Option<Last>,
}

struct Next {
    local: String,
    until: String,
}

struct Last {
    outcome: &'static str,
    due: String,
    id: Option<String>,
    error: String,
}

pub(crate) async fn page(State(app): State<Arc<App>>, Query(said): Query<Said>) -> Response {
    let found = async { Ok::<_, Problem>(Found::of(&app.scheduler()?.list().await?)) };
    let found = found.await.map_err(|problem| problem.detail);
    answer(&CronPage { shell: Shell::new(&app, "Cron", "Cron").timed().saying(said.said), found })
}

impl Found {
    fn of(all: &Schedules) -> Self {
        let seen = || all.schedules.iter().filter(|info| access::covers(info.schedule.partition.name()));
        let unreadable = all.unreadable.iter().filter(|_| access::covers_all());
        let unreadable = unreadable.map(|(name, error)| (name.clone(), error.to_string()));
        Self {
            schedules: seen().take(SHOWN).map(|info| Shown::of(info, all.now)).collect(),
            unreadable: unreadable.take(SHOWN).collect(),
            all: seen().count(),
        }
    }
}

impl Shown {
    fn of(info: &ScheduleInfo, now: SystemTime) -> Self {
        let schedule = &info.schedule;
        let next = schedule.timetable.after(now).take(NEXT);
        Self {
            name: schedule.name.clone(),
            is_paused: info.is_paused,
            late: late(info, now),
            spec: schedule.timetable.spec().to_string(),
            zone: schedule.timetable.zone().to_string(),
            partition: schedule.partition.name().to_owned(),
            kind: schedule.headers.get(TASK_KIND).cloned().unwrap_or_default(),
            next: next
                .map(|time| Next {
                    local: time.local().replace('T', " "),
                    until: short(time.at().duration_since(now).unwrap_or_default()),
                })
                .collect(),
            last: info.last.as_ref().map(Last::of),
        }
    }
}

/// Since when the schedule has waited for somebody to run it.
fn late(info: &ScheduleInfo, now: SystemTime) -> Option<String> {
    let due = info.next_at.filter(|_| !info.is_paused)?;
    let is_late = now.duration_since(due).is_ok_and(|late| late > LATE);
    is_late.then(|| utc(due))
}

impl Last {
    fn of(last: &LastRun) -> Self {
        Self {
            outcome: last.outcome.as_str(),
            due: utc(last.due_at),
            id: last.id.map(|id| id.to_string()),
            error: cut(last.error.as_deref().unwrap_or_default(), REASON_BYTES),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct Which {
    pub(crate) name: String,
    /// The revision that was shown with the question: nothing else is deleted.
    #[serde(default)]
    revision: String,
}

impl Which {
    pub(crate) fn expected(&self) -> Precondition {
        if self.revision.is_empty() {
            Precondition::Anything
        } else {
            Precondition::Revision(vec![self.revision.clone()])
        }
    }
}

fn unknown(name: &str) -> Problem {
    Problem::not_found(format!("there is no schedule {name:?} any more"))
}

/// Asks for confirmation before a schedule is deleted.
pub(crate) async fn confirm(State(app): State<Arc<App>>, Query(which): Query<Which>) -> Response {
    let name = which.name;
    let asked = async {
        app.writable()?;
        let there = app.scheduler()?.get(&name).await?.ok_or_else(|| unknown(&name))?;
        access::check(there.schedule.partition.name())?;
        Ok(there)
    };
    let info = match asked.await {
        Ok(info) => info,
        Err(problem) => return failed(&app, &problem),
    };
    let partition = info.schedule.partition.name();
    answer(&Confirm {
        shell: Shell::new(&app, "Cron", "Delete a schedule?").still(),
        what: format!(
            "The schedule “{name}” would be deleted, for good. What it has pushed to {partition} stays."
        ),
        action: "/do/cron/delete".to_owned(),
        fields: vec![("name", name), ("revision", info.revision.clone())],
        verb: "Delete it",
        danger: true,
        none: false,
        back: "/cron".to_owned(),
    })
}

pub(crate) async fn act(
    State(app): State<Arc<App>>,
    Path(action): Path<String>,
    Form(which): Form<Which>,
) -> Response {
    let done = async {
        app.writable()?;
        noted::detail("schedule", &which.name);
        Ok(back("/cron", &done(&app, &action, &which).await?))
    };
    or_failed(&app, done.await)
}

/// Performs the action, and says what came of it.
async fn done(app: &App, action: &str, which: &Which) -> Answer<String> {
    let name = which.name.as_str();
    let (scheduler, there) = (app.scheduler()?, &Precondition::Present);
    let run = |expected| async move { scheduler.run_now_if(name, &expected).await };
    let pause = |expected| async move { scheduler.pause_if(name, &expected).await };
    let resume = |expected| async move { scheduler.resume_if(name, &expected).await };
    let delete = |expected| async move { Ok(checked::deleted(scheduler.delete_if(name, &expected).await?)) };
    let (was_there, said) = match action {
        "run" => match checked::schedule(app, name, there, run).await? {
            Some(PushOutcome::Duplicate(_)) => {
                (true, "was not run: the task of an earlier time is still there")
            }
            outcome => (outcome.is_some(), "is pushed now, beside its times"),
        },
        "pause" => {
            let paused = checked::schedule(app, name, there, pause).await?;
            (paused.is_some(), "is paused: its times pass without a task")
        }
        "resume" => (
            checked::schedule(app, name, there, resume).await?.is_some(),
            "is resumed: its times count from now",
        ),
        "delete" => match checked::schedule(app, name, &which.expected(), delete).await? {
            None => return Err(not_as_expected("schedule", name)),
            Some(deleted) => (deleted == Deleted::Done, "is deleted"),
        },
        other => return Err(no_action(other)),
    };
    if was_there { Ok(format!("{name} {said}.")) } else { Err(unknown(name)) }
}
