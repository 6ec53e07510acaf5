//! A hand-written client for Redis: one pipelined connection, one script per call, one record per claim;
//! settling and claiming in one script.

mod delivery;
mod handle;
mod pump;
mod request;
mod script;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyqueue::{Bytes, MessageId};
use anyqueue_testkit::Server;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client as RedisClient, IntoConnectionInfo, Value};
use tokio::sync::{mpsc, oneshot};

use self::delivery::RawDelivery;
use self::handle::Handle;
use self::pump::Pump;
use self::request::{Feeder, GATHERED, Request, Settle};
use crate::client::{Client, Result, Source, Yardstick};
use crate::scenario::Scenario;

/// Longer than a pause of a busy machine.
const ANSWER: Duration = Duration::from_secs(30);
#[derive(Clone)]
pub(crate) struct Redis(Arc<Handle>);

impl Client for Redis {
    type RawDelivery = RawDelivery;
    type Source = Fed;

    async fn open(url: &str) -> Result<Self> {
        let (plain, _) = url.split_once('?').unwrap_or((url, ""));
        let tcp = TcpSettings::default().set_nodelay(true);
        let client = RedisClient::open(plain.into_connection_info()?.set_tcp_settings(tcp))?;
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER));
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let blocking = client
            .get_multiplexed_async_connection_with_config(&config.clone().set_response_timeout(None))
            .await?;
        let scripts = script::load(&mut connection).await?;
        let (requests, received) = mpsc::channel(GATHERED);
        let blocking = tokio::sync::Mutex::new(blocking);
        let handle = Arc::new(Handle { connection, blocking, scripts, requests });
        tokio::spawn(Pump::new(Arc::downgrade(&handle), received).run());
        Ok(Self(handle))
    }

    async fn push(&self, payload: Bytes) -> Result<MessageId> {
        let ids = self.0.store(vec![payload]).await?;
        ids.into_iter().next().ok_or_else(|| "nothing was pushed".into())
    }

    async fn push_batch(&self, payloads: Vec<Bytes>) -> Result<Vec<MessageId>> {
        self.0.store(payloads).await
    }

    async fn pull(&self, max: usize, wait: Duration) -> Result<Vec<RawDelivery>> {
        let until = Instant::now() + wait;
        loop {
            let (_, claimed) = self.0.cycle(&[], max).await?;
            let left = until.saturating_duration_since(Instant::now());
            if !claimed.is_empty() || left.is_zero() {
                return Ok(claimed);
            }
            self.0.wait(left).await?;
        }
    }

    async fn settle(&self, delivery: RawDelivery) -> Result<()> {
        let (done, settled) = oneshot::channel();
        let settle = Settle { id: delivery.id, token: delivery.token, done };
        self.0.requests.send(Request::Settle(settle)).await.map_err(|_| "the pump has ended")?;
        if settled.await? { Ok(()) } else { Err("a lease was lost".into()) }
    }

    async fn settle_batch(&self, deliveries: Vec<RawDelivery>) -> Result<()> {
        let held: Vec<_> = deliveries.iter().map(|delivery| (delivery.id, delivery.token)).collect();
        for held in held.chunks(GATHERED) {
            let (settled, _) = self.0.cycle(held, 0).await?;
            if settled.len() != held.len() || settled.contains(&false) {
                return Err("a lease was lost".into());
            }
        }
        Ok(())
    }

    async fn settle_then(
        &self,
        deliveries: Vec<RawDelivery>,
        payloads: Vec<Bytes>,
    ) -> Result<Vec<MessageId>> {
        self.0.settle_then(&deliveries, &payloads).await
    }

    async fn source(&self, window: usize) -> Result<Fed> {
        let (to, fed) = mpsc::channel(window);
        let feeder = Request::Feed(Feeder::new(window, to));
        self.0.requests.send(feeder).await.map_err(|_| "the pump has ended")?;
        Ok(Fed(fed))
    }

    async fn remaining(&self) -> Result<u64> {
        let Value::Int(count) = self.0.run(redis::cmd("HLEN").arg(script::MESSAGES)).await? else {
            return Err("no count".into());
        };
        Ok(u64::try_from(count)?)
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }

    fn id(delivery: &RawDelivery) -> MessageId {
        delivery.id
    }

    fn payload(delivery: &RawDelivery) -> &[u8] {
        &delivery.payload
    }
}

impl Yardstick for Redis {
    const NAME: &'static str = "redis";
    const ACROSS_PROCESSES: bool = true;
    const SETTLES_THEN: bool = true;

    fn messages(scenario: Scenario) -> usize {
        match scenario {
            Scenario::LatencyAcross => 100,
            Scenario::PushOne | Scenario::Latency => 500,
            _ => 20_000,
        }
    }

    /// Starts this place's own server, so that no round is affected by what another one left. The server does
    /// not rewrite its append-only file meanwhile: that would take one of two processors for seconds, in
    /// whatever round it falls.
    async fn place(_scratch: &Path) -> Result<String> {
        let program = anyqueue_testkit::Redis::new().setting("auto-aof-rewrite-percentage", "0");
        let server = Server::start(program).await?;
        let url = server.url().to_owned();
        let mut servers = SERVERS.lock().unwrap_or_else(PoisonError::into_inner);
        if servers.len() == PLACES {
            servers.remove(0);
        }
        servers.push(server);
        Ok(url)
    }
}

/// The largest number of places that a scenario has open at once.
const PLACES: usize = 2;
/// The servers of the last places.
static SERVERS: Mutex<Vec<Server>> = Mutex::new(Vec::new());

/// What the pump hands to a puller.
pub(crate) struct Fed(mpsc::Receiver<RawDelivery>);

impl Source<RawDelivery> for Fed {
    async fn next(&mut self) -> Result<RawDelivery> {
        self.0.recv().await.ok_or_else(|| "the pump gave up".into())
    }
}
