//! Faults that show where several do the same at once.

use std::time::{Duration, Instant};

use anyqueue::adapter::Action;

use crate::Fault;
use crate::lab::*;

/// Two that wait while this happens: how many messages they get long before their waits are over.
async fn two_wait(lab: Lab, happens: impl AsyncFn(&LabClient)) -> String {
    let (client, other) = (lab.open().await, lab.open().await);
    let start = Instant::now();
    let each = async |client: &LabClient| {
        let got = client.wait().await;
        if start.elapsed() < SECOND { got.len() } else { 0 }
    };
    let happening = async {
        sleep(SHORT).await;
        happens(&client).await;
    };
    let (first, second, ()) = tokio::join!(each(&client), each(&other), happening);
    shown(first + second)
}

seen! {
    SettleRace: "[Settled, Lost]", not "[Settled, Settled]", async |lab| {
        let client = lab.open().await;
        client.push([m("a")]).await;
        let held = client.one().await;
        let both = tokio::join!(client.settle(&held, Action::Remove), client.settle(&held, Action::Remove));
        shown([both.0, both.1])
    };
    IdRace: "stored duplicate", not "stored stored", async |lab| {
        let (client, message) = (lab.open().await, m("a"));
        let both = tokio::join!(client.push([message.clone()]), client.push([message.clone()]));
        format!("{} {}", both.0, both.1)
    };
    ClosesBlockEachOther: "true", not "false", async |lab| {
        let client = lab.open().await;
        let both = async { tokio::join!(client.0.close(), client.0.close()) };
        shown(tokio::time::timeout(Duration::from_millis(300), both).await.is_ok())
    };
    InitStartsOver: "2", not "1", async |lab| {
        let (client, other) = (lab.open().await, lab.open().await);
        let begin = async |client: &LabClient| {
            client.0.init().await.unwrap();
            client.push([m("a")]).await;
        };
        tokio::join!(begin(&client), begin(&other));
        shown(client.all().await.split_whitespace().count())
    };
    ReturnWakesOne: "2", not "1", async |lab| {
        let holder = lab.open().await;
        holder.push([m("a"), m("b")]).await;
        let held = holder.pull(2).await;
        two_wait(lab, async |_| {
            holder.settle_all(held.iter().map(|held| (held, Action::Release))).await;
        })
        .await
    };
    ResumeWakesOne: "2", not "1", async |lab| {
        two_wait(lab, async |client| {
            client.set_paused(true).await;
            client.push([m("a"), m("b")]).await;
            client.set_paused(false).await;
        })
        .await
    };
    FreedGroupForgetsOthers: "3", not "2", async |lab| {
        let client = lab.open().await;
        let group = ["a", "b", "c"].map(|name| m(name).with_group("g"));
        client.push(group).await;
        let held = client.one().await;
        // Each of the two removes what it gets, which frees the group for the other.
        let start = Instant::now();
        let each = async || {
            let got = client.0.pull(&jobs(), anyqueue::adapter::PullRequest::new(1, SECOND, MINUTE)).await.unwrap();
            for held in &got {
                client.settle(held, Action::Remove).await;
            }
            if start.elapsed() < SECOND { got.len() } else { 0 }
        };
        let removing = async {
            sleep(SHORT).await;
            client.settle(&held, Action::Remove).await;
        };
        let (first, second, ()) = tokio::join!(each(), each(), removing);
        shown(1 + first + second)
    };
    OneWatchesTheTime: "2", not "1", async |lab| {
        two_wait(lab, async |client| {
            client.push([m("a").with_delay(SHORT), m("b").with_delay(SHORT)]).await;
        })
        .await
    };
}
