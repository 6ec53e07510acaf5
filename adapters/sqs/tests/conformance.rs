//! The conformance suite over standard queues.

mod harness;

use std::process::ExitCode;

use anyqueue_conformance::{Need, least};

use harness::Kind;

const STANDARD: Kind = Kind {
    name: "sqs",
    fifo: false,
    least: least::CLOUD,
    rules: &[
        (Need::PUSH_ORDER, "a standard queue keeps no order; a FIFO queue does, within a group"),
        (Need::REQUEUE_FRONT, "a standard queue keeps no order, so it has no front"),
        (Need::GROUPS, "groups are a FIFO queue's"),
        (Need::DEDUP, "deduplication is a FIFO queue's, which does not tell a duplicate from what it stored"),
        (Need::UNIQUE_IDS, "a standard queue takes a message as often as it is sent"),
    ],
};

fn main() -> ExitCode {
    harness::main(&STANDARD)
}
