//! A schedule as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use anyqueue::header::TASK_KIND;
use anyqueue_control::cron::{self, LastRun, Missed, ScheduleInfo, Timetable};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::problem::{Answer, Problem};
use crate::wire::{Content, millis, partition, time_text};

/// What happens to fixed times that the clocks skip.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Gap {
    /// They come at the first moment after.
    Shift,
    /// They do not come.
    Skip,
}

/// When to run fixed times that the clocks show twice.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OverlapHour {
    /// The first time.
    First,
    /// The last time.
    Last,
}

/// What happens to a time that is due while the task of an earlier one is still there.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Running {
    /// It is left out.
    Skip,
    /// It is run beside it.
    Allow,
    /// One of them waits behind it.
    BufferOne,
    /// It is run, and the earlier one is cancelled.
    CancelOld,
}

/// A schedule to store.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutSchedule {
    /// When it is due: five fields of cron, six with the second in front, or `@hourly`, `@daily`, `@weekly`,
    /// `@monthly`, `@yearly`; or how long after the end of its last run: `@after 10m`.
    spec: String,
    /// The time zone, such as `Europe/Berlin`; by default `UTC`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    /// What happens to fixed times that the clocks skip; by default `shift`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gap: Option<Gap>,
    /// When to run fixed times that the clocks show twice; by default `first`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    overlap_hour: Option<OverlapHour>,
    /// The queue that its tasks are pushed to.
    partition: String,
    /// Their content as text; or one of the next two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    /// Their content as JSON, which is stored as its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    json: Option<Value>,
    /// Their content as bytes, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    /// Their kind, which selects their handler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// Their headers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
    /// Their priority: the higher, the sooner.
    #[serde(default)]
    priority: u8,
    /// Which missed times are run: `latest`, `none`, or `all:N` for the latest N; by default `latest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    missed: Option<String>,
    /// How late a time may be run, in milliseconds; by default without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deadline_ms: Option<u64>,
    /// What happens to a time that is due while an earlier task is still there; by default `skip`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    running: Option<Running>,
}

impl PutSchedule {
    /// The request that would store the schedule again.
    pub(crate) fn of(info: &ScheduleInfo) -> Self {
        let shown = Schedule::with_payload(info);
        let Content { payload, json, payload_base64 } = shown.payload;
        Self {
            spec: shown.spec,
            zone: Some(shown.zone),
            gap: Some(shown.gap),
            overlap_hour: Some(shown.overlap_hour),
            partition: shown.partition,
            payload,
            json,
            payload_base64,
            // The kind is among the headers.
            kind: None,
            headers: shown.headers,
            priority: shown.priority,
            missed: Some(shown.missed),
            deadline_ms: shown.deadline_ms,
            running: Some(shown.running),
        }
    }

    pub(crate) fn into_schedule(self, name: String) -> Answer<cron::Schedule> {
        let timetable = timetable(&self.spec, self.zone.as_deref(), self.gap, self.overlap_hour)?;
        let Self { payload, json, payload_base64, .. } = self;
        let content = Content { payload, json, payload_base64 }.into_bytes()?;
        let mut schedule = cron::Schedule::new(name, timetable, partition(&self.partition)?)
            .with_payload(content)
            .with_priority(self.priority)
            .with_missed(self.missed.as_deref().map(missed).transpose()?.unwrap_or_default())
            .with_running(match self.running {
                None | Some(Running::Skip) => cron::Running::Skip,
                Some(Running::Allow) => cron::Running::Allow,
                Some(Running::BufferOne) => cron::Running::BufferOne,
                Some(Running::CancelOld) => cron::Running::CancelOld,
            });
        for (name, value) in self.headers {
            schedule = schedule.with_header(name, value);
        }
        if let Some(kind) = self.kind {
            schedule = schedule.with_kind(kind);
        }
        if let Some(deadline) = self.deadline_ms {
            schedule = schedule.with_deadline(Duration::from_millis(deadline));
        }
        Ok(schedule)
    }
}

/// Builds the timetable of a schedule.
pub(crate) fn timetable(
    spec: &str,
    zone: Option<&str>,
    gap: Option<Gap>,
    overlap: Option<OverlapHour>,
) -> Answer<Timetable> {
    let timetable = Timetable::new(spec.parse()?, zone.unwrap_or("UTC").parse()?);
    let gap = match gap {
        None | Some(Gap::Shift) => cron::Gap::Shift,
        Some(Gap::Skip) => cron::Gap::Skip,
    };
    let overlap = match overlap {
        None | Some(OverlapHour::First) => cron::Overlap::First,
        Some(OverlapHour::Last) => cron::Overlap::Last,
    };
    Ok(timetable.with_gap(gap).with_overlap(overlap))
}

fn missed(text: &str) -> Answer<Missed> {
    let wrong = || Problem::invalid(format!("missed is {text:?}: write latest, none, or all:N"));
    match text.split_once(':') {
        None if text == "latest" => Ok(Missed::Latest),
        None if text == "none" => Ok(Missed::None),
        Some(("all", most)) => most.parse().map(Missed::All).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

fn missed_text(missed: Missed) -> String {
    match missed {
        Missed::None => "none".to_owned(),
        Missed::All(most) => format!("all:{most}"),
        _ => "latest".to_owned(),
    }
}

/// A schedule and its state.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Schedule {
    /// Its name.
    name: String,
    /// When it is due.
    spec: String,
    /// The time zone.
    zone: String,
    /// What happens to fixed times that the clocks skip.
    gap: Gap,
    /// When to run fixed times that the clocks show twice.
    overlap_hour: OverlapHour,
    /// The queue that its tasks are pushed to.
    partition: String,
    /// Their payload; not in a list.
    #[serde(flatten)]
    payload: Content,
    /// Their kind, if one is set; it is among their headers, too.
    kind: Option<String>,
    /// Their headers.
    headers: BTreeMap<String, String>,
    /// Their priority.
    priority: u8,
    /// Which missed times are run.
    missed: String,
    /// How late a time may be run, in milliseconds.
    deadline_ms: Option<u64>,
    /// What happens to a time that is due while an earlier task is still there.
    running: Running,
    /// Whether its times pass without a task.
    paused: bool,
    /// When it is due next; in the past if nobody runs the schedules; null if it is never due again.
    next_at: Option<String>,
    /// What happened at its last time.
    last: Option<Last>,
}

/// What happened at the last time of a schedule.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Last {
    /// When it was due.
    due_at: String,
    /// When it was done.
    done_at: String,
    /// `pushed`, `running` (an earlier task was still there), `missed`, `paused` or `refused`.
    outcome: &'static str,
    /// The message that was pushed.
    id: Option<String>,
    /// Why it was refused.
    error: Option<String>,
}

impl Schedule {
    pub(crate) fn of(info: &ScheduleInfo) -> Self {
        let schedule = &info.schedule;
        let timetable = &schedule.timetable;
        Self {
            name: schedule.name.clone(),
            spec: timetable.spec().to_string(),
            zone: timetable.zone().to_string(),
            gap: match timetable.gap() {
                cron::Gap::Shift => Gap::Shift,
                cron::Gap::Skip => Gap::Skip,
            },
            overlap_hour: match timetable.overlap() {
                cron::Overlap::First => OverlapHour::First,
                cron::Overlap::Last => OverlapHour::Last,
            },
            partition: schedule.partition.name().to_owned(),
            payload: Content::default(),
            kind: schedule.headers.get(TASK_KIND).cloned(),
            headers: schedule.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            priority: schedule.priority,
            missed: missed_text(schedule.missed),
            deadline_ms: schedule.deadline.map(millis),
            running: match schedule.running {
                cron::Running::Allow => Running::Allow,
                cron::Running::BufferOne => Running::BufferOne,
                cron::Running::CancelOld => Running::CancelOld,
                _ => Running::Skip,
            },
            paused: info.is_paused,
            next_at: info.next_at.map(time_text),
            last: info.last.as_ref().map(Last::of),
        }
    }

    pub(crate) fn with_payload(info: &ScheduleInfo) -> Self {
        Self { payload: Content::of(&info.schedule.payload), ..Self::of(info) }
    }
}

impl Last {
    fn of(last: &LastRun) -> Self {
        Self {
            due_at: time_text(last.due_at),
            done_at: time_text(last.done_at),
            outcome: last.outcome.as_str(),
            id: last.id.map(|id| id.to_string()),
            error: last.error.clone(),
        }
    }
}
