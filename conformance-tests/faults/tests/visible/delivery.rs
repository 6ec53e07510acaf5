//! Faults of what a delivery shows.

use anyqueue::SettleOutcome;
use anyqueue::adapter::Action;

use crate::Fault;
use crate::lab::*;

async fn redeliver(client: &LabClient) {
    assert_eq!(client.settle(&client.one().await, Action::Retry).await, SettleOutcome::Settled);
}

seen! {
    RedeliveryLosesHeaders: "1", not "0", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_header("h", "v")]).await;
        redeliver(&client).await;
        shown(client.one().await.message.headers().len())
    };
    NewHeadersOnce: "{\"new\": \"\"}", not "{\"old\": \"\"}", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_header("old", "")]).await;
        client.settle(&client.one().await, with_headers([("new", "")])).await;
        redeliver(&client).await;
        shown(client.one().await.message.headers())
    };
    NewHeadersLocal: "{\"new\": \"\"}", not "{\"old\": \"\"}", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_header("old", "")]).await;
        client.settle(&client.one().await, with_headers([("new", "")])).await;
        shown(lab.open().await.one().await.message.headers())
    };
    PostponeResetsCount: "2", not "1", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        redeliver(&client).await;
        client.settle(&client.one().await, with_headers([])).await;
        shown(client.one().await.delivery_count.unwrap())
    };
    LeaseEndNotCounted: "2", not "1", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        client.pull_for(SHORT, 1).await;
        shown(client.wait_one().await.delivery_count.unwrap())
    };
    CountPerClient: "2", not "1", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        redeliver(&client).await;
        shown(lab.open().await.one().await.delivery_count.unwrap())
    };
    AgeAnewAfterPostpone: "true", not "false", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        sleep(SECOND).await;
        client.settle(&client.one().await, with_headers([])).await;
        shown(client.one().await.age >= SECOND)
    };
    AgeFromMaturity: "true", not "false", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_delay(SECOND)]).await;
        shown(client.wait_one().await.age >= SECOND)
    };
}
