//! What the broker gives at least, and why it cannot give more.

use anyqueue_conformance::Need;

/// Classic queues count no deliveries.
pub(crate) const CLASSIC: &[Need] = &[
    Need::PRIORITY,
    Need::STRICT_PRIORITY,
    Need::PUSH_ORDER,
    Need::REQUEUE_FRONT,
    Need::FENCING,
    Need::PUSH_DELAY,
    Need::POSTPONE_DELAY,
];

/// Why the broker cannot have it.
pub(crate) const RULES: &[(&str, &str)] = &[
    (
        Need::TIMED_LEASE.what,
        "a delivery is its channel's: AMQP 0-9-1 knows no end by time; core's own timer gives back what nobody extends",
    ),
    (Need::DELIVERY_COUNT.what, "a classic queue counts no deliveries"),
    (Need::GROUPS.what, "a single active consumer is per queue: the broker orders no group within one"),
    (Need::DEDUP.what, "the broker compares no messages"),
    (Need::DEDUP_WHILE_LIVE.what, "the broker compares no messages"),
    (Need::UNIQUE_IDS.what, "the broker compares no messages"),
    (
        Need::COUNTS.what,
        "the broker counts ready messages of a queue; what is held or delayed it tells only to managers",
    ),
    (Need::LIST.what, "AMQP 0-9-1 cannot list queues"),
    (Need::BROWSE.what, "the broker shows a message only to who takes it"),
    (Need::DELETE.what, "the broker finds no message by its id"),
    (Need::PURGE.what, "a queue is purged as a whole: no bound, and delayed messages stay"),
    (Need::CANCEL.what, "the broker finds no message by its id"),
    (Need::PAUSE.what, "consumers of a queue cannot be paused"),
    (
        Need::SERVER_AGES.what,
        "AMQP 0-9-1 does not tell the broker's time: a message bears that of who pushed it",
    ),
    (Need::CONTROLLED_CLOCK.what, "time is the server's: its clock cannot be turned"),
];
