//! Settling and extending deliveries that workers hold.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::{ExtendOutcome, SettleOutcome};
use axum::extract::State;
use axum::response::Response;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::app::App;
use crate::fate::Settle;
use crate::held::Held;
use crate::overdue::{self, Holder};
use crate::problem::{Answer, Problem};
use crate::wire::{Items, answers};

/// What happened to a settlement.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum SettleAnswer {
    /// Done.
    Settled,
    /// Its lease had already ended, or it was already settled: nothing was changed.
    Lost,
    /// Not done; it is still yours. See `retry`.
    Error {
        /// Why.
        problem: Problem,
    },
}

/// Settles deliveries, with one answer for each, in order. If an answer was lost, settling again is harmless:
/// the outcome is then `lost`.
#[utoipa::path(
    post, path = "/v1/settle", operation_id = "settle", tag = "work",
    request_body = Vec<Settle>,
    responses((status = 200, description = "An answer for each.", body = Vec<SettleAnswer>))
)]
pub(crate) async fn settle(
    State(app): State<Arc<App>>,
    Items { items, lines }: Items<Settle>,
) -> Answer<Response> {
    app.writable()?;
    let all = join_all(items.into_iter().map(|item| one(&app, item))).await;
    Ok(answers(&all, lines))
}

async fn one(app: &App, item: Settle) -> SettleAnswer {
    let settled = async {
        let held = app.open(&item.delivery)?;
        let (status, report) = item.decide(app, &held).await?;
        Ok::<_, Problem>(app.settle(&held, status, report).await?)
    };
    match settled.await {
        Ok(SettleOutcome::Settled) => SettleAnswer::Settled,
        Ok(SettleOutcome::Lost) => SettleAnswer::Lost,
        Err(problem) => SettleAnswer::Error { problem },
    }
}

/// An extension of a lease.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Extend {
    /// What a pull returned.
    delivery: String,
    /// How long it should be yours, in milliseconds from now.
    lease_ms: u64,
}

/// What happened to an extension.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum ExtendAnswer {
    /// It is yours for as long as you asked.
    Extended,
    /// As `extended`, and somebody wants the task to be cancelled.
    CancelRequested,
    /// Its lease had already ended: stop working on it.
    Lost,
    /// It failed, or it is not known whether it was done.
    Error {
        /// Why.
        problem: Problem,
    },
}

impl From<anyqueue::Result<ExtendOutcome>> for ExtendAnswer {
    fn from(result: anyqueue::Result<ExtendOutcome>) -> Self {
        match result {
            Ok(ExtendOutcome::Extended) => Self::Extended,
            Ok(ExtendOutcome::CancelRequested) => Self::CancelRequested,
            Ok(ExtendOutcome::Lost) => Self::Lost,
            Err(error) => Self::Error { problem: error.into() },
        }
    }
}

/// Extends leases, with one answer for each, in order. A task that has run for longer than its
/// `max_duration_ms` is not extended: it is ended as `timed_out`, and the outcome is `lost`.
#[utoipa::path(
    post, path = "/v1/extend", operation_id = "extend", tag = "work",
    request_body = Vec<Extend>,
    responses((status = 200, description = "An answer for each.", body = Vec<ExtendAnswer>))
)]
pub(crate) async fn extend(
    State(app): State<Arc<App>>,
    Items { items, lines }: Items<Extend>,
) -> Answer<Response> {
    app.writable()?;
    let opened: Vec<Answer<Held>> = items.iter().map(|item| app.open(&item.delivery)).collect();
    let held: Vec<(&Held, Duration)> = opened
        .iter()
        .zip(&items)
        .filter_map(|(held, item)| Some((held.as_ref().ok()?, Duration::from_millis(item.lease_ms))))
        .collect();
    let mut extended = overdue::extend(&app, &held, Holder { worker: None, retries: true }).await.into_iter();
    drop(held);
    let all: Vec<ExtendAnswer> = opened
        .into_iter()
        .map(|held| match held {
            Ok(_) => extended.next().unwrap_or(Ok(ExtendOutcome::Lost)).into(),
            Err(problem) => ExtendAnswer::Error { problem },
        })
        .collect();
    Ok(answers(&all, lines))
}
