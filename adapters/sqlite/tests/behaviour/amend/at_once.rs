//! Amendments beside pulls and other amendments, here and in other handles on the file.

use std::time::Instant;

use super::*;
use anyqueue::adapter::{Action, InspectQueueStorage, PullQueueStorage, PullRequest};

#[tokio::test]
async fn what_becomes_ready_wakes_pulls_here_and_of_other_handles() {
    let bed = Bed::new().await;
    let other = bed.other().await;
    let p = part("p");
    for (waiter, amender) in [(&bed.queue, &bed.queue), (&bed.queue, &other), (&other, &bed.queue)] {
        for (change, undone) in
            [(Amend::new().now(), None), (Amend::new().enable(), Some(Amend::new().disable()))]
        {
            let delay = if undone.is_some() { Duration::ZERO } else { LEASE };
            let ids = push(&bed.queue, &p, &[message("m").with_delay(delay)]).await;
            if let Some(undone) = undone {
                amended(amender, &p, &ids, undone).await;
            }
            let waiting = tokio::spawn({
                let (waiter, p) = (waiter.clone(), p.clone());
                async move { pull_wait(&waiter, &p, 1).await }
            });
            pull(waiter, &part("elsewhere"), 1).await; // by then it waits
            let begun = Instant::now();
            amended(amender, &p, &ids, change).await;
            let got = waiting.await.unwrap();
            assert!(got.len() == 1 && begun.elapsed() < SOON / 2, "{:?}", begun.elapsed());
            settle(&bed.queue, &got[0].lease, Action::Remove).await;
        }
    }
}

#[tokio::test]
async fn a_pull_that_waits_hears_of_a_moment_that_was_brought_nearer() {
    let bed = Bed::new().await;
    let p = part("p");
    let ids = push(&bed.queue, &p, &[message("late").with_delay(LEASE)]).await;
    let waiting = tokio::spawn({
        let (queue, p) = (bed.queue.clone(), p.clone());
        async move { pull_wait(&queue, &p, 1).await }
    });
    pull(&bed.queue, &part("elsewhere"), 1).await;
    amended(&bed.queue, &p, &ids, Amend::new().due_in(Duration::from_millis(20))).await;
    assert_eq!(texts(&waiting.await.unwrap()), ["late"]);
}

#[tokio::test]
async fn nothing_is_delivered_once_it_was_disabled_and_nothing_is_lost() {
    const MESSAGES: usize = 200;
    let bed = Bed::new().await;
    let other = bed.other().await;
    let p = part("p");
    let message = |n: usize| message(&n.to_string()).with_group(format!("g{}", n % 5));
    let ids = push(&bed.queue, &p, &(0..MESSAGES).map(message).collect::<Vec<_>>()).await;
    let amender = tokio::spawn({
        let (queue, p, ids) = (other.clone(), p.clone(), ids.clone());
        async move {
            let mut disabled = Vec::new();
            for id in ids.iter().rev() {
                let change = Amend::new().disable().with_priority(5);
                let outcome = amend(&queue, &p, &[*id], change).await.remove(0).unwrap();
                if outcome == AmendOutcome::Amended {
                    disabled.push((*id, Instant::now()));
                }
            }
            disabled
        }
    });
    let mut got = Vec::new();
    while !amender.is_finished() || bed.queue_ready(&p).await > 0 {
        let asked = Instant::now();
        for held in bed.queue.pull(&p, PullRequest::new(2, Duration::ZERO, LEASE)).await.unwrap() {
            got.push((held.lease.id, asked));
            settle(&bed.queue, &held.lease, Action::Remove).await;
        }
    }
    let disabled = amender.await.unwrap();
    assert!(!disabled.is_empty() && !got.is_empty());
    for (id, since) in &disabled {
        assert!(!got.iter().any(|(other, asked)| other == id && asked > since));
    }
    assert_eq!(bed.queue.counts(&p).await.unwrap().disabled, Some(disabled.len() as u64));
    assert_eq!(disabled.len() + got.len(), MESSAGES);
    assert_whole(&bed.path());
    let all: Vec<_> = disabled.iter().map(|(id, _)| *id).collect();
    amended(&other, &p, &all, Amend::new().enable()).await;
    assert_eq!(drain(&bed.queue, &p).await.len(), disabled.len());
}

#[tokio::test]
async fn a_call_that_is_dropped_is_done_or_not_and_harms_no_other() {
    let bed = Bed::new().await;
    let p = part("p");
    let ids = push_text(&bed.queue, &p, &["a", "b"]).await;
    let change = Amend::new().disable();
    for _ in 0..20 {
        let call = bed.queue.amend(&p, &ids, &change);
        let _ = tokio::time::timeout(Duration::ZERO, call).await;
        assert_whole(&bed.path());
    }
    amended(&bed.queue, &p, &ids, Amend::new().enable()).await;
    assert_eq!(drain(&bed.queue, &p).await, ["a", "b"]);
}
