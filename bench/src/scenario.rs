//! What is measured, as the command line names it. Scenarios know nothing of backends.

use tokio::runtime::{self, Runtime};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// One task pushes one message at a time.
    PushOne,
    /// One task pushes batches of 100.
    PushBatch,
    /// 8 tasks push one message at a time.
    Push8,
    /// 64 tasks push one message at a time.
    PushConcurrent,
    /// One task pushes, pulls and settles, in batches of 100.
    Cycle,
    /// 64 tasks settle held messages one at a time.
    SettleConcurrent,
    /// One task settles batches of 100, each message with a successor in the same queue.
    SettleThen,
    /// One puller that holds at most 64 messages feeds 64 handlers that settle one at a time, all of them in
    /// one task of a single-threaded runtime.
    Drain64,
    /// The same, holding at most 512.
    Drain512,
    /// Like `Drain64`, but each handler is a task, and the runtime has a thread for each core.
    DrainTasks,
    /// `cycle` with payloads of 100 bytes, whatever payload the command line asks for.
    Payload100,
    /// The same with 1000.
    Payload1000,
    /// The same with 4000.
    Payload4000,
    /// The same with 16,000.
    Payload16000,
    /// Time from push to handler start, in one process.
    Latency,
    /// Time from push to handler start, with the pusher in another process.
    LatencyAcross,
    /// `latency` after seconds without a message: longer than any poller's longest pause.
    FirstAfterIdle,
    /// CPU share of four waiting consumers.
    Idle,
    /// The rate of `cycle` behind a large backlog, relative to that without one.
    Backlog,
    /// The rate of `cycle` beside many held messages, relative to that without them.
    InFlight,
    /// A worker drains a queue that keeps the ends of tasks, relative to one that does not keep them.
    DrainLedger,
    /// A worker that is in the registry and obeys a cap drains a queue, relative to one that is on its own.
    DrainControlled,
}

impl Scenario {
    /// In the order in which they run.
    pub(crate) const ALL: [Self; 22] = [
        Self::PushOne,
        Self::PushBatch,
        Self::Push8,
        Self::PushConcurrent,
        Self::Cycle,
        Self::Payload100,
        Self::Payload1000,
        Self::Payload4000,
        Self::Payload16000,
        Self::SettleConcurrent,
        Self::SettleThen,
        Self::Drain64,
        Self::Drain512,
        Self::DrainTasks,
        Self::Latency,
        Self::LatencyAcross,
        Self::FirstAfterIdle,
        Self::Idle,
        Self::Backlog,
        Self::InFlight,
        Self::DrainLedger,
        Self::DrainControlled,
    ];

    /// Returns a new runtime, of the same kind for both sides.
    pub(crate) fn runtime(self) -> std::io::Result<Runtime> {
        let mut builder = match self {
            Self::Drain64 | Self::Drain512 => runtime::Builder::new_current_thread(),
            _ => runtime::Builder::new_multi_thread(),
        };
        builder.enable_all().build()
    }

    /// Returns whether the scenario is one of those that compare how a queue is drained.
    pub(crate) const fn is_drain(self) -> bool {
        matches!(self, Self::Drain64 | Self::Drain512 | Self::DrainTasks)
    }

    /// Returns how large its payloads are, if the scenario is about that.
    pub(crate) const fn payload_bytes(self) -> Option<usize> {
        match self {
            Self::Payload100 => Some(100),
            Self::Payload1000 => Some(1000),
            Self::Payload4000 => Some(4000),
            Self::Payload16000 => Some(16_000),
            _ => None,
        }
    }

    /// Returns the name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::PushOne => "push-one",
            Self::PushBatch => "push-batch",
            Self::Push8 => "push-8",
            Self::PushConcurrent => "push-concurrent",
            Self::Cycle => "cycle",
            Self::Payload100 => "payload-100",
            Self::Payload1000 => "payload-1000",
            Self::Payload4000 => "payload-4000",
            Self::Payload16000 => "payload-16000",
            Self::SettleConcurrent => "settle-concurrent",
            Self::SettleThen => "settle-then",
            Self::Drain64 => "drain-64",
            Self::Drain512 => "drain-512",
            Self::DrainTasks => "drain-tasks",
            Self::Latency => "latency",
            Self::LatencyAcross => "latency-across",
            Self::FirstAfterIdle => "first-after-idle",
            Self::Idle => "idle",
            Self::Backlog => "backlog",
            Self::InFlight => "in-flight",
            Self::DrainLedger => "drain-ledger",
            Self::DrainControlled => "drain-controlled",
        }
    }
}
