//! Exchanges: settlements that bring the next deliveries with them.

use std::time::Duration;

use anyqueue::adapter::{Action, RawDelivery};
use futures_util::future::join_all;

use super::helpers::push_one;
use crate::case::Case;
use crate::clause::Clause;
use crate::context::{Context, settlement};
use crate::fault::Fault;
use crate::need::Need;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "exchange.settles_first", [ReadyAtOnce, Groups], settles_first)
        .needs(&[Need::Groups])
        .kills(&[Fault::ExchangePullsFirst]),
    case!(Storage, "exchange.elsewhere", [PartitionsApart], elsewhere).kills(&[Fault::ExchangeElsewhere]),
    case!(Storage, "exchange.in_order", [Order], in_order)
        .needs(&[Need::OverlappingExchanges, Need::PushOrder])
        .kills(&[Fault::ExchangeOvertakes]),
];

/// The settlement frees the next member of the group, and the same call gets it.
async fn settles_first(c: &Context) -> CaseResult {
    let p = c.partition("work")?;
    let sent = c.client().push(&p, &c.messages(2, |_, message| message.with_group("g"))).await?;
    let [held] = c.client().take_exact(&p).await?;
    let batch = [settlement(&held, Action::Remove)];
    let request = c.client().request(1, Duration::ZERO);
    let (_, pulled) = c.client().storage().exchange(&batch, &p, request).await;
    let got = c.ok(Clause::ReadyAtOnce, "pulling in an exchange", pulled)?;
    c.in_order(Clause::Groups, "the next of the group", sent.get(1..).unwrap_or_default(), &got)?;
    c.client().remove(&got).await
}

async fn elsewhere(c: &Context) -> CaseResult {
    let (p, other) = (c.partition("work")?, c.partition("other")?);
    c.client().push(&p, &c.messages(2, |_, message| message)).await?;
    let there = push_one(c, &other, c.message()).await?;
    let [held] = c.client().take_exact(&p).await?;
    let batch = [settlement(&held, Action::Remove)];
    let request = c.client().request(1, c.timing().soon);
    let (_, pulled) = c.client().storage().exchange(&batch, &other, request).await;
    let got = c.ok(Clause::ReadyAtOnce, "pulling in an exchange", pulled)?;
    c.in_order(Clause::PartitionsApart, "from the partition that was asked for", &[there], &got)?;
    c.client().remove(&got).await
}

/// Overlapping exchanges claim in the order in which they were begun, whichever is answered first.
async fn in_order(c: &Context) -> CaseResult {
    let (p, client) = (c.partition("work")?, c.client());
    let sent = client.push(&p, &c.messages(32, |_, message| message)).await?;
    let held: [RawDelivery; 16] = client.take_exact(&p).await?;
    let batches = held.each_ref().map(|held| [settlement(held, Action::Remove)]);
    let exchanges =
        batches.iter().map(|batch| client.storage().exchange(batch, &p, client.request(1, Duration::ZERO)));
    let mut got = Vec::new();
    for (_, pulled) in join_all(exchanges).await {
        got.extend(c.ok(Clause::ReadyAtOnce, "pulling in an exchange", pulled)?);
    }
    // An exchange that did not wait may have brought nothing.
    got.extend(client.take(&p, 16 - got.len()).await?);
    c.in_order(Clause::Order, "what overlapping exchanges bring", sent.get(16..).unwrap_or_default(), &got)?;
    client.remove(&got).await
}
