//! Faults at the ends of what is allowed.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use anyqueue::adapter::{Action, Extension, PullRequest, Settlement};
use futures_util::FutureExt as _;

use crate::Fault;
use crate::lab::*;

/// As many as one call may have, held.
async fn thousand(client: &LabClient) -> Vec<anyqueue::adapter::RawDelivery> {
    client.push(many(1000)).await;
    client.pull(1000).await
}

async fn retries(lab: Lab, of: u32) -> String {
    let client = lab.open().await;
    client.push([m("a").with_max_retries(of)]).await;
    shown(client.one().await.message.options().max_retries)
}

seen! {
    LongNamesCut: "256", not "255", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_task_id("k".repeat(256))]).await;
        shown(client.one().await.message.task_id().unwrap().len())
    };
    HeadersBeyond255Lost: "256", not "255", async |lab| {
        let client = lab.open().await;
        let headers = (0..256).map(|n| (format!("h{n}"), String::new())).collect();
        client.push([m("a").with_headers(headers)]).await;
        shown(client.one().await.message.headers().len())
    };
    RetriesOf31Bits: "Some(2147483648)", not "None", async |lab| retries(lab, 1 << 31).await;
    ZeroRetriesLost: "Some(0)", not "None", async |lab| retries(lab, 0).await;
    LastOfFullSettlement: "1000", not "999", async |lab| {
        let client = lab.open().await;
        let held = thousand(&client).await;
        let release = |held: &anyqueue::adapter::RawDelivery| Settlement::new(held.lease.clone(), Action::Release);
        client.0.settle(&held.iter().map(release).collect::<Vec<_>>()).await;
        shown(client.pull(1000).await.len())
    };
    LastOfFullExtension: "1000", not "999", async |lab| {
        let client = lab.open().await;
        let held = thousand(&client).await;
        let end = |held: &anyqueue::adapter::RawDelivery| Extension { lease: held.lease.clone(), duration: SHORT };
        client.0.extend(&held.iter().map(end).collect::<Vec<_>>()).await;
        sleep(SHORT * 2).await;
        shown(client.pull(1000).await.len())
    };
    LeastLeaseEndless: "a", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        client.pull_for(Duration::from_millis(1), 1).await;
        client.wait().await
    };
    WaitOverflows: "a", not "a panic", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        let from = jobs();
        let pulled = client.0.pull(&from, PullRequest::new(1, Duration::MAX, MINUTE));
        let pulled = AssertUnwindSafe(pulled).catch_unwind().await;
        pulled.map_or_else(|_| "a panic".to_owned(), |got| names(&got.unwrap()))
    };
    LimitZeroIsNone: "0", not "1", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        shown(client.inspect().purge(&jobs(), 0).await.unwrap())
    };
    PostponeOf32BitMillis: "", not "a", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        client.settle(&client.one().await, postpone(Duration::from_millis((1 << 32) + 20))).await;
        client.wait().await
    };
}
