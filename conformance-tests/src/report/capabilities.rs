//! What backends declare, in words: a row for each thing that can be declared, a column for each backend.

use std::time::Duration;

use anyqueue::adapter::{
    AgeClock, Capabilities, Dedup, DelayCapability, DeliveryCount, Durability, DurabilityLevel,
    InspectCapability, LeaseCapability, LeaseKind, Limits, MoveGuarantee, Order, PriorityDiscipline, Reach,
    Rejoin, Requeue, SettleConfirm, Strictness,
};

/// Returns what backends declare, as a Markdown table with a column for each.
pub fn capability_table(backends: &[(&'static str, Capabilities)]) -> String {
    let mut columns: Vec<_> = backends.iter().map(|(_, declared)| rows(declared).into_iter()).collect();
    let mut text = line("capability", backends.iter().map(|(name, _)| *name));
    text.push_str(&line("---", backends.iter().map(|_| "---")));
    // Every backend has the same rows: take one from each at a time.
    loop {
        let row: Vec<_> = columns.iter_mut().filter_map(Iterator::next).collect();
        let Some((label, _)) = row.first() else { return text };
        text.push_str(&line(label, row.iter().map(|(_, value)| value.as_str())));
    }
}

fn line<'a>(label: &'a str, cells: impl Iterator<Item = &'a str>) -> String {
    let cells: Vec<_> = std::iter::once(label).chain(cells).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Returns what one backend declares. Each struct is destructured in full, so that a new field cannot be
/// forgotten here.
pub(super) fn rows(declared: &Capabilities) -> Vec<(&'static str, String)> {
    let Capabilities {
        reach,
        durability: Durability { push, claim, settle },
        unique_ids,
        settle_confirm,
        priority_levels,
        priority,
        order,
        requeue,
        postponed,
        exclusive,
        fencing,
        lease: LeaseCapability { kind, min, max, max_hold, portable },
        ages,
        push_delay,
        postpone_delay,
        postpone_headers,
        groups,
        dedup,
        delivery_count,
        on_duplicate,
        moves,
        successors,
        inspect,
        pause,
        amend,
        urgent_after,
        whole_groups,
        ledger,
        series,
        control,
        limits,
        slack,
        wake_latency,
        overfetch,
        exchange,
        // How core joins calls is tuning, not a promise.
        coalesce_push: _,
        coalesce_settle: _,
        retention,
    } = declared.clone();
    let mut rows = vec![
        ("shared by", shared_by(reach).to_owned()),
        ("acknowledged push survives", survives(push).to_owned()),
        ("claim survives", survives(claim).to_owned()),
        ("settlement survives", survives(settle).to_owned()),
        ("settlement confirmed by the server", yes(settle_confirm == SettleConfirm::Confirmed)),
        ("ids are unique", yes(unique_ids)),
        ("priorities", priorities(priority_levels, priority)),
        ("order within a priority", order_words(order).to_owned()),
        ("a returned message goes", requeue_words(requeue).to_owned()),
        ("a postponed or matured message goes", rejoin_words(postponed).to_owned()),
        ("one holder at a time", strictness(exclusive).to_owned()),
        ("stale settlements are fenced off", strictness(fencing).to_owned()),
        ("lease ends with", lease_end(kind).to_owned()),
        ("lease length", format!("{} to {}", time(min), time(max))),
        ("longest hold, extensions included", max_hold.map_or("no limit".to_owned(), time)),
        ("any client can settle what another pulled", yes(portable)),
        ("delay at push", delay(push_delay)),
        ("delay of a postponement", delay(postpone_delay)),
        ("a postponement can replace the headers", yes(postpone_headers)),
        ("groups", yes(groups)),
        ("ages and expiry by the clock of", age_words(ages).to_owned()),
        ("deduplication", dedup_words(dedup)),
        ("a push can change what waits with its key", yes(on_duplicate)),
        ("delivery count", count_words(delivery_count).to_owned()),
        ("moves between partitions, death, redrive", move_words(moves).to_owned()),
        ("successors stored with the end of a delivery", successors.map_or("no", move_words).to_owned()),
        ("pause", yes(pause)),
        ("what waits can be amended", yes(amend)),
        ("urgent from a moment on", yes(urgent_after)),
        ("groups claimed whole", yes(whole_groups)),
        ("ends of tasks kept with the settlement", ledger.map_or("no", move_words).to_owned()),
        ("ends of tasks counted by the minute", yes(series)),
        ("control entries", yes(control)),
    ];
    rows.extend(inspect_rows(&inspect));
    rows.extend(limit_rows(&limits));
    rows.extend([
        ("timed promises are late by at most", time(slack)),
        ("a push wakes a waiting pull within", time(wake_latency)),
        ("held beyond what a pull asked for", overfetch.to_string()),
        ("settle and pull in one round trip", yes(exchange)),
        ("waiting messages are kept", retention.map_or("forever".to_owned(), time)),
    ]);
    rows
}

fn inspect_rows(inspect: &InspectCapability) -> Vec<(&'static str, String)> {
    let InspectCapability { ready, delayed, leased, dead, staleness, list, browse, delete, purge, cancel } =
        *inspect;
    let counts = [(ready, "ready"), (delayed, "delayed"), (leased, "leased"), (dead, "dead")];
    let counted: Vec<_> = counts.iter().filter(|(has, _)| *has).map(|(_, name)| *name).collect();
    let counts = match (counted.is_empty(), staleness) {
        (true, _) => "no".to_owned(),
        (false, Duration::ZERO) => format!("{}; exact", counted.join(", ")),
        (false, staleness) => format!("{}; up to {} old", counted.join(", "), time(staleness)),
    };
    vec![
        ("counts", counts),
        ("list of partitions", yes(list)),
        ("browse", yes(browse)),
        ("delete by id", yes(delete)),
        ("purge", yes(purge)),
        ("request cancellation", yes(cancel)),
    ]
}

fn limit_rows(limits: &Limits) -> Vec<(&'static str, String)> {
    let Limits { message_bytes, push_batch, push_batch_bytes, pull_batch, settle_batch } = *limits;
    vec![
        ("largest message, encoded", bytes(message_bytes)),
        // Core splits larger calls: these say what one round trip carries.
        ("messages per push call", format!("{push_batch}, at most {}", bytes(push_batch_bytes))),
        ("deliveries per pull call", pull_batch.to_string()),
        ("settlements per call", settle_batch.to_string()),
    ]
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

fn time(duration: Duration) -> String {
    const DAY: u64 = 24 * 3600;
    match duration.as_secs() {
        // Calendar units would make 365 days look odd.
        seconds if seconds >= DAY && seconds.is_multiple_of(DAY) => format!("{} days", seconds / DAY),
        _ => humantime::format_duration(duration).to_string(),
    }
}

fn bytes(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    match bytes {
        0 => "0 bytes".to_owned(),
        n if n.is_multiple_of(MIB) => format!("{} MiB", n / MIB),
        n if n.is_multiple_of(KIB) => format!("{} KiB", n / KIB),
        n => format!("{n} bytes"),
    }
}

fn shared_by(reach: Reach) -> &'static str {
    match reach {
        Reach::Process => "one process",
        Reach::Host => "all processes of a host",
        Reach::Network => "all clients of a server",
    }
}

pub(super) fn survives(level: DurabilityLevel) -> &'static str {
    match level {
        DurabilityLevel::None => "nothing",
        DurabilityLevel::ProcessCrash => "crash of a process",
        DurabilityLevel::PowerLoss => "loss of power",
        DurabilityLevel::MachineLoss => "loss of a machine",
    }
}

fn priorities(levels: u8, discipline: PriorityDiscipline) -> String {
    match discipline {
        PriorityDiscipline::None => "no".to_owned(),
        PriorityDiscipline::Strict => format!("{levels}, strict"),
        PriorityDiscipline::Weighted { bound } => format!("{levels}, weighted, wait at most {}", time(bound)),
    }
}

fn order_words(order: Order) -> &'static str {
    match order {
        Order::None => "none",
        Order::PerGroup => "push order within a group",
        Order::PushOrder => "push order",
    }
}

fn requeue_words(requeue: Requeue) -> &'static str {
    match requeue {
        Requeue::Front => "to the front",
        Requeue::Back => "to the back",
        Requeue::Unordered => "anywhere",
    }
}

fn rejoin_words(postponed: Rejoin) -> &'static str {
    match postponed {
        Rejoin::End => "to the end",
        Rejoin::Front => "to the front",
        Rejoin::Unordered => "anywhere",
    }
}

fn strictness(strictness: Strictness) -> &'static str {
    match strictness {
        Strictness::Strict => "always",
        Strictness::BestEffort => "best effort",
    }
}

fn lease_end(kind: LeaseKind) -> &'static str {
    match kind {
        LeaseKind::Timed => "its time",
        LeaseKind::Connection => "the connection",
    }
}

fn delay(delay: Option<DelayCapability>) -> String {
    delay.map_or("no".to_owned(), |DelayCapability { max, granularity }| {
        format!("up to {}, in steps of {}", time(max), time(granularity))
    })
}

fn age_words(ages: AgeClock) -> &'static str {
    match ages {
        AgeClock::Server => "the server or host",
        AgeClock::Clients => "pusher and puller",
    }
}

fn dedup_words(dedup: Dedup) -> String {
    match dedup {
        Dedup::None => "no".to_owned(),
        Dedup::WhileLive => "while the message lives".to_owned(),
        Dedup::Window(window) => format!("for {}", time(window)),
    }
}

fn count_words(count: DeliveryCount) -> &'static str {
    match count {
        DeliveryCount::None => "no",
        DeliveryCount::Deliveries => "every delivery",
        DeliveryCount::ExceptReleases => "deliveries that were not released",
    }
}

fn move_words(moves: MoveGuarantee) -> &'static str {
    match moves {
        MoveGuarantee::Atomic => "atomic",
        MoveGuarantee::AtLeastOnce => "at least once",
    }
}

#[cfg(test)]
mod tests {
    use anyqueue::adapter::QueueStorage as _;

    use super::*;

    const TWO_WEEKS: Duration = Duration::from_hours(14 * 24);

    #[test]
    fn the_table_has_a_column_for_each_backend_and_a_row_for_each_thing() {
        let memory = anyqueue_memory::MemoryQueue::new().capabilities().clone();
        let other = Capabilities {
            reach: Reach::Network,
            push_delay: None,
            dedup: Dedup::Window(Duration::from_mins(5)),
            retention: Some(TWO_WEEKS),
            ..memory.clone()
        };
        let table = capability_table(&[("memory", memory.clone()), ("other", other)]);
        for line in [
            "| capability | memory | other |",
            "| shared by | one process | all clients of a server |",
            "| deduplication | while the message lives | for 5m |",
            "| waiting messages are kept | forever | 14 days |",
        ] {
            assert!(table.lines().any(|row| row == line), "{line:?} is not in:\n{table}");
        }
        assert_eq!(table.lines().count(), 2 + rows(&memory).len());
        assert!(table.lines().all(|row| row.matches('|').count() == 4), "three cells in each row:\n{table}");
    }

    #[test]
    fn sizes_and_times_are_in_the_largest_whole_unit() {
        assert_eq!(bytes(1 << 20), "1 MiB");
        assert_eq!(bytes(256 << 10), "256 KiB");
        assert_eq!(bytes(1000), "1000 bytes");
        assert_eq!(time(26 * TWO_WEEKS), "364 days");
        assert_eq!(time(Duration::from_millis(1500)), "1s 500ms");
    }
}
