//! Faults of numbers that are too small for what they count.

use std::sync::Arc;
use std::time::Duration;

use anyqueue::ManualClock;
use anyqueue::adapter::{Action, PullRequest, Storage};
use anyqueue_conformance::Harness as _;
use anyqueue_faults::FaultyHarness;
use anyqueue_memory::{MemoryConfig, MemoryQueue};

use crate::Fault;
use crate::lab::*;

const BEYOND_32_BITS: u64 = (1 << 32) + 20_000;

async fn leased(lab: Lab) -> String {
    let client = lab.open().await;
    client.push([m("a")]).await;
    client.pull_for(Duration::from_micros(BEYOND_32_BITS), 1).await;
    client.wait().await
}

/// What is there after an hour and a half, on a clock that is turned, of what was postponed or held for two hours.
async fn after_ninety_minutes(lab: Lab, held: bool) -> String {
    let (clock, two_hours) = (ManualClock::new(), Duration::from_hours(2));
    let storage: Arc<dyn Storage> = match lab {
        Lab::Right(_) => {
            Arc::new(MemoryQueue::with_config(MemoryConfig::default().with_clock(clock.clock())))
        }
        Lab::Wrong(harness) => on(&harness, &clock).await,
    };
    let client = LabClient(storage);
    client.push([if held { m("a") } else { m("a").with_delay(two_hours) }]).await;
    client.0.pull(&jobs(), PullRequest::new(1, Duration::ZERO, two_hours)).await.unwrap();
    clock.advance(Duration::from_mins(90));
    client.all().await
}

async fn on(harness: &FaultyHarness, clock: &ManualClock) -> Arc<dyn Storage> {
    harness.open_on("turned", clock.clock()).unwrap().await.unwrap()
}

seen! {
    CountOfEightBits: "256", not "0", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        for _ in 0..255 {
            client.settle(&client.one().await, Action::Retry).await;
        }
        shown(client.one().await.delivery_count.unwrap())
    };
    LeaseOf32BitMicros: "", not "a", leased;
    LeaseCappedAt32BitMicros: "", not "a", async |lab| after_ninety_minutes(lab, true).await;
    DelayOf32BitMillis: "", not "a", async |lab| {
        let client = lab.open().await;
        client.push([m("a").with_delay(Duration::from_millis((1 << 32) + 20))]).await;
        client.wait().await
    };
    DelayCappedAt32BitMicros: "", not "a", async |lab| after_ninety_minutes(lab, false).await;
    BrowseEndsAtHundred: "101", not "100", async |lab| {
        let client = lab.open().await;
        client.push(many(101)).await;
        shown(client.browse().await.len())
    };
}
