//! Limits of a kind, and of each value of a header: asked with the message at hand.

use std::time::Duration;

use anyqueue::MessageData;
use anyqueue_control::limits::{Limit, Scope};
use anyqueue_worker::{Admission, Permits, Ticket, task};

use crate::bed::{Bed, Process, millis, secs};

fn of(customer: &str) -> MessageData {
    task("send", &1).unwrap().with_header("customer", customer)
}

async fn enter(process: &Process, message: &MessageData) -> Result<Vec<Ticket>, Duration> {
    match process.permits.admit(message).await {
        Admission::Open(tickets) => Ok(tickets),
        Admission::Closed(wait) => Err(wait),
        other => panic!("{other:?}"),
    }
}

async fn two(limit: Limit) -> (Bed, Process, Process) {
    let bed = Bed::new();
    bed.limits.put("l", &limit).await.unwrap();
    let (a, b) = (bed.process("a").await, bed.process("b").await);
    (bed, a, b)
}

#[tokio::test]
async fn each_value_has_a_cap_of_its_own_and_what_ends_is_free_for_others_at_once() {
    let (bed, a, b) = two(Limit::each("customer").unwrap().cap(2)).await;
    let mut held = vec![enter(&a, &of("x")).await.unwrap(), enter(&b, &of("x")).await.unwrap()];
    for process in [&a, &b] {
        let wait = enter(process, &of("x")).await.unwrap_err();
        assert!(wait < secs(1), "the first wait is short: {wait:?}");
        drop(enter(process, &of("y")).await.unwrap());
        assert!(
            enter(process, &task("send", &1).unwrap()).await.unwrap().is_empty(),
            "it has no such header"
        );
    }
    bed.pass(millis(500)).await;
    let info = bed.info().await;
    assert_eq!((&info.of, info.held), (&Scope::Header("customer".to_owned()), 2));
    assert_eq!((info.keys[0].value.as_str(), info.keys[0].held), ("x", 2));

    held.remove(0);
    bed.pass(millis(500)).await;
    held.push(enter(&b, &of("x")).await.unwrap());
    assert!(enter(&a, &of("x")).await.is_err());
    drop(held);
    bed.pass(secs(1)).await;
    assert_eq!(bed.info().await.held, 0, "nothing leaks");
    bed.pass(secs(30)).await;
    assert!(bed.info().await.keys.is_empty(), "entries end with what they say");
}

#[tokio::test]
async fn waits_double_while_a_value_stays_full_up_to_the_end_of_others_permits() {
    let (bed, a, b) = two(Limit::each("customer").unwrap().cap(1)).await;
    let _held = enter(&a, &of("x")).await.unwrap();
    let mut waits = Vec::new();
    for _ in 0..12 {
        waits.push(enter(&b, &of("x")).await.unwrap_err());
        bed.pass(*waits.last().unwrap() * 2).await;
    }
    assert!(waits[0] <= millis(500), "{waits:?}");
    // A holder that lives renews: it is never longer than its permits would count without that.
    assert!(waits.iter().all(|wait| *wait <= secs(30)) && *waits.last().unwrap() >= secs(5), "{waits:?}");
}

/// How many permits the values hold, as the limit says.
async fn held(bed: &Bed) -> u64 {
    bed.info().await.keys.iter().map(|key| key.held).sum()
}

#[tokio::test]
async fn what_a_dead_process_had_is_free_within_fifteen_seconds_and_taken_within_nineteen() {
    let (bed, mut a, b) = two(Limit::each("customer").unwrap().cap(1)).await;
    let tickets = enter(&a, &of("x")).await.unwrap();
    bed.pass(secs(7)).await;
    assert_eq!(held(&bed).await, 1);
    a.freeze().await;
    let (mut time, mut try_at, mut free_at) = (Duration::ZERO, Duration::ZERO, None);
    let ticket = loop {
        if time >= try_at {
            match enter(&b, &of("x")).await {
                Ok(ticket) => break ticket,
                Err(wait) => try_at = time + wait,
            }
        }
        assert!(time <= secs(20), "not freed");
        bed.pass(millis(250)).await;
        time += millis(250);
        if free_at.is_none() && held(&bed).await == 0 {
            free_at = Some(time);
        }
    };
    let free_at = free_at.unwrap();
    assert!(free_at >= secs(8), "freed after {free_at:?}, while it may still run");
    assert!(free_at <= secs(15), "freed after {free_at:?}");
    // Who waits looks at most as long after that as its last wait lasted.
    assert!(time <= secs(19), "taken after {time:?}");
    // The frozen one wakes, and hears that its task has to stop.
    assert_eq!(tickets.len(), 1);
    a.wake();
    bed.pass(secs(1)).await;
    tokio::time::timeout(secs(5), tickets[0].revoked()).await.expect("revoked");
    drop((tickets, ticket));
}

#[tokio::test]
async fn who_leaves_waits_for_nothing_any_more() {
    let (bed, a, mut b) = two(Limit::each("customer").unwrap().cap(1)).await;
    let _held = enter(&a, &of("x")).await.unwrap();
    assert!(enter(&b, &of("x")).await.is_err());
    let who = async || -> Vec<String> { bed.info().await.holders.into_iter().map(|one| one.who).collect() };
    assert_eq!(who().await, ["a", "b"]);
    b.leave().await;
    assert_eq!(who().await, ["a"]);
}

#[tokio::test]
async fn a_kind_has_one_cap_in_all_partitions_and_other_kinds_go_on() {
    let (bed, a, b) = two(Limit::kind("send").unwrap().cap(2)).await;
    let held = [enter(&a, &of("x")).await.unwrap(), enter(&b, &of("y")).await.unwrap()];
    assert!(enter(&a, &of("z")).await.is_err());
    assert!(enter(&a, &task("other", &1).unwrap()).await.unwrap().is_empty());
    let info = bed.info().await;
    let holders: Vec<_> = info.holders.iter().map(|holder| (holder.who.as_str(), holder.held)).collect();
    assert_eq!((holders, info.held), (vec![("a", 1), ("b", 1)], 2));
    drop(held);
}

#[tokio::test]
async fn a_rate_of_each_value_holds_by_the_servers_clock() {
    let (bed, a, b) = two(Limit::each("customer").unwrap().rate(4.0, 3)).await;
    let mut begun = Vec::new();
    for step in 0..80_u64 {
        for process in [&a, &b] {
            for customer in ["x", "y"] {
                if enter(process, &of(customer)).await.is_ok() {
                    begun.push((customer, step * 250));
                }
            }
        }
        bed.pass(millis(250)).await;
    }
    for customer in ["x", "y"] {
        let times: Vec<u64> = begun.iter().filter(|(of, _)| *of == customer).map(|(_, at)| *at).collect();
        assert!(times.len() > 40, "{} of {customer} began", times.len());
        for (place, from) in times.iter().enumerate() {
            for (count, until) in times[place..].iter().enumerate() {
                let most = 3.0 + 4.0 * ((until - from) as f64 / 1000.0);
                assert!((count + 1) as f64 <= most + 0.01, "{} from {from} to {until}", count + 1);
            }
        }
    }
}

#[tokio::test]
async fn a_message_that_waits_for_one_limit_holds_nothing_of_another() {
    let (bed, a, _) = two(Limit::each("customer").unwrap().cap(1)).await;
    bed.limits.put("m", &Limit::kind("send").unwrap().cap(1)).await.unwrap();
    bed.pass(secs(6)).await;
    let held = enter(&a, &of("x")).await.unwrap();
    assert_eq!(held.len(), 2);
    assert!(enter(&a, &of("y")).await.is_err(), "the kind is full");
    bed.pass(secs(1)).await;
    let info = bed.info().await;
    assert_eq!(info.held, 1, "{info:?}");
    bed.limits.delete("m").await.unwrap();
    bed.pass(secs(6)).await;
    assert_eq!(enter(&a, &of("y")).await.unwrap().len(), 1);
}
