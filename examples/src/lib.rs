//! Small complete programs over anyqueue, each in `src/bin`. This library only holds the README, whose code is compiled as a
//! documentation test; so is that of the guides and of the crates' own READMEs.

#![doc = include_str!("../../README.md")]

/// Makes documentation tests of pages.
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
