//! Faults that show on a runtime of one thread, which is what these tests run on.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use anyqueue::adapter::Action;
use futures_util::FutureExt as _;

use crate::Fault;
use crate::lab::*;

seen! {
    WaitBlocksThread: "true", not "false", async |lab| {
        let client = lab.open().await;
        let start = Instant::now();
        let moment = async {
            sleep(SHORT).await;
            start.elapsed() < SECOND
        };
        shown(tokio::join!(client.wait(), moment).1)
    };
    SpinsWhileWaiting: "idle", not "busy", async |lab| {
        let client = lab.open().await;
        let turns = std::cell::Cell::new(0_u32);
        // Counts how often the thread comes round, to which one that sleeps is never woken.
        let counting = std::future::poll_fn(|_| {
            turns.set(turns.get() + 1);
            std::task::Poll::<()>::Pending
        });
        tokio::select! { biased; () = counting => {}, _ = client.wait() => {} }
        if turns.get() < 100 { "idle" } else { "busy" }.to_owned()
    };
    NeedsSeveralThreads: "[Settled, Settled]", not "a panic", async |lab| {
        let client = lab.open().await;
        client.push([m("a"), m("b")]).await;
        let held = client.pull(2).await;
        let settling = client.settle_all(held.iter().map(|held| (held, Action::Remove)));
        AssertUnwindSafe(settling).catch_unwind().await.unwrap_or_else(|_| "a panic".to_owned())
    };
}
