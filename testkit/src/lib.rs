//! Private servers and a fault proxy, for tests of queue backends.
//!
//! A test of a backend should talk to the real server, and see it die. This crate starts servers as child
//! processes on free loopback ports, with their data in temporary folders, so that a test can stop, kill,
//! freeze and restart them without touching anything else on the machine. It also has a TCP proxy that does
//! to connections what networks do.
//!
//! ```
//! use anyqueue_testkit::{Direction, Fault, Proxy, Redis, start_if_installed};
//! # #[tokio::main]
//! # async fn main() -> anyqueue_testkit::Result<()> {
//! let Some(server) = start_if_installed(Redis::new().setting("appendfsync", "always")).await? else {
//!     return Ok(()); // This machine has none, which was said on standard error.
//! };
//! println!("Redis {} at {}", server.version(), server.url());
//!
//! server.freeze().await?; // SIGSTOP: connections stay, nothing is answered
//! server.thaw().await?;
//! server.kill().await?; // kill -9
//! server.restart().await?; // the same data at the same address
//!
//! let proxy = Proxy::start(server.addr())?;
//! let through = format!("redis://{}/", proxy.addr()); // what the client under test is given
//! proxy.set(Fault::DropReplies).await?; // requests are done, and nobody is told
//! proxy.set(Fault::CutAfter { direction: Direction::ToClient, bytes: 100 }).await?;
//! proxy.cut_all();
//! # Ok(())
//! # }
//! ```
//!
//! # What there is
//!
//! | program | is | its URL is |
//! |---|---|---|
//! | [`Postgres`] | `PostgreSQL` as installed, open to the loopback interface | `postgres://postgres@127.0.0.1:…/postgres` |
//! | [`PgBouncer`] | a pool in front of it, in transaction mode | `postgres://postgres@127.0.0.1:…/postgres` |
//! | [`Redis`] | Redis with an append-only file, also with TLS or as a replica | `redis://127.0.0.1:…/` |
//! | [`RedisCluster`] | three masters with a replica each | `redis-cluster://127.0.0.1:…/?nodes=…` |
//! | [`RedisSentinel`] | makes a replica the master when the master is gone | `redis-sentinel://127.0.0.1:…/?master=…` |
//! | [`RabbitMq`] | one node without plugins, also with TLS | `amqp://guest:guest@127.0.0.1:…/%2f` |
//! | [`RabbitCluster`] | three of them | `amqp://guest:guest@127.0.0.1:…/%2f?nodes=…` |
//! | [`Ministack`] | stands in for Amazon SQS | `http://127.0.0.1:…`, the client's endpoint |
//! | [`Chromedriver`] | drives Chromium, for tests of pages | `http://127.0.0.1:…`, the endpoint of `WebDriver` |
//!
//! `cargo xtask setup` installs them all. Another server needs an implementation of [`Program`], which says
//! how to find it, start it, ask whether it is ready, and stop it. The source of [`Redis`] is an example of a
//! hundred lines; it is built with [`find_program`], [`run_helper`], [`version_of`] and [`expect_answer`].
//!
//! # One server per test binary
//!
//! A start takes from 20 milliseconds (Redis) to six seconds (`RabbitMQ`), so let the tests of a binary share
//! a server, each with a namespace of its own, and give a test that kills its server one for itself. A
//! [`Server`] is not bound to a runtime and can live in a static:
//!
//! ```
//! use anyqueue_testkit::{Provided, Redis, Result, provide};
//! use tokio::sync::OnceCell;
//!
//! static REDIS: OnceCell<Provided> = OnceCell::const_new();
//!
//! async fn redis_url() -> Result<Option<&'static str>> {
//!     Ok(REDIS.get_or_try_init(|| provide(Redis::new())).await?.url())
//! }
//! ```
//!
//! [`provide`] uses a server that is already running, if the environment names one:
//!
//! | variable | points to |
//! |---|---|
//! | `ANYQUEUE_TEST_POSTGRES_URL`, `ANYQUEUE_TEST_PGBOUNCER_URL`, `ANYQUEUE_TEST_REDIS_URL`, `ANYQUEUE_TEST_AMQP_URL`, `ANYQUEUE_TEST_SQS_URL`, `ANYQUEUE_TEST_WEBDRIVER_URL` | a server to use instead of a private one |
//! | `CI`, `ANYQUEUE_REQUIRE_SERVERS` | if set, a server that is not installed is an error, not a notice |
//!
//! If each test is a process of its own, start the servers once: `anyqueue-testkit redis postgres` prints the
//! variables and keeps the servers running until it is interrupted.
//!
//! # The conformance suite over a server
//!
//! With the feature `harness`, `harness::ServerHarness` runs the suite of `anyqueue-conformance` over a
//! backend with a server. The adapter implements `harness::ServerBackend`, which says what program the server
//! is and how to open a client.
//!
//! # Spans and logs
//!
//! With the feature `recorder`, `recorder::Recorder` records the spans and events that a program under test
//! emits with `tracing`.
//!
//! # What is left behind
//!
//! Nothing. When a [`Server`] is dropped, or its process exits, crashes or is killed, a small shell process
//! that waits at the other end of a pipe kills everything that belongs to the server and removes its data.
//! The data folder that each new `PostgreSQL` is copied from is made once in a process, and goes with it.
//!
//! The servers run on Linux: their processes are found in `/proc`. If tests run as root, `PostgreSQL` and
//! `PgBouncer`, which refuse to run as root, run under the account `postgres`.

#![forbid(unsafe_code)]

mod certificates;
#[cfg(feature = "ends")]
pub mod ends;
mod error;
#[cfg(feature = "harness")]
pub mod harness;
mod place;
mod port;
mod process;
mod program;
mod programs;
mod provide;
mod proxy;
mod rabbit_cluster;
mod reaper;
#[cfg(feature = "recorder")]
pub mod recorder;
mod redis_cluster;
mod server;

pub use certificates::{Certificates, ClientCertificate};
pub use error::{Error, Result};
pub use place::Place;
pub use program::{Program, StopSignal, find_program, run_helper, version_of};
pub use programs::wire::expect as expect_answer;
pub use programs::{Chromedriver, Ministack, PgBouncer, Postgres, RabbitMq, Redis, RedisSentinel};
pub use provide::{Provided, provide, start_if_installed};
pub use proxy::{Direction, Fault, Proxy, Traffic};
pub use rabbit_cluster::RabbitCluster;
pub use redis_cluster::RedisCluster;
pub use server::Server;
