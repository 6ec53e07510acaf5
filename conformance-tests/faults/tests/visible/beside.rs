//! Faults of what operators do beside others at work.

use anyqueue::Page;
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
        let client = lab.open().await;
        client.push(many(2)).await;
        let jobs = jobs();
        let (purged, _) = at_once(client.inspect().purge(&jobs, 10), client.push(many(1))).await;
        shown((purged.unwrap(), client.counts().await))
    };
    PurgesCountTogether: "(2, 1)", not "(3, 1)", async |lab| {
        let client = lab.open().await;
        client.push(many(2)).await;
        let jobs = jobs();
        let second = async {
            client.push(many(1)).await;
            client.inspect().purge(&jobs, 10).await
        };
        let (first, second) = at_once(client.inspect().purge(&jobs, 10), second).await;
        shown((first.unwrap(), second.unwrap()))
    };
    PurgeUntilEmpty: "1", not "2", async |lab| {
        let client = lab.open().await;
        client.push(many(1)).await;
        let jobs = jobs();
        shown(at_once(client.inspect().purge(&jobs, 10), client.push(many(1))).await.0.unwrap())
    };
    MoveLostBesidePush: "[1, 0, 0, 1]", not "[1, 0, 0, 0]", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        let held = client.one().await;
        tokio::join!(client.push([m("b")]), client.settle(&held, move_to(&dead())));
        client.counts().await
    };
    DeleteTakesClaimed: "[Ok(Deleted)] ", not "[Ok(Deleted)] a", async |lab| {
        let client = lab.open().await;
        let a = m("a");
        client.push([a.clone()]).await;
        let (jobs, ids) = (jobs(), [a.id()]);
        let (answer, pulled) = at_once(client.inspect().delete(&jobs, &ids), client.all()).await;
        format!("{answer:?} {pulled}")
    };
    CancelTakesClaimed: "[Ok(Removed)] ", not "[Ok(Removed)] a", async |lab| {
        let client = lab.open().await;
        let a = m("a");
        client.push([a.clone()]).await;
        let (jobs, ids) = (jobs(), [a.id()]);
        let (answer, pulled) = at_once(client.inspect().request_cancel(&jobs, &ids), client.all()).await;
        format!("{answer:?} {pulled}")
    };
    CountsStale: "[31, 0, 0, 0]", not "[30, 0, 0, 0]", async |lab| {
        let client = lab.open().await;
        client.push(many(30)).await;
        client.counts().await;
        client.push(many(1)).await;
        client.counts().await
    };
    BrowseByNumber: "2", not "1", async |lab| {
        let client = lab.open().await;
        client.push(many(4)).await;
        let page = client.inspect().browse(&jobs(), Page::of(2)).await.unwrap();
        client.inspect().delete(&jobs(), &[page[0].message.id()]).await;
        shown(client.inspect().browse(&jobs(), Page::of(2).after(Some(page[1].message.id()))).await.unwrap().len())
    };
    BrowseLocksOut: "0 1 2", not "", async |lab| {
        let client = lab.open().await;
        client.push(many(3)).await;
        client.inspect().browse(&jobs(), Page::of(2)).await.unwrap();
        client.all().await
    };
    ListByNumber: "other", not "third", async |lab| {
        let client = lab.open().await;
        for place in [jobs(), other(), partition("third")] {
            client.push_to(&place, many(1)).await;
        }
        let page = client.inspect().partitions(Page::of(1)).await.unwrap();
        client.inspect().purge(&page[0], 10).await.unwrap();
        let page = client.inspect().partitions(Page::of(1).after(Some(page[0].clone()))).await.unwrap();
        page[0].name().to_owned()
    };
    PauseMissesBusy: "", not "1", async |lab| {
        let client = lab.open().await;
        client.push(many(2)).await;
        client.pull(1).await;
        client.set_paused(true).await;
        client.all().await
    };
}
