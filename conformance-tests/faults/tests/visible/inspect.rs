//! Faults of inspection.

use anyqueue::{MessageId, Page};

use crate::Fault;
use crate::lab::*;

/// The id of a message that waits for a minute.
async fn delayed(client: &LabClient) -> MessageId {
    let message = m("a").with_delay(MINUTE);
    let id = message.id();
    client.push([message]).await;
    id
}

seen! {
    CountsForgetBehind: "[2, 0, 0, 0]", not "[1, 0, 0, 0]", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_group("g"), m("b").with_group("g")]).await;
        client.counts().await
    };
    DeadCountForgetsLeased: "[0, 0, 0, 1]", not "[0, 0, 0, 0]", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        client.settle(&client.one().await, move_to(&dead())).await;
        client.pull_from(&dead(), 1).await;
        client.counts().await
    };
    BrowseHidesPostponed: "2", not "1", async |lab| {
        let client = lab.open().await;
        delayed(&client).await;
        client.push([m("b")]).await;
        client.settle(&client.one().await, postpone(MINUTE)).await;
        shown(client.browse().await.len())
    };
    BrowseShowsOldHeaders: "{\"new\": \"\"}", not "{}", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        client.settle(&client.one().await, with_headers([("new", "")])).await;
        shown(client.browse().await[0].message.headers())
    };
    BrowseAfterGone: "1", not "0", async |lab| {
        let client = lab.open().await;
        let (a, b) = (m("a"), m("b"));
        client.push([a.clone(), b]).await;
        client.inspect().delete(&jobs(), &[a.id()]).await;
        shown(client.inspect().browse(&jobs(), Page::of(10).after(Some(a.id()))).await.unwrap().len())
    };
    ListOnlyReady: "1", not "0", async |lab| {
        let client = lab.open().await;
        delayed(&client).await;
        shown(client.inspect().partitions(Page::of(10)).await.unwrap().len())
    };
    TwinDeleted: "[Ok(Deleted), Ok(NotFound)]", not "[Ok(Deleted), Ok(Deleted)]", async |lab| {
        let client = lab.open().await;
        let a = m("a");
        client.push([a.clone()]).await;
        shown(client.inspect().delete(&jobs(), &[a.id(), a.id()]).await)
    };
    DeleteMissesDelayed: "[Ok(Deleted)]", not "[Ok(NotFound)]", async |lab| {
        let client = lab.open().await;
        let id = delayed(&client).await;
        shown(client.inspect().delete(&jobs(), &[id]).await)
    };
    CancelLeavesDelayed: "[Ok(Removed)]", not "[Ok(Requested)]", async |lab| {
        let client = lab.open().await;
        let id = delayed(&client).await;
        shown(client.inspect().request_cancel(&jobs(), &[id]).await)
    };
    PurgeLeavesDelayed: "2", not "1", async |lab| {
        let client = lab.open().await;
        delayed(&client).await;
        client.push([m("b")]).await;
        shown(client.inspect().purge(&jobs(), 10).await.unwrap())
    };
    PurgeTakesDead: "[0, 0, 0, 1]", not "[0, 0, 0, 0]", async |lab| {
        let client = lab.open().await;
        client.push([m("a"), m("b")]).await;
        client.settle(&client.one().await, move_to(&dead())).await;
        client.inspect().purge(&jobs(), 10).await.unwrap();
        client.counts().await
    };
}
