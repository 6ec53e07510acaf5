//! Faults of time that a generous bound does not see.

use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, PullRequest, Settlement};

use crate::Fault;
use crate::lab::*;

const QUARTER: Duration = Duration::from_millis(250);

/// Whether the pull has ended within a quarter of a second of the event.
async fn in_time<T>(pull: impl Future<Output = T>, event: impl Future<Output = ()>) -> String {
    let event = async {
        sleep(SHORT).await;
        event.await;
        Instant::now()
    };
    let pull = async {
        pull.await;
        Instant::now()
    };
    let (ended, happened) = tokio::join!(pull, event);
    (ended.saturating_duration_since(happened) < QUARTER).to_string()
}

seen! {
    PollsEachSecond: "true", not "false", async |lab| {
        let client = lab.open().await;
        in_time(client.wait_one(), async { drop(client.push([m("a")]).await) }).await
    };
    LeaseUntilFromAnswer: "true", not "false", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        let before = Instant::now();
        let held = client.pull_for(MINUTE, 1).await;
        (held[0].lease_until.unwrap() < before + MINUTE + Duration::from_millis(50)).to_string()
    };
    DelayEndsLate: "a", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_delay(SHORT)]).await;
        sleep(QUARTER).await;
        client.all().await
    };
    LeaseEndsLate: "a", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        client.pull_for(SHORT, 1).await;
        sleep(QUARTER).await;
        client.all().await
    };
    RestOfBatchAtDeadline: "true", not "false", async |lab| {
        let client = lab.open().await;
        let both = async { tokio::join!(client.wait(), client.wait()) };
        in_time(both, async { drop(client.push(many(2)).await) }).await
    };
    ReturnedAtDeadline: "true", not "false", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        let held = client.one().await;
        in_time(client.wait(), async {
            client.settle(&held, Action::Release).await;
        }).await
    };
    ResumedDeafToDelays: "true", not "false", async |lab| {
        let client = lab.open().await;
        in_time(client.wait(), async {
            client.set_paused(true).await;
            client.push([m("a").with_delay(5 * SHORT)]).await;
            client.set_paused(false).await;
        })
        .await
    };
    PostponedGoesVeryLast: "b a c", not "b c a", async |lab| {
        let client = lab.open().await;
        client.push([m("a"), m("b")]).await;
        client.settle(&client.one().await, with_headers([])).await;
        client.push([m("c")]).await;
        client.all().await
    };
    ExchangeIgnoresStop: "true", not "false", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        let held = client.one().await;
        let request = PullRequest::new(1, SECOND, MINUTE);
        let (stop, batch) =
            (request.stop.clone(), [Settlement::new(held.lease, Action::Remove)]);
        let jobs = jobs();
        in_time(client.0.exchange(&batch, &jobs, request), async { stop.cancel() }).await
    };
}
