//! The conformance suite over FIFO queues.

mod harness;

use std::process::ExitCode;

use anyqueue_conformance::least;

use harness::Kind;

const FIFO: Kind = Kind { name: "sqs-fifo", fifo: true, least: least::CLOUD_FIFO };

fn main() -> ExitCode {
    harness::main(&FIFO)
}
