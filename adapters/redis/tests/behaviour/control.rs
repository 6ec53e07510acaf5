//! Control entries on the server.

use std::time::Duration;

use anyqueue::Page;
use anyqueue::adapter::ControlStorage;
use anyqueue::control::{Applied, Change, Expect, Key, MAX_CONTROL_VALUE_BYTES, Version};
use anyqueue_redis::RedisQueue;
use redis::Value;

use crate::common::Bed;

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

async fn apply(queue: &RedisQueue, change: Change) -> Applied {
    queue.apply(&[change]).await.unwrap().value.remove(0)
}

#[tokio::test]
async fn counters_that_several_handles_raise_lose_no_step() {
    const STEPS: u32 = 25;
    let Some(bed) = Bed::find().await else { return };
    let handles = [bed.open().await, bed.open().await, bed.open().await];
    let raisers = handles.into_iter().map(|queue| {
        tokio::spawn(async move {
            let mut raised = 0;
            while raised < STEPS {
                let there = queue.get(&[key("n")]).await.unwrap().value.remove(0);
                let n: u32 =
                    there.as_ref().map_or(0, |entry| String::from_utf8_lossy(&entry.value).parse().unwrap());
                let expect = there.map_or(Expect::Absent, |entry| Expect::Version(entry.version));
                raised += u32::from(
                    apply(&queue, Change::put(key("n"), expect, (n + 1).to_string())).await.is_done(),
                );
            }
        })
    });
    for raiser in raisers.collect::<Vec<_>>() {
        raiser.await.unwrap();
    }
    assert_eq!(bed.open().await.get(&[key("n")]).await.unwrap().value[0].as_ref().unwrap().value, "75");
}

#[tokio::test]
async fn entries_that_expired_do_not_pile_up() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let put = |n: usize| Change::put(key(&format!("w/{n}")), Expect::Absent, "x");
    for round in 0..4 {
        let beats: Vec<_> =
            (0..100).map(|n| put(100 * round + n).with_ttl(Duration::from_millis(1))).collect();
        assert!(queue.apply(&beats).await.unwrap().value.iter().all(Applied::is_done));
        while !queue.list("w/", Page::of(100)).await.unwrap().value.is_empty() {
            tokio::task::yield_now().await;
        }
    }
    assert!(apply(&queue, put(1000)).await.is_done());
    for (count, what) in [("HLEN", "entries"), ("ZCARD", "names")] {
        let left = bed.run(&format!("{count} {}:{{:control}}:{what}", bed.prefix)).await;
        assert_eq!(left, Value::Int(1), "{what}");
    }
    assert_eq!(bed.run(&format!("ZCARD {}:{{:control}}:lapses", bed.prefix)).await, Value::Int(0));
}

#[tokio::test]
async fn versions_are_told_apart_to_the_last_bit_and_values_to_the_last_byte() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let value: Vec<u8> = (0..MAX_CONTROL_VALUE_BYTES).map(|n| u8::try_from(n % 256).unwrap()).collect();
    let mut put = Change::put(key("a {b} \u{10ffff}"), Expect::Absent, value.clone());
    if let Change::Put { version, .. } = &mut put {
        *version = Version::from_u64(u64::MAX);
    }
    assert!(apply(&queue, put).await.is_done());
    let near = Change::delete(key("a {b} \u{10ffff}"), Expect::Version(Version::from_u64(u64::MAX - 1)));
    let Applied::Conflict(Some(there)) = apply(&queue, near).await else {
        panic!("another version was deleted")
    };
    assert_eq!((there.version, &there.value[..]), (Version::from_u64(u64::MAX), &value[..]));
    let listed = queue.list("a {", Page::of(10)).await.unwrap().value;
    assert_eq!(listed, [there]);
}

#[tokio::test]
async fn a_damaged_entry_is_told_and_can_be_replaced() {
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    assert!(apply(&queue, Change::put(key("a"), Expect::Absent, "1")).await.is_done());
    bed.run(&format!("HSET {}:{{:control}}:entries a nonsense", bed.prefix)).await;
    let error = queue.get(&[key("a")]).await.unwrap_err();
    assert_eq!(error.kind(), anyqueue::ErrorKind::Corrupt);
    assert!(apply(&queue, Change::put(key("a"), Expect::Any, "2")).await.is_done());
    assert_eq!(queue.get(&[key("a")]).await.unwrap().value[0].as_ref().unwrap().value, "2");
}

#[tokio::test]
async fn a_list_walks_over_thousands_that_have_lapsed_in_short_steps_and_frees_them() {
    const LAPSED: usize = 5000;
    let Some(bed) = Bed::find().await else { return };
    let queue = bed.open().await;
    let of = |what: &str| format!("{}:{{:control}}:{what}", bed.prefix);
    let mut pipe = redis::pipe();
    for n in 0..LAPSED {
        let name = format!("w/{n:05}");
        pipe.hset(of("entries"), &name, "7 1 x").ignore();
        pipe.zadd(of("names"), &name, 0).ignore();
        pipe.zadd(of("lapses"), &name, 1).ignore();
    }
    let () = pipe.query_async(&mut bed.connect().await).await.unwrap();
    let mut connection = bed.connect().await;
    // Not by a change, which would free some of them.
    for name in ["v", "w/02500/lives", "w/9", "x"] {
        bed.run(&format!("ZADD {} 0 {name}", of("names"))).await;
        let write = redis::cmd("HSET").arg(of("entries")).arg(name).arg("7 0 x").to_owned();
        let _: i64 = write.query_async(&mut connection).await.unwrap();
    }
    bed.run("CONFIG RESETSTAT").await;
    let listed = queue.list("w/", Page::of(100)).await.unwrap().value;
    let names: Vec<_> = listed.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!(names, ["w/02500/lives", "w/9"]);
    let stats = bed.text_info("cmdstat_evalsha").await;
    let calls: usize = stats.strip_prefix("calls=").unwrap().split(',').next().unwrap().parse().unwrap();
    assert!((LAPSED / 300..=LAPSED / 300 + 2).contains(&calls), "{stats}");
    assert_eq!(
        bed.run(&format!("ZCARD {}", of("names"))).await,
        Value::Int(4),
        "those of the prefix are freed"
    );
    assert_eq!(bed.run(&format!("ZCARD {}", of("lapses"))).await, Value::Int(0));

    bed.run("CONFIG RESETSTAT").await;
    let page = queue.list("w/", Page::of(1)).await.unwrap().value;
    let next = queue.list("w/", Page::of(1).after(page[0].key.clone())).await.unwrap().value;
    assert_eq!((page[0].key.as_str(), next[0].key.as_str()), ("w/02500/lives", "w/9"));
    assert!(bed.text_info("cmdstat_evalsha").await.starts_with("calls=2,"), "nothing is walked over twice");
}
