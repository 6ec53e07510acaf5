//! Faults of clients that go by their own clock, and of times at the edge.

use std::time::{Duration, SystemTime};

use anyqueue::adapter::Action;
use anyqueue::{Clock, ClockSetter, Skew, header};
use anyqueue_conformance::Harness as _;

use crate::Fault;
use crate::lab::*;

const HOUR: Duration = Duration::from_hours(1);
const NANO: Duration = Duration::from_nanos(1);

/// A client whose clock is an hour ahead.
async fn ahead(lab: &Lab) -> LabClient {
    match lab {
        Lab::Right(_) => lab.open().await,
        Lab::Wrong(harness) => {
            let clock = Clock::system().skewed(Skew::Ahead(HOUR));
            LabClient(harness.open_skewed("lab", clock).unwrap().await.unwrap())
        }
    }
}

/// A client whose clock can be set.
async fn settable(lab: &Lab) -> (LabClient, ClockSetter) {
    let (clock, setter) = Clock::system().settable();
    let client = match lab {
        Lab::Right(_) => lab.open().await,
        Lab::Wrong(harness) => LabClient(harness.open_skewed("lab", clock).unwrap().await.unwrap()),
    };
    (client, setter)
}

seen! {
    DueByWallClock: "", not "a", async |lab| {
        let (client, setter) = settable(&lab).await;
        client.push([m("a").with_delay(MINUTE)]).await;
        setter.set(Skew::Ahead(HOUR));
        client.all().await
    };
    LeaseByWallClock: "", not "a", async |lab| {
        let (client, setter) = settable(&lab).await;
        client.push([m("a")]).await;
        client.pull_for(MINUTE, 1).await;
        setter.set(Skew::Ahead(HOUR));
        lab.open().await.all().await
    };
    WaitByWallClock: "true", not "false", async |lab| {
        let (client, setter) = settable(&lab).await;
        let start = std::time::Instant::now();
        let ahead = async {
            sleep(SHORT).await;
            setter.set(Skew::Ahead(HOUR));
        };
        let request = anyqueue::adapter::PullRequest::new(1, 20 * SHORT, MINUTE);
        let jobs = jobs();
        let (pulled, ()) = tokio::join!(client.0.pull(&jobs, request), ahead);
        pulled.unwrap();
        (start.elapsed() >= 20 * SHORT).to_string()
    };
    DueByClientClock: "a", not "", async |lab| {
        ahead(&lab).await.push([m("a")]).await;
        lab.open().await.all().await
    };
    PostponedByClientClock: "a", not "", async |lab| {
        let client = ahead(&lab).await;
        client.push([m("a")]).await;
        client.settle(&client.one().await, postpone(SHORT)).await;
        client.wait().await
    };
    AgeByClientClock: "true", not "false", async |lab| {
        let client = ahead(&lab).await;
        client.push([m("a")]).await;
        (client.one().await.age < MINUTE).to_string()
    };
    LeaseByClientClock: "a", not "", async |lab| {
        let client = ahead(&lab).await;
        client.push([m("a")]).await;
        client.pull_for(SHORT, 1).await;
        client.wait().await
    };
    MovedByClientClock: "a", not "", async |lab| {
        let client = lab.open().await;
        let died = humantime::format_rfc3339_millis(SystemTime::now() + HOUR).to_string();
        client.push([m("a")]).await;
        let headers = Some([(header::DEAD_AT.to_owned(), died)].into());
        client.settle(&client.one().await, Action::Move { to: dead(), headers }).await;
        client.all_of(&dead()).await
    };
    TinyDelayForever: "a", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_delay(NANO)]).await;
        client.wait().await
    };
    TinyPostponementForever: "a", not "", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        client.settle(&client.one().await, postpone(NANO)).await;
        client.wait().await
    };
    ExpiryOf32BitMillis: "Some(In(4294967.296s))", not "Some(In(0ns))", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_time_to_live(Duration::from_millis(1 << 32))]).await;
        shown(client.one().await.message.options().expiry)
    };
}
