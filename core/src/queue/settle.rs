//! Handing settlements over: joined with others, and many at once.

use std::collections::HashMap;
use std::sync::Arc;

use super::begun::{Reply, Wanted};
use super::coalesce::Call;
use super::delivery::{Delivery, SettleRequest, Slot};
use super::handle::Queue;
use super::shared::{SettleCall, Shared};
use super::successors::Successors;
use crate::error::Result;
use crate::partition::PartitionId;
use crate::status::QueueMessageStatus;
use crate::storage::SettleOutcome;

/// Settlements may bring a stream's next deliveries.
impl Call for SettleCall {
    type Lane = Option<PartitionId>;
    type Request = SettleRequest;
    type Answer = Result<SettleOutcome>;

    async fn call(&self, _: &Self::Lane, requests: Vec<SettleRequest>) -> Vec<Self::Answer> {
        let (settlements, windows): (Vec<_>, Vec<_>) =
            requests.into_iter().map(|request| (request.settlement, request.window)).unzip();
        // If several streams are concerned, the first one gets its turn; the pumps of the others see the
        // room.
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

    fn size(&self, request: &SettleRequest) -> u64 {
        request.bytes
    }
}

impl Queue {
    /// Settles many deliveries in as few calls as the backend allows; settlements of other tasks may share
    /// these calls. Returns one result per delivery, in order, as [`Delivery::settle`] would; a settlement
    /// that failed can be repeated.
    ///
    /// # Cancellation
    /// Once polled, all settlements are completed even if the future is dropped.
    pub async fn settle_many<'a>(
        &self,
        deliveries: impl IntoIterator<Item = (&'a mut Delivery, QueueMessageStatus)>,
    ) -> Vec<Result<SettleOutcome>> {
        let mut all = Vec::new();
        for (delivery, status) in deliveries {
            all.push((delivery, status, Successors::new()));
        }
        self.settle_all(all).await
    }

    /// Like [`settle_many`](Self::settle_many), with messages to store along with the end of each delivery:
    /// see [`Delivery::settle_with`].
    ///
    /// # Cancellation
    /// Once polled, all settlements are completed even if the future is dropped.
    pub async fn settle_many_with<'a>(
        &self,
        deliveries: impl IntoIterator<Item = (&'a mut Delivery, QueueMessageStatus, Successors)>,
    ) -> Vec<Result<SettleOutcome>> {
        self.settle_all(deliveries.into_iter().collect()).await
    }

    async fn settle_all(
        &self,
        deliveries: Vec<(&mut Delivery, QueueMessageStatus, Successors)>,
    ) -> Vec<Result<SettleOutcome>> {
        let mut settling = Vec::with_capacity(deliveries.len());
        let mut lanes: HashMap<_, (Vec<_>, Vec<_>)> = HashMap::new();
        for (delivery, status, successors) in deliveries {
            let wanted = Wanted { status, successors: successors.ids() };
            let prepared = delivery.prepare(&wanted, successors);
            let place = settling.len();
            let refused = match prepared {
                Ok(Some(request)) => {
                    self.0.deliveries.note(request.settlement.lease.id, &request.settlement.action);
                    let lane = self.0.settle_lane(&request.settlement.lease.partition);
                    let (places, requests) = lanes.entry(lane).or_default();
                    places.push(place);
                    requests.push(request);
                    None
                }
                Ok(None) => None,
                Err(error) => Some(error),
            };
            settling.push((delivery, wanted, refused));
        }
        for (lane, (places, requests)) in lanes {
            let replies = self.0.settler.submit_many(&self.0.exec, lane, requests);
            for (place, reply) in places.into_iter().zip(replies) {
                if let Some((delivery, ..)) = settling.get_mut(place) {
                    delivery.begun(reply);
                }
            }
        }
        let mut outcomes = Vec::with_capacity(settling.len());
        for (delivery, wanted, refused) in settling {
            outcomes.push(match refused {
                None => delivery.outcome(&wanted).await,
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
