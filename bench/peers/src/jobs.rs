//! apalis: a runtime for jobs over PostgreSQL, Redis and SQLite.

use std::time::{Duration, Instant};

use apalis::prelude::*;
use apalis_postgres::{PgPool, PostgresStorage};
use apalis_redis::RedisStorage;
use apalis_sqlite::{SqlitePool, SqliteStorage};

use crate::peer::{Backend, Consumer, Handled, Job, Opened, Peer, Place, Producer, Result};

const LIBRARY: &str = "apalis 1.0.0";
const DEFAULTS: &str = "defaults";
const DEFAULT_SETTINGS: &str = "As its front page shows it: batches of ten, every setting left as it comes.";
/// Jobs that a worker fetches at once where it is configured for speed.
const FETCHED: usize = 256;
/// How often it looks for jobs where it is configured for speed.
const POLL: Duration = Duration::from_millis(10);

pub(crate) fn peers() -> Vec<Peer> {
    let postgres = Peer {
        product: LIBRARY,
        backend: Backend::Postgres,
        settings: DEFAULTS,
        configured: DEFAULT_SETTINGS,
        guarantee: "At least once: jobs of a worker whose heartbeat ends are put back. Done jobs stay in the table.",
        sizes: (500, 3000),
        // Each can take half a minute.
        pings: 2,
        open: |place| Box::pin(open_postgres(place, false)),
    };
    let redis = Peer {
        backend: Backend::Redis,
        guarantee: "At least once: jobs of a worker whose heartbeat ends are put back. Done jobs stay in Redis.",
        sizes: (2000, 4000),
        open: |place| Box::pin(open_redis(place, false)),
        ..postgres
    };
    let sqlite = Peer {
        backend: Backend::Sqlite,
        guarantee: "Its setup switches `synchronous` off: what was pushed can be lost with the power. Else at least once.",
        open: |place| Box::pin(open_sqlite(place, false)),
        ..postgres
    };
    vec![
        Peer {
            settings: "notified, 256",
            configured: "`with_pubsub`, batches of 256.",
            pings: 50,
            open: |place| Box::pin(open_postgres(place, true)),
            ..postgres
        },
        postgres,
        Peer {
            settings: "10 ms, 256",
            configured: "Polls every 10 ms, in batches of 256.",
            pings: 50,
            open: |place| Box::pin(open_redis(place, true)),
            ..redis
        },
        redis,
        Peer {
            settings: "10 ms, 256",
            configured: "Polls every 10 ms, in batches of 256.",
            pings: 50,
            open: |place| Box::pin(open_sqlite(place, true)),
            ..sqlite
        },
        sqlite,
    ]
}

/// A worker over the backend. Its type has too many parts to be named in a function.
macro_rules! worker {
    ($backend:expr) => {{
        let backend = $backend;
        let consumer: Consumer = Box::new(move |handled: Handled| {
            Box::pin(async move {
                let worker = WorkerBuilder::new("peers").backend(backend).data(handled).build(handle);
                Ok(worker.run().await?)
            })
        });
        consumer
    }};
}

async fn handle(payload: String, handled: Data<Handled>) -> std::result::Result<(), BoxDynError> {
    handled.told(payload, Instant::now()).await;
    Ok(())
}

async fn open_postgres(place: Place, fast: bool) -> Result<Opened> {
    let pool = PgPool::connect(&place.url).await?;
    PostgresStorage::setup(&pool).await?;
    let config = apalis_postgres::Config::default().queue(&place.queue);
    let config = if fast { config.batch_size(FETCHED) } else { config };
    let storage = PostgresStorage::<String>::new(&pool).with_config(config);
    let producer = Box::new(Pusher(storage.clone()));
    let consumer = if fast { worker!(storage.with_pubsub()) } else { worker!(storage) };
    Ok(Opened { producer, consumer })
}

async fn open_redis(place: Place, fast: bool) -> Result<Opened> {
    let conn = apalis_redis::connect(place.url).await?;
    let config = apalis_redis::Config::default().queue(&place.queue);
    let config = if fast { config.batch_size(FETCHED) } else { config };
    let storage = RedisStorage::<String>::new(conn).with_config(config);
    let producer = Box::new(Pusher(storage.clone()));
    let consumer = if fast { worker!(storage.poll_with_interval(POLL)) } else { worker!(storage) };
    Ok(Opened { producer, consumer })
}

async fn open_sqlite(place: Place, fast: bool) -> Result<Opened> {
    let pool = SqlitePool::connect(&format!("sqlite://{}/peers.db?mode=rwc", place.url)).await?;
    SqliteStorage::setup(&pool).await?;
    let config = apalis_sqlite::Config::default().queue(&place.queue);
    let config = if fast { config.batch_size(FETCHED) } else { config };
    let storage = SqliteStorage::<String>::new(&pool).with_config(config);
    let producer = Box::new(Pusher(storage.clone()));
    let consumer = if fast { worker!(storage.poll_with_interval(POLL)) } else { worker!(storage) };
    Ok(Opened { producer, consumer })
}

struct Pusher<S>(S);

/// The same calls on each storage, whose traits have too many parameters to be named.
macro_rules! pusher {
    ($($storage:ty),*) => {$(
        impl Producer for Pusher<$storage> {
            fn push(&mut self, payload: String) -> Job<'_, ()> {
                Box::pin(async move { Ok(self.0.push(payload).await?) })
            }

            fn push_batch(&mut self, payloads: Vec<String>) -> Job<'_, ()> {
                Box::pin(async move { Ok(self.0.push_bulk(payloads).await?) })
            }
        }
    )*};
}

pusher!(PostgresStorage<String>, RedisStorage<String>, SqliteStorage<String>);
