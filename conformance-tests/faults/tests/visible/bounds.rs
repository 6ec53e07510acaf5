//! Faults at the ends of what is allowed.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use anyqueue::adapter::{Action, Extension, PullRequest, Settlement};
use futures_util::FutureExt as _;

use crate::Fault;
use crate::lab::*;

/// As many as one call may have, held.
async fn thousand(desk: &Desk) -> Vec<anyqueue::adapter::RawDelivery> {
    desk.push(many(1000)).await;
    desk.pull(1000).await
}

async fn retries(lab: Lab, of: u32) -> String {
    let desk = lab.open().await;
    desk.push([m("a").with_max_retries(of)]).await;
    shown(desk.one().await.message.options().max_retries)
}

seen! {
    LongNamesCut: "256", not "255", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a").with_task_id("k".repeat(256))]).await;
        shown(desk.one().await.message.task_id().unwrap().len())
    };
    HeadersBeyond255Lost: "256", not "255", async |lab| {
        let desk = lab.open().await;
        let headers = (0..256).map(|n| (format!("h{n}"), String::new())).collect();
        desk.push([m("a").with_headers(headers)]).await;
        shown(desk.one().await.message.headers().len())
    };
    RetriesOf31Bits: "Some(2147483648)", not "None", async |lab| retries(lab, 1 << 31).await;
    ZeroRetriesLost: "Some(0)", not "None", async |lab| retries(lab, 0).await;
    LastOfFullSettlement: "1000", not "999", async |lab| {
        let desk = lab.open().await;
        let held = thousand(&desk).await;
        let release = |held: &anyqueue::adapter::RawDelivery| Settlement { lease: held.lease.clone(), action: Action::Release };
        desk.0.settle(&held.iter().map(release).collect::<Vec<_>>()).await;
        shown(desk.pull(1000).await.len())
    };
    LastOfFullExtension: "1000", not "999", async |lab| {
        let desk = lab.open().await;
        let held = thousand(&desk).await;
        let end = |held: &anyqueue::adapter::RawDelivery| Extension { lease: held.lease.clone(), duration: SHORT };
        desk.0.extend(&held.iter().map(end).collect::<Vec<_>>()).await;
        sleep(SHORT * 2).await;
        shown(desk.pull(1000).await.len())
    };
    LeastLeaseEndless: "a", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        desk.pull_for(Duration::from_millis(1), 1).await;
        desk.wait().await
    };
    WaitOverflows: "a", not "a panic", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        let from = jobs();
        let pulled = desk.0.pull(&from, PullRequest::new(1, Duration::MAX, MINUTE));
        let pulled = AssertUnwindSafe(pulled).catch_unwind().await;
        pulled.map_or_else(|_| "a panic".to_owned(), |got| names(&got.unwrap()))
    };
    LimitZeroIsNone: "0", not "1", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        shown(desk.inspect().purge(&jobs(), 0).await.unwrap())
    };
    PostponeOf32BitMillis: "", not "a", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        desk.settle(&desk.one().await, postpone(Duration::from_millis((1 << 32) + 20))).await;
        desk.wait().await
    };
}
