//! Faults of inspection.

use anyqueue::MessageId;

use crate::Fault;
use crate::lab::*;

/// The id of a message that waits for a minute.
async fn delayed(desk: &Desk) -> MessageId {
    let message = m("a").with_delay(MINUTE);
    let id = message.id();
    desk.push([message]).await;
    id
}

seen! {
    CountsForgetBehind: "[2, 0, 0, 0]", not "[1, 0, 0, 0]", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a").with_group("g"), m("b").with_group("g")]).await;
        desk.counts().await
    };
    DeadCountForgetsLeased: "[0, 0, 0, 1]", not "[0, 0, 0, 0]", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        desk.settle(&desk.one().await, move_to(&dead())).await;
        desk.pull_from(&dead(), 1).await;
        desk.counts().await
    };
    BrowseHidesPostponed: "2", not "1", async |lab| {
        let desk = lab.open().await;
        delayed(&desk).await;
        desk.push([m("b")]).await;
        desk.settle(&desk.one().await, postpone(MINUTE)).await;
        shown(desk.browse().await.len())
    };
    BrowseShowsOldHeaders: "{\"new\": \"\"}", not "{}", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        desk.settle(&desk.one().await, with_headers([("new", "")])).await;
        shown(desk.browse().await[0].message.headers())
    };
    BrowseAfterGone: "1", not "0", async |lab| {
        let desk = lab.open().await;
        let (a, b) = (m("a"), m("b"));
        desk.push([a.clone(), b]).await;
        desk.inspect().delete(&jobs(), &[a.id()]).await;
        shown(desk.inspect().browse(&jobs(), Some(a.id()), 10).await.unwrap().len())
    };
    ListOnlyReady: "1", not "0", async |lab| {
        let desk = lab.open().await;
        delayed(&desk).await;
        shown(desk.inspect().partitions(None, 10).await.unwrap().len())
    };
    TwinDeleted: "[Ok(Deleted), Ok(NotFound)]", not "[Ok(Deleted), Ok(Deleted)]", async |lab| {
        let desk = lab.open().await;
        let a = m("a");
        desk.push([a.clone()]).await;
        shown(desk.inspect().delete(&jobs(), &[a.id(), a.id()]).await)
    };
    DeleteMissesDelayed: "[Ok(Deleted)]", not "[Ok(NotFound)]", async |lab| {
        let desk = lab.open().await;
        let id = delayed(&desk).await;
        shown(desk.inspect().delete(&jobs(), &[id]).await)
    };
    CancelLeavesDelayed: "[Ok(Removed)]", not "[Ok(Requested)]", async |lab| {
        let desk = lab.open().await;
        let id = delayed(&desk).await;
        shown(desk.inspect().request_cancel(&jobs(), &[id]).await)
    };
    PurgeLeavesDelayed: "2", not "1", async |lab| {
        let desk = lab.open().await;
        delayed(&desk).await;
        desk.push([m("b")]).await;
        shown(desk.inspect().purge(&jobs(), 10).await.unwrap())
    };
    PurgeTakesDead: "[0, 0, 0, 1]", not "[0, 0, 0, 0]", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a"), m("b")]).await;
        desk.settle(&desk.one().await, move_to(&dead())).await;
        desk.inspect().purge(&jobs(), 10).await.unwrap();
        desk.counts().await
    };
}
