//! Faults of leases, extensions and requests for cancellation.

use anyqueue::adapter::Action;

use crate::Fault;
use crate::lab::*;

seen! {
    ExtendTakesBatch: "b", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a"), m("b")]).await;
        let held = desk.pull_for(25 * SHORT, 2).await;
        desk.extend(&held[0], MINUTE).await;
        desk.wait().await
    };
    ExtensionUndoesRelease: "a", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        let held = desk.one().await;
        tokio::join!(desk.extend(&held, MINUTE), desk.settle(&held, Action::Release));
        desk.wait().await
    };
    ExtendNeverShortens: "a", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        desk.extend(&desk.one().await, SHORT).await;
        desk.wait().await
    };
    ExtendAddsUp: "a", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        desk.extend(&desk.one().await, SHORT).await;
        desk.wait().await
    };
    SecondExtendIgnored: "", not "a", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        let held = desk.one().await;
        desk.extend(&held, 25 * SHORT).await;
        desk.extend(&held, MINUTE).await;
        desk.wait().await
    };
    FirstLeaseForAll: "b", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        desk.one().await;
        desk.push([m("b")]).await;
        desk.pull_for(SHORT, 1).await;
        desk.wait().await
    };
    SecondLeaseEndless: "a", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        desk.pull_for(SHORT, 1).await;
        sleep(2 * SHORT).await;
        assert_eq!(names(&desk.pull_for(SHORT, 1).await), "a");
        desk.wait().await
    };
    DeadLeaseEndless: "a", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        desk.settle(&desk.one().await, move_to(&dead())).await;
        desk.0.pull(&dead(), anyqueue::adapter::PullRequest::new(1, SHORT, SHORT)).await.unwrap();
        desk.wait_for(&dead()).await
    };
    TokenPerClient: "Lost", not "Settled", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        let stale = desk.pull_for(SHORT, 1).await;
        desk.wait_one().await;
        shown(desk.settle(&stale[0], Action::Remove).await)
    };
    Row129Unleased: "", not "128", async |lab| {
        let desk = lab.open().await;
        desk.push(many(129)).await;
        desk.pull(129).await;
        desk.all().await
    };
    CancelLostByExtension: "CancelRequested", not "Extended", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        let held = desk.one().await;
        desk.extend(&held, MINUTE).await;
        desk.inspect().request_cancel(&jobs(), &[held.lease.id]).await;
        shown(desk.extend(&held, MINUTE).await)
    };
    CancelLocal: "CancelRequested", not "Extended", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        let held = desk.one().await;
        lab.open().await.inspect().request_cancel(&jobs(), &[held.lease.id]).await;
        shown(desk.extend(&held, MINUTE).await)
    };
    PauseEndsLeases: "Extended", not "Lost", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        let held = desk.one().await;
        desk.set_paused(true).await;
        shown(desk.extend(&held, MINUTE).await)
    };
}
