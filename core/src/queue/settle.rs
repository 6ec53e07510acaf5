//! Settlements on their way: joined with others, and many at once.

use std::collections::HashMap;
use std::sync::Arc;

use super::begun::Reply;
use super::coalesce::Call;
use super::delivery::{Delivery, SettleRequest, Slot};
use super::handle::Queue;
use super::shared::{SettleCall, Shared};
use crate::error::Result;
use crate::partition::PartitionId;
use crate::status::QueueMessageStatus;
use crate::storage::SettleOutcome;

/// What comes next for a stream comes with them.
impl Call for SettleCall {
    type Lane = Option<PartitionId>;
    type Request = SettleRequest;
    type Answer = Result<SettleOutcome>;

    async fn call(&self, _: &Self::Lane, requests: Vec<SettleRequest>) -> Vec<Self::Answer> {
        let (settlements, windows): (Vec<_>, Vec<_>) =
            requests.into_iter().map(|request| (request.settlement, request.window)).unzip();
        // Of several streams the first has its turn; the others' pumps see the room.
        let feed = windows.iter().flatten().next().map(|slot| slot.feed().clone());
        let is_fed = |slot: &&Arc<Slot>| feed.as_ref().is_some_and(|feed| Arc::ptr_eq(feed, slot.feed()));
        let settling = windows.iter().flatten().filter(is_fed).count();
        let Some(mut refill) = feed.as_ref().and_then(|feed| feed.refill(settling, &settlements)) else {
            return self.0.settle(&settlements).await;
        };
        let call = self.0.exchange(&settlements, refill.partition(), refill.request());
        let (answers, pulled) = refill.made(call).await;
        match pulled {
            Ok(deliveries) => {
                let settled = windows.iter().zip(&answers).filter(|(_, answer)| answer.is_ok());
                let slots = settled.filter_map(|(slot, _)| slot.as_ref()).filter(is_fed);
                refill.deliver(deliveries, slots.filter_map(|slot| slot.pass_on()).collect());
            }
            // The pump sees the room, and meets the error itself if it lasts.
            Err(error) => {
                drop(refill);
                tracing::debug!(%error, "a settlement brought no deliveries");
            }
        }
        self.0.settle_failed(&settlements, answers).await
    }

    fn size(&self, _: &SettleRequest) -> u64 {
        0
    }
}

impl Queue {
    /// Settles many deliveries in as few calls as the backend allows; what others settle meanwhile may share them. One result per
    /// delivery, in order, as [`Delivery::settle`] would give; what failed can be settled again.
    ///
    /// # Cancellation
    /// Once polled, all of it is carried through.
    pub async fn settle_many<'a>(
        &self,
        deliveries: impl IntoIterator<Item = (&'a mut Delivery, QueueMessageStatus)>,
    ) -> Vec<Result<SettleOutcome>> {
        let mut deliveries: Vec<_> =
            deliveries.into_iter().map(|(handler, status)| (handler, status, None)).collect();
        let mut lanes: HashMap<_, (Vec<_>, Vec<_>)> = HashMap::new();
        for (handler, status, refused) in &mut deliveries {
            match handler.prepare(status.clone()) {
                Ok(Some(request)) => {
                    self.0.deliveries.note(request.settlement.lease.id, &request.settlement.action);
                    let lane = self.0.settle_lane(&request.settlement.lease.partition);
                    let (handlers, requests) = lanes.entry(lane).or_default();
                    handlers.push(handler);
                    requests.push(request);
                }
                Ok(None) => {}
                Err(error) => *refused = Some(error),
            }
        }
        for (lane, (handlers, requests)) in lanes {
            let replies = self.0.settler.submit_many(&self.0.exec, lane, requests);
            for (handler, reply) in handlers.into_iter().zip(replies) {
                handler.begun(reply);
            }
        }
        let mut outcomes = Vec::with_capacity(deliveries.len());
        for (handler, status, refused) in deliveries {
            outcomes.push(match refused {
                None => handler.outcome(&status).await,
                Some(error) => Err(error),
            });
        }
        outcomes
    }
}

impl Shared {
    /// Hands a settlement over, and returns where its outcome will arrive.
    pub(super) fn hand_over(&self, request: SettleRequest) -> Reply {
        self.deliveries.note(request.settlement.lease.id, &request.settlement.action);
        let lane = self.settle_lane(&request.settlement.lease.partition);
        self.settler.submit(&self.exec, lane, request)
    }
}
