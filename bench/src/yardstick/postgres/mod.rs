//! A hand-written client for PostgreSQL: one table with partial indexes, batches as arrays, single calls
//! joined, settle and claim in one round trip.

mod crew;
mod delivery;
mod place;
mod server;
mod table;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyqueue::{Bytes, MessageId};
use tokio::sync::mpsc;

use self::crew::{Asked, Crew};
use self::delivery::RawDelivery;
use self::table::Table;
use crate::client::{Client, Result, Source, Yardstick};
use crate::scenario::Scenario;

/// How often a waiting pull looks without a notification.
const LOOK: Duration = Duration::from_millis(500);

/// A handle; the tasks of its crew carry out single calls, many at once.
#[derive(Clone)]
pub(crate) struct Postgres(Arc<Crew>);

impl Client for Postgres {
    type RawDelivery = RawDelivery;
    type Source = Fed;

    async fn open(url: &str) -> Result<Self> {
        Ok(Self(Crew::start(url).await?))
    }

    async fn push(&self, payload: Bytes) -> Result<MessageId> {
        let id = MessageId::new();
        Asked::wait(|asked| self.0.push((id, payload), asked)).await?;
        Ok(id)
    }

    async fn push_batch(&self, payloads: Vec<Bytes>) -> Result<Vec<MessageId>> {
        let ids: Vec<_> = payloads.iter().map(|_| MessageId::new()).collect();
        let rows = ids.iter().copied().zip(payloads);
        let mut table = self.0.table().await?;
        table.push(rows).await?;
        self.0.put_back(table);
        self.0.pushed();
        Ok(ids)
    }

    async fn pull(&self, max: usize, wait: Duration) -> Result<Vec<RawDelivery>> {
        let until = Instant::now() + wait;
        loop {
            let woken = self.0.woken();
            let mut table = self.0.table().await?;
            let claimed = table.claim(max).await?;
            self.0.put_back(table);
            let left = until.saturating_duration_since(Instant::now());
            if !claimed.is_empty() || left.is_zero() {
                return Ok(claimed);
            }
            // Whichever comes first, the next step is to look.
            let _ = tokio::time::timeout(left.min(LOOK), woken).await;
        }
    }

    async fn settle(&self, delivery: RawDelivery) -> Result<()> {
        Asked::wait(|asked| self.0.settle(delivery.proof, asked)).await
    }

    async fn settle_batch(&self, deliveries: Vec<RawDelivery>) -> Result<()> {
        let proofs: Vec<_> = deliveries.iter().map(|held| held.proof).collect();
        let mut table = self.0.table().await?;
        let settled = table.settle(&proofs).await?;
        self.0.put_back(table);
        if settled.len() == proofs.len() { Ok(()) } else { Err("a lease was lost".into()) }
    }

    async fn settle_then(
        &self,
        deliveries: Vec<RawDelivery>,
        payloads: Vec<Bytes>,
    ) -> Result<Vec<MessageId>> {
        let proofs: Vec<_> = deliveries.iter().map(|held| held.proof).collect();
        let ids: Vec<_> = payloads.iter().map(|_| MessageId::new()).collect();
        let mut table = self.0.table().await?;
        let settled = table.settle_then(&proofs, ids.iter().copied().zip(payloads)).await?;
        self.0.put_back(table);
        self.0.pushed();
        if settled.len() == proofs.len() { Ok(ids) } else { Err("a lease was lost".into()) }
    }

    async fn source(&self, window: usize) -> Result<Fed> {
        let (deliveries, fed) = mpsc::channel(window);
        self.0.feed(window, deliveries);
        Ok(Fed(fed))
    }

    async fn remaining(&self) -> Result<u64> {
        let mut table = self.0.table().await?;
        let count = table.count().await?;
        self.0.put_back(table);
        Ok(count)
    }

    async fn close(&self) -> Result<()> {
        self.0.close().await
    }

    fn id(delivery: &RawDelivery) -> MessageId {
        MessageId::from_bytes(*delivery.proof.id.as_bytes())
    }

    fn payload(delivery: &RawDelivery) -> &[u8] {
        &delivery.payload
    }
}

impl Yardstick for Postgres {
    const NAME: &'static str = "postgres";
    const ACROSS_PROCESSES: bool = true;
    const SETTLES_THEN: bool = true;

    fn messages(scenario: Scenario) -> usize {
        match scenario {
            Scenario::PushOne | Scenario::Latency | Scenario::LatencyAcross => 200,
            Scenario::Push8 => 2_000,
            _ => 10_000,
        }
    }

    async fn place(_scratch: &Path) -> Result<String> {
        server::new_schema().await
    }

    async fn clear(url: &str) -> Result<()> {
        Table::connect(url).await?.drop_schema(url).await
    }
}

/// What the crew hands to a puller.
pub(crate) struct Fed(mpsc::Receiver<RawDelivery>);

impl Source<RawDelivery> for Fed {
    async fn next(&mut self) -> Result<RawDelivery> {
        self.0.recv().await.ok_or_else(|| "the crew gave up".into())
    }
}
