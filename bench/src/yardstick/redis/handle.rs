//! The connections, and the calls on them.

use std::time::{Duration, Instant};

use anyqueue::{Bytes, MessageId};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio::sync::mpsc;

use super::delivery::RawDelivery;
use super::request::Request;
use super::script;
use crate::client::{LEASE, Result};

pub(super) struct Handle {
    pub(super) connection: MultiplexedConnection,
    /// The connection on which waiting calls block; one at a time, since one hint is enough.
    pub(super) blocking: tokio::sync::Mutex<MultiplexedConnection>,
    pub(super) scripts: script::Hashes,
    pub(super) requests: mpsc::Sender<Request>,
}

fn call(hash: &str) -> Cmd {
    let mut cmd = redis::cmd("EVALSHA");
    cmd.arg(hash).arg(0);
    cmd
}

impl Handle {
    pub(super) async fn run(&self, cmd: &Cmd) -> RedisResult<Value> {
        self.connection.clone().send_packed_command(cmd).await
    }

    pub(super) async fn store(&self, payloads: Vec<Bytes>) -> Result<Vec<MessageId>> {
        let mut cmd = call(&self.scripts.push);
        let ids: Vec<_> = payloads.iter().map(|_| MessageId::new()).collect();
        for (id, payload) in ids.iter().zip(&payloads) {
            cmd.arg(&id.as_bytes()[..]).arg(&payload[..]);
        }
        match self.run(&cmd).await? {
            Value::Int(stored) if usize::try_from(stored)? == ids.len() => Ok(ids),
            other => Err(format!("a push answered {other:?}").into()),
        }
    }

    /// Removes held messages, and claims up to `max`.
    pub(super) async fn cycle(
        &self,
        held: &[(MessageId, [u8; 16])],
        max: usize,
    ) -> Result<(Vec<bool>, Vec<RawDelivery>)> {
        let token = fastrand::u128(..).to_be_bytes();
        let mut cmd = call(&self.scripts.cycle);
        cmd.arg(max).arg(LEASE.as_millis().to_string()).arg(&token[..]);
        // Messages of one claim are removed together; usually there is only one claim.
        let mut held: Vec<_> = held.iter().enumerate().collect();
        held.sort_by_key(|(_, (_, token))| *token);
        for claim in held.chunk_by(|(_, (_, one)), (_, (_, other))| one == other) {
            if let Some((_, (_, token))) = claim.first() {
                cmd.arg(&token[..]).arg(claim.len());
            }
            for (_, (id, _)) in claim {
                cmd.arg(&id.as_bytes()[..]);
            }
        }
        let answer: (Vec<u8>, Vec<Bytes>, Vec<Bytes>, Vec<Option<u32>>) =
            redis::from_redis_value(self.run(&cmd).await?)?;
        let (settled, ids, payloads, counts) = answer;
        let mut counts = counts.into_iter();
        let delivery = |(id, payload): (Bytes, Bytes)| {
            let id = MessageId::from_bytes(<[u8; 16]>::try_from(&id[..]).map_err(|_| "no id")?);
            let deliveries = counts.next().flatten().unwrap_or(0) + 1;
            Ok(RawDelivery { id, token, payload, _deliveries: deliveries })
        };
        let claimed = ids.into_iter().zip(payloads).map(delivery).collect::<Result<_>>()?;
        let mut in_order = vec![false; held.len()];
        for ((place, _), digit) in held.iter().zip(settled) {
            if let Some(settled) = in_order.get_mut(*place) {
                *settled = digit == b'1';
            }
        }
        Ok((in_order, claimed))
    }

    /// Removes messages that are held under any of these tokens, and stores a message for each one that was
    /// held.
    pub(super) async fn settle_then(
        &self,
        held: &[RawDelivery],
        payloads: &[Bytes],
    ) -> Result<Vec<MessageId>> {
        let mut cmd = call(&self.scripts.settle_then);
        let ids: Vec<_> = payloads.iter().map(|_| MessageId::new()).collect();
        for ((held, id), payload) in held.iter().zip(&ids).zip(payloads) {
            cmd.arg(&held.token[..]).arg(&held.id.as_bytes()[..]).arg(&id.as_bytes()[..]).arg(&payload[..]);
        }
        match self.run(&cmd).await? {
            Value::Int(settled) if usize::try_from(settled)? == ids.len() => Ok(ids),
            other => Err(format!("settling with successors answered {other:?}").into()),
        }
    }

    /// Waits until a push reports that the queue was empty before, or this time is over.
    pub(super) async fn wait(&self, wait: Duration) -> Result<()> {
        let until = Instant::now() + wait;
        let mut blocking = self.blocking.lock().await;
        let left = until.saturating_duration_since(Instant::now());
        let mut cmd = redis::cmd("BLPOP");
        cmd.arg(script::EXTRA).arg(left.max(Duration::from_millis(1)).as_secs_f64());
        blocking.send_packed_command(&cmd).await?;
        Ok(())
    }
}
