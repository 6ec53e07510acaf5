//! The response to the heartbeat of a worker in another language.

use std::collections::HashSet;

use anyqueue_control::registry::{Heard, HeldTask, Order, WorkerState};
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::settle::ExtendAnswer;
use crate::problem::Problem;
use crate::wire::millis;

/// What a worker should do.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Command {
    /// Take on tasks.
    GoOn,
    /// Take on nothing new, and go on with what you hold.
    Quiet,
    /// Take on nothing new, and end when what you hold has ended.
    Stop,
    /// The same, and whoever started you should start you again.
    Recycle,
}

impl Command {
    /// An order that the worker has obeyed, as its state shows, holds until there is another.
    fn of(order: Option<Order>, state: WorkerState) -> Self {
        match (order, state) {
            (Some(Order::Recycle), _) => Self::Recycle,
            (Some(Order::Stop), _) | (None, WorkerState::Draining) => Self::Stop,
            (Some(Order::Quiet), _) | (None, WorkerState::Quiet) => Self::Quiet,
            _ => Self::GoOn,
        }
    }
}

/// What happened to the lease of a delivery that a worker holds.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum LeaseAnswer {
    /// It was left as it is.
    Unchanged,
    /// It is yours for as long as you asked.
    Extended,
    /// As `extended`, and somebody wants the task to be cancelled.
    CancelRequested,
    /// Its lease had already ended, or its `max_duration_ms` is over: stop working on it.
    Lost,
    /// It failed, or it is not known whether it was done.
    Error {
        /// Why.
        problem: Problem,
    },
}

impl LeaseAnswer {
    /// Whether the delivery stays with another instance, which alone can open it.
    pub(crate) fn is_misdirected(&self) -> bool {
        matches!(self, Self::Error { problem } if problem.status == StatusCode::MISDIRECTED_REQUEST.as_u16())
    }
}

impl From<ExtendAnswer> for LeaseAnswer {
    fn from(answer: ExtendAnswer) -> Self {
        match answer {
            ExtendAnswer::Extended => Self::Extended,
            ExtendAnswer::CancelRequested => Self::CancelRequested,
            ExtendAnswer::Lost => Self::Lost,
            ExtendAnswer::Error { problem } => Self::Error { problem },
        }
    }
}

/// The answer to a beat.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HeardAnswer {
    /// What it should do.
    order: Command,
    /// The ids of the tasks that it holds and somebody wants to be cancelled.
    cancel: Vec<String>,
    /// What happened to each lease, in order.
    held: Vec<LeaseAnswer>,
    /// How long this beat counts, in milliseconds.
    valid_ms: u64,
}

impl HeardAnswer {
    /// Takes each of the tasks with what became of its lease.
    pub(crate) fn of(heard: &Heard, state: WorkerState, held: Vec<(Option<HeldTask>, LeaseAnswer)>) -> Self {
        let ordered: HashSet<String> = heard.cancel.iter().map(ToString::to_string).collect();
        let is_wanted = |task: &HeldTask, lease: &LeaseAnswer| {
            ordered.contains(&task.id) || matches!(lease, LeaseAnswer::CancelRequested)
        };
        let cancelled = held.iter().filter_map(|(task, lease)| {
            task.as_ref().filter(|task| is_wanted(task, lease)).map(|task| task.id.clone())
        });
        Self {
            order: Command::of(heard.order, state),
            cancel: cancelled.collect(),
            held: held.into_iter().map(|(_, lease)| lease).collect(),
            valid_ms: millis(heard.valid_for),
        }
    }
}
