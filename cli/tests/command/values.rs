//! Limits of a kind and of each value of a header, obeyed by three processes of which one is killed.

use std::collections::BTreeMap;

use rustix::process::Signal;
use serde_json::Value;
use tokio::process::Child;

use crate::bed::{Bed, ended, signal, until, within};
use crate::limits::{FREED, LATE, holds, shown};

/// What each customer may have at once, and the kind of the first three.
const EACH: usize = 2;
const HEAVY: usize = 4;
/// Messages of the customer that is full, and of each of the others.
const FULL: usize = 16;
const OTHERS: usize = 12;
const CUSTOMERS: [(&str, &str); 4] = [("a", "heavy"), ("b", "heavy"), ("c", "light"), ("d", "light")];
/// The full customer's messages wait to be let go.
const NOTE: &str = "m=$(cat); of=\"$ANYQUEUE_HEADER_CUSTOMER $ANYQUEUE_KIND\"; echo \"start $of\" >> log; \
    if [ \"$m\" = wait ]; then while [ -d $PWD ] && [ ! -e open ]; do sleep 0.05; done; fi; sleep 0.1; echo \"end $of\" >> log";

/// What has begun and ended, the most that ran at once, by customer and by kind.
#[derive(Debug, Default)]
struct Seen {
    begun: BTreeMap<String, usize>,
    running: BTreeMap<String, usize>,
    most: BTreeMap<String, usize>,
}

impl Seen {
    fn in_log(bed: &Bed) -> Self {
        let log = std::fs::read_to_string(bed.path("log")).unwrap_or_default();
        let mut seen = Self::default();
        for line in log.lines() {
            let (what, of) = line.split_once(' ').unwrap();
            of.split(' ').for_each(|of| seen.note(what, of));
        }
        seen
    }

    fn note(&mut self, what: &str, of: &str) {
        let running = self.running.entry(of.to_owned()).or_default();
        if what == "end" {
            *running -= 1;
            return;
        }
        *running += 1;
        *self.begun.entry(of.to_owned()).or_default() += 1;
        let most = self.most.entry(of.to_owned()).or_default();
        *most = (*most).max(*running);
    }

    fn begun(&self, of: &str) -> usize {
        self.begun.get(of).copied().unwrap_or_default()
    }

    fn ended(&self, of: &str) -> usize {
        self.begun(of) - self.running.get(of).copied().unwrap_or_default()
    }
}

fn worker(bed: &Bed, name: &str) -> Child {
    let work = ["work", "q", "--slots", "6", "--lease", "15s", "--name", name, "--exec", NOTE];
    bed.command(&work).spawn().unwrap()
}

async fn push(bed: &Bed, customer: &str, kind: &str, message: &str, count: usize) {
    let header = format!("customer={customer}");
    let push = ["push", "q", "--lines", "--header", &header, "--kind", kind];
    bed.run_with(&push, format!("{message}\n").repeat(count).as_bytes()).await.ended_with(0);
}

async fn limits(bed: &Bed) -> Vec<Value> {
    bed.ok(&["limits", "list", "--json"]).await.objects()
}

pub(crate) async fn three_workers_one_of_them_killed_hold_the_caps_of_a_kind_and_of_each_value(bed: &Bed) {
    bed.ok(&["limits", "put", "l", "--each", "customer", "--cap", &EACH.to_string()]).await;
    bed.ok(&["limits", "put", "m", "--kind", "heavy", "--cap", &HEAVY.to_string()]).await;
    // All of the full customer stand first in the queue.
    push(bed, "full", "heavy", "wait", FULL).await;
    let mut killed = worker(bed, "killed");
    until("the full one has what it may have", async || {
        (Seen::in_log(bed).begun("full") == EACH && holds(&shown(bed).await, "killed")).then_some(())
    })
    .await;
    for (customer, kind) in CUSTOMERS {
        push(bed, customer, kind, "go", OTHERS).await;
    }
    let others = [worker(bed, "b"), worker(bed, "c")];
    until("the others are done, while that one is full", async || {
        let seen = Seen::in_log(bed);
        CUSTOMERS.iter().all(|(customer, _)| seen.ended(customer) == OTHERS).then_some(())
    })
    .await;
    assert_eq!(Seen::in_log(bed).begun("full"), EACH);

    killed.kill().await.unwrap();
    // Its commands go on, as documented: they are not to be there any more when others have its permits.
    std::fs::write(bed.path("open"), "").unwrap();
    // Of both limits: their permits are renewed one after the other and do not run out at once.
    within(FREED + LATE, "its permits are free", async || {
        (!limits(bed).await.iter().any(|l| holds(l, "killed"))).then_some(())
    })
    .await;
    until("everything is done", async || (bed.counts("q").await == [0; 4]).then_some(())).await;

    let seen = Seen::in_log(bed);
    assert!(seen.begun("full") >= FULL, "{seen:?}");
    for of in ["full", "a", "b", "c", "d"] {
        assert!((1..=EACH).contains(&seen.most[of]), "{seen:?}");
    }
    assert!((EACH + 1..=HEAVY).contains(&seen.most["heavy"]), "{seen:?}");
    for other in others {
        signal(&other, Signal::TERM);
        ended(other).await.ended_with(0);
    }
    for limit in limits(bed).await {
        assert!(limit["held"] == 0 && limit["holders"].as_array().unwrap().is_empty(), "{limit}");
    }
}
