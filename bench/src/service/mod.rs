//! What HTTP costs: tasks a second through the service and PostgreSQL on the same machine, and how much later
//! a long poll wakes than a pull of the library.

mod flow;
pub(crate) mod http;
mod wake;

use std::net::SocketAddr;
use std::thread::JoinHandle;

use anyqueue::{CancellationToken, Queue};
use anyqueue_server::Server;
use serde::Serialize;
use tokio::net::TcpListener;

use crate::client::{Result, Yardstick as _};
use crate::compare::Settings;
use crate::environment::Environment;
use crate::report::{median, percentile_ms};
use crate::yardstick::postgres::Postgres;

pub(crate) const NAME: &str = "service";
/// The backend of the service.
const OVER: &str = "postgres";
/// The size of the batches.
const BATCH: usize = 100;

/// What was measured in one way.
#[derive(Debug, Serialize)]
struct Line {
    backend: &'static str,
    over: &'static str,
    scenario: &'static str,
    clients: usize,
    rounds: usize,
    /// Tasks in a round, each pushed, pulled and settled.
    tasks: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slowest_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fastest_per_s: Option<f64>,
    /// From a push of the library to the end of a wait, of either a poll of the service or a pull of the
    /// library.
    #[serde(skip_serializing_if = "Option::is_none")]
    p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    direct_p50_ms: Option<f64>,
    environment: Environment,
}

/// Measures in all ways and prints a line for each.
pub(crate) async fn print(settings: &Settings, json: bool) -> Result<()> {
    let url = Postgres::place(settings.scratch.directory()?.path()).await?;
    let queue = open(&url).await?;
    queue.init().await?;
    let environment =
        Environment::here(queue.check().await?.server_version.map(|version| format!("{OVER} {version}")));
    let service = Service::start(&url)?;
    let line = |scenario, clients, tasks| Line {
        backend: NAME,
        over: OVER,
        scenario,
        clients,
        rounds: settings.rounds,
        tasks,
        per_s: None,
        slowest_per_s: None,
        fastest_per_s: None,
        p50_ms: None,
        direct_p50_ms: None,
        environment: environment.clone(),
    };
    for (scenario, batch, tasks) in [("singly", 1, 20_000), ("batches", BATCH, 100_000)] {
        let tasks = settings.messages.unwrap_or(tasks);
        let mut rates = Vec::new();
        for _ in 0..settings.rounds {
            rates.push(
                flow::tasks_per_second(service.address, &queue, (tasks, batch), settings.payload_bytes)
                    .await?,
            );
        }
        rates.sort_by(f64::total_cmp);
        let rates = Line {
            per_s: median(&rates),
            slowest_per_s: rates.first().copied(),
            fastest_per_s: rates.last().copied(),
            ..line(scenario, flow::CLIENTS, tasks)
        };
        rates.print(json)?;
    }
    let wakes = wake::measure(service.address, &queue, wake::PUSHES * settings.rounds).await?;
    let wakes = Line {
        p50_ms: percentile_ms(&wakes.service, 50),
        direct_p50_ms: percentile_ms(&wakes.direct, 50),
        ..line("wake", 1, wake::PUSHES)
    };
    wakes.print(json)?;
    queue.close().await?;
    service.end()
}

impl Line {
    fn print(&self, json: bool) -> Result<()> {
        if json {
            println!("{}", serde_json::to_string(self)?);
        } else if let (Some(own), Some(direct)) = (self.p50_ms, self.direct_p50_ms) {
            println!("service, wake: {own:.2} ms (p50) after the push; the library's pull {direct:.2} ms");
        } else {
            let rate = self.per_s.unwrap_or_default();
            println!("service, {}: {rate:.0} tasks a second by {} clients", self.scenario, self.clients);
        }
        Ok(())
    }
}

/// The service, on its own threads, as if it were a separate process.
pub(crate) struct Service {
    address: SocketAddr,
    end: CancellationToken,
    thread: JoinHandle<std::result::Result<(), String>>,
}

impl Service {
    pub(crate) fn start(url: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (end, url) = (CancellationToken::new(), url.to_owned());
        let ended = end.clone();
        let thread = std::thread::spawn(move || {
            runtime.block_on(serve(&url, listener, ended)).map_err(|error| error.to_string())
        });
        Ok(Self { address, end, thread })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn end(self) -> Result<()> {
        self.end.cancel();
        Ok(self.thread.join().map_err(|_| "the service panicked")??)
    }
}

async fn open(url: &str) -> Result<Queue> {
    Ok(Queue::new(anyqueue_backends::open(url).await?)?)
}

async fn serve(url: &str, listener: std::net::TcpListener, end: CancellationToken) -> Result<()> {
    let queue = open(url).await?;
    let server = Server::builder(queue.clone()).build().await?;
    server.serve(TcpListener::from_std(listener)?, end).await?;
    Ok(queue.close().await?)
}
