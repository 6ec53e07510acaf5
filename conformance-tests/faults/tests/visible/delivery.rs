//! Faults of what a delivery shows.

use anyqueue::SettleOutcome;
use anyqueue::adapter::Action;

use crate::Fault;
use crate::lab::*;

async fn redeliver(desk: &Desk) {
    assert_eq!(desk.settle(&desk.one().await, Action::Retry).await, SettleOutcome::Settled);
}

seen! {
    RedeliveryLosesHeaders: "1", not "0", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a").with_header("h", "v")]).await;
        redeliver(&desk).await;
        shown(desk.one().await.message.headers().len())
    };
    NewHeadersOnce: "{\"new\": \"\"}", not "{\"old\": \"\"}", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a").with_header("old", "")]).await;
        desk.settle(&desk.one().await, with_headers([("new", "")])).await;
        redeliver(&desk).await;
        shown(desk.one().await.message.headers())
    };
    NewHeadersLocal: "{\"new\": \"\"}", not "{\"old\": \"\"}", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a").with_header("old", "")]).await;
        desk.settle(&desk.one().await, with_headers([("new", "")])).await;
        shown(lab.open().await.one().await.message.headers())
    };
    PostponeResetsCount: "2", not "1", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        redeliver(&desk).await;
        desk.settle(&desk.one().await, with_headers([])).await;
        shown(desk.one().await.delivery_count.unwrap())
    };
    LeaseEndNotCounted: "2", not "1", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        desk.pull_for(SHORT, 1).await;
        shown(desk.wait_one().await.delivery_count.unwrap())
    };
    CountPerClient: "2", not "1", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        redeliver(&desk).await;
        shown(lab.open().await.one().await.delivery_count.unwrap())
    };
    AgeAnewAfterPostpone: "true", not "false", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        sleep(SECOND).await;
        desk.settle(&desk.one().await, with_headers([])).await;
        shown(desk.one().await.age >= SECOND)
    };
    AgeFromMaturity: "true", not "false", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a").with_delay(SECOND)]).await;
        shown(desk.wait_one().await.age >= SECOND)
    };
}
