//! Faults that show where several do the same at once.

use std::time::{Duration, Instant};

use anyqueue::adapter::Action;

use crate::Fault;
use crate::lab::*;

/// Two that wait while this happens: how many messages they get long before their waits are over.
async fn two_wait(lab: Lab, happens: impl AsyncFn(&Desk)) -> String {
    let (desk, other) = (lab.open().await, lab.open().await);
    let start = Instant::now();
    let each = async |desk: &Desk| {
        let got = desk.wait().await;
        if start.elapsed() < SECOND { got.len() } else { 0 }
    };
    let happening = async {
        sleep(SHORT).await;
        happens(&desk).await;
    };
    let (first, second, ()) = tokio::join!(each(&desk), each(&other), happening);
    shown(first + second)
}

seen! {
    SettleRace: "[Settled, Lost]", not "[Settled, Settled]", async |lab| {
        let desk = lab.open().await;
        desk.push([m("a")]).await;
        let held = desk.one().await;
        let both = tokio::join!(desk.settle(&held, Action::Remove), desk.settle(&held, Action::Remove));
        shown([both.0, both.1])
    };
    IdRace: "stored duplicate", not "stored stored", async |lab| {
        let (desk, message) = (lab.open().await, m("a"));
        let both = tokio::join!(desk.push([message.clone()]), desk.push([message.clone()]));
        format!("{} {}", both.0, both.1)
    };
    ClosesBlockEachOther: "true", not "false", async |lab| {
        let desk = lab.open().await;
        let both = async { tokio::join!(desk.0.close(), desk.0.close()) };
        shown(tokio::time::timeout(Duration::from_millis(300), both).await.is_ok())
    };
    InitStartsOver: "2", not "1", async |lab| {
        let (desk, other) = (lab.open().await, lab.open().await);
        let begin = async |desk: &Desk| {
            desk.0.init().await.unwrap();
            desk.push([m("a")]).await;
        };
        tokio::join!(begin(&desk), begin(&other));
        shown(desk.all().await.split_whitespace().count())
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
        two_wait(lab, async |desk| {
            desk.set_paused(true).await;
            desk.push([m("a"), m("b")]).await;
            desk.set_paused(false).await;
        })
        .await
    };
    FreedGroupForgetsOthers: "3", not "2", async |lab| {
        let desk = lab.open().await;
        let group = ["a", "b", "c"].map(|name| m(name).with_group("g"));
        desk.push(group).await;
        let held = desk.one().await;
        // Each of the two removes what it gets, which frees the group for the other.
        let start = Instant::now();
        let each = async || {
            let got = desk.0.pull(&jobs(), anyqueue::adapter::PullRequest::new(1, SECOND, MINUTE)).await.unwrap();
            for held in &got {
                desk.settle(held, Action::Remove).await;
            }
            if start.elapsed() < SECOND { got.len() } else { 0 }
        };
        let removing = async {
            sleep(SHORT).await;
            desk.settle(&held, Action::Remove).await;
        };
        let (first, second, ()) = tokio::join!(each(), each(), removing);
        shown(1 + first + second)
    };
    OneWatchesTheTime: "2", not "1", async |lab| {
        two_wait(lab, async |desk| {
            desk.push([m("a").with_delay(SHORT), m("b").with_delay(SHORT)]).await;
        })
        .await
    };
}
