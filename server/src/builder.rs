//! Setting the service up, and running it.

use std::fmt;
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
use crate::desk::Desk;
use crate::ended::EndCounts;
use crate::error::ServerError;
use crate::guard::{Guard, guarded};
use crate::handed::Handed;
use crate::janitor;
use crate::keys::{Keys, MIN_TOKEN_BYTES};
use crate::pages;
use crate::pins::Pins;
use crate::places::Places;
use crate::sampler::Sampler;
use crate::seal::Sealer;
use crate::sessions::Sessions;
use crate::timely::Timely;
use crate::tls::Tls;
use crate::trail::Trail;

/// The most actions on many tasks at once: each remembers up to 100,000 ids.
const MAX_BULK: usize = 8;
/// The most answers at once that count ends: each reads up to 20,000 rows of nearly a kilobyte.
const MAX_SERIES: usize = 4;
/// How long a slow client is waited for, unless something else is said.
const PATIENCE: Duration = Duration::from_secs(30);
/// Later times need not be representable.
const MOST_PATIENCE: Duration = Duration::from_hours(24);

/// What the service is to be like; from [`Server::builder`].
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
    /// Where workers, and the key of what is handed out, are kept. By default with the queue, where its backend keeps such entries; without any, what was
    /// handed out before a restart cannot be settled after it, and comes again at its lease's end.
    pub fn control(mut self, store: ControlStore) -> Self {
        self.control = Some(store);
        self
    }

    /// The schedules that are shown and managed. By default those that are kept with the queue, where its backend keeps any. The service runs none: see [`Scheduler::run`].
    pub fn scheduler(mut self, scheduler: Scheduler) -> Self {
        self.scheduler = Some(scheduler);
        self
    }

    /// When a task is retried that a worker says has failed. Default: as [`Retry::default`].
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Adds a token that may do everything: with any, each request has to bring a token, `Authorization: Bearer …`. At least 16 bytes.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.tokens.push(token.into());
        self
    }

    /// Speaks TLS, and nothing else. Where it [asks clients for certificates](Tls::with_client_authority), each request has to bring one that stands for a token,
    /// or a token. Default: no.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Whether it may be reached from other machines without TLS, for instance behind a proxy that speaks it. Whoever is on the way can then read and change everything,
    /// tokens too; each page says so. Default: no.
    pub fn insecure(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }

    /// Whether each request has to bring a token, also if there is none yet. Default: if there is any, of [`token`](Self::token) or in the
    /// [control store](anyqueue_control::tokens).
    pub fn require_tokens(mut self, require: bool) -> Self {
        self.requires_token = require;
        self
    }

    /// The most connections at once; half as many requests can wait. Default: 1024.
    pub fn max_connections(mut self, most: usize) -> Self {
        self.room.most = most;
        self
    }

    /// How long a slow client is waited for: the body of a request may take so long, and a second more for each 64 KiB of it; and a client that reads nothing
    /// of what is there for it is cut after so long. Default: 30 s, at most a day.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.room.patience = patience.min(MOST_PATIENCE);
        self
    }

    /// Whether it refuses what changes anything. Default: no.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// What `/metrics` shows: the process's measurements in the text format of Prometheus.
    pub fn metrics(mut self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.metrics = Some(Arc::new(render));
        self
    }

    /// Checks it, and agrees with other instances on the key.
    ///
    /// # Errors
    /// [`InvalidInput`](anyqueue::ErrorKind::InvalidInput) for a short token, room for fewer than two connections, no patience, or if tokens or certificates of clients are required where
    /// none can be; else the control store's.
    pub async fn build(self) -> anyqueue::Result<Server> {
        if self.tokens.iter().any(|token| token.len() < MIN_TOKEN_BYTES) {
            let text = format!("a token is shorter than {MIN_TOKEN_BYTES} bytes: it could be guessed");
            return Err(anyqueue::Error::invalid(text));
        }
        if self.room.patience.is_zero() {
            return Err(anyqueue::Error::invalid("no patience at all: no body could arrive"));
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
            let text = "certificates of clients stand for tokens, and this backend keeps none: give it the control store of another backend";
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
            desk: Desk::of(self.queue.clone()),
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

/// A queue over HTTP.
pub struct Server {
    app: Arc<App>,
    room: Room,
    tls: Option<Tls>,
    insecure: bool,
}

impl Server {
    /// A service over this queue.
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

    /// Serves until `end` fires: then requests that wait return empty-handed, and what is under way may finish, for ten seconds. The queue is left open.
    ///
    /// # Errors
    /// On an address that other machines reach: [`Open`](ServerError::Open) without tokens, and [`Plain`](ServerError::Plain) without TLS, unless it may be
    /// [`insecure`](ServerBuilder::insecure).
    ///
    /// # Cancellation
    /// Dropped, it accepts no more connections; those that are open go on until they end.
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
            tracing::warn!(%address, "other machines are served without TLS: whoever is on the way can read and change everything");
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
        // Requests that wait and the sweeper end with the service, also if this future is dropped.
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
