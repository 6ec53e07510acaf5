//! Faults of pulling.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyqueue::adapter::{Action, Lease, PullRequest, RawDelivery, Settlement, Token};
use anyqueue::{PartitionId, Result};
use anyqueue_conformance::Fault;
use tokio_util::sync::CancellationToken;

use crate::basic::Basic;

impl Basic {
    pub(crate) async fn faulty_pull(
        &self,
        partition: &PartitionId,
        request: PullRequest,
    ) -> Result<Vec<RawDelivery>> {
        let place = self.place(partition);
        let (start, asked) = (Instant::now(), request.clone());
        let mut got = self.phantoms(&place, &request);
        if got.is_empty() {
            got = self.pull_in_its_way(&place, request).await?;
        }
        if self.is(Fault::MaturedGoesFirst) {
            got.sort_by_key(|d| (std::cmp::Reverse(d.message.options().priority), d.lease.id));
        }
        for delivery in &mut got {
            self.disguise(delivery, partition, start, &asked);
        }
        self.remember(&got);
        self.as_stored(got).await
    }

    async fn pull_in_its_way(
        &self,
        place: &PartitionId,
        mut request: PullRequest,
    ) -> Result<Vec<RawDelivery>> {
        match self.fault {
            Some(Fault::OneTooMany) => request.max += 1,
            Some(Fault::OneByOne) => request.max = 1,
            Some(Fault::LargeMaxEmpty) if request.max > 10 => return Ok(Vec::new()),
            Some(Fault::WaitHalved) => request.wait /= 2,
            Some(Fault::ZeroWaits) if request.wait.is_zero() => request.wait = Duration::from_secs(4),
            Some(Fault::IgnoresStop) => request.stop = CancellationToken::new(),
            Some(Fault::LeaseNeverExpires) => request.lease = Duration::from_hours(1),
            Some(Fault::LeaseHalved) => request.lease /= 2,
            Some(Fault::FillsUp) => return self.fill_up(place, request).await,
            Some(Fault::WaitMultiplied) => return self.wait_per_level(place, request).await,
            Some(Fault::SleepsThroughPush) => return self.sleep_through(place, request).await,
            Some(Fault::WaitersGiveUp) => return self.give_up(place, request).await,
            Some(Fault::HeldLocally) => return self.pull_and_let_go(place, request).await,
            Some(Fault::LeaseEndedByItsHolder) => return self.pull_and_watch(place, request).await,
            Some(Fault::AutoAck) => return self.auto_ack(place, request).await,
            Some(Fault::DeadKeepGroups) => return self.one_per_group(place, request).await,
            Some(Fault::Prefetches) => return self.prefetch(place, request).await,
            Some(Fault::StoppedPullLoses) => return self.lose_if_stopped(place, request).await,
            Some(Fault::SearchesBacklog) => self.search(place).await,
            Some(Fault::DelayBlocks) => self.wait_for_delayed(place, &request).await,
            Some(Fault::PauseLocal) if self.local().paused.contains(place) => {
                tokio::time::sleep(request.wait).await;
                return Ok(Vec::new());
            }
            Some(Fault::ResumeDoesNotWake) if self.pauser()?.is_paused(place).await? => {
                tokio::time::sleep(request.wait).await;
                return Ok(Vec::new());
            }
            _ => {}
        }
        self.inner.pull(place, request).await
    }

    /// Takes as long as a backend that looks at every message to find the best one.
    async fn search(&self, place: &PartitionId) {
        let counts = match self.inner.inspect() {
            Some(inspect) => inspect.counts(place).await.unwrap_or_default(),
            None => anyqueue::Counts::default(),
        };
        let ready = u32::try_from(counts.ready.unwrap_or_default()).unwrap_or(u32::MAX);
        tokio::time::sleep(Duration::from_micros(50) * ready).await;
    }

    /// Returns copies that should not exist, each of them once.
    fn phantoms(&self, place: &PartitionId, request: &PullRequest) -> Vec<RawDelivery> {
        let mut memory = self.shared.lock();
        let mut got = Vec::new();
        while got.len() < request.max
            && let Some(index) = memory.phantoms.iter().position(|(partition, _)| partition == place)
        {
            let (partition, message) = memory.phantoms.swap_remove(index);
            let lease = Lease { partition, id: message.id(), token: Token::random() };
            memory.phantom_leases.insert(lease.clone());
            let until = Instant::now() + request.lease;
            got.push(RawDelivery::new(lease, message).with_lease_until(until).with_delivery_count(1));
        }
        got
    }

    /// Hides what the fault changed at the push, and makes the changes that it makes to deliveries.
    fn disguise(
        &self,
        delivery: &mut RawDelivery,
        partition: &PartitionId,
        start: Instant,
        asked: &PullRequest,
    ) {
        delivery.lease.partition = partition.clone();
        let id = delivery.lease.id;
        let mut memory = self.shared.lock();
        if let Some(original) = memory.originals.get(&id) {
            let options = original.options().clone();
            delivery.message = delivery.message.clone().with_options(options);
        }
        match self.fault {
            Some(Fault::LeaseNeverExpires | Fault::LeaseHalved | Fault::LeaseEndedByItsHolder) => {
                delivery.lease_until = Some(start + asked.lease);
            }
            Some(Fault::LeaseUntilTooLate) => {
                delivery.lease_until = Some(start + asked.wait + asked.lease * 2);
            }
            Some(Fault::CountStuck) => delivery.delivery_count = Some(1),
            Some(Fault::AgeZero) => delivery.age = Duration::ZERO,
            Some(Fault::MoveKeepsCount) => {
                let added = memory.added.get(&id).copied().unwrap_or_default();
                delivery.delivery_count = delivery.delivery_count.map(|count| count + added);
            }
            _ => {}
        }
        if let Some(count) = delivery.delivery_count {
            memory.counts.insert(id, count);
        }
    }

    fn remember(&self, got: &[RawDelivery]) {
        let leases: Vec<Lease> = got.iter().map(|delivery| self.place_lease(&delivery.lease)).collect();
        let mut memory = self.shared.lock();
        for (lease, delivery) in leases.iter().zip(got) {
            memory.owners.insert(lease.id, lease.clone());
            memory.sizes.insert(lease.id, delivery.message.payload().len());
            if self.is(Fault::DedupUntilDelivery) {
                memory.keys.retain(|_, first| *first != lease.id);
            }
            if self.is(Fault::LeasePerBatch) {
                memory.batches.insert(lease.clone(), leases.clone());
            }
            if self.is(Fault::SharedDelivery) && !memory.phantom_leases.contains(lease) {
                memory.phantoms.push((lease.partition.clone(), delivery.message.clone()));
            }
        }
    }

    async fn fill_up(&self, place: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        let deadline = Instant::now() + request.wait;
        let mut got = Vec::new();
        loop {
            let mut next = request.clone();
            next.max = request.max - got.len();
            next.wait = deadline.saturating_duration_since(Instant::now());
            let over = next.wait.is_zero();
            got.extend(self.inner.pull(place, next).await?);
            if got.len() >= request.max || over || request.stop.is_cancelled() {
                return Ok(got);
            }
        }
    }

    async fn wait_per_level(&self, place: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        for _ in 0..self.inner.capabilities().priority_levels {
            let got = self.inner.pull(place, request.clone()).await?;
            if !got.is_empty() || request.wait.is_zero() || request.stop.is_cancelled() {
                return Ok(got);
            }
        }
        Ok(Vec::new())
    }

    async fn sleep_through(&self, place: &PartitionId, mut request: PullRequest) -> Result<Vec<RawDelivery>> {
        let wait = std::mem::take(&mut request.wait);
        let stop = request.stop.clone();
        let got = self.inner.pull(place, request).await?;
        if got.is_empty() && !wait.is_zero() {
            let _ = tokio::time::timeout(wait, stop.cancelled()).await;
        }
        Ok(got)
    }

    async fn give_up(&self, place: &PartitionId, mut request: PullRequest) -> Result<Vec<RawDelivery>> {
        let wait = std::mem::take(&mut request.wait);
        let mut pushed = std::pin::pin!(self.shared.pushed.notified());
        pushed.as_mut().enable();
        let got = self.inner.pull(place, request.clone()).await?;
        if !got.is_empty() || wait.is_zero() {
            return Ok(got);
        }
        let _ = tokio::time::timeout(wait, pushed).await;
        self.inner.pull(place, request).await
    }

    async fn auto_ack(&self, place: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        let got = self.inner.pull(place, request).await?;
        self.inner.settle(&settlements(&got, &Action::Remove)).await;
        Ok(got)
    }

    async fn one_per_group(&self, place: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        let got = self.inner.pull(place, request).await?;
        let mut groups = HashSet::new();
        let (kept, others): (Vec<_>, Vec<_>) = got.into_iter().partition(|delivery| {
            let group = delivery.message.options().group.clone();
            !place.is_dead_letters() || group.is_none_or(|group| groups.insert(group))
        });
        self.inner.settle(&settlements(&others, &Action::Release)).await;
        Ok(kept)
    }

    async fn prefetch(&self, place: &PartitionId, mut request: PullRequest) -> Result<Vec<RawDelivery>> {
        let held = std::mem::take(&mut self.local().prefetched);
        let (mut got, others): (Vec<_>, Vec<_>) = held.into_iter().partition(|d| d.lease.partition == *place);
        self.local().prefetched = others;
        if got.is_empty() {
            request.max += 1;
            let max = request.max - 1;
            got = self.inner.pull(place, request).await?;
            if got.len() > max {
                self.local().prefetched.extend(got.drain(max..));
            }
        }
        Ok(got)
    }

    async fn lose_if_stopped(&self, place: &PartitionId, request: PullRequest) -> Result<Vec<RawDelivery>> {
        let stop = request.stop.clone();
        let mut zombie = request.clone();
        zombie.stop = CancellationToken::new();
        let got = self.inner.pull(place, request).await?;
        if !stop.is_cancelled() {
            return Ok(got);
        }
        self.inner.settle(&settlements(&got, &Action::Remove)).await;
        let (inner, place) = (self.inner.clone(), place.clone());
        tokio::spawn(async move {
            if let Ok(got) = inner.pull(&place, zombie).await {
                inner.settle(&settlements(&got, &Action::Remove)).await;
            }
        });
        Ok(Vec::new())
    }

    async fn wait_for_delayed(&self, place: &PartitionId, request: &PullRequest) {
        let now = Instant::now();
        let until = {
            let mut memory = self.shared.lock();
            memory.delayed.retain(|(_, at)| *at > now);
            memory.delayed.iter().filter(|(partition, _)| partition == place).map(|(_, at)| *at).min()
        };
        if let Some(until) = until {
            let wait = until.saturating_duration_since(now).min(request.wait);
            let _ = tokio::time::timeout(wait, request.stop.cancelled()).await;
        }
    }
}

fn settlements(got: &[RawDelivery], action: &Action) -> Vec<Settlement> {
    got.iter().map(|delivery| Settlement::new(delivery.lease.clone(), action.clone())).collect()
}
