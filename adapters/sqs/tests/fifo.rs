//! The conformance suite over FIFO queues.

mod harness;

use std::process::ExitCode;

use anyqueue_conformance::least;
use anyqueue_testkit::harness::ServerHarness;

use harness::Kind;

fn main() -> ExitCode {
    ServerHarness::main(Kind { name: "sqs-fifo", fifo: true, least: least::CLOUD_FIFO })
}
