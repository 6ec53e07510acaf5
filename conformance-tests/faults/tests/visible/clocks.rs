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
async fn ahead(lab: &Lab) -> Desk {
    match lab {
        Lab::Right(_) => lab.open().await,
        Lab::Wrong(harness) => {
            let clock = Clock::system().skewed(Skew::Ahead(HOUR));
            Desk(harness.open_skewed("lab", clock).unwrap().await.unwrap())
        }
    }
}

/// A client whose clock can be set.
async fn settable(lab: &Lab) -> (Desk, ClockSetter) {
    let (clock, setter) = Clock::system().settable();
    let desk = match lab {
        Lab::Right(_) => lab.open().await,
        Lab::Wrong(harness) => Desk(harness.open_skewed("lab", clock).unwrap().await.unwrap()),
    };
    (desk, setter)
}

seen! {
    DueByWallClock: "", not "a", async |lab| {
        let (desk, setter) = settable(&lab).await;
        desk.push([m("a").with_delay(MINUTE)]).await;
        setter.set(Skew::Ahead(HOUR));
        desk.all().await
    };
    LeaseByWallClock: "", not "a", async |lab| {
        let (desk, setter) = settable(&lab).await;
        desk.push([m("a")]).await;
        desk.pull_for(MINUTE, 1).await;
        setter.set(Skew::Ahead(HOUR));
        lab.open().await.all().await
    };
    WaitByWallClock: "true", not "false", async |lab| {
        let (desk, setter) = settable(&lab).await;
        let start = std::time::Instant::now();
        let ahead = async {
            sleep(SHORT).await;
            setter.set(Skew::Ahead(HOUR));
        };
        let request = anyqueue::adapter::PullRequest::new(1, 20 * SHORT, MINUTE);
        let jobs = jobs();
        let (pulled, ()) = tokio::join!(desk.0.pull(&jobs, request), ahead);
        pulled.unwrap();
        (start.elapsed() >= 20 * SHORT).to_string()
    };
    DueByClientClock: "a", not "", async |lab| {
        ahead(&lab).await.push([m("a")]).await;
        lab.open().await.all().await
    };
    PostponedByClientClock: "a", not "", async |lab| {
        let desk = ahead(&lab).await;
        desk.push([m("a")]).await;
        desk.settle(&desk.one().await, postpone(SHORT)).await;
        desk.wait().await
    };
    AgeByClientClock: "true", not "false", async |lab| {
        let desk = ahead(&lab).await;
        desk.push([m("a")]).await;
        (desk.one().await.age < MINUTE).to_string()
    };
    LeaseByClientClock: "a", not "", async |lab| {
        let desk = ahead(&lab).await;
        desk.push([m("a")]).await;
        desk.pull_for(SHORT, 1).await;
        desk.wait().await
    };
    MovedByClientClock: "a", not "", async |lab| {
        let desk = lab.open().await;
        let died = humantime::format_rfc3339_millis(SystemTime::now() + HOUR).to_string();
        desk.push([m("a")]).await;
        let headers = Some([(header::DEAD_AT.to_owned(), died)].into());
        desk.settle(&desk.one().await, Action::Move { to: dead(), headers }).await;
        desk.all_of(&dead()).await
    };
    TinyDelayForever: "a", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a").with_delay(NANO)]).await;
        desk.wait().await
    };
    TinyPostponementForever: "a", not "", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        desk.settle(&desk.one().await, postpone(NANO)).await;
        desk.wait().await
    };
    ExpiryOf32BitMillis: "Some(In(4294967.296s))", not "Some(In(0ns))", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a").with_time_to_live(Duration::from_millis(1 << 32))]).await;
        shown(desk.one().await.message.options().expiry)
    };
}
