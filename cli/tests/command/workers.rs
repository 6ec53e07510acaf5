//! `anyqueue workers`: real workers, told what to do, and missed.

use serde_json::Value;

use crate::bed::{Bed, ended, until};

async fn listed(bed: &Bed) -> Vec<Value> {
    bed.run(&["workers", "list", "--json"]).await.objects()
}

/// The one worker that is listed, as soon as this is so.
async fn once(bed: &Bed, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    until(what, async || listed(bed).await.into_iter().next().filter(|worker| is_so(worker))).await
}

#[tokio::test]
async fn where_nobody_works_nobody_is_listed_and_nobody_hears() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    bed.run(&["workers", "list"]).await.ended_with(4);
    bed.run(&["workers", "list", "--lost"]).await.ended_with(4);
    for told in ["show", "quiet", "resume", "stop", "recycle", "forget"] {
        bed.run(&["workers", told, "nobody"]).await.ended_with(4);
    }
    bed.run(&["workers", "stop", ""]).await.ended_with(2);
    let id = "00000000-0000-7000-8000-000000000000";
    bed.run(&["workers", "cancel", "nobody", id]).await.ended_with(4);
}

#[tokio::test]
async fn a_worker_is_listed_hears_orders_and_leaves() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let mut worker =
        bed.command(&["work", "q", "--name", "w", "--slots", "3", "--exec", "echo begun > begun; sleep 60"]);
    let worker = worker.spawn().unwrap();
    bed.line_of("begun").await;
    let seen = once(&bed, "it tells of its message", |worker| worker["running"] == 1).await;
    assert_eq!((&seen["name"], &seen["slots"], &seen["lost"]), (&"w".into(), &3.into(), &false.into()));
    assert_eq!(seen["held"][0]["partition"], "q");
    let shown = bed.ok(&["workers", "show", "w"]).await.out;
    assert!(shown.contains(seen["held"][0]["id"].as_str().unwrap()), "{shown}");
    assert!(bed.ok(&["workers", "list"]).await.out.contains("working"));

    bed.ok(&["workers", "quiet", "w"]).await;
    once(&bed, "it is quiet", |worker| worker["state"] == "quiet").await;
    bed.ok(&["workers", "cancel", "w", seen["held"][0]["id"].as_str().unwrap()]).await;
    once(&bed, "it has stopped the command", |worker| worker["running"] == 0).await;
    bed.ok(&["workers", "stop", "w"]).await;
    ended(worker).await.ended_with(0);
    bed.run(&["workers", "list"]).await.ended_with(4);
}

#[tokio::test]
async fn a_worker_that_was_killed_is_missed_and_its_successor_has_its_name_at_once() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x"]).await;
    let work = ["work", "q", "--name", "w", "--lease", "2s", "--exec"];
    let mut first =
        bed.command(&[&work[..], &["echo begun > begun; exec sleep 60"]].concat()).spawn().unwrap();
    bed.line_of("begun").await;
    let seen = once(&bed, "it tells of its message", |worker| worker["running"] == 1).await;
    first.kill().await.unwrap();
    let second = bed.command(&[&work[..], &["cat > done"]].concat()).spawn().unwrap();
    until("its message is done by another", async || {
        std::fs::read_to_string(bed.path("done")).ok().filter(|done| done == "x")
    })
    .await;
    let lost = bed.ok(&["workers", "list", "--lost", "--json"]).await.objects();
    assert_eq!((&lost[0]["name"], &lost[0]["held"][0]["id"]), (&"w".into(), &seen["held"][0]["id"]));
    let shown = bed.ok(&["workers", "list", "--lost"]).await.out;
    assert!(shown.starts_with("w on ") && shown.contains(" was last heard from at 20"), "{shown}");
    bed.ok(&["workers", "stop", "w"]).await;
    ended(second).await.ended_with(0);
}

#[tokio::test]
async fn a_worker_can_stay_out_of_the_registry_or_be_in_that_of_another_store() {
    let bed = Bed::new();
    bed.ok(&["push", "q", "x", "y"]).await;
    let work = ["work", "q", "--slots", "1", "--exec"];
    let mut hidden = bed
        .command(&[&work[..], &["echo begun > hidden; sleep 60", "--no-register"]].concat())
        .spawn()
        .unwrap();
    bed.line_of("hidden").await;
    let elsewhere = ["--control-url", "sqlite:control.db?create=true"];
    let mut away =
        bed.command(&[&work[..], &["echo begun > away; sleep 60"], &elsewhere].concat()).spawn().unwrap();
    bed.line_of("away").await;
    assert!(listed(&bed).await.is_empty());
    let there = bed.ok(&[&["workers", "list", "--json"][..], &elsewhere].concat()).await.objects();
    assert_eq!(there.len(), 1);
    hidden.kill().await.unwrap();
    away.kill().await.unwrap();
}

#[tokio::test]
async fn on_a_machine_that_is_kept_for_an_application_work_for_another_does_not_start() {
    let bed = Bed::new();
    bed.ok(&["workers", "dedicate", "video"]).await;
    let node = bed.ok(&["workers", "nodes", "--json"]).await.objects();
    assert_eq!(node[0]["application"], "video");
    bed.ok(&["push", "q", "x"]).await;
    for other in [&["--application", "mail"][..], &[]] {
        let work = [&["work", "q", "--once", "--exec", "cat"][..], other].concat();
        let refused = bed.run(&work).await;
        assert!(refused.err.contains("is kept for the application video"), "{}", refused.err);
        refused.ended_with(2);
    }
    bed.ok(&["work", "q", "--once", "--exec", "cat > done", "--application", "video"]).await;
    assert_eq!(std::fs::read_to_string(bed.path("done")).unwrap(), "x");
    assert!(bed.ok(&["workers", "release"]).await.out.contains("was kept for video"));
    bed.run(&["workers", "release"]).await.ended_with(4);
    bed.run(&["workers", "nodes"]).await.ended_with(4);
}
