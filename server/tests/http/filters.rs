//! Filters of tasks: any of them, written into an address, means the same as a look at each task.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::bed::Bed;
use crate::client::Client;

/// Names that an address has to escape, one of them the beginning of another.
const NAMES: [&str; 6] = ["send", "send mail", "a,b", "gr\u{f6}\u{df}e&co=1", "50%2C+#", "\u{1f980}"];
const STATES: [&str; 8] =
    ["queued", "scheduled", "running", "disabled", "succeeded", "failed", "timed_out", "cancelled"];
const TASKS: usize = 60;
const CASES: u32 = 150;
/// Longer than the test takes.
const LONG_MS: u64 = 600_000;

/// What is asked: its names and their values.
type Asked = Vec<(&'static str, String)>;

fn escaped(text: &str) -> String {
    text.bytes().flat_map(|byte| format!("%{byte:02X}").into_bytes()).map(char::from).collect()
}

fn address(path: &str, asked: &Asked) -> String {
    let pairs = asked.iter().map(|(name, value)| format!("&{name}={}", escaped(value)));
    format!("{path}?partition=mail{}", pairs.collect::<String>())
}

/// Whether a task is meant, by what the service itself says of it.
fn is_meant(asked: &Asked, task: &Value) -> bool {
    let text = |name: &str| task[name].as_str();
    asked.iter().all(|(name, value)| match *name {
        "state" => value.split(',').any(|state| text("state") == Some(state)),
        "kind" => text("kind") == Some(value),
        "session" => text("session_id") == Some(value),
        "task_id_prefix" => text("task_id").is_some_and(|id| id.starts_with(value.as_str())),
        "worker" => text("worker") == Some(value) && text("ended_at").is_some(),
        "error" => {
            text("reason").is_some_and(|reason| reason.contains(value.as_str()))
                || task["errors"].to_string().contains(value.as_str())
        }
        "min_attempts" => task["attempt"].as_u64() >= value.parse().ok(),
        // These sort as the times do.
        "since" => text("ended_at").is_some_and(|ended| ended >= value.as_str()),
        "before" => text("ended_at").is_some_and(|ended| ended < value.as_str()),
        name => panic!("{name}"),
    })
}

fn asked(times: &[String]) -> impl Strategy<Value = Asked> {
    let some = |name: &'static str, of: BoxedStrategy<String>| {
        prop::option::weighted(0.3, of).prop_map(move |value| value.map(|value| (name, value)))
    };
    let name = || select(&NAMES[..]).prop_map(str::to_owned).boxed();
    let states = subsequence(&STATES[..], 1..=4).prop_map(|states| states.join(",")).boxed();
    let error = select(&["broke 1", "broke", "too slow", "nowhere"][..]).prop_map(str::to_owned).boxed();
    let attempts = (0_u32..4).prop_map(|number| number.to_string()).boxed();
    let time = || select(times.to_vec()).boxed();
    let parts = [
        some("state", states).boxed(),
        some("kind", name()).boxed(),
        some("session", name()).boxed(),
        some("task_id_prefix", name()).boxed(),
        some("worker", name()).boxed(),
        some("error", error).boxed(),
        some("min_attempts", attempts).boxed(),
        some("since", time()).boxed(),
        some("before", time()).boxed(),
    ];
    let none = Just(Vec::new()).boxed();
    parts.into_iter().fold(none, |all, part| {
        (all, part)
            .prop_map(|(mut all, part): (Asked, _)| {
                all.extend(part);
                all
            })
            .boxed()
    })
}

/// Tasks in every state that a worker elsewhere can bring them to.
async fn fill(bed: &Bed) {
    let mut left = Vec::new();
    for number in 0..TASKS {
        let name = |from: usize| NAMES[(number / from) % NAMES.len()];
        let task_id = format!("{}/{number}", name(1));
        let mut item = json!({ "payload": "x", "kind": name(2), "session_id": name(3), "task_id": task_id });
        let fate = match number % 10 {
            0 => "left",
            1 => {
                item["delay_ms"] = json!(LONG_MS);
                "left"
            }
            2 => "held",
            3 | 4 => "processed",
            5 => "poisonous",
            6 | 8 => {
                item["max_retries"] = json!(0);
                if number % 10 == 6 { "timed_out" } else { "failed" }
            }
            7 => "cancelled",
            _ => "failed",
        };
        if fate == "left" {
            left.push(item);
            continue;
        }
        bed.push("mail", item).await;
        let pulled = bed.pull_with(json!({ "partitions": ["mail"], "lease_ms": LONG_MS })).await;
        let delivery = &pulled["deliveries"][0]["delivery"];
        if fate != "held" {
            let error = format!("broke {}", number % 3);
            let said = json!({ "delivery": delivery, "status": fate, "worker": name(1), "error": error, "delay_ms": LONG_MS });
            assert_eq!(bed.settle(said).await["outcome"], "settled");
        }
    }
    // Last, so that each of the others is the one that is pulled.
    for item in left {
        bed.push("mail", item).await;
    }
}

async fn ids(client: Client, asked: &Asked) -> Vec<String> {
    let found = client.get(&(address("/v1/tasks", asked) + "&limit=1000")).await.ok();
    let ids = found["tasks"].as_array().unwrap().iter();
    let mut ids: Vec<_> = ids.map(|task| task["id"].as_str().unwrap().to_owned()).collect();
    ids.sort_unstable();
    ids
}

#[test]
fn any_filter_means_in_an_address_what_it_says_of_each_task() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (bed, all) = runtime.block_on(async {
        let bed = Bed::new().await;
        fill(&bed).await;
        let all = bed.client.get("/v1/tasks?partition=mail&limit=1000").await.ok();
        let all = all["tasks"].as_array().unwrap().clone();
        (bed, all)
    });
    // Nothing sets a task aside over HTTP, and one that took too long for the last time is among the dead.
    for state in STATES.iter().filter(|state| !["disabled", "timed_out"].contains(*state)) {
        assert!(all.iter().any(|task| task["state"] == **state), "none is {state}");
    }
    let times: Vec<String> =
        all.iter().filter_map(|task| task["ended_at"].as_str().map(str::to_owned)).collect();
    let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    let of_each = |asked: &Asked| {
        let meant = all.iter().filter(|task| is_meant(asked, task));
        let mut meant: Vec<_> = meant.map(|task| task["id"].as_str().unwrap().to_owned()).collect();
        meant.sort_unstable();
        meant
    };
    let seen = Cell::new(0);
    runner
        .run(&asked(&times), |asked| {
            let expected = of_each(&asked);
            let (found, count) = runtime.block_on(async {
                let count = bed.client.get(&address("/v1/tasks/count", &asked)).await.ok();
                (ids(bed.client, &asked).await, count["value"].as_u64().unwrap())
            });
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(count, expected.len() as u64);
            seen.set(seen.get() + u32::from(!expected.is_empty() && expected.len() < all.len()));
            Ok(())
        })
        .unwrap();
    assert!(seen.get() > CASES / 10, "hardly any filter told tasks apart: {}", seen.get());
}
