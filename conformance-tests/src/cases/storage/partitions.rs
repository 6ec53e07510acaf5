//! Partitions: a message in one partition is in no other.

use std::time::Duration;

use anyqueue::PartitionId;
use anyqueue::adapter::Action;

use crate::case::Case;
use crate::clause::Clause;
use crate::context::Context;
use crate::fault::Fault;
use crate::verdict::CaseResult;

pub(super) const CASES: &[Case] = &[
    case!(Storage, "partitions.interleaved", [PartitionsApart], interleaved)
        .kills(&[Fault::PartitionIgnored]),
    case!(Storage, "partitions.near_equal_names", [PartitionsApart], near_equal_names).kills(&[
        Fault::NamesSanitised,
        Fault::PartitionIgnored,
        Fault::NameCutAt63,
    ]),
    case!(Storage, "partitions.odd_names", [PartitionsApart], odd_names).kills(&[Fault::PartitionIgnored]),
    case!(Storage, "partitions.dead_letters_apart", [PartitionsApart, DeadLetters], dead_letters_apart)
        .kills(&[Fault::DeadVanish, Fault::DeadNameCollides]),
    case!(Storage, "partitions.many", [PartitionsApart, Resources], many)
        .kills(&[Fault::PartitionIgnored])
        .deadline(LONG),
];

/// A server may take several round trips to create a partition.
const LONG: Duration = Duration::from_mins(2);

/// Pushes one message into each partition, and then looks into each, last first: it has its own message and
/// no other.
async fn each_its_own(c: &Context, partitions: &[PartitionId]) -> CaseResult {
    let mut sent = Vec::new();
    for partition in partitions {
        sent.push((partition, c.client().push(partition, &[c.message()]).await?));
    }
    for (partition, sent) in sent.into_iter().rev() {
        let got = c.client().pull(partition, 10).await?;
        c.in_order(
            Clause::PartitionsApart,
            &format!("in {partition} only what was pushed there"),
            &sent,
            &got,
        )?;
        c.client().remove(&got).await?;
    }
    Ok(())
}

fn named<'a>(c: &Context, names: impl IntoIterator<Item = &'a str>) -> CaseResult<Vec<PartitionId>> {
    names.into_iter().map(|name| c.partition(name)).collect()
}

async fn interleaved(c: &Context) -> CaseResult {
    let partitions = named(c, ["a", "b", "c"])?;
    let mut sent = vec![Vec::new(); partitions.len()];
    for _ in 0..4 {
        for (partition, sent) in partitions.iter().zip(&mut sent) {
            sent.extend(c.client().push(partition, &c.messages(3, |_, message| message)).await?);
        }
    }
    for (partition, sent) in partitions.iter().zip(&sent) {
        let got = c.client().pull(partition, 100).await?;
        c.same(Clause::PartitionsApart, &format!("in {partition} only what was pushed there"), sent, &got)?;
        c.client().remove(&got).await?;
    }
    Ok(())
}

/// Names that differ by one character, by case, or only at the end of the longest name.
async fn near_equal_names(c: &Context) -> CaseResult {
    let long = "x".repeat(PartitionId::MAX_NAME_BYTES - 1);
    let (long_a, long_b, long_c) = (format!("{long}a"), format!("{long}b"), long.clone());
    let names =
        ["a", "A", "aa", "a.b", "a-b", "a_b", "a.B", "a..b", "a.b.", ".a.b", "ab", &long_a, &long_b, &long_c];
    each_its_own(c, &named(c, names)?).await
}

/// Names that mean something to servers, shells or file systems.
async fn odd_names(c: &Context) -> CaseResult {
    let names = [
        ".",
        "..",
        "-",
        "_",
        "...",
        "--",
        "-a",
        "0",
        "00",
        "1e3",
        "null",
        "NULL",
        "select",
        "table",
        "default",
        "con",
        "dead",
        "dead_letters",
        "a.fifo",
        "a.lock",
        "con.txt",
        "__init__",
        "amq.direct",
    ];
    each_its_own(c, &named(c, names)?).await
}

/// No name can reach the dead letters of a partition.
async fn dead_letters_apart(c: &Context) -> CaseResult {
    let work = c.partition("work")?;
    let sent = c.client().push(&work, &[c.message()]).await?;
    let held = c.client().take(&work, 1).await?;
    c.client().settle_all(&held, &Action::Move { to: work.dead_letters(), headers: None }).await?;
    let names = [
        "work",
        "dead",
        "work.dead",
        "work-dead",
        "work_dead",
        "work.dlq",
        "work-dlq",
        "work_dlq",
        "dead.work",
    ];
    each_its_own(c, &named(c, names)?).await?;
    let others = named(c, ["dead", "work.dead"])?;
    for other in &others {
        let none = c.client().pull_now(&other.dead_letters(), 10).await?;
        c.in_order(Clause::PartitionsApart, "nothing among the dead of another partition", &[], &none)?;
    }
    let dead = c.client().take(&work.dead_letters(), 1).await?;
    c.in_order(Clause::DeadLetters, "the dead letter", &sent, &dead)?;
    c.client().remove(&dead).await
}

async fn many(c: &Context) -> CaseResult {
    let names: Vec<String> = (0..c.size(100, 300)).map(|index| format!("partition-{index}")).collect();
    each_its_own(c, &named(c, names.iter().map(String::as_str))?).await
}
