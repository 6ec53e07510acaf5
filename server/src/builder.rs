//! Configures the service, and runs it.

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use anyqueue::control::ControlStore;
use anyqueue::{CancellationToken, Queue};
use anyqueue_control::cron::Scheduler;
use anyqueue_worker::Retry;
use axum::Router;
use axum::extract::Request;
use axum::middleware::{from_fn_with_state, map_request};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::api;
use crate::app::{App, MetricsPage};
use crate::connections::{self, Room};
use crate::ended::EndCounts;
use crate::error::ServerError;
use crate::guard::{Guard, guarded};
use crate::handed::Handed;
use crate::janitor;
use crate::keys::{Keys, MIN_TOKEN_BYTES};
use crate::pages;
use crate::pins::Pins;
use crate::places::Places;
use crate::pull_coalescer::PullCoalescer;
use crate::sampler::Sampler;
use crate::seal::Sealer;
use crate::sessions::Sessions;
use crate::timely::Timely;
use crate::tls::Tls;
use crate::trail::Trail;

/// The most bulk actions that run at once: each remembers up to 100,000 ids.
const MAX_BULK: usize = 8;
/// The most responses that count ends at once: each reads up to 20,000 rows of nearly a kilobyte.
const MAX_SERIES: usize = 4;
/// How long the service waits for a slow client by default.
const PATIENCE: Duration = Duration::from_secs(30);
/// The upper limit of patience: times much further ahead may not be representable.
const MOST_PATIENCE: Duration = Duration::from_hours(24);

/// Configures a [`Server`]; created by [`Server::builder`].
#[must_use = "it does nothing until it is built"]
pub struct ServerBuilder {
    queue: Queue,
    control: Option<ControlStore>,
    scheduler: Option<Scheduler>,
    retry: Retry,
    tokens: Vec<String>,
    tls: Option<Tls>,
    insecure: bool,
    requires_token: bool,
    room: Room,
    read_only: bool,
    metrics: Option<MetricsPage>,
}

impl ServerBuilder {
    /// Sets the store that holds the workers and the key that seals deliveries. Default: the queue's own, if
    /// its backend has a control store. Without any store, deliveries that were handed out before a restart
    /// cannot be settled after it; they are delivered again when their leases end.
    pub fn control(mut self, store: ControlStore) -> Self {
        self.control = Some(store);
        self
    }

    /// Sets the scheduler whose schedules are shown and managed. Default: the schedules kept with the queue,
    /// if its backend keeps any. The service does not run them: see [`Scheduler::run`].
    pub fn scheduler(mut self, scheduler: Scheduler) -> Self {
        self.scheduler = Some(scheduler);
        self
    }

    /// Sets when a task is retried after a worker reports that it has failed. Default: [`Retry::default`].
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Adds a token with all rights, of at least 16 bytes. Once there is any token, each request must carry
    /// one, as `Authorization: Bearer …`.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.tokens.push(token.into());
        self
    }

    /// Serves TLS only. If it [asks clients for certificates](Tls::with_client_authority), each request must
    /// come with a token, or over a connection whose certificate stands for one. Default: no TLS.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Sets whether the service may be reached from other machines without TLS, for instance behind a proxy
    /// that handles TLS. Anyone on the network path can then read and change everything, tokens included;
    /// each page shows a warning. Default: no.
    pub fn insecure(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }

    /// Sets whether each request must carry a token even if no token exists yet. Default: only once there is
    /// a token, from [`token`](Self::token) or in the [control store](anyqueue_control::tokens).
    pub fn require_tokens(mut self, require: bool) -> Self {
        self.requires_token = require;
        self
    }

    /// Sets the most connections at once; half as many requests can wait. Default: 1024.
    pub fn max_connections(mut self, most: usize) -> Self {
        self.room.most = most;
        self
    }

    /// Sets how long the service waits for a slow client. The body of a request may take this long, plus a
    /// second for each 64 KiB of it; and a client that reads nothing of what is being sent to it is
    /// disconnected after this long. Default: 30 s; at most a day.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.room.patience = patience.min(MOST_PATIENCE);
        self
    }

    /// Sets whether the service refuses every request that changes something. Default: no.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets what `/metrics` shows: the process's measurements in the text format of Prometheus.
    pub fn metrics(mut self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.metrics = Some(Arc::new(render));
        self
    }

    /// Checks the configuration, and agrees on the sealing key with the other instances.
    ///
    /// # Errors
    /// Returns [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) for a token that is too short, room for
    /// fewer than two connections, no patience, or if tokens or client certificates are required where none
    /// can exist. Otherwise returns the errors of the control store.
    pub async fn build(self) -> anyqueue::Result<Server> {
        if self.tokens.iter().any(|token| token.len() < MIN_TOKEN_BYTES) {
            let text = format!("a token is shorter than {MIN_TOKEN_BYTES} bytes: it could be guessed");
            return Err(anyqueue::Error::invalid(text));
        }
        if self.room.patience.is_zero() {
            return Err(anyqueue::Error::invalid("a patience of 0: no body could arrive"));
        }
        if self.room.most < 2 {
            return Err(anyqueue::Error::invalid("room for fewer than 2 connections: one may wait"));
        }
        let own = || self.queue.capabilities().control.then(|| self.queue.control()).transpose();
        let control = match self.control {
            Some(store) => Some(store),
            None => own()?,
        };
        let asks_clients = self.tls.as_ref().is_some_and(Tls::asks_clients);
        if asks_clients && control.is_none() {
            let text = "client certificates need tokens, and this backend keeps none: give it the control store of another backend";
            return Err(anyqueue::Error::invalid(text));
        }
        let requires_token = self.requires_token || asks_clients;
        if requires_token && self.tokens.is_empty() && control.is_none() {
            let text = "tokens are required, and this backend keeps none: give it some, or the control store of another backend";
            return Err(anyqueue::Error::invalid(text));
        }
        let scheduler = self.scheduler.or_else(|| Scheduler::new(&self.queue).ok());
        let sealer = match &control {
            Some(store) => Sealer::shared(store).await?,
            None => Sealer::random(),
        };
        let app = App {
            sampler: Sampler::new(self.queue.clone(), control.as_ref()),
            ended: EndCounts::new(self.queue.clone()),
            keys: Keys::new(&self.tokens, control.as_ref(), requires_token).await?,
            sessions: Sessions::new(),
            trail: Trail::new(control.as_ref(), self.read_only),
            pulls: PullCoalescer::of(self.queue.clone()),
            queue: self.queue,
            control,
            scheduler,
            sealer,
            pins: Pins::default(),
            handed: Handed::default(),
            places: Places::default(),
            retry: self.retry,
            instance: fastrand::u64(..),
            polls: Arc::new(Semaphore::new(self.room.most / 2)),
            bulk: Arc::new(Semaphore::new(MAX_BULK)),
            series: Semaphore::new(MAX_SERIES),
            read_only: self.read_only,
            encrypted: self.tls.is_some(),
            in_the_open: OnceLock::new(),
            ending: CancellationToken::new(),
            metrics: self.metrics,
            description: api::description().into(),
            health: Mutex::new(None),
            has_been_ready: AtomicBool::new(false),
        };
        Ok(Server { app: Arc::new(app), room: self.room, tls: self.tls, insecure: self.insecure })
    }
}

impl fmt::Debug for ServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerBuilder")
            .field("queue", &self.queue)
            .field("tokens", &self.tokens.len())
            .field("tls", &self.tls.is_some())
            .field("room", &self.room)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

/// A service that offers a queue over HTTP.
pub struct Server {
    app: Arc<App>,
    room: Room,
    tls: Option<Tls>,
    insecure: bool,
}

impl Server {
    /// Returns a builder for a service over this queue.
    pub fn builder(queue: Queue) -> ServerBuilder {
        ServerBuilder {
            queue,
            control: None,
            scheduler: None,
            retry: Retry::default(),
            tokens: Vec::new(),
            tls: None,
            insecure: false,
            requires_token: false,
            room: Room { most: 1024, patience: PATIENCE },
            read_only: false,
            metrics: None,
        }
    }

    /// Serves until `end` fires. Then waiting requests return empty, and requests under way may finish within
    /// ten seconds. The queue is left open.
    ///
    /// # Errors
    /// If the address can be reached from other machines, returns [`Open`](ServerError::Open) if no token is
    /// required, and [`Plain`](ServerError::Plain) if there is no TLS and
    /// [`insecure`](ServerBuilder::insecure) is not set. Returns [`Io`](ServerError::Io) if the listener's
    /// address cannot be determined.
    ///
    /// # Cancellation
    /// If the future is dropped, the service accepts no more connections and waiting requests return; open
    /// connections close when their requests under way have finished.
    pub async fn serve(self, listener: TcpListener, end: CancellationToken) -> Result<(), ServerError> {
        let address = listener.local_addr().map_err(ServerError::Io)?;
        let loopback = address.ip().is_loopback();
        if !loopback && self.app.keys.is_open() {
            return Err(ServerError::Open(address));
        }
        let in_the_open = !loopback && self.tls.is_none();
        if in_the_open && !self.insecure {
            return Err(ServerError::Plain(address));
        }
        if in_the_open {
            tracing::warn!(%address, "other machines are served without TLS: anybody on the way can read and change everything");
        }
        let _ = self.app.in_the_open.set(in_the_open); // serving begins once
        let app = self.app;
        let patience = self.room.patience;
        let guard = Arc::new(Guard { loopback, app: app.clone() });
        let router: Router = api::router()
            .split_for_parts()
            .0
            .merge(pages::router())
            .fallback(api::problem_for_unknown)
            .layer(from_fn_with_state(guard, guarded))
            .layer(map_request(move |request: Request| async move {
                request.map(|body| Timely::of(body, patience))
            }))
            .with_state(app.clone());
        let ending = app.ending.clone();
        // Waiting requests and the sweeper end with the service, even if this future is dropped.
        let _ended = ending.clone().drop_guard();
        tokio::spawn(janitor::forget(app.clone()));
        tokio::spawn(janitor::watch(app.clone()));
        tokio::spawn(async move { app.sampler.run(&app.ending).await });
        let told = async {
            end.cancelled().await;
            ending.cancel();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = connections::serve(listener, router, self.room, self.tls, ending.clone()) => {}
            () = told => {}
        }
        Ok(())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("queue", &self.app.queue)
            .field("room", &self.room)
            .finish_non_exhaustive()
    }
}
