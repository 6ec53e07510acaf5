//! Small complete programs that use anyqueue, each in `src/bin`. This library only contains the README, whose
//! code is compiled as documentation tests. So is the code of the guides and of the crates' own READMEs.

#![doc = include_str!("../../README.md")]

/// Turns pages into documentation tests.
#[cfg(doctest)]
macro_rules! pages {
    ($($name:ident = $path:literal),* $(,)?) => { $( #[doc = include_str!($path)] mod $name {} )* };
}

#[cfg(doctest)]
pages! {
    choosing = "../../docs/choosing.md",
    coming_from = "../../docs/coming-from.md",
    failure_modes = "../../docs/failure-modes.md",
    ledger = "../../docs/ledger.md",
    migrating = "../../docs/migrating.md",
    operating = "../../docs/operating.md",
    scaling = "../../docs/scaling.md",
    core_readme = "../../core/README.md",
    memory_readme = "../../adapters/memory/README.md",
    sqlite_readme = "../../adapters/sqlite/README.md",
    postgres_readme = "../../adapters/postgres/README.md",
    redis_readme = "../../adapters/redis/README.md",
    rabbitmq_readme = "../../adapters/rabbitmq/README.md",
    sqs_readme = "../../adapters/sqs/README.md",
    conformance_readme = "../../conformance-tests/README.md",
    testkit_readme = "../../testkit/README.md",
    worker_readme = "../../worker/README.md",
}
