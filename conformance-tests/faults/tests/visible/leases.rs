//! Faults of leases, extensions and requests for cancellation.

use anyqueue::adapter::Action;

use crate::Fault;
use crate::lab::*;

seen! {
    ExtendTakesBatch: "b", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a"), m("b")]).await;
        let held = client.pull_for(25 * SHORT, 2).await;
        client.extend(&held[0], MINUTE).await;
        client.wait().await
    };
    ExtensionUndoesRelease: "a", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        let held = client.one().await;
        tokio::join!(client.extend(&held, MINUTE), client.settle(&held, Action::Release));
        client.wait().await
    };
    ExtendNeverShortens: "a", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        client.extend(&client.one().await, SHORT).await;
        client.wait().await
    };
    ExtendAddsUp: "a", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        client.extend(&client.one().await, SHORT).await;
        client.wait().await
    };
    SecondExtendIgnored: "", not "a", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        let held = client.one().await;
        client.extend(&held, 25 * SHORT).await;
        client.extend(&held, MINUTE).await;
        client.wait().await
    };
    FirstLeaseForAll: "b", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        client.one().await;
        client.push([m("b")]).await;
        client.pull_for(SHORT, 1).await;
        client.wait().await
    };
    SecondLeaseEndless: "a", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        client.pull_for(SHORT, 1).await;
        sleep(2 * SHORT).await;
        assert_eq!(names(&client.pull_for(SHORT, 1).await), "a");
        client.wait().await
    };
    DeadLeaseEndless: "a", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        client.settle(&client.one().await, move_to(&dead())).await;
        client.0.pull(&dead(), anyqueue::adapter::PullRequest::new(1, SHORT, SHORT)).await.unwrap();
        client.wait_for(&dead()).await
    };
    TokenPerClient: "Lost", not "Settled", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        let stale = client.pull_for(SHORT, 1).await;
        client.wait_one().await;
        shown(client.settle(&stale[0], Action::Remove).await)
    };
    Row129Unleased: "", not "128", async |lab| {
        let client = lab.open().await;
        client.push(many(129)).await;
        client.pull(129).await;
        client.all().await
    };
    CancelLostByExtension: "CancelRequested", not "Extended", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        let held = client.one().await;
        client.extend(&held, MINUTE).await;
        client.inspect().request_cancel(&jobs(), &[held.lease.id]).await;
        shown(client.extend(&held, MINUTE).await)
    };
    CancelLocal: "CancelRequested", not "Extended", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        let held = client.one().await;
        lab.open().await.inspect().request_cancel(&jobs(), &[held.lease.id]).await;
        shown(client.extend(&held, MINUTE).await)
    };
    PauseEndsLeases: "Extended", not "Lost", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        let held = client.one().await;
        client.set_paused(true).await;
        shown(client.extend(&held, MINUTE).await)
    };
}
