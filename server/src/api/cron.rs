//! Schedules: what is pushed, and when.

use std::sync::Arc;
use std::time::SystemTime;

use anyqueue::PushOutcome;
use anyqueue_control::Precondition;
use anyqueue_control::cron::{ScheduleInfo, Timetable};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::limits::Unreadable;
use super::schedule::{Gap, OverlapHour, PutSchedule, Schedule, timetable};
use crate::access;
use crate::app::App;
use crate::checked;
use crate::etag::{Tagged, deletion, not_as_expected, precondition};
use crate::noted;
use crate::problem::{Answer, Problem};
use crate::wire::{Json, Path, Query, time, time_text};

/// The most times that one preview shows.
const MAX_TIMES: usize = 100;
const TIMES: usize = 5;

/// The schedules.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ScheduleList {
    /// In the order of their names, without their payloads.
    schedules: Vec<Schedule>,
    /// Those that cannot be read, and why.
    unreadable: Vec<Unreadable>,
    /// The time of the store's server.
    now: String,
}

fn unknown(name: &str) -> Problem {
    Problem::not_found(format!("there is no schedule {name:?}: see /v1/cron"))
}

fn sees(info: &ScheduleInfo) -> bool {
    access::covers(info.schedule.partition.name())
}

/// The schedule, with what it pushes if the caller may see that.
fn shown(info: &ScheduleInfo) -> Tagged<Schedule> {
    let body = if access::sees_payloads() { Schedule::with_payload(info) } else { Schedule::of(info) };
    Tagged(body, info.revision.clone())
}

fn found(name: &str, info: Option<ScheduleInfo>) -> Answer<Tagged<Schedule>> {
    let info = info.ok_or_else(|| unknown(name))?;
    access::check(info.schedule.partition.name())?;
    Ok(shown(&info))
}

/// Lists the schedules.
#[utoipa::path(
    get, path = "/v1/cron", operation_id = "list_schedules", tag = "cron",
    responses((status = 200, description = "The schedules.", body = ScheduleList))
)]
pub(crate) async fn list(State(app): State<Arc<App>>) -> Answer<Json<ScheduleList>> {
    let all = app.scheduler()?.list().await?;
    Ok(Json(ScheduleList {
        schedules: all.schedules.iter().filter(|info| sees(info)).map(Schedule::of).collect(),
        unreadable: all.unreadable.iter().filter(|_| access::covers_all()).map(Unreadable::of).collect(),
        now: time_text(all.now),
    }))
}

/// A schedule.
#[utoipa::path(
    get, path = "/v1/cron/{name}", operation_id = "show_schedule", tag = "cron",
    params(("name" = String, Path, description = "Its name.")),
    responses((status = 200, description = "The schedule.", body = Schedule, headers(("etag" = String, description = "Identifies its content, for If-Match."))), (status = 404, description = "There is none.", body = Problem))
)]
pub(crate) async fn show(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer<Tagged<Schedule>> {
    found(&name, app.scheduler()?.get(&name).await?)
}

/// Stores a schedule, and replaces the one of the same name. It counts from now on. Storing the same again
/// changes nothing, and a paused schedule stays paused. With `If-Match`, it only replaces the content that
/// has this `ETag`; with `If-None-Match: *`, it is only stored if there is none.
#[utoipa::path(
    put, path = "/v1/cron/{name}", operation_id = "put_schedule", tag = "cron",
    params(
        ("name" = String, Path, description = "Its name; anything but `preview`."),
        ("if-match" = Option<String>, Header, description = "The ETag of what it should replace, or `*`."),
        ("if-none-match" = Option<String>, Header, description = "`*`: there must be none yet.")
    ),
    request_body = PutSchedule,
    responses(
        (status = 200, description = "It is stored.", body = Schedule, headers(("etag" = String, description = "Identifies its content, for If-Match."))),
        (status = 400, description = "What is wrong with it.", body = Problem),
        (status = 412, description = "The condition is not met.", body = Problem)
    )
)]
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(request): Json<PutSchedule>,
) -> Answer<Tagged<Schedule>> {
    app.writable()?;
    let expected = precondition(&headers)?;
    let (scheduler, schedule) = (app.scheduler()?, request.into_schedule(name.clone())?);
    access::check(schedule.partition.name())?;
    let schedule = &schedule;
    let put = |expected| async move { scheduler.put_if(schedule, &expected).await };
    let info = checked::schedule(&app, &name, &expected, put).await?;
    Ok(shown(&info.ok_or_else(|| not_as_expected("schedule", &name))?))
}

/// Deletes a schedule, even one that cannot be read. What it has pushed stays. With `If-Match`, deletes only
/// the content that has this `ETag`.
#[utoipa::path(
    delete, path = "/v1/cron/{name}", operation_id = "delete_schedule", tag = "cron",
    params(
        ("name" = String, Path, description = "Its name."),
        ("if-match" = Option<String>, Header, description = "The ETag of what should be deleted, or `*`.")
    ),
    responses(
        (status = 204, description = "It is deleted."),
        (status = 404, description = "There is none.", body = Problem),
        (status = 412, description = "The condition is not met.", body = Problem)
    )
)]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Answer<StatusCode> {
    app.writable()?;
    let expected = precondition(&headers)?;
    let (scheduler, named) = (app.scheduler()?, name.as_str());
    let delete = |expected| async move { Ok(checked::deleted(scheduler.delete_if(named, &expected).await?)) };
    let deleted = checked::schedule(&app, named, &expected, delete).await?;
    deletion(deleted, not_as_expected("schedule", &name), unknown(&name))
}

/// The outcome of an extra run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Ran {
    /// `stored`, `replaced`, or `duplicate`: the task of an earlier time is still there, and the schedule
    /// does not run another one beside it.
    outcome: &'static str,
    /// The message's id; for a duplicate, the id of the message that is there, if known.
    id: Option<String>,
}

/// Pushes the task of a schedule now, in addition to its times, even if it is paused.
#[utoipa::path(
    post, path = "/v1/cron/{name}/run", operation_id = "run_schedule", tag = "cron",
    params(("name" = String, Path, description = "Its name.")),
    responses((status = 200, description = "The outcome.", body = Ran), (status = 404, description = "There is none.", body = Problem))
)]
pub(crate) async fn run(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer<Json<Ran>> {
    app.writable()?;
    let (scheduler, named) = (app.scheduler()?, name.as_str());
    let run = |expected| async move { scheduler.run_now_if(named, &expected).await };
    let (outcome, id) = match checked::schedule(&app, named, &Precondition::Present, run).await? {
        None => return Err(unknown(&name)),
        Some(PushOutcome::Stored(id)) => ("stored", Some(id)),
        Some(PushOutcome::Replaced(id)) => ("replaced", Some(id)),
        Some(PushOutcome::Duplicate(id)) => ("duplicate", id),
    };
    noted::detail("pushed", outcome);
    Ok(Json(Ran { outcome, id: id.map(|id| id.to_string()) }))
}

/// Pauses a schedule: its times pass without a task.
#[utoipa::path(
    post, path = "/v1/cron/{name}/pause", operation_id = "pause_schedule", tag = "cron",
    params(("name" = String, Path, description = "Its name.")),
    responses((status = 200, description = "The schedule as it is now.", body = Schedule), (status = 404, description = "There is none.", body = Problem))
)]
pub(crate) async fn pause(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer<Tagged<Schedule>> {
    app.writable()?;
    let (scheduler, named) = (app.scheduler()?, name.as_str());
    let pause = |expected| async move { scheduler.pause_if(named, &expected).await };
    found(named, checked::schedule(&app, named, &Precondition::Present, pause).await?)
}

/// Resumes a paused schedule from now on. Times that were due meanwhile are not run.
#[utoipa::path(
    post, path = "/v1/cron/{name}/resume", operation_id = "resume_schedule", tag = "cron",
    params(("name" = String, Path, description = "Its name.")),
    responses((status = 200, description = "The schedule as it is now.", body = Schedule), (status = 404, description = "There is none.", body = Problem))
)]
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
) -> Answer<Tagged<Schedule>> {
    app.writable()?;
    let (scheduler, named) = (app.scheduler()?, name.as_str());
    let resume = |expected| async move { scheduler.resume_if(named, &expected).await };
    found(named, checked::schedule(&app, named, &Precondition::Present, resume).await?)
}

/// When would it be due?
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct When {
    /// When it is due, in the fields of cron.
    spec: String,
    /// The time zone; by default `UTC`.
    #[serde(default)]
    zone: Option<String>,
    /// What happens to fixed times that the clocks skip.
    #[serde(default)]
    gap: Option<Gap>,
    /// When to run fixed times that the clocks show twice.
    #[serde(default)]
    overlap_hour: Option<OverlapHour>,
    /// The time to start from: RFC 3339; by default now.
    #[serde(default)]
    after: Option<String>,
    /// How many times to show, up to 100; by default 5.
    #[serde(default)]
    count: Option<usize>,
}

/// A time at which it would be due.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Time {
    /// In UTC.
    at: String,
    /// In the time of its zone.
    local: String,
    /// Whether the clocks skip its time, so that it is due right after.
    shifted: bool,
}

/// When it would be due.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Preview {
    /// The next times; fewer than requested if there are no more.
    times: Vec<Time>,
}

/// Shows the next times of a spec in its zone. Stores nothing, and needs no control store.
#[utoipa::path(
    get, path = "/v1/cron/preview", operation_id = "preview_schedule", tag = "cron", params(When),
    responses((status = 200, description = "When it is due.", body = Preview), (status = 400, description = "What is wrong with it, and which valid spec is similar.", body = Problem))
)]
pub(crate) async fn preview(Query(when): Query<When>) -> Answer<Json<Preview>> {
    let after = when.after.as_deref().map(time).transpose()?.unwrap_or_else(SystemTime::now);
    let count = when.count.unwrap_or(TIMES).clamp(1, MAX_TIMES);
    let timetable: Timetable = timetable(&when.spec, when.zone.as_deref(), when.gap, when.overlap_hour)?;
    let times = timetable.after(after).take(count).map(|next| Time {
        at: time_text(next.at()),
        local: next.local(),
        shifted: next.is_shifted(),
    });
    Ok(Json(Preview { times: times.collect() }))
}
