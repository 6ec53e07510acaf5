//! Faults of what operators do beside others at work.

use std::time::Duration;

use crate::Fault;
use crate::lab::*;

/// Both at once; the second begins a moment later.
async fn at_once<A, B>(first: impl Future<Output = A>, second: impl Future<Output = B>) -> (A, B) {
    let second = async {
        sleep(Duration::from_millis(2)).await;
        second.await
    };
    tokio::join!(first, second)
}

seen! {
    PurgeCountsFirst: "(2, \"[1, 0, 0, 0]\")", not "(2, \"[0, 0, 0, 0]\")", async |lab| {
        let desk = lab.open().await;
        desk.push(many(2)).await;
        let jobs = jobs();
        let (purged, _) = at_once(desk.inspect().purge(&jobs, 10), desk.push(many(1))).await;
        shown((purged.unwrap(), desk.counts().await))
    };
    PurgesCountTogether: "(2, 1)", not "(3, 1)", async |lab| {
        let desk = lab.open().await;
        desk.push(many(2)).await;
        let jobs = jobs();
        let second = async {
            desk.push(many(1)).await;
            desk.inspect().purge(&jobs, 10).await
        };
        let (first, second) = at_once(desk.inspect().purge(&jobs, 10), second).await;
        shown((first.unwrap(), second.unwrap()))
    };
    PurgeUntilEmpty: "1", not "2", async |lab| {
        let desk = lab.open().await;
        desk.push(many(1)).await;
        let jobs = jobs();
        shown(at_once(desk.inspect().purge(&jobs, 10), desk.push(many(1))).await.0.unwrap())
    };
    MoveLostBesidePush: "[1, 0, 0, 1]", not "[1, 0, 0, 0]", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        let held = desk.one().await;
        tokio::join!(desk.push([m("b")]), desk.settle(&held, move_to(&dead())));
        desk.counts().await
    };
    DeleteTakesClaimed: "[Ok(Deleted)] ", not "[Ok(Deleted)] a", async |lab| {
        let desk = lab.open().await;
        let a = m("a");
        desk.push([a.clone()]).await;
        let (jobs, ids) = (jobs(), [a.id()]);
        let (answer, pulled) = at_once(desk.inspect().delete(&jobs, &ids), desk.all()).await;
        format!("{answer:?} {pulled}")
    };
    CancelTakesClaimed: "[Ok(Removed)] ", not "[Ok(Removed)] a", async |lab| {
        let desk = lab.open().await;
        let a = m("a");
        desk.push([a.clone()]).await;
        let (jobs, ids) = (jobs(), [a.id()]);
        let (answer, pulled) = at_once(desk.inspect().request_cancel(&jobs, &ids), desk.all()).await;
        format!("{answer:?} {pulled}")
    };
    CountsStale: "[31, 0, 0, 0]", not "[30, 0, 0, 0]", async |lab| {
        let desk = lab.open().await;
        desk.push(many(30)).await;
        desk.counts().await;
        desk.push(many(1)).await;
        desk.counts().await
    };
    BrowseByNumber: "2", not "1", async |lab| {
        let desk = lab.open().await;
        desk.push(many(4)).await;
        let page = desk.inspect().browse(&jobs(), None, 2).await.unwrap();
        desk.inspect().delete(&jobs(), &[page[0].message.id()]).await;
        shown(desk.inspect().browse(&jobs(), Some(page[1].message.id()), 2).await.unwrap().len())
    };
    BrowseLocksOut: "0 1 2", not "", async |lab| {
        let desk = lab.open().await;
        desk.push(many(3)).await;
        desk.inspect().browse(&jobs(), None, 2).await.unwrap();
        desk.all().await
    };
    ListByNumber: "other", not "third", async |lab| {
        let desk = lab.open().await;
        for place in [jobs(), other(), partition("third")] {
            desk.push_to(&place, many(1)).await;
        }
        let page = desk.inspect().partitions(None, 1).await.unwrap();
        desk.inspect().purge(&page[0], 10).await.unwrap();
        let page = desk.inspect().partitions(Some(&page[0]), 1).await.unwrap();
        page[0].name().to_owned()
    };
    PauseMissesBusy: "", not "1", async |lab| {
        let desk = lab.open().await;
        desk.push(many(2)).await;
        desk.pull(1).await;
        desk.set_paused(true).await;
        desk.all().await
    };
}
