//! Limits: how many tasks run at once, how fast they start, and who holds how many permits.

use std::sync::Arc;

use anyqueue::Error;
use anyqueue_control::limits::{self, LimitInfo, Limits as Store, Scope};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access;
use crate::app::App;
use crate::checked;
use crate::etag::{Tagged, deletion, not_as_expected, precondition};
use crate::manage::{check_limit, sees_limit};
use crate::problem::{Answer, Problem};
use crate::wire::{Json, Path, millis, partition};

/// An entry that cannot be read.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Unreadable {
    /// Its name.
    name: String,
    /// Why.
    error: String,
}

impl Unreadable {
    pub(crate) fn of((name, error): &(String, Error)) -> Self {
        Self { name: name.clone(), error: error.to_string() }
    }
}

/// How fast tasks may start.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rate {
    /// The average number per second.
    per_second: f64,
    /// How many may start at once after a pause; by default 1.
    #[serde(default = "one")]
    burst: u64,
}

fn one() -> u64 {
    1
}

/// A limit that all workers share.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Limit {
    /// Its name.
    name: String,
    /// The queue that it is for, unless it is for one of the next two.
    partition: Option<String>,
    /// The kind that it is for, in any queue.
    kind: Option<String>,
    /// The header that it is for: each of its values has as many for itself.
    header: Option<String>,
    /// How many run at once.
    cap: Option<u64>,
    /// How fast they start.
    rate: Option<Rate>,
    /// How often it was set.
    revision: u64,
    /// How many permits are held; for a while after the cap was lowered, this can be more than the cap.
    held: u64,
    /// How many may start now, by the rate.
    available: Option<u64>,
    /// Who holds them.
    holders: Vec<Holder>,
    /// For a limit of a header: its values in use, the fullest first, at most 100.
    keys: Vec<HeaderValue>,
}

/// A value of a header, and how many of its permits are held.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HeaderValue {
    /// The value; a long one is truncated.
    value: String,
    /// How many are held.
    held: u64,
    /// How many more are waited for.
    wanted: u64,
    /// How many may start now, by the rate.
    available: Option<u64>,
}

/// A process that holds permits, or waits for some.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Holder {
    /// The name of its worker.
    who: String,
    /// How many it holds.
    held: u64,
    /// How many more it waits for.
    wanted: u64,
    /// How long it keeps them if it is not heard from again, in milliseconds.
    valid_ms: u64,
}

impl Limit {
    fn of(info: &LimitInfo) -> Self {
        let (partition, kind, header) = match &info.of {
            Scope::Partition(name) => (Some(name.clone()), None, None),
            Scope::Kind(name) => (None, Some(name.clone()), None),
            Scope::Header(name) => (None, None, Some(name.clone())),
            _ => (None, None, None),
        };
        let keys = info.keys.iter().map(|key| HeaderValue {
            value: key.value.clone(),
            held: key.held,
            wanted: key.wanted,
            available: key.available,
        });
        let holders = info.holders.iter().map(|holder| Holder {
            who: holder.who.clone(),
            held: holder.held,
            wanted: holder.wanted,
            valid_ms: millis(holder.valid_for),
        });
        Self {
            name: info.name.clone(),
            partition,
            kind,
            header,
            cap: info.cap,
            rate: info.rate.map(|rate| Rate { per_second: rate.per_second, burst: rate.burst }),
            revision: info.revision,
            held: info.held,
            available: info.available,
            holders: holders.collect(),
            keys: keys.collect(),
        }
    }
}

/// All limits.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Limits {
    /// In the order of their names.
    limits: Vec<Limit>,
    /// Those that cannot be read, and why. They limit nothing.
    unreadable: Vec<Unreadable>,
}

fn store(app: &App) -> Answer<Store> {
    Ok(Store::new(app.store()?.clone()))
}

fn unknown(name: &str) -> Problem {
    Problem::not_found(format!("there is no limit {name:?}: see /v1/limits"))
}

/// Refuses a limit that applies to all queues, unless the caller may touch all.
fn for_all(limit: limits::Limit) -> Answer<limits::Limit> {
    if access::covers_all() {
        Ok(limit)
    } else {
        Err(access::forbidden(
            "a limit of a kind or a header concerns all queues, and this token is not for all",
        ))
    }
}

/// Lists the limits, and who holds how much of them.
#[utoipa::path(
    get, path = "/v1/limits", operation_id = "list_limits", tag = "limits",
    responses((status = 200, description = "The limits.", body = Limits))
)]
pub(crate) async fn list(State(app): State<Arc<App>>) -> Answer<Json<Limits>> {
    let all = store(&app)?.list().await?;
    Ok(Json(Limits {
        limits: all.limits.iter().filter(|info| sees_limit(info)).map(Limit::of).collect(),
        unreadable: all.unreadable.iter().filter(|_| access::covers_all()).map(Unreadable::of).collect(),
    }))
}

/// Shows a limit, and who holds how much of it.
#[utoipa::path(
    get, path = "/v1/limits/{name}", operation_id = "show_limit", tag = "limits",
    params(("name" = String, Path, description = "Its name.")),
    responses((status = 200, description = "The limit.", body = Limit, headers(("etag" = String, description = "Identifies its content, for If-Match. It does not depend on who holds how much."))), (status = 404, description = "There is none.", body = Problem))
)]
pub(crate) async fn show(State(app): State<Arc<App>>, Path(name): Path<String>) -> Answer<Tagged<Limit>> {
    let info = store(&app)?.get(&name).await?.ok_or_else(|| unknown(&name))?;
    check_limit(&info)?;
    Ok(Tagged(Limit::of(&info), info.tag))
}

/// A limit to set: a cap, a rate, or both.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PutLimit {
    /// The queue that it is for; or one of the next two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    partition: Option<String>,
    /// The kind that it is for, in any queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    /// The header that it is for: each of its values has as many for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    header: Option<String>,
    /// How many run at once; without it, any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cap: Option<u64>,
    /// How fast they start; without it, at any speed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate: Option<Rate>,
}

impl PutLimit {
    /// The request that would set the limit again; `None` if it is for something that this release does not
    /// know.
    pub(crate) fn of(info: &LimitInfo) -> Option<Self> {
        let Limit { partition, kind, header, cap, rate, .. } = Limit::of(info);
        let is_known = partition.is_some() || kind.is_some() || header.is_some();
        is_known.then_some(Self { partition, kind, header, cap, rate })
    }

    /// Builds the limit. Refuses one that concerns queues that the caller may not touch.
    pub(crate) fn into_limit(self) -> Answer<limits::Limit> {
        let mut limit = match (&self.partition, &self.kind, &self.header) {
            (Some(name), None, None) => limits::Limit::partition(partition(name)?)?,
            (None, Some(kind), None) => for_all(limits::Limit::kind(kind)?)?,
            (None, None, Some(header)) => for_all(limits::Limit::each(header)?)?,
            _ => return Err(Problem::invalid("nothing is limited: give one of partition, kind and header")),
        };
        if let Some(cap) = self.cap {
            limit = limit.cap(cap);
        }
        if let Some(rate) = self.rate {
            limit = limit.rate(rate.per_second, rate.burst);
        }
        Ok(limit)
    }
}

/// Sets or changes a limit. Workers obey it within seconds; permits that are held stay valid. With
/// `If-Match`, it only replaces the content that has this `ETag`; with `If-None-Match: *`, it is only set if
/// there is none.
#[utoipa::path(
    put, path = "/v1/limits/{name}", operation_id = "put_limit", tag = "limits",
    params(
        ("name" = String, Path, description = "Its name."),
        ("if-match" = Option<String>, Header, description = "The ETag of what it should replace, or `*`."),
        ("if-none-match" = Option<String>, Header, description = "`*`: there must be none yet.")
    ),
    request_body = PutLimit,
    responses(
        (status = 200, description = "It is set.", body = Limit, headers(("etag" = String, description = "Identifies its content, for If-Match."))),
        (status = 400, description = "What is wrong with it.", body = Problem),
        (status = 412, description = "The condition is not met.", body = Problem)
    )
)]
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(request): Json<PutLimit>,
) -> Answer<Tagged<Limit>> {
    app.writable()?;
    let (expected, limit) = (precondition(&headers)?, request.into_limit()?);
    let store = store(&app)?;
    let (limits, named, limit) = (&store, name.as_str(), &limit);
    let put = |expected| async move { limits.put_if(named, limit, &expected).await };
    let info = checked::limit(limits, named, &expected, put).await?;
    let info = info.ok_or_else(|| not_as_expected("limit", named))?;
    Ok(Tagged(Limit::of(&info), info.tag))
}

/// Deletes a limit, even one that cannot be read: workers notice within seconds. With `If-Match`, deletes
/// only the content that has this `ETag`.
#[utoipa::path(
    delete, path = "/v1/limits/{name}", operation_id = "delete_limit", tag = "limits",
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
    let (expected, store) = (precondition(&headers)?, store(&app)?);
    let (limits, named) = (&store, name.as_str());
    let delete = |expected| async move { Ok(checked::deleted(limits.delete_if(named, &expected).await?)) };
    let deleted = checked::limit(limits, named, &expected, delete).await?;
    deletion(deleted, not_as_expected("limit", named), unknown(named))
}
