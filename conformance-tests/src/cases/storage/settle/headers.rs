//! Headers that a settlement replaces.

use std::time::Duration;

use anyqueue::Headers;
use anyqueue::adapter::Action;

use super::super::helpers::{postpone, push_one};
use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(in crate::cases) const CASES: &[Case] = &[
    case!(Storage, "settle.postpone_headers", [ContentIntact, SettleActions], postpone_headers)
        .needs(&[Need::PostponeHeaders])
        .kills(&[Fault::PostponeKeepsHeaders]),
    case!(Storage, "settle.headers_taken_away", [SettleActions], headers_taken_away)
        .needs(&[Need::PostponeHeaders])
        .kills(&[Fault::EmptyHeadersIgnored]),
    case!(Storage, "settle.new_headers_last", [ContentIntact, SettleActions], new_headers_last)
        .needs(&[Need::PostponeHeaders])
        .kills(&[Fault::NewHeadersOnce, Fault::NewHeadersLocal, Fault::PostponeMergesHeaders]),
];

/// A postponement may replace the headers, all of them; the payload stays.
async fn postpone_headers(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let message = c.message().with_header("attempt", "1").with_header("gone", "soon");
    c.client().push(&p, &[message]).await?;
    for attempt in ["2", "3"] {
        let got = c.client().take(&p, 1).await?;
        let headers = Headers::from([("attempt".to_owned(), attempt.to_owned())]);
        let action = Action::Postpone { delay: Duration::ZERO, headers: Some(headers.clone()) };
        c.client().settle_all(&got, &action).await?;
        let [back] = c.client().take_exact(&p).await?;
        c.equal(Clause::ContentIntact, &[back.lease.id], "the headers", &headers, back.message.headers())?;
        c.client().settle_all(&[back], &Action::Release).await?;
    }
    let got = c.client().take(&p, 1).await?;
    c.client().remove(&got).await
}

async fn headers_taken_away(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    push_one(c, &p, c.message().with_header("name", "value")).await?;
    let held = c.client().take(&p, 1).await?;
    postpone(c.client(), &held, Duration::ZERO, Some(Headers::new())).await?;
    let [again] = c.client().take_exact(&p).await?;
    c.equal(
        Clause::SettleActions,
        &[again.lease.id],
        "the headers",
        &Headers::new(),
        again.message.headers(),
    )?;
    c.client().remove(&[again]).await
}

/// New headers are there for every client and on every later delivery.
async fn new_headers_last(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let other = c.fresh().await?;
    push_one(c, &p, c.message().with_header("name", "old")).await?;
    let held = c.client().take(&p, 1).await?;
    let new = Headers::from([("another".to_owned(), "new".to_owned())]);
    postpone(c.client(), &held, Duration::ZERO, Some(new.clone())).await?;
    for client in [&other, c.client(), &other] {
        let got = client.take(&p, 1).await?;
        for delivery in &got {
            c.equal(
                Clause::SettleActions,
                &[delivery.lease.id],
                "the headers",
                &new,
                delivery.message.headers(),
            )?;
        }
        client.settle_all(&got, &Action::Release).await?;
    }
    Ok(())
}
